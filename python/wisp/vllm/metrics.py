"""What GET /wisp/status says, and how the switches went, for those who read vLLM's GET /metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from .. import _native

__all__ = ["SwitchMetrics", "show_metrics"]

#: As `wisp follow --metrics` names them, where it has them too.
_GAUGES = (
    ("wisp_replica_step", "served", "The step that all engines of this server have reached"),
    ("wisp_replica_seq", "served_seq", "The commit of that step"),
    ("wisp_replica_lag_steps", "behind", "States between the feed of this host and the head"),
    ("wisp_staged_step", "staged", "The newest step that all ranks could switch to"),
    ("wisp_head_step", "head", "The newest step that this host has"),
    ("wisp_stale", "expired", "1 when the newest commit has expired"),
)
_SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class SwitchMetrics:
    """How the switches of one server went. Told by one thread at a time, read by any."""

    def __init__(self) -> None:
        self.applied = 0
        self.failed = 0
        self.succeeded_at: float | None = None
        self.pause_sum = 0.0
        self._pauses = [0] * (len(_SECONDS) + 1)

    def switched(self, pause_seconds: float) -> None:
        """All engines serve the next step."""
        self.applied += 1
        self.pause_sum += pause_seconds
        at = next((i for i, most in enumerate(_SECONDS) if pause_seconds <= most), len(_SECONDS))
        self._pauses[at] += 1
        self.succeeded_at = time.time()

    def refused(self) -> None:
        """An engine did not switch."""
        self.failed += 1

    def families(self) -> Iterable[Any]:
        """What Prometheus is told of it."""
        yield CounterMetricFamily("wisp_applied", "Moves by deltas", value=self.applied)
        yield CounterMetricFamily("wisp_faults", "Switches that failed", value=self.failed)
        seen, buckets = 0, []
        for most, count in zip((*map(str, _SECONDS), "+Inf"), self._pauses, strict=True):
            seen += count
            buckets.append((most, seen))
        yield HistogramMetricFamily(
            "wisp_server_pause_seconds", "How long a server did not generate",
            buckets=buckets, sum_value=self.pause_sum,
        )  # fmt: skip
        if self.succeeded_at is not None:
            yield GaugeMetricFamily(
                "wisp_last_success_timestamp_seconds",
                "When this program last did what it is for, since 1970",
                value=self.succeeded_at,
            )


class _StatusCollector(Collector):  # type: ignore[misc]
    def __init__(self, status: Callable[[], dict[str, Any]], switches: SwitchMetrics) -> None:
        self._status = status
        self._switches = switches

    def describe(self) -> Iterable[Any]:
        return []  # else registering would ask for the status

    def collect(self) -> Iterable[Any]:
        info = GaugeMetricFamily(
            "wisp_build_info", "1, with the version of this program as labels",
            labels=["version", "commit"],
        )  # fmt: skip
        info.add_metric([_native.version, ""], 1)
        yield info
        status = self._status()
        for name, field, meaning in _GAUGES:
            if status.get(field) is not None:
                yield GaugeMetricFamily(name, meaning, value=float(status[field]))
        yield from self._switches.families()


def show_metrics(status: Callable[[], dict[str, Any]], switches: SwitchMetrics) -> None:
    """From now on. Servers with several API processes show those of vLLM alone."""
    REGISTRY.register(_StatusCollector(status, switches))
