"""A run is followed by each version of vLLM that the plugin is made for; run with each of them."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import os
import types
from pathlib import Path

import pytest
from conftest import import_or_skip
from vllm_server import ENVIRONMENT

os.environ.update(ENVIRONMENT)
torch = pytest.importorskip("torch")
vllm = import_or_skip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from run_waits import until  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from fastapi.testclient import TestClient  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from vllm_process import VllmServer, expected_checksums, where_there_is  # noqa: E402

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.engine import Driver  # noqa: E402
from wisp.vllm import draft_model, routes, versions  # noqa: E402


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


class Guesser(torch.nn.Module):
    """A draft model, of the few parts that are looked at."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)

    def load_weights(self, tensors):
        return {name for name, _ in tensors}


class InCudaGraph:
    def __init__(self, model):
        self.unwrap = lambda: model


def drafting(method="eagle", folder="draft"):
    speculative = types.SimpleNamespace(
        method=method, draft_model_config=types.SimpleNamespace(model=folder)
    )
    return types.SimpleNamespace(
        speculative_config=speculative, model_config=types.SimpleNamespace(model="served")
    )


@pytest.fixture
def loading(monkeypatch):
    """Makes a worker with this runner the one that loads, on the last rank of a pipeline or not."""

    def make(runner, last=True):
        worker = types.SimpleNamespace(model_runner=runner)
        monkeypatch.setattr(draft_model, "_loading", [worker])
        group = types.SimpleNamespace(is_last_rank=last)
        monkeypatch.setattr("vllm.distributed.parallel_state.get_pp_group", lambda: group)

    return make


@pytest.mark.parametrize("wrap", [lambda model: model, InCudaGraph])
@pytest.mark.parametrize("attribute", ["drafter", "speculator"])
def test_the_draft_is_found_in_both_makes_of_the_model_runner(loading, attribute, wrap):
    model = Guesser()
    drafts = types.SimpleNamespace(model=wrap(model))
    loading(types.SimpleNamespace(**{attribute: drafts}))
    found = draft_model.draft_beside(drafting())
    assert found.model is model and found.checkpoint == "draft" and not found.obstacle
    assert found.load([("fc.weight", None)]) == {"fc.weight"}
    assert draft_model.draft_beside(drafting(folder="served")).checkpoint is None
    assert draft_model.draft_beside(drafting("ngram")) is None


def test_the_installed_model_runners_have_their_draft_where_it_is_looked_for():
    """The second make needs Triton, which a CPU has not: its source is held to the name."""
    root = Path(importlib.util.find_spec("vllm").origin).parent / "v1/worker"
    for file, attribute in (("gpu_model_runner.py", "drafter"), ("gpu/model_runner.py", "speculator")):
        text = (root / file).read_text()
        assert f"self.{attribute} = " in text, file
        named = types.SimpleNamespace(**{attribute: text})
        assert versions.drafter_of(named) is text


def test_a_draft_that_is_not_found_is_said_on_the_rank_that_should_have_it(loading):
    elsewhere = types.SimpleNamespace(guesser=types.SimpleNamespace(model=Guesser()))
    loading(elsewhere)
    found = draft_model.draft_beside(drafting("mtp"))
    assert f"vLLM {vllm.__version__} keeps the draft (mtp) where it is not found" in found.obstacle
    loading(elsewhere, last=False)
    assert draft_model.draft_beside(drafting("mtp")) is None


def test_a_draft_with_joined_copies_of_its_weights_stays(loading):
    model = Guesser()
    model.fc._build_fused_kv_buffers = lambda: None
    loading(types.SimpleNamespace(drafter=types.SimpleNamespace(model=model)))
    assert "'fc' computes with copies" in draft_model.draft_beside(drafting("dflash")).obstacle


def test_a_draft_that_cannot_be_looked_at_is_not_the_end_of_a_server(loading, monkeypatch, caplog):
    def fails(model):
        raise RuntimeError("another vLLM")

    monkeypatch.setattr(draft_model, "expert_layouts", fails)
    loading(types.SimpleNamespace(drafter=types.SimpleNamespace(model=Guesser())))
    assert draft_model.draft_beside(drafting()).obstacle == "RuntimeError: another vLLM"
    assert "the draft model could not be looked at" in caplog.text
    assert draft_model.draft_beside(object()) is None  # a configuration of another make


BACKEND = types.SimpleNamespace(weight_transfer_config={"backend": "wisp"})


class Moved:
    """A part of vLLM that is no longer what it was: whatever is asked of it raises."""

    def __getattr__(self, name):
        raise RuntimeError(f"{name} has moved")


@pytest.mark.parametrize("other", [None, {"backend": "nccl"}, types.SimpleNamespace(backend="nccl")])
def test_a_server_with_another_backend_gets_no_routes(other):
    app, plugin = FastAPI(), routes.WispRoutes()
    before = len(app.routes)
    app.state.args = types.SimpleNamespace(weight_transfer_config=other)
    plugin.attach_router(app)
    config = types.SimpleNamespace(weight_transfer_config=other)
    client = types.SimpleNamespace(vllm_config=config)
    asyncio.run(plugin.init_state(client, app.state, argparse.Namespace()))
    assert plugin._server is None and len(app.routes) == before


@pytest.mark.parametrize("within", [False, True])
def test_routes_that_cannot_be_added_are_a_line_in_the_log(within, caplog):
    app = FastAPI()
    app.state.args = types.SimpleNamespace(weight_transfer_config=Moved()) if within else Moved()
    routes.WispRoutes().attach_router(app)
    assert "the routes /wisp of wisp cannot be had with vLLM" in caplog.text
    assert "it is made for 0.26, 0.29, 0.32" in caplog.text


def test_a_coordinator_that_cannot_be_made_is_a_line_in_the_log_and_the_routes_tell_it(caplog):
    app, plugin = FastAPI(), routes.WispRoutes()
    app.state.args = BACKEND
    plugin.attach_router(app)
    with TestClient(app) as asked:
        assert "not up yet" in asked.get("/wisp/status").json()["error"]
        for config in (Moved(), BACKEND):  # the second lacks its parallel_config
            client = types.SimpleNamespace(vllm_config=config)
            asyncio.run(plugin.init_state(client, app.state, argparse.Namespace()))
            assert "what moves this server of wisp cannot be had" in caplog.text
            caplog.clear()
        answer = asked.get("/wisp/status")
        assert answer.status_code == 503
        assert "what moves this server of wisp cannot be had" in answer.json()["error"]


def test_plugins_of_another_make_are_left_as_they_are(monkeypatch):
    from vllm import plugins

    monkeypatch.setattr(plugins, "load_endpoint_plugins", lambda *args: {"of": "another make"})
    routes.attach_to_server()
    assert plugins.load_endpoint_plugins() == {"of": "another make"}
    monkeypatch.setattr(plugins, "load_endpoint_plugins", lambda *args: [])
    routes.attach_to_server()
    assert [plugin.name for plugin in plugins.load_endpoint_plugins()] == ["wisp"]
