"""The driver of a fleet: replicas by node, and the step that all of them serve."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..engine import Driver, Report
from ..engine.feed.feed_files import FeedSettings
from ..errors import Error, InvalidError, UnavailableError
from ..frameworks.server_switch import ServerSwitch
from ..runs import TrustedKeys, log, trust_of
from .actors import FeedActor, ReplicaActor

__all__ = ["Fleet"]

logger = logging.getLogger("wisp")

_ANSWER = 2.0  # seconds that an actor has to say where it is
_LOOK_BACK = 50  # commits among which the one of a step is looked for
_RETRY = 1.0  # seconds before servers are asked again, when none took a step


@dataclass
class _Place:
    """What runs on one node."""

    feed: Any
    replicas: list[Any]
    urls: list[str | None] = field(default_factory=list)  #: as told last; None: not yet


class Fleet:
    """vLLM servers on the nodes of a Ray cluster, all brought to the same step of a run.

    Each node gets a feed and `replicas_per_node` servers. Ray starts again what dies; a node that
    comes gets its own, and one that goes is forgotten. A server that is new or back is brought to
    the step that the others serve, also between two calls of move(). Nothing hangs on this object:
    with `detached`, actors outlive it, and another Fleet of the same name finds them.

    run: as the nodes see it; a folder must be the same on all of them.
    model: the checkpoint folder to serve, the same path on every node.
    on_node: says of a node, as ray.nodes() describes it, whether it is to have replicas.
    serve: further words for `vllm serve`; `environment`: variables for it.
    command: another command in its place, with "{port}" and "{host}".
    mode, api_key: as of wisp.engine.Driver; trust, min_serial, run_id: as of wisp.Follower.
    timeout: seconds for one server to take a step; patience: for one to do so if none does.
    watch: seconds between looks at nodes and replicas.
    log_folder: for what the servers print.
    """

    def __init__(
        self,
        run: str,
        model: str | os.PathLike[str],
        *,
        name: str = "wisp",
        replicas_per_node: int = 1,
        cpus_per_replica: float = 1,
        gpus_per_replica: float = 0,
        on_node: Callable[[dict[str, Any]], bool] | None = None,
        serve: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        mode: str = "keep",
        timeout: float = 300.0,
        patience: float = 600.0,
        api_key: str | None = None,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        detached: bool = False,
        watch: float = 5.0,
        log_folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if replicas_per_node < 1:
            raise InvalidError("replicas_per_node is at least 1")
        trust_of(trust, min_serial, run_id)
        self._run = run if "://" in run else os.path.abspath(run)
        keys = [trust] if isinstance(trust, (str, os.PathLike)) else list(trust or [])
        # As the servers name them: one feed for all of a node.
        self._keys = [os.path.abspath(key) if os.path.exists(key) else str(key) for key in keys]
        self._believed: dict[str, Any] = {
            "trust": self._keys, "min_serial": min_serial, "run_id": run_id or ""
        }  # fmt: skip
        self._model = os.fspath(model)
        self._name = name
        self._per_node = replicas_per_node
        self._needs = {"num_cpus": cpus_per_replica, "num_gpus": gpus_per_replica}
        self._on_node = on_node or self._has_room
        self._command = list(command or self._serve_command(serve))
        self._environment = dict(environment or {})
        self._lifetime = "detached" if detached else None
        self._log_folder = log_folder
        self._drive_options: dict[str, Any] = {
            "mode": mode, "timeout": timeout, "trust": self._keys or None,
            "min_serial": min_serial, "run_id": run_id, "api_key": api_key,
        }  # fmt: skip
        self._patience = patience
        self._places: dict[str, _Place] = {}
        self._urls: list[str] = []
        self._aim: tuple[int, str] | None = None
        self._lock = threading.RLock()
        self._ready: Driver | None = None  # for the servers as they are now, not yet asked of
        self._switch = ServerSwitch(self._take_driver, patience=0)
        self._ended = threading.Event()
        self.refresh()
        self._thread = threading.Thread(
            target=self._keep, args=(watch,), name="wisp-fleet", daemon=True
        )
        self._thread.start()

    # --- what users call

    @property
    def urls(self) -> list[str]:
        """The base URLs of the servers that are known to be there."""
        return list(self._urls)

    def wait_ready(self, timeout: float = 600.0) -> list[str]:
        """Waits until every server answers; UnavailableError after `timeout` seconds."""
        with self._lock:
            replicas = [replica for place in self._places.values() for replica in place.replicas]
        waiting = [replica.ready.remote(timeout) for replica in replicas]
        try:
            ray.get(waiting, timeout=timeout)
        except ray.exceptions.RayError as error:
            raise UnavailableError(f"not all servers of {self._name} are up: {error}") from error
        self.refresh()
        return self.urls

    def move(self, step: int | None = None, *, state: str = "") -> list[Report]:
        """Brings all servers to `step`, or to the run's newest; what became of it on each.

        A server that is dead or slow is left behind, and brought along when it is back;
        UnavailableError if none takes the step within `patience` seconds.
        """
        if step is None:
            step, state = self._newest()
        state = state or self._state_of(step)
        self._aim = (step, state)
        end = time.monotonic() + self._patience
        while True:
            with self._lock:
                self.refresh()  # one that was started again listens elsewhere
                try:
                    if not self._urls:
                        raise UnavailableError("there is none")
                    self._switch.switch_to(self._run, step, state)
                    return list(self._switch.reports)
                except UnavailableError as error:
                    if time.monotonic() > end:
                        raise UnavailableError(
                            f"no replica of {self._name} took step {step} within "
                            f"{self._patience:g} s: {error}"
                        ) from error
            if self._ended.wait(_RETRY):
                raise InvalidError("this fleet is closed")

    def status(self) -> dict[str, dict[str, Any]]:
        """By node: its feed's position, and the URLs of its servers."""
        places = dict(self._places)
        told: dict[str, dict[str, Any]] = {}
        for node, place in places.items():
            feed = _answer(place.feed.status.remote()) or {"connected": False}
            told[node] = {"feed": feed, "servers": [url for url in place.urls if url]}
        return told

    def refresh(self) -> None:
        """Looks at the cluster: new nodes get their actors, and new servers the step."""
        with self._lock:
            if self._ended.is_set():
                raise InvalidError("this fleet is closed")
            nodes = {n["NodeID"]: n for n in ray.nodes() if n["Alive"] and self._on_node(n)}
            for node in [node for node in self._places if node not in nodes]:
                logger.warning("node %s is gone, and its replicas with it", node)
                del self._places[node]
            for node in [node for node in nodes if node not in self._places]:
                self._places[node] = self._start_on(node)
            self._ask_urls()
            urls = [url for place in self._places.values() for url in place.urls if url]
            if urls == self._urls:
                return
            self._urls = urls
            self._let_go()
            if self._aim is not None and urls:
                step, state = self._aim
                self._ready = self._take_driver(self._run)
                self._ready.aim(step, state=state)

    def close(self) -> None:
        """Ends the servers, unless they are detached. May be called twice."""
        self._ended.set()
        with self._lock:
            self._let_go()
            places, self._places, self._urls = self._places, {}, []
        if self._lifetime is None:
            for place in places.values():
                for actor in (*place.replicas, place.feed):
                    with contextlib.suppress(Exception):
                        ray.kill(actor, no_restart=True)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- nodes and actors

    def _has_room(self, node: dict[str, Any]) -> bool:
        has = node.get("Resources", {})
        cpus, gpus = self._needs["num_cpus"], self._needs["num_gpus"]
        return bool(has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus)

    def _start_on(self, node: str) -> _Place:
        here = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        shared = {"scheduling_strategy": here, "lifetime": self._lifetime, "get_if_exists": True}
        told = self._believed
        settings = FeedSettings(
            self._run, told["trust"], base=self._model, min_serial=told["min_serial"],
            run_id=told["run_id"],
        )  # fmt: skip
        feed = FeedActor.options(name=f"{self._name}-feed-{node}", **shared).remote(settings)
        replicas = []
        for index in range(self._per_node):
            label = f"{self._name}-replica-{node}-{index}"
            output = os.path.join(self._log_folder, f"{label}.log") if self._log_folder else ""
            replica = ReplicaActor.options(name=label, **shared, **self._needs)
            replicas.append(replica.remote(self._command, self._environment, output))
        return _Place(feed, replicas, [None] * len(replicas))

    def _ask_urls(self) -> None:
        """All at once: a replica that is being started again does not hold up the others."""
        asked = [
            (place, index, replica.url.remote())
            for place in self._places.values()
            for index, replica in enumerate(place.replicas)
        ]
        if not asked:
            return
        ready, _ = ray.wait([ref for *_, ref in asked], num_returns=len(asked), timeout=_ANSWER)
        for place, index, ref in asked:
            if ref in ready:
                place.urls[index] = _answer(ref) or place.urls[index]

    def _serve_command(self, serve: Sequence[str]) -> list[str]:
        import json

        vllm = Path(sys.executable).with_name("vllm")
        settings = {name: value for name, value in self._believed.items() if value}
        config = json.dumps({"wisp": {"run": self._run, **settings}})
        return [
            str(vllm) if vllm.exists() else "vllm", "serve", self._model,
            "--host", "{host}", "--port", "{port}",
            "--weight-transfer-config", _quoted('{"backend": "wisp"}'),
            "--additional-config", _quoted(config), *map(_quoted, serve),
        ]  # fmt: skip

    # --- steps

    def _log(self, count: int) -> Sequence[Any]:
        believed = self._drive_options
        return log(self._run, count, trust=believed["trust"], min_serial=believed["min_serial"],
                   run_id=believed["run_id"])  # fmt: skip

    def _newest(self) -> tuple[int, str]:
        lines = self._log(1)
        if not lines:
            raise UnavailableError(f"there is no step in {self._run} yet")
        return lines[0].step, str(lines[0].seq)

    def _state_of(self, step: int) -> str:
        """Its commit: a run that was set back publishes a step anew, and servers that have it are
        only moved if they are told that it is another. Empty: the servers will say what is wrong.
        """
        with contextlib.suppress(Error):
            return next((str(line.seq) for line in self._log(_LOOK_BACK) if line.step == step), "")
        return ""

    def _take_driver(self, run: str) -> Driver:
        ready, self._ready = self._ready, None
        return ready or Driver(run, self._urls, on_report=self._switch.note, **self._drive_options)

    def _let_go(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()
        self._switch.close()

    def _keep(self, watch: float) -> None:
        while not self._ended.wait(watch):
            try:
                self.refresh()
            except Exception as error:
                if not self._ended.is_set():
                    logger.warning("the fleet %s could not be looked at: %s", self._name, error)


def _quoted(word: str) -> str:
    """For a command in which braces stand for something."""
    return word.replace("{", "{{").replace("}", "}}")


def _answer(reference: Any) -> Any:
    """What an actor says; None if it is not there to say it."""
    try:
        return ray.get(reference, timeout=_ANSWER)
    except (ray.exceptions.RayError, TimeoutError):
        return None
