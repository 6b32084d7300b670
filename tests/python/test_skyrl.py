"""SkyRL 0.4: its own build_trainer_engine and client, with wisp in the place of `delta`."""

from __future__ import annotations

import os
import re

import pytest
from conftest import import_or_skip

torch = pytest.importorskip("torch")
import_or_skip("skyrl")
transfer = import_or_skip("vllm.distributed.weight_transfer")

from byte_model import save_tiny_qwen3  # noqa: E402
from page_blocks import blocks  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from vllm_process import VllmServer, expected_checksums  # noqa: E402

import wisp  # noqa: E402
import wisp.skyrl  # noqa: E402

wisp.skyrl.register()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    """As SkyRL starts one: the backend's name is `delta`."""
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    named = '{"backend": "delta"}'
    started = VllmServer(folder, log, "--weight-transfer-config", named).start()
    try:
        yield started.wait_ready()
    finally:
        started.kill()


def configuration(folder, run):
    """What the page's command line says, read by SkyRL."""
    from skyrl.train.config import SkyRLTrainConfig

    (command,) = blocks("skyrl.md", "bash", run=run)
    told = re.findall(r"^\s+(\S+=\S+?)(?: \\)?$", command, re.MULTILINE)
    assert len(told) == 2
    return SkyRLTrainConfig.from_cli_overrides([*told, f"trainer.policy.model.path={folder}"])


def engine_of(folder, run, server, model):
    from skyrl.backends.skyrl_train.weight_sync.weight_senders import build_trainer_engine

    settings = configuration(folder, run)
    return build_trainer_engine(
        ie_cfg=settings.generator.inference_engine, colocate_all=False, rank=0,
        inference_world_size=1, server_urls=[server.url], data_parallel_size=1,
        source_factory=lambda dtype, backend: transfer.ModuleSource(model),
        draft_source_factory=None, base_model_path=str(folder),
    )  # fmt: skip


def test_skyrl_publishes_through_wisp(folder, server, tmp_path):
    run = str(tmp_path / "run")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    engine = engine_of(folder, run, server, model)
    assert type(engine).__module__ == "wisp.skyrl.delta_trainer"
    for by in (3, 5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.view(torch.int16).view(-1)[by::97] ^= by
        engine.send_weights()
        assert server.weight_version == str(engine.step)
        assert server.checksums() == expected_checksums(dict(model.named_parameters()))
        assert server.post("/wisp/verify")["differing"] == 0
    assert wisp.status(run).head.step == engine.step
    from skyrl.backends.skyrl_train.weight_sync.weight_senders import teardown_engine

    teardown_engine(engine)


def test_in_processes_of_ray_delta_is_wisp(monkeypatch):
    ray = import_or_skip("ray")

    def where_delta_is():
        from skyrl.backends.skyrl_train.weight_sync.register import register_trainer_engines
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        register_trainer_engines()
        made = WeightTransferTrainerFactory._registry["delta"]()
        return f"{made.__module__} {os.environ['WISP_BACKENDS']}"

    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "wisp.skyrl.runtime_env")
    told = {"env_vars": {"A_VARIABLE": "1"}}
    ray.init("local", num_cpus=1, include_dashboard=False, runtime_env=told)  # not one that is there
    try:
        found = ray.get(ray.remote(where_delta_is).remote(), timeout=300)
    finally:
        ray.shutdown()
    assert found == "wisp.skyrl.delta_trainer delta"
