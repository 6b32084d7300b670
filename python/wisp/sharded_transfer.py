"""TRL's weight sync for models sharded by FSDP2: every rank publishes its rows, none gathers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .bucket_transfer import BucketWeightTransfer, sender_of
from .errors import Error, Fenced, Invalid, Unsupported
from .stores import RunAddress


class ShardedBucketWeightTransfer(BucketWeightTransfer):
    """For a model sharded by FSDP2, without full_tensor(): each rank publishes its own rows.

        transfer = ShardedBucketWeightTransfer("s3://bucket/run", servers=[...])
        trainer = AsyncGRPOTrainer(..., weight_transfer=transfer)
        transfer.attach(trainer)

    on every rank. Options are those of BucketWeightTransfer and wisp.ShardedPublisher; the main
    process alone drives the servers.
    """

    def __init__(self, run: RunAddress, servers: Sequence[str] = (), **options: Any) -> None:
        super().__init__(run, servers, **options)
        self._trainer: Any = None
        self._tensors: dict[str, Any] = {}
        self._committed = False

    def attach(self, trainer: Any) -> ShardedBucketWeightTransfer:
        """Takes the place of the trainer's gather. To be called on every rank, before train().

        TRL walks `_streaming_iter()` on every rank, for the collectives in it, and hands it to
        send_weights() on the main one: here it is the round of wisp.ShardedPublisher instead.
        """
        if not hasattr(trainer, "_streaming_iter") or not hasattr(trainer, "model_version"):
            raise Unsupported(
                f"{type(trainer).__name__} has not the weight sync of TRL's AsyncGRPOTrainer; use "
                "BucketWeightTransfer, or wisp.hf.PublishCallback"
            )
        self._trainer = trainer
        trainer._streaming_iter = self._publish_shards
        return self

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        if sender_of(iterator) is not self:
            raise Invalid("call attach(trainer) on every rank, before train()")
        for _ in iterator:
            pass
        if self._committed:
            self._drive()

    def _publish_shards(self) -> Iterator[tuple[str, Any]]:
        from accelerate.utils import broadcast_object_list

        trainer = self._trainer
        model = trainer.accelerator.unwrap_model(trainer.model)
        self._tensors.clear()
        self._tensors.update(_checkpoint_parameters(trainer, model))
        # The main process alone counts.
        step = broadcast_object_list([trainer.model_version + 1], from_process=0)[0]
        if self.publisher is None:
            self.publisher = self._open(trainer)
            if trainer.accelerator.is_main_process:
                self._warn_of_rewind(step)
        self._committed = self._publish(step)
        yield from ()

    def _open(self, sender: Any) -> Any:
        from .sharded import ShardedPublisher

        main = sender.accelerator.is_main_process
        options = self._with_side_files(sender) if main else self._options
        waiting = {"background": False, "on_error": "raise"}
        return ShardedPublisher(
            self._run, self._tensors, dtype=self._dtype, **waiting, **options
        )

    def _publish(self, step: int | None) -> bool:
        try:
            self._note_commit(self.publisher.publish(step))
        except (Fenced, Invalid):
            raise
        except Error as error:
            return self._not_published(step, error)
        return True

    def _close_publisher(self) -> None:
        # Nothing is under way, and TRL's barrier has seen to it that no rank waits for this one.
        self.publisher = None


def _checkpoint_parameters(trainer: Any, model: Any) -> dict[str, Any]:
    """What TRL would send, under the names it would give, not gathered."""
    for kind in type(trainer).__mro__:
        named = getattr(sys.modules.get(kind.__module__), "_iter_vllm_named_params", None)
        if named is not None:
            return dict(named(model))
    raise Unsupported("this TRL names its weights in another way; use BucketWeightTransfer")
