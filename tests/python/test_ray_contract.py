"""wisp.ray with a cluster of lists and functions; tests/frameworks has Ray itself."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import wisp
from engine_servers import ScriptedVllm
from framework_stand_ins import forget, install
from run_waits import until

np = pytest.importorskip("numpy")


class RayError(Exception):
    """Of ray.exceptions."""


class Remote:
    """A method of an actor: what it answers is there at once."""

    def __init__(self, function: Any) -> None:
        self.remote = function


class Cluster:
    """What wisp.ray asks of Ray."""

    def __init__(self) -> None:
        self.nodes_alive = ["one", "two"]
        self.servers: dict[str, ScriptedVllm] = {}
        self.killed: list[str] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": n, "Alive": True, "Resources": {"CPU": 4}} for n in self.nodes_alive]

    def get(self, reference: Any, timeout: float | None = None) -> Any:
        if isinstance(reference, list):
            return [self.get(one, timeout) for one in reference]
        if isinstance(reference, Exception):
            raise reference
        return reference

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> Any:
        assert num_returns == len(references)
        return references, []

    def kill(self, actor: Any, no_restart: bool) -> None:
        self.killed.append(actor.name)

    def restart(self, name: str) -> None:
        """Ray starts an actor again: its server listens elsewhere."""
        self.servers[name].close()
        self.servers[name] = ScriptedVllm()


class ActorClass:
    """FeedActor or ReplicaActor."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def options(self, *, name: str, **_: Any) -> Any:
        self.name = name
        return self

    def remote(self, *_: Any) -> Any:
        cluster, name = self.cluster, self.name
        if "-replica-" in name and name not in cluster.servers:
            cluster.servers[name] = ScriptedVllm()

        class Actor:
            pass

        actor: Any = Actor()
        actor.name = name

        def url() -> Any:
            node = name.split("-")[2]
            return cluster.servers[name].url if node in cluster.nodes_alive else RayError(name)

        actor.url = Remote(url)
        actor.ready = Remote(lambda timeout: url())
        actor.status = Remote(lambda: {"connected": True, "step": None})
        return actor


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Cluster()

    def remote(**_: Any) -> Any:
        return lambda plain: plain

    install(monkeypatch, "ray.util.scheduling_strategies",
            NodeAffinitySchedulingStrategy=lambda node_id, soft: node_id)
    install(monkeypatch, "ray.exceptions", RayError=RayError)
    import sys

    ray = sys.modules["ray"]
    for name in ("nodes", "get", "wait", "kill"):
        monkeypatch.setattr(ray, name, getattr(made, name), raising=False)
    monkeypatch.setattr(ray, "remote", remote, raising=False)
    monkeypatch.setattr(ray, "ObjectRef", type("ObjectRef", (), {}), raising=False)
    monkeypatch.setattr(ray, "exceptions", sys.modules["ray.exceptions"], raising=False)
    forget(monkeypatch, "wisp.ray")
    fleet = importlib.import_module("wisp.ray.fleet")
    monkeypatch.setattr(fleet, "FeedActor", ActorClass(made))
    monkeypatch.setattr(fleet, "ReplicaActor", ActorClass(made))
    made.fleet = fleet.Fleet
    made.publishing = importlib.import_module("wisp.ray.actors").Publishing
    yield made
    forget(monkeypatch, "wisp.ray")
    for server in made.servers.values():
        server.close()


def test_every_node_has_a_replica_and_all_serve_the_step(cluster: Any) -> None:
    with cluster.fleet("/runs/r", "/models/m", watch=0.05) as fleet:
        assert len(fleet.wait_ready()) == 2
        reports = fleet.move(3)
        assert [report.served for report in reports] == [3, 3]
    assert len(cluster.killed) == 4  # a feed and a replica of each node


def test_nodes_come_and_go_and_the_newcomers_converge_by_themselves(cluster: Any) -> None:
    with cluster.fleet("/runs/r", "/models/m", watch=0.05) as fleet:
        fleet.move(1)
        cluster.nodes_alive = ["one", "three"]
        until(lambda: any("three" in name for name in cluster.servers))
        newcomer = next(s for name, s in cluster.servers.items() if "three" in name)
        until(lambda: newcomer.served == 1)
        assert [report.served for report in fleet.move(2)] == [2, 2]
        assert len(fleet.status()) == 2


def test_a_replica_that_ray_started_again_is_found_where_it_listens(cluster: Any) -> None:
    with cluster.fleet("/runs/r", "/models/m", watch=0.05) as fleet:
        fleet.move(5)
        name = next(iter(cluster.servers))
        cluster.restart(name)
        until(lambda: cluster.servers[name].served == 5)


def test_a_driver_that_died_is_followed_by_one_that_goes_on(cluster: Any, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    published = cluster.publishing(run).publish({"w": np.zeros(10, np.float32)}, 7)
    first = cluster.fleet(run, "/models/m", watch=0.05, detached=True)
    assert [s.served for s in cluster.servers.values()] == [None, None]
    first.close()  # between publish and switch
    assert not cluster.killed
    with cluster.fleet(run, "/models/m", watch=0.05, detached=True) as second:
        second.move()
    assert published["step"] == 7
    assert [s.served for s in cluster.servers.values()] == [7, 7]


def test_a_step_that_is_published_anew_is_moved_to_again(cluster: Any, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    publisher = cluster.publishing(run)
    with cluster.fleet(run, "/models/m", watch=0.05) as fleet:
        for value in (0, 0, 1):  # the third time other weights
            publisher.publish({"w": np.full(10, value, np.float32)}, 7)
            fleet.move(7)
    updates = [server.acts.count("/wisp/update") for server in cluster.servers.values()]
    assert updates[0] == updates[1] >= 2
    publisher.close()


def test_without_any_replica_a_move_ends_in_time(cluster: Any) -> None:
    cluster.nodes_alive = []
    with cluster.fleet("/runs/r", "/models/m", watch=0.05, patience=0.2) as fleet:
        with pytest.raises(wisp.UnavailableError, match="no replica of wisp took step 1"):
            fleet.move(1)


def test_a_publisher_takes_dicts_and_lists_of_them(cluster: Any, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    actor = cluster.publishing(run)
    one, two = {"a": np.zeros(5, np.float32)}, {"b": np.ones(6, np.float32)}
    actor.publish({**one, **two}, 1)
    one["a"][2] = 9
    told = actor.publish([two, one], 2)
    assert (told["step"], told["changed"]) == (2, 1)
    with pytest.raises(wisp.InvalidError, match="not a dict"):
        actor.publish([3], 3)
    actor.close()
    target = {"a": np.zeros(5, np.float32), "b": np.zeros(6, np.float32)}
    with wisp.Follower(run, target) as follower:
        assert follower.sync().step == 2
    assert np.array_equal(target["a"], one["a"])


def test_a_ray_that_moved_is_named(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "ray.util.scheduling_strategies")
    forget(monkeypatch, "wisp.ray")
    with pytest.raises(wisp.UnsupportedError, match=r"NodeAffinity.* works with ray 2\.60\.0"):
        _ = importlib.import_module("wisp.ray").Fleet
