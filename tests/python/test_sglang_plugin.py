"""The plugin of SGLang 0.5.23, against its own classes: registry, arguments, sessions of updates.

Where SGLang is not installed, the same hooks are called as its registry calls them.
"""

from __future__ import annotations

import logging
import sys
import types
from types import SimpleNamespace

import pytest
from conftest import import_or_skip

torch = pytest.importorskip("torch")

from sglang_model import checkpoint_tensors, loaded  # noqa: E402
from sglang_run import publish, record, same, status, until  # noqa: E402

import wisp.sglang_plugin as plugin  # noqa: E402


class Updater:
    """SGLang's WeightUpdater without SGLang: what the hooks see of it, and what it would do."""

    def __init__(self, model):
        self.model, self.acts = model, []

    def get_model(self):
        return self.model

    def begin_weight_update(self):
        self.acts.append("restore")

    def end_weight_update(self, *, run_post_load):
        self.acts.append("process")

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        from wisp.sglang import load_delta

        self.acts.append(load_format or "load")
        if load_format == plugin.LOADER:
            load_delta(self.model, named_tensors)
        return True, "Success"


class Hooked(Updater):
    def begin_weight_update(self):
        plugin._begin(Updater.begin_weight_update, self)

    def end_weight_update(self, *, run_post_load):
        plugin._end(Updater.end_weight_update, self, run_post_load=run_post_load)

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        return plugin._load_tensors(
            Updater.update_weights_from_tensor, self, named_tensors, load_format=load_format
        )


def session(updater, *loads):
    """As a scheduler has one."""
    updater.begin_weight_update()
    for named_tensors, load_format in loads:
        assert updater.update_weights_from_tensor(named_tensors, load_format=load_format)[0]
    updater.end_weight_update(run_post_load=not loads)


def drive(updater, run, folder):
    """A run is followed from the end of the first session on; its steps disturb nothing else."""
    states = publish(run, 3)
    model = updater.get_model()
    told = record(run=run, action="prepare", checkpoint=str(folder), trust=[])
    session(updater, (told, plugin.LOADER))
    until(model, lambda now: now["staged"] == 2)
    yield "followed"
    session(updater, (record(run=run, action="apply", step=2), plugin.LOADER))
    assert status(model)["served"] == 2 and same(model, loaded(states[2]))
    yield "switched"
    session(updater, ([("norm", torch.zeros(2))], None))
    yield "written by others"
    session(updater)


def test_a_step_is_written_without_processing_the_model_again(tmp_path, sglang_folder, caplog):
    updater = Hooked(loaded(checkpoint_tensors()))
    stages = drive(updater, str(tmp_path / "run"), sglang_folder)
    next(stages)
    # Nothing of ours ran while the weights were in the layout of a checkpoint.
    assert updater.acts == ["restore", "process"]
    next(stages)
    assert updater.acts == ["restore", "process", plugin.LOADER]
    with caplog.at_level(logging.WARNING, "wisp.engine"):
        next(stages)
    assert updater.acts[3:] == ["restore", "load", "process"]
    assert "no step of the run" in caplog.text
    next(stages, None)
    assert updater.acts[6:] == []


def test_models_that_follow_nothing_are_left_to_sglang():
    updater = Hooked(loaded(checkpoint_tensors()))
    session(updater, ([("norm", torch.zeros(2))], None))
    assert updater.acts == ["restore", "load", "process"]


def test_the_loader_is_named_without_a_flag():
    arguments = SimpleNamespace(custom_weight_loader=None, startup_weight_load_mode="serial")
    plugin._name_loader(arguments)
    plugin._name_loader(arguments)
    assert arguments.custom_weight_loader == [plugin.LOADER]
    arguments = SimpleNamespace(custom_weight_loader=["their.own"])
    plugin._name_loader(arguments)
    assert arguments.custom_weight_loader == ["their.own", plugin.LOADER]
    for other in (
        SimpleNamespace(custom_weight_loader=None, startup_weight_load_mode="overlap"),
        SimpleNamespace(custom_weight_loader=None, _input_frozen=True),
    ):
        plugin._name_loader(other)
        assert other.custom_weight_loader is None


