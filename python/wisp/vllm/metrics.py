"""What GET /wisp/status says, for those who read vLLM's GET /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["show_metrics"]

#: As `wisp follow --metrics` names them, where it has them too.
_GAUGES = (
    ("wisp_replica_step", "served", "The step that all engines of this server have reached"),
    ("wisp_replica_seq", "served_seq", "The commit of that step"),
    ("wisp_replica_lag_steps", "behind", "States between the feed of this host and the head"),
    ("wisp_staged_step", "staged", "The newest step that all ranks could switch to"),
    ("wisp_head_step", "head", "The newest step that this host has"),
    ("wisp_stale", "expired", "1 when the newest commit has expired"),
)


class _StatusCollector(Collector):  # type: ignore[misc]
    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def describe(self) -> Iterable[Any]:
        return []  # else registering would ask for the status

    def collect(self) -> Iterable[GaugeMetricFamily]:
        status = self._status()
        for name, field, meaning in _GAUGES:
            if status.get(field) is not None:
                yield GaugeMetricFamily(name, meaning, value=float(status[field]))


def show_metrics(status: Callable[[], dict[str, Any]]) -> None:
    """From now on. Servers with several API processes show those of vLLM alone."""
    REGISTRY.register(_StatusCollector(status))
