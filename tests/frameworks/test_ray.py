"""A fleet on a Ray cluster of several nodes: they come and go, replicas die, all converge."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from byte_model import weights_of
from ray.cluster_utils import Cluster
from run_waits import until
from vllm_server import ENVIRONMENT

import wisp
from conftest import TREE, patiently
from wisp.ray import Fleet, PublisherActor

SERVE = ["--dtype", "bfloat16", "--max-model-len", "256", "--max-num-seqs", "4",
         "--enforce-eager"]  # fmt: skip


def call(url: str, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


@pytest.fixture
def cluster() -> Iterator[Any]:
    head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 80 << 20}
    made = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    ray.init(address=made.address, log_to_driver=False, namespace="wisp")
    yield made
    ray.shutdown()
    made.shutdown()


def rollouts(node: dict[str, Any]) -> bool:
    return bool(node["Resources"].get("rollout"))


def add_node(cluster: Any) -> Any:
    return cluster.add_node(num_cpus=1, resources={"rollout": 1}, object_store_memory=80 << 20)


def moved(weights: dict[str, Any], seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    return {
        n: torch.where(torch.rand(t.shape) < 0.01, t + 0.5, t).to(t.dtype)
        for n, t in weights.items()
    }


def serves(url: str, step: int) -> bool:
    try:
        return call(url, "/wisp/status")["served"] == step
    except OSError:
        return False


def assert_all_serve(fleet: Fleet, count: int, step: int) -> None:
    until(lambda: len(fleet.urls) == count and all(serves(u, step) for u in fleet.urls), 600)
    for url in fleet.urls:
        assert call(url, "/wisp/verify", {})["differing"] == 0


#: What runs in a replica: nothing but its routes, or the engine itself.
ROUTES = {"command": [sys.executable, str(Path(__file__).with_name("scripted_server.py")),
                      "{host}", "{port}"]}  # fmt: skip
VLLM = {"serve": SERVE, "environment": ENVIRONMENT}


@pytest.mark.parametrize("server", [ROUTES, VLLM], ids=["routes", "vllm"])
def test_nodes_come_and_go_a_replica_is_killed_and_all_converge(
    cluster: Any, tiny_model: Path, tmp_path: Path, server: dict[str, Any]
) -> None:
    run = str(tmp_path / "run")
    nodes = [add_node(cluster), add_node(cluster)]
    weights = weights_of(tiny_model)
    publisher = PublisherActor.remote(run)
    ray.get(publisher.publish.remote(weights, 0))
    with Fleet(
        run, tiny_model, on_node=rollouts, watch=0.5, log_folder=tmp_path, **server
    ) as fleet:
        fleet.wait_ready(900)
        weights = moved(weights, 1)
        parts = [ray.put({n: t}) for n, t in weights.items()]
        step = ray.get(publisher.publish.remote(parts))["step"]
        assert step == 1
        fleet.move(step)
        assert_all_serve(fleet, 2, 1)
        assert all(place["feed"]["connected"] for place in fleet.status().values())

        # A replica dies: Ray starts it again, and it is brought to the step by itself.
        place = next(iter(fleet._places.values()))
        before = place.urls[0]
        os.kill(ray.get(place.replicas[0].process.remote()), signal.SIGKILL)
        until(lambda: before not in fleet.urls, 600)
        assert_all_serve(fleet, 2, 1)

        # A node disappears with its feed and its replica, another one comes.
        cluster.remove_node(nodes[1])
        until(lambda: len(fleet.urls) == 1, 600)
        weights = moved(weights, 2)
        ray.get(publisher.publish.remote(weights, 2))
        fleet.move()
        assert_all_serve(fleet, 1, 2)
        add_node(cluster)
        assert_all_serve(fleet, 2, 2)


@pytest.mark.parametrize("server", [ROUTES, VLLM], ids=["routes", "vllm"])
def test_a_driver_that_died_between_publish_and_switch_is_followed_by_another(
    cluster: Any, tiny_model: Path, tmp_path: Path, server: dict[str, Any]
) -> None:
    run = str(tmp_path / "run")
    add_node(cluster)
    told = {"watch": 0.5, "detached": True, "name": "kept", "log_folder": str(tmp_path), **server}
    program = [sys.executable, str(Path(__file__).with_name("ray_driver.py"))]
    words = [cluster.address, run, str(tiny_model), json.dumps(told)]
    with subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        urls = json.loads(first.stdout.readline())
        first.kill()  # no close(), no farewell to Ray, and its publisher goes with it
    assert first.returncode == -signal.SIGKILL
    assert len(urls) == 1 and wisp.status(run).head.step == 1
    assert all(serves(url, 0) for url in urls)
    second = Fleet(run, tiny_model, on_node=rollouts, **told)
    second.move()
    assert second.urls == urls
    assert_all_serve(second, 1, 1)
    for place in second._places.values():
        for actor in (*place.replicas, place.feed):
            ray.kill(actor)
    second.close()


def test_a_publisher_that_dies_is_started_again_and_goes_on(cluster: Any, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    publisher = PublisherActor.remote(run)
    weights = {"w": torch.zeros(1000)}
    ray.get(publisher.publish.remote(weights, 1))
    ray.kill(publisher, no_restart=False)
    weights["w"][7] = 3
    told = ray.get(publisher.publish.remote(weights, 2))
    assert (told["step"], told["changed"]) == (2, 1)
    target = {"w": torch.ones(1000)}
    with wisp.Follower(run, target) as follower:
        follower.sync()
    assert torch.equal(target["w"], weights["w"])


def test_the_documented_program_runs(
    cluster: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (TREE / "doc" / "frameworks" / "ray.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    block = block.replace("s3://bucket/run", str(tmp_path / "run"))
    block = block.replace("/models/policy", str(tiny_model))
    ours = f"on_node=rollouts, serve=SERVE, environment=ENVIRONMENT, log_folder={str(tmp_path)!r}"
    block = block.replace("gpus_per_replica=1", ours)
    block = block.replace('address="auto"', "ignore_reinit_error=True")
    add_node(cluster)
    weights = weights_of(tiny_model)
    names: dict[str, Any] = {
        "training": lambda: iter([weights, moved(weights, 1)]), "rollouts": rollouts,
        "SERVE": SERVE, "ENVIRONMENT": ENVIRONMENT,
    }  # fmt: skip
    exec(block, names)
    assert_all_serve(names["fleet"], 1, 1)
    names["fleet"].close()