def test_an_sglang_without_a_registry_is_a_line_in_the_log(monkeypatch, caplog):
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "sglang.srt.plugins.hook_registry", None)
    with caplog.at_level(logging.WARNING, "wisp.engine"):
        plugin.register()
    assert "0.5.23" in caplog.text and "--custom-weight-loader" in caplog.text


# --- SGLang's own classes


@pytest.fixture
def registry():
    import_or_skip("sglang")
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry

    load_plugins()  # by the entry point, as in each process of a server
    return HookRegistry


def test_sglang_applies_every_hook(registry):
    ours = [target for target, hooks in registry._hooks.items()
            if any(hook.__module__ == plugin.__name__ for _, hook, _ in hooks)]  # fmt: skip
    assert len(ours) == 5 and set(ours) <= registry._patched
    from sglang.srt.server_args import ServerArgs

    arguments = ServerArgs(model_path="policy", device="cpu")
    try:
        arguments.resolve_once()
    except Exception:
        pass  # there is no such model; the arguments were taken before
    assert arguments.custom_weight_loader == [plugin.LOADER]


def test_sessions_of_sglangs_scheduler(registry, tmp_path, sglang_folder, monkeypatch):
    """Its scheduler's updater over its runner's, with a model of ours: only kernels are missing."""
    from sglang.srt.managers.scheduler_components import weight_updater as scheduler
    from sglang.srt.model_executor.model_runner_components import weight_updater as runner

    model = loaded(checkpoint_tensors())
    acts = []
    monkeypatch.setattr(runner.DefaultModelLoader, "restore_weights_before_loading",
                        lambda model, device: acts.append("restore"))
    monkeypatch.setattr(runner.DefaultModelLoader, "postprocess_weights",
                        lambda model, device: acts.append("process"))
    monkeypatch.setattr(runner, "get_parallel", lambda: SimpleNamespace(tp_rank=0))
    monkeypatch.setattr(runner, "get_model", lambda: SimpleNamespace(weight_cache_mode="off"))
    updater = runner.WeightUpdater(
        tp_rank=0, device="cpu", gpu_id=0, model_config=None,
        custom_weight_loaders=[plugin.LOADER], get_model=lambda: model,
        update_model_fields=None, recapture_cuda_graph=None, get_model_runner=None,
    )  # fmt: skip
    group = SimpleNamespace(tp_group=SimpleNamespace(cpu_group=None))
    monkeypatch.setattr(scheduler, "get_parallel", lambda: group)
    monkeypatch.setattr(scheduler.torch.distributed, "barrier", lambda group: None)
    worker = SimpleNamespace(
        weight_update_runners=lambda: [("target", SimpleNamespace(weight_updater=updater))],
        deserialize_own_rank=lambda sent: sent[0],
    )
    manager = scheduler.SchedulerWeightUpdaterManager(
        tp_worker=worker, draft_worker=None, memory_saver_adapter=None,
        flush_cache=lambda **_: True, is_fully_idle=lambda **_: True,
        scheduler=SimpleNamespace(record_weight_version_change=lambda new_version: None),
    )  # fmt: skip

    class Session:
        """The requests of a session, as the HTTP server makes them."""

        def get_model(self):
            return model

        def begin_weight_update(self):
            asked = scheduler.BeginWeightUpdateReqInput(selector="target")
            assert manager.begin_weight_update(asked).success

        def update_weights_from_tensor(self, named_tensors, load_format):
            if load_format is None:
                monkeypatch.setattr(model, "load_weights", lambda given: acts.append("load"))
            asked = scheduler.UpdateWeightsFromTensorReqInput(
                serialized_named_tensors=[named_tensors], load_format=load_format,
                flush_cache=True, selector="target",
            )  # fmt: skip
            answer = manager.update_weights_from_tensor(asked)
            return answer.success, answer.message

        def end_weight_update(self, *, run_post_load):
            assert manager.end_weight_update(scheduler.EndWeightUpdateReqInput()).success

    stages = drive(Session(), str(tmp_path / "run"), sglang_folder)
    next(stages)
    assert acts == ["restore", "process"]
    next(stages)
    assert acts == ["restore", "process"]
    next(stages)
    assert acts[2:] == ["restore", "load", "process"]
    assert status(model)["served"] == 2
