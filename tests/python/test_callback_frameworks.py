"""Axolotl, ms-swift and LLaMA-Factory publish by their own seams: as installed, or as published.

A package that is not installed is stood in for by what of it the adapter touches; which, the test's
name says.
"""

from __future__ import annotations

import importlib
import json
import sys
import types

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("pydantic")

from conftest import import_or_skip  # noqa: E402
from page_blocks import blocks  # noqa: E402
from test_hf import tiny_llama, trainer  # noqa: E402

import wisp  # noqa: E402

IDLE = transformers.TrainerCallback()


def _module(monkeypatch, name, **contents):
    module = types.ModuleType(name)
    module.__dict__.update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def assert_published(run, model, tmp_path, step):
    assert wisp.status(run).head.step == step
    wisp.export(run, tmp_path / "export")
    saved = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    for name, tensor in saved.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


@pytest.fixture(params=["stand-in", "axolotl"])
def axolotl(request, monkeypatch):
    if request.param == "axolotl":
        yield import_or_skip("axolotl.integrations.base")
    else:
        base = types.SimpleNamespace(BasePlugin=type("BasePlugin", (), {}))
        _module(monkeypatch, "axolotl")
        _module(monkeypatch, "axolotl.integrations")
        _module(monkeypatch, "axolotl.integrations.base", BasePlugin=base.BasePlugin)
        monkeypatch.delitem(sys.modules, "wisp.axolotl", raising=False)
        yield base
    sys.modules.pop("wisp.axolotl", None)


def test_a_package_that_an_environment_was_made_for_is_not_skipped(monkeypatch):
    with pytest.raises(pytest.skip.Exception):
        import_or_skip("no_such_framework.integrations")
    monkeypatch.setenv("WISP_REQUIRE", "another,no_such_framework")
    with pytest.raises(ModuleNotFoundError):
        import_or_skip("no_such_framework.integrations")


def test_axolotls_configuration_publishes(axolotl, tmp_path):
    yaml = pytest.importorskip("yaml")
    run = str(tmp_path / "run")
    (text,) = blocks("callbacks.md", "yaml", run=run)
    settings = yaml.safe_load(text)
    (name,) = settings["plugins"]
    model = tiny_llama()
    training = trainer(model, tmp_path / "out", IDLE, max_steps=2)
    if hasattr(axolotl, "PluginManager"):
        manager = axolotl.PluginManager.get_instance()
        manager.register(name)
        (arguments,) = (args for args in manager.get_input_args() if args.startswith("wisp."))
        added = manager.add_callbacks_post_trainer(_dictionary(settings), training)
    else:
        module, _, kind = name.rpartition(".")
        plugin = getattr(importlib.import_module(module), kind)()
        arguments = plugin.get_input_args()
        added = plugin.add_callbacks_post_trainer(settings, training)
    module, _, kind = arguments.rpartition(".")
    read = getattr(importlib.import_module(module), kind)(**settings)
    assert read.wisp == {"run": run, "every": 1}
    for callback in added:
        training.add_callback(callback)
    training.train()
    assert_published(run, model, tmp_path, 2)


def _dictionary(settings):
    from axolotl.utils.dict import DictDefault

    return DictDefault(settings)


def test_axolotl_without_a_run_does_not_start(axolotl, tmp_path):
    from wisp.axolotl import WispPlugin

    for wrong in ({}, {"wisp": None}, {"wisp": {"every": 2}}):
        with pytest.raises(wisp.InvalidError, match="run: s3://bucket/run"):
            WispPlugin().add_callbacks_post_trainer(wrong, None)


