"""verl's vLLM rollouts with wisp's plugin: they stage a step while serving, and switch.

    actor_rollout_ref.rollout:
      checkpoint_manager_class: wisp.verl.rollout_servers.WispCheckpointEngineManager
      engine_kwargs: {vllm: {weight_transfer_config: {backend: wisp}}}

Nothing is aborted, no cache is released, and no tensor passes through verl's workers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ..engine import Driver
from ..errors import InvalidError
from ..frameworks.refit import RefitSettings
from ..frameworks.seams import find_seam
from ..frameworks.server_switch import ServerSwitch
from .checkpoint_engine import BACKEND, TESTED

__all__ = ["WispCheckpointEngineManager"]

(CheckpointEngineManager,) = find_seam(
    "verl", TESTED, "verl.checkpoint_engine.base", "CheckpointEngineManager"
)
(auto_await,) = find_seam("verl", TESTED, "verl.utils.ray_utils", "auto_await")


class WispCheckpointEngineManager(CheckpointEngineManager):  # type: ignore[misc,valid-type]
    """Has the actor publish, waits until the servers have staged the step, and switches them.

    A server that is dead or slow is left behind and brought to the newest step when it is back; if
    none takes the step within `timeout` seconds, UnavailableError is raised.
    """

    def __init__(self, config: Any, actor_wg: Any, replicas: list[Any]) -> None:
        super().__init__(config, actor_wg, replicas)
        if config.backend != BACKEND:
            raise InvalidError(
                f"checkpoint_engine.backend is {config.backend!r}; with this "
                f"checkpoint_manager_class it is {BACKEND!r}"
            )
        self.settings = RefitSettings.of(
            f"checkpoint_engine.engine_kwargs.{BACKEND}", config.engine_kwargs.get(BACKEND, {})
        )
        self.server_switch = ServerSwitch(self._make_driver, patience=float(self.settings.timeout))

    @auto_await  # type: ignore[untyped-decorator]
    async def update_weights(self, global_steps: int | None = None) -> dict[str, Any]:
        """Returns when each replica serves the step, or is left behind."""
        told = await asyncio.gather(
            *self.actor_wg.update_weights(global_steps=global_steps, mode=self.backend)
        )
        figures: dict[str, Any] = {}
        for said in told:
            figures.update(said or {})
        step, state = int(figures["wisp/step"]), str(figures["wisp/seq"])
        await asyncio.to_thread(
            self.server_switch.switch_to, self.settings.seen_by_rollouts, step, state
        )
        reports = self.server_switch.reports
        served = {report.url for report in reports if report.ok}
        await asyncio.gather(
            *(
                server.set_global_steps.remote(step)
                for replica in self.replicas if url_of(replica) in served
                for server in replica.servers
            ),
            return_exceptions=True,
        )  # fmt: skip
        figures["wisp/servers"] = len(served)
        figures["wisp/pause_seconds"] = max(report.pause_seconds for report in reports)
        return figures

    def add_replicas(self, replicas: list[Any]) -> None:
        """They are brought to the newest step by the next update_weights()."""
        super().add_replicas(replicas)
        self.server_switch.close()

    def remove_replicas(self, replicas: list[Any]) -> None:
        """They serve on, and are driven no more."""
        super().remove_replicas(replicas)
        self.server_switch.close()

    def _make_driver(self, run: str) -> Driver:
        told = self.settings
        return Driver(
            run,
            [url_of(replica) for replica in self.replicas],
            mode=told.mode,
            timeout=float(told.timeout),
            trust=told.trust or None,
            min_serial=told.min_serial,
            run_id=told.run_id,
            api_key=told.api_key,
            on_report=self.server_switch.note,
        )


def url_of(replica: Any) -> str:
    """The base URL of a replica's server."""
    return f"http://{replica.server_address}"
