"""wisp.verl against verl's published interface; tests/frameworks has verl itself, on Ray."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from abc import abstractmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import wisp
from engine_servers import ScriptedVllm
from framework_stand_ins import VerlEngine, forget, install, install_verl

torch = pytest.importorskip("torch")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = install_verl(monkeypatch)
    forget(monkeypatch, "wisp.verl")
    importlib.import_module("wisp.verl")
    yield made
    forget(monkeypatch, "wisp.verl")


class Job:
    """Two ranks of an actor and two rollouts, synced as verl's CheckpointEngineManager does."""

    def __init__(self, registry: Any, run: Path, **settings: Any) -> None:
        told = {"run": str(run), "timeout": 60, "poll": 0.05, "dtype": None, **settings}
        make = registry.new
        self.actors = [make("wisp", bucket_size=1, is_master=r == 0, **told) for r in range(2)]
        self.rollouts = [make("wisp", bucket_size=1, **told) for _ in range(2)]
        self.weights = {
            "model.embed": torch.randn(50, 8).to(torch.bfloat16),
            "model.norm": torch.ones(8, dtype=torch.bfloat16),
            "lm_head": torch.randn(8),
        }
        self.got: list[dict[str, Any]] = [{}, {}]
        self.yielded: list[list[str]] = [[], []]

    def connect(self) -> None:
        everybody = [*self.actors, *self.rollouts]
        metadata = [engine.prepare() for engine in everybody]
        build = type(self.actors[0]).build_topology
        for side, told in zip((self.actors, self.rollouts), build(2, 2, metadata)):
            for rank, engine in enumerate(side):
                engine.init_process_group(**{key: value[rank] for key, value in told.items()})

    async def receive(self, rank: int, step: int) -> None:
        self.yielded[rank] = []
        async for name, tensor in self.rollouts[rank].receive_weights(global_steps=step):
            self.yielded[rank].append(name)
            self.got[rank][name] = tensor.clone()

    def sync(self, step: int) -> dict[str, Any]:
        async def both() -> list[Any]:
            sending = [
                engine.send_weights(iter(self.weights.items()), global_steps=step)
                for engine in self.actors
            ]
            return await asyncio.gather(*sending, self.receive(0, step), self.receive(1, step))

        self.connect()
        told = asyncio.run(both())
        for engine in (*self.actors, *self.rollouts):
            engine.finalize()
        return told[0]

    def close(self) -> None:
        for engine in (*self.actors, *self.rollouts):
            engine._refit.close()

    def assert_same(self) -> None:
        for got in self.got:
            assert got.keys() == self.weights.keys()
            for name, tensor in self.weights.items():
                assert torch.equal(got[name].view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.fixture
def job(registry: Any, tmp_path: Path) -> Any:
    made = Job(registry, tmp_path / "run")
    yield made
    made.close()


def test_rollouts_get_all_tensors_first_and_then_those_that_a_step_touched(job: Job) -> None:
    figures = job.sync(1)
    assert figures["wisp/step"] == 1
    assert sorted(job.yielded[0]) == sorted(job.weights)
    job.assert_same()
    job.weights["model.embed"][3, 2] += 1
    assert job.sync(2)["wisp/changed"] == 1
    assert job.yielded == [["model.embed"], ["model.embed"]]
    job.assert_same()
    assert job.sync(3)["wisp/changed"] == 0
    assert job.yielded == [[], []]


def test_a_rollout_that_was_interrupted_gets_everything_again(job: Job) -> None:
    job.sync(1)
    for tensor in job.weights.values():
        tensor += 1

    async def broken() -> None:
        async def take_one() -> None:
            async for _ in job.rollouts[0].receive_weights(global_steps=2):
                raise OSError("the engine died")

        sending = [e.send_weights(iter(job.weights.items()), global_steps=2) for e in job.actors]
        with pytest.raises(OSError, match="engine died"):
            await asyncio.gather(*sending, take_one())

    job.connect()
    asyncio.run(broken())
    job.weights["lm_head"] += 1
    job.sync(3)
    assert sorted(job.yielded[0]) == sorted(job.weights)
    job.assert_same()


def test_a_feed_that_dies_is_replaced_by_another(job: Job) -> None:
    job.sync(1)
    os.kill(job.rollouts[0]._refit._replica.feed_process, signal.SIGKILL)
    job.weights["lm_head"] += 1
    job.sync(2)
    job.assert_same()


def test_a_rollout_that_comes_late_gets_everything(job: Job, registry: Any) -> None:
    job.sync(1)
    job.weights["lm_head"] += 1
    job.rollouts[1]._refit.close()
    settings = {"run": job.rollouts[0]._refit.settings.run, "poll": 0.05}
    job.rollouts[1] = registry.new("wisp", bucket_size=1, **settings)
    job.got[1] = {}
    job.sync(2)
    assert job.yielded[0] == ["lm_head"] and len(job.yielded[1]) == 3
    job.assert_same()


def test_a_training_that_goes_back_takes_its_rollouts_along(job: Job) -> None:
    for step in (1, 2, 3, 2):
        job.weights["model.norm"] += 1
        job.sync(step)
        job.assert_same()


def test_a_step_that_was_given_up_is_named(job: Job) -> None:
    job.sync(1)
    job.connect()
    job.weights["model.norm"] += 1

    async def skip() -> None:
        # The trainer gives step 2 up and publishes step 3, while a rollout waits for 2.
        sending = [e.send_weights(iter(job.weights.items()), global_steps=3) for e in job.actors]
        await asyncio.gather(*sending, job.receive(0, 2))

    with pytest.raises(wisp.NotFoundError, match=r"no step 2: it went on to step 3"):
        asyncio.run(skip())


def test_nothing_waits_beyond_the_time_out(registry: Any, tmp_path: Path) -> None:
    job = Job(registry, tmp_path / "run", timeout=0.5)
    with pytest.raises(wisp.UnavailableError, match="step 1 of .* did not come within 0.5 s"):
        asyncio.run(job.receive(0, 1))
    job.close()


def test_the_run_of_another_model_is_refused(job: Job, tmp_path: Path) -> None:
    with wisp.Publisher(tmp_path / "run", {"other": torch.zeros(4)}) as publisher:
        publisher.publish(0)
    job.connect()
    handed = iter(job.weights.items())
    with pytest.raises(wisp.InvalidError, match="does not fit"):
        asyncio.run(job.actors[0].send_weights(handed, global_steps=1))
    assert next(handed, None) is None


def test_two_trainings_on_one_run_are_told(job: Job, tmp_path: Path) -> None:
    job.sync(1)
    with wisp.Publisher(tmp_path / "run", job.weights) as other:
        other.publish(2)
    with pytest.raises(wisp.FencedError):
        asyncio.run(job.actors[0].send_weights(iter(job.weights.items()), global_steps=2))


def test_actor_and_rollouts_with_different_runs_are_told(registry: Any, tmp_path: Path) -> None:
    job = Job(registry, tmp_path / "run")
    job.rollouts[0]._refit.close()
    job.rollouts[0] = registry.new("wisp", bucket_size=1, run=str(tmp_path / "other"))
    with pytest.raises(wisp.InvalidError, match="different runs"):
        job.connect()


@pytest.mark.parametrize(
    ("settings", "said"),
    [({}, "needs `run`"), ({"run": "x", "rnu": 1}, "no setting 'rnu'"),
     ({"run": "x", "timeout": "soon"}, "engine_kwargs.wisp: ")],
)
def test_settings_that_mean_nothing_are_named(
    registry: Any, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(wisp.InvalidError, match=said):
        registry.new("wisp", bucket_size=1, **settings)


def test_a_seam_that_moved_is_named_with_the_versions_that_work(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    install_verl(monkeypatch)
    install(monkeypatch, "verl.checkpoint_engine.base", CheckpointEngine=VerlEngine)
    forget(monkeypatch, "wisp.verl")
    with pytest.raises(wisp.UnsupportedError, match=r"CheckpointEngineRegistry.* verl 0\.9\.1"):
        importlib.import_module("wisp.verl")


def test_an_interface_that_grew_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install_verl(monkeypatch)
    class Grown(VerlEngine):
        @abstractmethod
        def warm_up(self) -> None: ...

    monkeypatch.setattr(sys.modules["verl.checkpoint_engine.base"], "CheckpointEngine", Grown)
    forget(monkeypatch, "wisp.verl")
    with pytest.raises(wisp.UnsupportedError, match=r"for warm_up.* verl 0\.9\.1"):
        importlib.import_module("wisp.verl")


class ActorGroup:
    """verl's worker group of one actor."""

    def __init__(self, engine: Any, weights: dict[str, Any]) -> None:
        self.engine, self.weights = engine, weights

    def update_weights(self, global_steps: int, mode: str) -> list[Any]:
        return [self.engine.send_weights(iter(self.weights.items()), global_steps=global_steps)]


class Replica:
    def __init__(self, server: ScriptedVllm) -> None:
        self.server_address = f"127.0.0.1:{server.port}"
        self.told: list[int] = []
        self.servers = [SimpleNamespace(set_global_steps=SimpleNamespace(remote=self._note))]

    async def _note(self, step: int) -> None:
        self.told.append(step)


@pytest.fixture
def servers() -> Any:
    made = [ScriptedVllm(), ScriptedVllm()]
    yield made
    for server in made:
        server.close()


def managed(registry: Any, run: Path, servers: list[ScriptedVllm], **settings: Any) -> Any:
    from wisp.verl.rollout_servers import WispCheckpointEngineManager

    told = {"run": str(run), "timeout": 5, **settings}
    engine = registry.new("wisp", bucket_size=1, is_master=True, **told)
    weights = {"w": torch.zeros(100)}
    config = SimpleNamespace(backend="wisp", engine_kwargs={"wisp": told})
    replicas = [Replica(server) for server in servers]
    return WispCheckpointEngineManager(config, ActorGroup(engine, weights), replicas)


def test_servers_with_the_plugin_are_switched_and_nothing_else(
    registry: Any, tmp_path: Path, servers: list[ScriptedVllm]
) -> None:
    manager = managed(registry, tmp_path / "run", servers)
    for step in (1, 2):
        figures = manager.update_weights(global_steps=step)
        assert figures["wisp/servers"] == 2 and 0 < figures["wisp/pause_seconds"] < 0.1
        assert [server.served for server in servers] == [step, step]
    assert [replica.told for replica in manager.replicas] == [[1, 2], [1, 2]]
    manager.server_switch.close()


def test_a_dead_replica_is_left_behind_and_brought_back(
    registry: Any, tmp_path: Path, servers: list[ScriptedVllm]
) -> None:
    manager = managed(registry, tmp_path / "run", servers)
    manager.update_weights(global_steps=1)
    port = servers[1].port
    servers[1].close()
    assert manager.update_weights(global_steps=2)["wisp/servers"] == 1
    servers[1] = ScriptedVllm(port)
    assert manager.update_weights(global_steps=3)["wisp/servers"] >= 1
    from run_waits import until

    until(lambda: servers[1].served == 3)
    manager.server_switch.close()


def test_replicas_may_come_and_go(
    registry: Any, tmp_path: Path, servers: list[ScriptedVllm]
) -> None:
    manager = managed(registry, tmp_path / "run", servers[:1])
    manager.update_weights(global_steps=1)
    newcomer = Replica(servers[1])
    manager.add_replicas([newcomer])
    assert manager.update_weights(global_steps=2)["wisp/servers"] == 2
    manager.remove_replicas([newcomer])
    assert manager.update_weights(global_steps=3)["wisp/servers"] == 1
    assert servers[1].served == 2
    manager.server_switch.close()


def test_without_any_replica_the_sync_ends_in_time(registry: Any, tmp_path: Path) -> None:
    gone = ScriptedVllm()
    gone.close()
    manager = managed(registry, tmp_path / "run", [gone], timeout=0.5)
    with pytest.raises(wisp.UnavailableError, match="no server took step 1"):
        manager.update_weights(global_steps=1)
    manager.server_switch.close()