def test_an_exception_out_of_axolotls_training_closes_the_publisher(axolotl, tmp_path):
    from wisp.axolotl import WispPlugin

    training = trainer(tiny_llama(), tmp_path / "out", IDLE, max_steps=2)
    (callback,) = WispPlugin().add_callbacks_post_trainer(
        {"wisp": {"run": str(tmp_path / "run")}}, training
    )
    training.add_callback(callback)

    class Breaks(transformers.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            raise OSError("told to fail")

    training.add_callback(Breaks())
    with pytest.raises(OSError, match="told to fail"):
        training.train()
    assert wisp.status(tmp_path / "run").head.step == 1
    assert callback._open is None


@pytest.fixture(params=["stand-in", "swift"])
def callbacks_map(request, monkeypatch):
    if request.param == "stand-in":
        known = {}
        _module(monkeypatch, "swift")
        _module(monkeypatch, "swift.callbacks", callbacks_map=known)
        return known
    return import_or_skip("swift.callbacks").callbacks_map


def test_ms_swift_publishes_by_a_file_of_ones_own(callbacks_map, tmp_path):
    run = str(tmp_path / "run")
    (code,) = blocks("callbacks.md", "python swift", run=run)
    exec(code, {})
    model = tiny_llama()
    training = trainer(model, tmp_path / "out", IDLE, max_steps=2)
    training.add_callback(callbacks_map["wisp"](training.args, training))  # as its trainers do
    training.train()
    assert_published(run, model, tmp_path, 2)


def test_another_axolotl_is_named(monkeypatch):
    _module(monkeypatch, "axolotl")
    _module(monkeypatch, "axolotl.integrations")
    _module(monkeypatch, "axolotl.integrations.base")
    monkeypatch.delitem(sys.modules, "wisp.axolotl", raising=False)
    with pytest.raises(wisp.UnsupportedError, match=r"BasePlugin.* works with axolotl 0\.21\.0"):
        importlib.import_module("wisp.axolotl")


def test_another_ms_swift_is_named(monkeypatch):
    from wisp.ms_swift import register

    _module(monkeypatch, "swift")
    monkeypatch.setitem(sys.modules, "swift.callbacks", None)
    with pytest.raises(wisp.UnsupportedError, match=r"works with ms-swift 4\.6\.0"):
        register(run="run")
    with pytest.raises(wisp.InvalidError, match="run"):
        register(run="")


def test_llama_factory_takes_the_callback_in_a_stand_in(monkeypatch, tmp_path):
    run = str(tmp_path / "run")
    (code,) = blocks("callbacks.md", "python llamafactory", run=run)
    model = tiny_llama()

    def run_exp(args, callbacks):
        trainer(model, tmp_path / "out", callbacks[0], max_steps=2).train()

    _module(monkeypatch, "llamafactory")
    _module(monkeypatch, "llamafactory.train")
    _module(monkeypatch, "llamafactory.train.tuner", run_exp=run_exp)
    exec(code, {"settings": {}})
    assert_published(run, model, tmp_path, 2)


def test_llama_factory_itself_trains_and_publishes(tmp_path):
    """Its run_exp, from a file of questions to the model that it saves."""
    import_or_skip("llamafactory")
    from byte_model import save_tiny_qwen3, weights_of

    data = tmp_path / "data"
    data.mkdir()
    asked = [{"instruction": f"{i} + 1", "input": "", "output": f"{i + 1}"} for i in range(8)]
    (data / "sums.json").write_text(json.dumps(asked))
    (data / "dataset_info.json").write_text(json.dumps({"sums": {"file_name": "sums.json"}}))
    settings = {
        "model_name_or_path": str(save_tiny_qwen3(tmp_path / "model")), "stage": "sft",
        "do_train": True, "finetuning_type": "full", "template": "default", "dataset": "sums",
        "dataset_dir": str(data), "output_dir": str(tmp_path / "out"), "max_steps": 2,
        "learning_rate": 1e-3, "use_cpu": True, "report_to": "none",
    }  # fmt: skip
    run = str(tmp_path / "run")
    (code,) = blocks("callbacks.md", "python llamafactory", run=run)
    exec(code, {"settings": settings})
    assert {line.step for line in wisp.log(run)} == {0, 1, 2}
    wisp.export(run, tmp_path / "export")
    published, saved = weights_of(tmp_path / "export"), weights_of(tmp_path / "out")
    assert published.keys() == saved.keys()
    for name, tensor in saved.items():
        assert torch.equal(published[name].view(torch.uint8), tensor.view(torch.uint8)), name


def test_a_trainer_takes_the_callback(tmp_path):
    run = str(tmp_path / "run")
    (code,) = blocks("callbacks.md", "python", run=run)
    model = tiny_llama()
    sample = trainer(model, tmp_path / "out", IDLE, max_steps=2)
    exec(code, {"model": model, "args": sample.args, "data": sample.train_dataset})
    assert_published(run, model, tmp_path, 2)
