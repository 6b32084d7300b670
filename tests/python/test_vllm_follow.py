"""`wisp follow --vllm` drives a real vLLM server: by wisp's routes, and by vLLM's own."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from conftest import TREE, WISP_BIN
from engine_servers import ScriptedVllm
from vllm_server import ENVIRONMENT, Refused, Server

os.environ.update(ENVIRONMENT)
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import wisp  # noqa: E402


class WithoutOurRoutes(ScriptedVllm):
    """The server as a vLLM without wisp's routes shows itself."""

    def __init__(self, server):
        self.server = server
        super().__init__()

    def answer(self, method, path, body):
        if path.startswith("/wisp/"):
            return 404, {"detail": "Not Found"}
        self.acts.append(path)
        try:
            return 200, self.server.call(path, body if method == "POST" else None)
        except Refused as refused:
            return refused.code, {"error": str(refused)}


def follow(run, url, *more):
    command = [TREE / WISP_BIN, "follow", run, "--vllm", url, "--once", "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


def test_follow_drives_a_real_server(tmp_path):
    served = save_tiny_qwen3(tmp_path / "model")
    weights = load_file(served / "model.safetensors")
    run = tmp_path / "run"

    def train(step):
        for tensor in weights.values():
            tensor.view(torch.int16).view(-1)[step::97] ^= 3
        publisher.publish(step)
        publisher.flush()

    server = Server(served, tmp_path / "vllm.log")
    try:
        with wisp.Publisher(run, weights, on_error="raise") as publisher:
            for step in (1, 2, 3):
                train(step)
            done, (_, event, summary) = follow(run, server.url)
            assert done.returncode == 0, done.stderr
            assert event["moved"] and event["initialized"] and event["served"] == 3
            assert 0 < event["pause_seconds"] < 5 and "staged" in event["phases"]
            assert server.call("/weight_info") == {"weight_version": "3"}
            assert server.call("/wisp/verify", {})["differing"] == 0
            # It is there: no pause.
            done, (_, event, _) = follow(run, server.url)
            assert done.returncode == 0 and not event["moved"] and event["served"] == 3
            train(4)
            with WithoutOurRoutes(server) as stock:
                done, (_, event, _) = follow(run, stock.url)
                assert done.returncode == 0, done.stderr
                assert event["served"] == 4 and event["moved"]
                assert [path for path in stock.acts if path != "/weight_info"] == [
                    "/init_weight_transfer_engine", "/pause?mode=keep", "/start_weight_update",
                    "/update_weights", "/finish_weight_update", "/resume",
                ]  # fmt: skip
            assert server.call("/is_paused") == {"is_paused": False}
            assert server.call("/weight_info") == {"weight_version": "4"}
            assert server.call("/wisp/verify", {})["differing"] == 0
        wisp.init(tmp_path / "other")
        with wisp.Publisher(tmp_path / "other", weights, on_error="raise") as publisher:
            train(5)
        done, _ = follow(tmp_path / "other", server.url)
        assert done.returncode == 11 and str(run) in done.stderr
        assert server.call("/weight_info") == {"weight_version": "4"}
    finally:
        server.close()
