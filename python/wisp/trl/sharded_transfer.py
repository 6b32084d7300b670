"""TRL's weight sync for models sharded by FSDP2: every rank publishes its rows, none gathers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..errors import InvalidError, UnsupportedError
from ..sharded import ShardedPublisher, ShardedReport
from ..stores import RunAddress
from .bucket_transfer import BucketWeightTransfer, PublishHooks, sender_of


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
        # Nothing is under way between syncs, and TRL's barrier has seen to it that no rank waits
        # for this one: there is nothing to close.
        self._hooks = PublishHooks(self._open_shards, self._commit_shards, lambda: None)
        self._trainer: Any = None
        self._tensors: dict[str, Any] = {}
        self._committed = False

    def attach(self, trainer: Any) -> ShardedBucketWeightTransfer:
        """Takes the place of the trainer's gather. To be called on every rank, before train().

        TRL walks `_streaming_iter()` on every rank, for the collectives in it, and hands it to
        send_weights() on the main one: here it is the round of wisp.ShardedPublisher instead.
        """
        if not hasattr(trainer, "_streaming_iter") or not hasattr(trainer, "model_version"):
            raise UnsupportedError(
                f"{type(trainer).__name__} has not the weight sync of TRL's AsyncGRPOTrainer; use "
                "BucketWeightTransfer, or wisp.hf.PublishCallback"
            )
        self._trainer = trainer
        trainer._streaming_iter = self._publish_shards
        return self

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        if sender_of(iterator) is not self:
            raise InvalidError("call attach(trainer) on every rank, before train()")
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
        self._open(trainer, step if trainer.accelerator.is_main_process else None)
        self._committed = self._publish(step)
        yield from ()

    def _open_shards(self, sender: Any) -> ShardedPublisher:
        main = sender.accelerator.is_main_process
        options = self._with_side_files(sender) if main else self._options
        return ShardedPublisher(
            self._run,
            self._tensors,
            dtype=self._dtype,
            background=False,
            on_error="raise",
            **options,
        )

    def _commit_shards(self, step: int | None) -> ShardedReport:
        assert isinstance(self.publisher, ShardedPublisher)
        report = self.publisher.publish(step)
        assert report is not None  # with on_error="raise" and background=False
        return report


def _checkpoint_parameters(trainer: Any, model: Any) -> dict[str, Any]:
    """What TRL would send, under the names it would give, not gathered."""
    for kind in type(trainer).__mro__:
        named = getattr(sys.modules.get(kind.__module__), "_iter_vllm_named_params", None)
        if named is not None:
            return dict(named(model))
    raise UnsupportedError("this TRL names its weights in another way; use BucketWeightTransfer")
