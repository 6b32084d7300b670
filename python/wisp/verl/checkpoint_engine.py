"""verl's checkpoint engine: weights from the ranks of its actor to those of its rollouts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from ..errors import InvalidError
from ..frameworks.refit import Refit, RefitSettings, drain
from ..frameworks.seams import find_seam, require_methods
from ..publish.publisher import PublishStats

__all__ = ["BACKEND", "TESTED", "WispCheckpointEngine"]

BACKEND = "wisp"
TESTED = "0.9.1"
_SETTINGS = f"checkpoint_engine.engine_kwargs.{BACKEND}"

CheckpointEngine, CheckpointEngineRegistry = find_seam(
    "verl", TESTED, "verl.checkpoint_engine.base", "CheckpointEngine", "CheckpointEngineRegistry"
)


class WispCheckpointEngine(CheckpointEngine):  # type: ignore[misc,valid-type]
    """The master publishes what it is handed; rollouts yield the tensors that a step touched.

    bucket_size, is_master: verl's own. Everything else is in wisp.frameworks.refit.RefitSettings.
    """

    wire_format = "named_tensors"

    def __init__(self, bucket_size: int = 0, is_master: bool = False, **settings: Any) -> None:
        self.is_master = is_master
        self._refit = Refit(RefitSettings.of(_SETTINGS, settings))
        self._after = 0

    def prepare(self) -> dict[str, Any]:
        """Before each sync, on every rank: where the run stands."""
        told: dict[str, Any] = {"run": self._refit.settings.run}
        if self.is_master:
            told["seq"], _ = self._refit.newest()
        return told

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Tells all ranks after which commit the step comes; there is nothing to connect."""
        runs = sorted({str(told.get("run")) for told in metadata})
        if len(runs) > 1:
            raise InvalidError(f"actor and rollouts have different runs: {', '.join(runs)}")
        masters = [told["seq"] for told in metadata[:actor_wg_world_size] if "seq" in told]
        if len(masters) != 1:
            raise InvalidError(
                f"{len(masters)} ranks of the actor say that they are the master; one publishes"
            )
        return (
            {"after": masters * actor_wg_world_size},
            {"after": masters * rollout_world_size},
        )

    def init_process_group(self, after: int) -> None:
        """What build_topology tells."""
        self._after = after

    async def send_weights(
        self, weights: Iterable[tuple[str, Any]], global_steps: int | None = None
    ) -> dict[str, float]:
        """Returns when the step is committed, with figures for the trainer's log."""
        if not self.is_master:
            drain(weights)
            return {}
        return figures_of(self._refit.send(weights, global_steps))

    async def receive_weights(
        self, global_steps: int | None = None
    ) -> AsyncIterator[tuple[str, Any]]:
        """The tensors that the step touched, each valid until the next is asked for."""
        async for batch in self._refit.receive(global_steps, after=self._after):
            for entry in batch:
                yield entry

    def finalize(self) -> None:
        """After each sync: run and replica are kept for the next one."""


def figures_of(stats: PublishStats) -> dict[str, float]:
    """What a trainer logs of a committed step."""
    return {
        "wisp/step": stats.step, "wisp/seq": stats.seq, "wisp/changed": stats.changed,
        "wisp/bytes": stats.bytes, "wisp/diff_seconds": stats.diff_seconds,
        "wisp/upload_seconds": stats.upload_seconds,
    }  # fmt: skip


require_methods("verl", TESTED, WispCheckpointEngine)
CheckpointEngineRegistry.register(BACKEND)(WispCheckpointEngine)
