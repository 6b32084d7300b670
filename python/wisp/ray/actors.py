"""The actors of a fleet: who publishes, who follows for a node, who serves."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from ..engine.feed.feed_files import FeedSettings
from ..engine.feed.feed_link import FeedLink
from ..errors import InvalidError, UnavailableError
from ..publish.stream_publisher import StreamPublisher

__all__ = ["FeedActor", "PublisherActor", "ReplicaActor"]

_LOOK = 0.2  # seconds between two looks at a server that starts


class Publishing:
    """Publishes the weights that a trainer sends; Ray starts it again, and asks again, if it dies.

    run, options: as of wisp.StreamPublisher.
    """

    def __init__(self, run: str, **options: Any) -> None:
        self._publisher = StreamPublisher(run, **options)

    def publish(
        self, weights: Mapping[str, Any] | Sequence[Any], step: int | None = None
    ) -> dict[str, Any]:
        """Returns when the state is committed, with `step`, `seq`, `state` and figures.

        weights: tensors by name, or a list of references to such dicts: they are fetched one after
          the other, and never lie here all at once.
        """
        handed = weights.items() if isinstance(weights, Mapping) else _tensors_of(weights)
        stats = self._publisher.publish(iter(handed), step)
        return {
            "step": stats.step, "seq": stats.seq, "state": stats.state, "changed": stats.changed,
            "bytes": stats.bytes,
        }  # fmt: skip

    def close(self) -> None:
        """Lets go of the run."""
        self._publisher.close()


def _tensors_of(parts: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    for part in parts:
        found = ray.get(part) if isinstance(part, ray.ObjectRef) else part
        if not isinstance(found, Mapping):
            raise InvalidError(f"a part of the weights is a {type(found).__name__}, not a dict")
        yield from found.items()


class Feeding:
    """Keeps the feed of its node running: what it holds is at hand when a replica starts again."""

    def __init__(self, settings: FeedSettings) -> None:
        self._link = FeedLink(settings)

    def status(self) -> dict[str, Any]:
        """Where the feed is, and what went wrong last."""
        known = self._link.known
        return {
            "connected": known.connected,
            "step": None if known.at is None else known.at.step,
            "failure": known.status.failure,
            "faults": list(known.status.faults),
        }

    def look(self) -> None:
        """Has the feed look for a new step now."""
        self._link.look()


class Serving:
    """One inference server of its node. Dies with it, so that Ray starts both again.

    command: the server's; "{port}" and "{host}" stand for what it is to listen on.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: str) -> None:
        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        self._url = f"http://{host}:{port}"
        words = [word.format(port=port, host=host) for word in command]
        with open(log or os.devnull, "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wisp.ray.supervised", *words],
                env={**os.environ, **environment, "PYTHONPATH": _import_path()},
                stdin=subprocess.PIPE, stdout=out, stderr=out,
            )  # fmt: skip
        threading.Thread(target=self._end_with_server, daemon=True).start()

    def _end_with_server(self) -> None:
        self._process.wait()
        os._exit(1)

    def url(self) -> str:
        """Where it listens, once it is up."""
        return self._url

    def process(self) -> int:
        """Of the server's supervisor."""
        return self._process.pid

    def ready(self, timeout: float) -> str:
        """Waits until the server answers; UnavailableError after `timeout` seconds."""
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                    return self._url
            if time.monotonic() > end:
                raise UnavailableError(f"{self._url} did not start within {timeout:g} s")
            time.sleep(_LOOK)


def _import_path() -> str:
    """The server imports what its actor does."""
    return os.pathsep.join(path for path in sys.path if path)


#: As Ray runs them. A publisher takes its calls one by one; the others answer while they wait.
PublisherActor = ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=1)(Publishing)
FeedActor = ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0, max_concurrency=4)(Feeding)
ReplicaActor = ray.remote(max_restarts=-1, max_task_retries=-1, max_concurrency=4)(Serving)
