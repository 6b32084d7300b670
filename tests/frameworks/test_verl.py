"""verl's own manager and workers, on Ray, with rollouts that take their weights from a run."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import documented
from verl.checkpoint_engine import CheckpointEngineManager
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import CheckpointEngineConfig, RolloutConfig

import wisp
from run_waits import until
from verl_job import ActorWorker, Replica, RolloutWorker, as_vllm_holds, group
from vllm_process import VllmServer


START = 900.0  # seconds that a vLLM may take to start, only to end what hangs
PAUSE = 30.0  # seconds; it takes milliseconds where nothing else runs, and a reload takes minutes


def engine_config(block: int, run: Path, **settings: Any) -> CheckpointEngineConfig:
    """What a page of the documentation says, for a run of this test."""
    told = documented("verl.md", block, s3__bucket_run=str(run)).actor_rollout_ref.rollout
    told = told.checkpoint_engine
    config = omega_conf_to_dataclass(told, CheckpointEngineConfig)
    config.engine_kwargs["wisp"].update(poll=0.1, timeout=120, **settings)
    return config


def assert_alike(actor: Any, *replicas: Replica) -> None:
    wanted, *others = actor.holds()
    assert all(other == wanted for other in others)
    for replica in replicas:
        for held, _ in replica.group.holds():
            assert held == wanted


def test_rollouts_hold_every_step_bit_for_bit_and_one_is_killed_and_back(
    ray_session: Any, tiny_model: Path, tmp_path: Path
) -> None:
    config = engine_config(0, tmp_path / "run")
    rollout = RolloutConfig(name="vllm", checkpoint_engine=config)
    actor = group(ActorWorker, 2, config, str(tiny_model))
    first, second = (Replica(group(RolloutWorker, 1, rollout)) for _ in range(2))
    manager = CheckpointEngineManager(config, actor, [first, second])
    figures = manager.update_weights(global_steps=1)
    assert figures["wisp/step"] == 1
    assert_alike(actor, first, second)
    everything = len(first.group.holds()[0][0])
    assert len(first.group.holds()[0][1]) == everything
    for step in (2, 3):
        actor.train(step, 0.004)
        assert manager.update_weights(global_steps=step)["wisp/changed"] > 0
        assert_alike(actor, first, second)

    ray_session.kill(second.workers[0])
    manager.remove_replicas([second])
    actor.train(4, 0.004)
    manager.update_weights(global_steps=4)
    back = Replica(group(RolloutWorker, 1, rollout))
    manager.add_replicas([back])
    manager.update_weights(global_steps=5)  # the same weights again
    assert first.group.holds()[0][1] == []
    assert len(back.group.holds()[0][1]) == everything
    assert_alike(actor, first, back)


def test_a_run_of_another_model_ends_the_sync_and_leaves_the_rollouts(
    ray_session: Any, tiny_model: Path, tmp_path: Path
) -> None:
    import torch

    with wisp.Publisher(tmp_path / "run", {"other": torch.zeros(4)}) as publisher:
        publisher.publish(0)
    config = engine_config(0, tmp_path / "run")
    config.engine_kwargs["wisp"]["timeout"] = 5
    actor = group(ActorWorker, 1, config, str(tiny_model))
    replica = Replica(group(RolloutWorker, 1, RolloutConfig(name="vllm", checkpoint_engine=config)))
    manager = CheckpointEngineManager(config, actor, [replica])
    with pytest.raises(Exception, match="does not fit"):
        manager.update_weights(global_steps=1)
    assert replica.group.holds() == [({}, [])]


def test_real_vllm_in_a_worker_of_verl_holds_every_step_and_is_killed_and_back(
    ray_session: Any, tiny_model: Path, tmp_path: Path
) -> None:
    config = engine_config(0, tmp_path / "run")
    rollout = RolloutConfig(name="vllm", checkpoint_engine=config)
    actor = group(ActorWorker, 1, config, str(tiny_model))
    replica = Replica(group(RolloutWorker, 1, rollout, str(tiny_model)))
    manager = CheckpointEngineManager(config, actor, [replica])

    def assert_serves_the_actors_weights() -> None:
        (wanted,) = actor.holds()
        ((held, _),) = replica.group.holds()
        assert held == as_vllm_holds(wanted)

    for step in (1, 2):
        actor.train(step, 0.004)
        manager.update_weights(global_steps=step)
        assert_serves_the_actors_weights()
        assert len(replica.group.generate([1, 2, 3])[0]) == 8

    ray_session.kill(replica.workers[0])
    manager.remove_replicas([replica])
    replica = Replica(group(RolloutWorker, 1, rollout, str(tiny_model)))
    manager.add_replicas([replica])
    actor.train(3, 0.004)
    manager.update_weights(global_steps=3)
    assert_serves_the_actors_weights()


def test_real_vllm_servers_are_switched_and_one_is_killed_and_back(
    ray_session: Any, tiny_model: Path, tmp_path: Path
) -> None:
    from wisp.verl.rollout_servers import WispCheckpointEngineManager

    config = engine_config(1, tmp_path / "run")
    actor = group(ActorWorker, 1, config, str(tiny_model))
    # Each start is a minute or two of imports: both at once.
    servers = [VllmServer(tiny_model, tmp_path / f"server{i}.log").start() for i in range(2)]
    try:
        replicas = [Replica(address=server.url.removeprefix("http://")) for server in servers]
        manager = WispCheckpointEngineManager(config, actor, replicas)
        for server in servers:
            server.wait_ready(START)
        for step in (1, 2):
            actor.train(step, 0.004)
            figures = manager.update_weights(global_steps=step)
            assert figures["wisp/servers"] == 2
            assert 0 < figures["wisp/pause_seconds"] < PAUSE
            for server in servers:
                assert_serves(server, step)
        servers[1].kill()
        actor.train(3, 0.004)
        assert manager.update_weights(global_steps=3)["wisp/servers"] == 1
        servers[1].start().wait_ready(START)
        until(lambda: servers[1].get("/wisp/status")["served"] == 3)
        assert_serves(servers[1], 3)
        manager.server_switch.close()
    finally:
        for server in servers:
            server.kill()


def assert_serves(server: VllmServer, step: int) -> None:
    assert server.get("/wisp/status")["served"] == step
    assert server.post("/wisp/verify")["differing"] == 0


#: What a small model on a CPU needs of verl, beside what the page says.
SMALL = {
    "dtype": "bfloat16", "enforce_eager": True, "max_model_len": 256, "max_num_seqs": 4,
    "load_format": "auto", "free_cache_engine": False, "enable_sleep_mode": False,
    "tensor_model_parallel_size": 1, "prompt_length": 64, "response_length": 64,
}  # fmt: skip


def test_verls_own_replica_serves_every_step(
    ray_session: Any, tiny_model: Path, tmp_path: Path
) -> None:
    """Its vLLMReplica and the server in it, as the page configures them: only the device is missing."""
    from omegaconf import OmegaConf
    from verl.workers.config import HFModelConfig
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    from wisp.verl.rollout_servers import WispCheckpointEngineManager

    told = documented("verl.md", 1, s3__bucket_run=str(tmp_path / "run")).actor_rollout_ref.rollout
    config = omega_conf_to_dataclass(OmegaConf.merge(told, SMALL), RolloutConfig)
    engine = config.checkpoint_engine
    engine.engine_kwargs["wisp"]["timeout"] = 120
    replica = vLLMReplica(0, config, HFModelConfig(path=str(tiny_model)), gpus_per_node=1)
    asyncio.run(replica.init_standalone())
    actor = group(ActorWorker, 1, engine, str(tiny_model))
    manager = WispCheckpointEngineManager(engine, actor, [replica])

    def ask(path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"http://{replica.server_address}{path}", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    for step in (1, 2):
        actor.train(step, 0.004)
        figures = manager.update_weights(global_steps=step)
        assert (figures["wisp/step"], figures["wisp/servers"]) == (step, 1)
        assert ask("/wisp/status")["served"] == step
        assert ask("/wisp/verify", b"{}")["differing"] == 0
    manager.server_switch.close()
