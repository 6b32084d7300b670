"""NeMo-RL with vLLM rollouts that take their weights from a run. See doc/frameworks/nemo_rl.md.

policy.generation:
  refit_transport: "wisp.nemo_rl:WispCheckpointEngine"
  refit_cfg:
    "wisp.nemo_rl:WispCheckpointEngine": {run: "s3://bucket/run"}
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from .errors import InvalidError
from .frameworks.refit import Refit, RefitSettings, drain
from .frameworks.seams import find_seam, require_methods

__all__ = ["WispCheckpointEngine"]

TESTED = "0.8 (its published contract)"
_SETTINGS = 'refit_cfg."wisp.nemo_rl:WispCheckpointEngine"'

(CheckpointEngine,) = find_seam(
    "nemo_rl", TESTED, "nemo_rl.utils.checkpoint_engines.base", "CheckpointEngine"
)


class WispCheckpointEngine(CheckpointEngine):  # type: ignore[misc,valid-type]
    """Policy rank 0 publishes what it is handed; rollouts get the tensors that a refit touched.

    NeMo-RL numbers no refits, so each side counts its own, from the step after the run's newest
    when the two were connected. A refit that fails counts on both sides.

    bucket_size: of a batch, in bytes. Everything else is in wisp.frameworks.refit.RefitSettings.
    """

    def __init__(self, bucket_size: int, **settings: Any) -> None:
        settings.pop("release_after_refit", None)  # there are no transfer buffers
        self._batch_bytes = bucket_size
        self._refit = Refit(RefitSettings.of(_SETTINGS, settings))
        self._is_master = False
        self._after = 0
        self._next_step: int | None = None

    def prepare(self) -> dict[str, Any]:
        """Once per connection, on every rank: where the run stands."""
        seq, step = self._refit.newest()
        return {"run": self._refit.settings.run, "seq": seq, "step": step}

    def get_target_weight_layout(self) -> dict[str, Any] | None:
        """Whole tensors travel: a run serves rollouts of every layout."""
        return None

    def init_policy_process_group(
        self,
        *,
        worker_rank: int,
        train_world_size: int,
        rollout_world_size: int,
        metadata: list[Any],
    ) -> None:
        """Rank 0 publishes; all others only take part in gathering."""
        self._is_master = worker_rank == 0
        self._connect(metadata)

    def init_rollout_process_group(
        self,
        *,
        rollout_rank: int,
        train_world_size: int,
        rollout_world_size: int,
        metadata: list[Any],
    ) -> None:
        """There is nothing to connect: the feed of the host reads the run."""
        self._connect(metadata)

    def _connect(self, metadata: list[Any]) -> None:
        runs = sorted({told["run"] for told in metadata})
        if len(runs) != 1:
            raise InvalidError(f"policy and rollouts have different runs: {', '.join(runs)}")
        # As the publishing rank saw it: the others may have looked a moment earlier or later.
        self._after = metadata[0]["seq"]
        self._next_step = metadata[0]["step"] + 1

    def _take_step(self) -> int:
        if self._next_step is None:
            raise InvalidError("a refit before the process groups were initialised")
        step, self._next_step = self._next_step, self._next_step + 1
        return step

    async def send_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Returns when the refit is committed."""
        step = self._take_step()
        if self._is_master:
            self._refit.send(weights, step)
        else:
            drain(weights)

    async def receive_weight_batches(self) -> AsyncIterator[list[tuple[str, Any]]]:
        """Batches of what the refit touched, each valid until the next is asked for."""
        step = self._take_step()
        async for batch in self._refit.receive(
            step, after=self._after, batch_bytes=self._batch_bytes
        ):
            yield batch

    def finalize(self) -> None:
        """Run and replica are kept: the next connection goes on with them."""


require_methods("nemo_rl", TESTED, WispCheckpointEngine)
