"""Metrics of a publisher for Prometheus, named as `wisp publish --metrics` names them.

    publisher = wisp.Publisher(run, model, metrics=":9400")     # a server of its own
    publisher = wisp.Publisher(run, model, metrics=True)        # into prometheus_client's registry

Needs prometheus_client (`pip install wisp[metrics]`); doc/metrics.md lists all metrics.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Union

from . import _native
from .errors import InvalidError, kind_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from .publish.publish_stats import PublishStats

__all__ = ["MetricsRule", "PublisherMetrics"]

#: True: prometheus_client's own registry, which the program serves; "host:port": served here.
MetricsRule = Union[bool, str, "CollectorRegistry"]

#: Told as 0 from the start: Prometheus sees no increase in a series that begins at 1.
FAILURES = (
    "not_found", "corrupt", "wrong_base", "denied", "unavailable", "conflict", "forked", "gap",
    "no_run", "no_space", "fenced", "invalid", "internal",
)  # fmt: skip
_SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_PHASES = ("blocked", "diff", "upload", "commit", "baseline")


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidError(
            f"'{text}' is no address for metrics; write ':9400' for every interface, or an IP "
            "address like '127.0.0.1:9400'"
        )
    return host.strip("[]") or "0.0.0.0", int(port)


class PublisherMetrics:
    """What one publisher tells. Several in a process share a registry; `run` tells them apart."""

    def __init__(self, run: str, rule: MetricsRule) -> None:
        try:
            import prometheus_client as client
        except ImportError as error:
            raise InvalidError(
                "metrics= needs prometheus_client: pip install wisp[metrics]"
            ) from error
        self._server: Any = None
        if isinstance(rule, str):
            host, port = _address(rule)
            self._registry = client.CollectorRegistry()
        else:
            self._registry = client.REGISTRY if rule is True else rule
        self._families = _families_of(self._registry)
        self._run = run
        self._families["wisp_build_info"].labels(version=_native.version, commit="").set(1)
        for reason in FAILURES:
            self._families["wisp_publish_failures"].labels(run=run, reason=reason)
        for phase in _PHASES:
            self._families["wisp_publish_seconds"].labels(run=run, phase=phase)
        for name in ("wisp_published", "wisp_uploaded_bytes"):
            self._families[name].labels(run=run)
        #: Where the metrics are, when they are served here.
        self.url: str | None = None
        if isinstance(rule, str):
            self._server, _ = client.start_http_server(port, host, self._registry)
            shown = "127.0.0.1" if host == "0.0.0.0" else host
            self.url = f"http://{shown}:{self._server.server_port}/metrics"

    def published(self, stats: PublishStats) -> None:
        """A step was committed."""
        told = self._families
        for phase in _PHASES:
            told["wisp_publish_seconds"].labels(run=self._run, phase=phase).observe(
                getattr(stats, f"{phase}_seconds")
            )
        told["wisp_published"].labels(run=self._run).inc()
        uploaded = stats.bytes + (0 if stats.kind == "anchor" else stats.anchor_bytes)
        told["wisp_uploaded_bytes"].labels(run=self._run).inc(uploaded)
        told["wisp_published_step"].labels(run=self._run).set(stats.step)
        told["wisp_last_success_timestamp_seconds"].labels(run=self._run).set(time.time())

    def failed(self, error: Exception) -> None:
        """A step did not get into the bucket, for now."""
        self._families["wisp_publish_failures"].labels(run=self._run, reason=kind_of(error)).inc()

    def close(self) -> None:
        """Ends the server, if there is one."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


_known: dict[int, tuple[Any, dict[str, Any]]] = {}


def _families_of(registry: Any) -> dict[str, Any]:
    """Of one registry once, however many publishers tell it."""
    known = _known.get(id(registry))
    if known is None or known[0] is not registry:
        known = _known[id(registry)] = (registry, _make_families(registry))
    return known[1]


def _make_families(registry: Any) -> dict[str, Any]:
    from prometheus_client import Counter, Gauge, Histogram

    def gauge(name: str, meaning: str, *labels: str) -> Any:
        return Gauge(name, meaning, labels or ("run",), registry=registry)

    def counter(name: str, meaning: str, *labels: str) -> Any:
        return Counter(name, meaning, ("run", *labels), registry=registry)

    return {
        "wisp_build_info": gauge(
            "wisp_build_info", "1, with the version of this program as labels", "version", "commit"
        ),
        "wisp_published": counter("wisp_published", "Steps published"),
        "wisp_uploaded_bytes": counter("wisp_uploaded_bytes", "Bytes written to the bucket"),
        "wisp_published_step": gauge("wisp_published_step", "The newest step published"),
        "wisp_publish_seconds": Histogram(
            "wisp_publish_seconds", "Time of each phase of a publish", ("run", "phase"),
            buckets=_SECONDS, registry=registry,
        ),
        "wisp_publish_failures": counter(
            "wisp_publish_failures", "Publishes that failed", "reason"
        ),
        "wisp_last_success_timestamp_seconds": gauge(
            "wisp_last_success_timestamp_seconds",
            "When this program last did what it is for, since 1970",
        ),
    }  # fmt: skip
