"""wisp.sglang: the loader for SGLang, against a model with SGLang's loader conventions."""

from __future__ import annotations

import re
import subprocess

import pytest
from conftest import TREE, WISP_BIN
from rank_processes import run_ranks

torch = pytest.importorskip("torch")

from sglang_model import ScriptedSglang, loaded  # noqa: E402
from sglang_run import publish, record, same, status, until  # noqa: E402

from wisp.engine.stage import stage as staging  # noqa: E402
from wisp.engine import Driver  # noqa: E402
from wisp.sglang import load_delta  # noqa: E402


@pytest.fixture
def run(tmp_path):
    return str(tmp_path / "run")


# First, since processes are best forked before there are threads.
def _rank(rank, world, run, folder, states):
    model = loaded(states[0], rank, world)
    load_delta(model, record(run=run, action="prepare", checkpoint=str(folder), trust=[]))
    until(model, lambda now: now["staged"] == 2)
    if rank == 1:
        switch, staging.Stage.switch = staging.Stage.switch, _lost
    load_delta(model, record(run=run, action="apply", step=2))
    failed = status(model)
    kept = same(model, loaded(states[0], rank, world))
    if rank == 1:
        staging.Stage.switch = switch
    load_delta(model, record(run=run, action="apply", step=2))
    return failed["error"], kept, status(model), same(model, loaded(states[2], rank, world))


def _lost(self, *_):
    raise RuntimeError("the device is lost")


def test_ranks_switch_together_or_not_at_all(run, sglang_folder):
    states = publish(run, 3)
    for error, kept, now, moved in run_ranks(2, _rank, run, sglang_folder, states):
        assert error == "rank 1: RuntimeError: the device is lost"
        assert kept and now["served"] == 2 and now["error"] == "" and moved


def test_driver_brings_a_server_to_each_step(run, sglang_folder):
    states = publish(run, 2)
    model = loaded(states[0])
    with ScriptedSglang(model, sglang_folder) as server, \
            Driver(run, sglang=[server.url], watch=0) as driver:  # fmt: skip
        (report,) = driver.update(1)
        assert report.ok, report.error
        assert report.engine == "sglang" and report.initialized and report.served == 1
        assert server.version == "1" and not server.paused and not server.session
        assert same(model, loaded(states[1]))
        publish(run, 5, states)
        before = len(server.acts)
        (report,) = driver.update(4)
        assert report.ok and report.moved and same(model, loaded(states[4]))
        assert server.acts[before:] == [
            "/pause_generation", "/begin_weight_update", "/update_weights_from_tensor",
            "/end_weight_update", "/update_weight_version", "/continue_generation",
        ]  # fmt: skip


def test_the_command_of_the_page_brings_a_server_to_the_newest_step(run, sglang_folder):
    page = (TREE / "doc" / "frameworks" / "sglang.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    wisp (follow .*)$", page, re.MULTILINE)
    states = publish(run, 3)
    model = loaded(states[0])
    with ScriptedSglang(model, sglang_folder) as server:
        command = command.replace("s3://bucket/run", run).replace("http://gpu1:30000", server.url)
        done = subprocess.run(
            [WISP_BIN, *command.split(), "--until-step", "2"], capture_output=True, timeout=120,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert server.version == "2" and not server.paused
    assert same(model, loaded(states[2]))


def test_what_is_no_record_changes_nothing_and_ends_nothing(run, sglang_folder):
    states = publish(run, 1)
    model = loaded(states[0])
    for wrong in ([("model.embed_tokens.weight", torch.zeros(2))], record(step=1),
                  [("wisp", torch.zeros(3))], [("wisp", torch.ByteTensor([1, 2]))],
                  record(run=run, action="apply", step=0), record(run=run, action="?")):
        load_delta(model, wrong)
        assert status(model)["error"]
        assert same(model, loaded(states[0]))
    assert model.get_weights_by_name("another") is None


def test_switch_that_fails_leaves_the_step_before(run, sglang_folder, monkeypatch):
    states = publish(run, 2)
    model = loaded(states[0])
    load_delta(model, record(run=run, action="prepare", checkpoint=str(sglang_folder), trust=[]))
    until(model, lambda now: now["staged"] == 1)

    switch = staging.Stage.switch

    def broken(self, *args):
        switch(self, *args)
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(staging.Stage, "switch", broken)
    load_delta(model, record(run=run, action="apply", step=1))
    assert "rank 0: RuntimeError: the device is lost" in status(model)["error"]
    assert status(model)["served"] is None and same(model, loaded(states[0]))
    monkeypatch.undo()
    load_delta(model, record(run=run, action="apply", step=1))
    assert status(model)["served"] == 1 and same(model, loaded(states[1]))
    load_delta(model, record(run="s3://other/run", action="prepare"))
    assert run in status(model)["error"] and same(model, loaded(states[1]))


def test_what_the_loader_hangs_on_the_model_stays_the_same_memory(run, sglang_folder):
    states = publish(run, 3)
    model = loaded(states[0])
    copies = [layer.self_attn.w_vc for layer in model.model.layers]
    load_delta(model, record(run=run, action="prepare", checkpoint=str(sglang_folder), trust=[]))
    until(model, lambda now: now["staged"] == 2)
    load_delta(model, record(run=run, action="apply", step=2))
    assert status(model)["served"] == 2 and same(model, loaded(states[2]))
    assert all(layer.self_attn.w_vc is copy
               for layer, copy in zip(model.model.layers, copies, strict=True))  # fmt: skip
