"""A run is followed by each version of vLLM that the plugin is made for; run with each of them."""

from __future__ import annotations

import importlib
import os

import pytest
from vllm_server import ENVIRONMENT

os.environ.update(ENVIRONMENT)
torch = pytest.importorskip("torch")
vllm = pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from run_waits import until  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from vllm_process import VllmServer, expected_checksums, where_there_is  # noqa: E402

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.engine import Driver  # noqa: E402


@pytest.fixture
def served(tmp_path):
    return save_tiny_qwen3(tmp_path / "model")


def test_a_server_is_driven_to_each_step(served, tmp_path):
    weights = load_file(served / "model.safetensors")
    run = str(tmp_path / "run")
    server = VllmServer(served, tmp_path / "vllm.log").start()

    def train(step):
        for tensor in weights.values():
            tensor.view(torch.int16).view(-1)[step::97] ^= 3
        publisher.publish(step)
        publisher.flush()

    try:
        server.wait_ready(900)
        with wisp.Publisher(run, weights, on_error="raise") as publisher:
            train(1)
            with Driver(run, [server.url], watch=0) as driver:
                for step in (1, 2):
                    (report,) = driver.update(step)
                    assert report.ok, report.error
                    assert report.served == step and 0 < report.pause_seconds < 5
                    assert "staged" in report.phases  # by wisp's own routes
                    assert server.post("/wisp/verify")["differing"] == 0
                    assert server.get("/wisp/status")["served"] == step
                    assert where_there_is(lambda: server.weight_version) in (None, str(step))
                    train(step + 1)
            answer = server.post(
                "/v1/completions",
                {"model": str(served), "prompt": "a", "max_tokens": 4, "temperature": 0},
            )
            assert answer["choices"][0]["text"]
            # By vLLM's own routes, too.
            server.post("/pause?mode=keep")
            server.post("/start_weight_update")
            server.post("/update_weights", {"update_info": {"step": 3}})
            server.post("/finish_weight_update")
            server.post("/resume")
            # Told by the ranks alone, which takes a moment.
            until(lambda: server.get("/wisp/status")["served"] == 3)
            assert server.post("/wisp/verify")["differing"] == 0
        assert where_there_is(server.checksums) in (None, expected_checksums(weights))
    finally:
        server.kill()
    assert "cannot be had" not in server.tail()


def test_the_trainers_side_is_there_or_named():
    if vllm.__version__.startswith("0.26."):
        with pytest.raises(wisp.UnsupportedError, match="it works with 0.29 and 0.32"):
            importlib.import_module("wisp.vllm.trainer")
    else:
        assert wisp.vllm.TrainerInfo(rank=0, run="bucket/run").is_sender
