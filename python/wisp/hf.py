"""Publishing from any trainer of `transformers` or TRL: GRPO, SFT, DPO and the rest.

trainer = Trainer(model, args, ..., callbacks=[PublishCallback("s3://bucket/run")])
"""

from __future__ import annotations

import functools
import logging
import sys
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from .errors import UnsupportedError
from .model.model_files import ModelFiles
from .publish.publisher import Publisher
from .stores import RunAddress
from .tensors import is_dtensor, unwrapped

__all__ = ["PublishCallback"]

logger = logging.getLogger("wisp")


class PublishCallback(TrainerCallback):  # type: ignore[misc]
    """Publishes the trainer's model after each `every` optimizer steps, and closes at the end.

    The end is also an exception out of train(), if the callback was handed to the trainer's
    constructor; one that was added later is told by watch(), or closed by close(), or when the
    process ends.

    The initial weights are published when training begins, so that rollout servers can start; the
    step is the trainer's global step. Other options are those of wisp.Publisher. The model's
    configuration goes beside full checkpoints, so that followers' folders can be loaded. With
    several processes that hold the same model the first publishes; a model sharded by FSDP2 is
    published by all ranks together (wisp.ShardedPublisher).
    """

    def __init__(self, run: RunAddress, *, every: int = 1, **options: Any) -> None:
        if every < 1:
            raise ValueError("`every` counts steps: it is at least 1")
        self.run = run
        self.every = every
        self.options = options
        self.publisher: Any = None  #: of the newest training, for its stats
        self._open: Any = None  # the same, until it is closed
        self._last: int | None = None
        self._model_files = ModelFiles()

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Trainers tell callbacks nothing of exceptions, so train() is watched."""
        trainer = _calling_trainer(self)
        if trainer is not None:
            self.watch(trainer)

    def watch(self, trainer: Any) -> None:
        """Closes when train() raises. For callbacks that are added to a trainer that is there."""
        train = trainer.train

        @functools.wraps(train)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return train(*args, **kwargs)
            except BaseException:
                self._close_after_failure()
                raise

        trainer.train = watched

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.close()  # of a training that ended without saying so
        self._last = None
        model = unwrapped(kwargs["model"])
        if _is_sharded(model):
            if self.options.get("quantize") is not None:
                raise UnsupportedError(
                    "ranks publish the rows they hold, and blocks with a scale lie "
                    "across them; leave `quantize` out to publish the weights as they are"
                )
            from .sharded import ShardedPublisher

            self.publisher = ShardedPublisher(
                self.run, model, **self._with_side_files(model, kwargs)
            )
        elif state.is_world_process_zero:
            self.publisher = Publisher(self.run, model, **self._with_side_files(model, kwargs))
        self._open = self.publisher
        self._publish(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            self._publish(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last weights are published whatever `every` says.

        With load_best_model_at_end the trainer has gone back to those of an earlier checkpoint by
        now: they are what its user keeps, and become a step of their own.
        """
        best = args is not None and args.load_best_model_at_end and state.best_model_checkpoint
        step = state.global_step
        if best and step == self._last and not str(best).endswith(f"-{step}"):
            step += 1
            logger.info("step %s of %s is the best model, %s", step, self.run, best)
        self._publish(step)
        self.close()

    def close(self) -> None:
        """Commits what was published, and lets go of the run. May be called twice."""
        publisher, self._open = self._open, None
        try:
            if publisher is not None:
                publisher.close()
        finally:
            self._model_files.remove()

    def _close_after_failure(self) -> None:
        try:
            self.close()
        except Exception as error:  # the training's own exception is on its way
            logger.error("the last steps are not in %s: %s", self.publisher.url, error)

    def _publish(self, step: int) -> None:
        if self.publisher is None or step == self._last:
            return
        self.publisher.publish(step)
        self._last = step

    def _with_side_files(self, model: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Configuration and tokenizer as files, unless the user named files."""
        if "side_files" in self.options:
            return self.options
        dtype, names = self.options.get("dtype"), self.options.get("names", "checkpoint")
        files = self._model_files.write(model, kwargs.get("processing_class"), dtype, names)
        return {**self.options, "side_files": files}


def _is_sharded(model: Any) -> bool:
    return any(is_dtensor(p) for p in model.parameters())


def _calling_trainer(callback: Any) -> Any:
    """The trainer whose constructor calls: callbacks are not told."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        handler = getattr(caller, "callback_handler", None)
        if handler is not None and callback in getattr(handler, "callbacks", ()):
            return caller
        frame = frame.f_back
    return None
