"""A real trainer of transformers publishes through the callback."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import wisp  # noqa: E402
from patient_callback import PatientCallback  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from wisp.hf import PublishCallback  # noqa: E402
from wisp.frameworks.refit import Refit, RefitSettings  # noqa: E402


def tiny_llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def trainer(model, folder, callback, **settings):
    text = torch.randint(64, (32, 8))
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=4, learning_rate=1e-3, report_to=[],
        use_cpu=True, disable_tqdm=True, **{"save_strategy": "no", **settings},
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in text]
    datasets = {"train_dataset": rows, "eval_dataset": rows}
    return transformers.Trainer(model, arguments, **datasets, callbacks=[callback])


def test_a_trainer_publishes_every_so_many_steps(tmp_path):
    model = tiny_llama()
    callback = PatientCallback(tmp_path / "run", every=2, dtype=torch.bfloat16)
    trainer(model, tmp_path / "out", callback, max_steps=5).train()
    assert [s.step for s in callback.publisher.stats] == [0, 2, 4, 5]

    # What followers get is a checkpoint that transformers loads, with the trainer's weights.
    wisp.export(tmp_path / "run", tmp_path / "export")
    config = json.loads((tmp_path / "export" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    assert loaded.dtype == torch.bfloat16
    expected = model.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, tensor in loaded.state_dict().items():
        wanted = expected[name].to(torch.bfloat16).view(torch.int16)
        assert torch.equal(tensor.view(torch.int16), wanted), name


def test_gradient_accumulation_counts_optimizer_steps(tmp_path):
    callback = PatientCallback(tmp_path / "run")
    settings = {"gradient_accumulation_steps": 2, "num_train_epochs": 1}
    trainer(tiny_llama(), tmp_path / "out", callback, **settings).train()
    assert [s.step for s in callback.publisher.stats] == [0, 1, 2, 3, 4]


def test_only_the_first_process_publishes(tmp_path):
    callback = PublishCallback(tmp_path / "run")
    state = transformers.TrainerState(is_world_process_zero=False)
    callback.on_train_begin(None, state, None, model=tiny_llama())
    callback.on_step_end(None, state, None)
    callback.on_train_end(None, state, None)
    assert callback.publisher is None
    assert not (tmp_path / "run").exists()


class BreakingCallback(transformers.TrainerCallback):
    """Ends the training by an exception, once it runs."""

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            raise RuntimeError("the GPU fell off the bus")


def test_an_exception_out_of_the_training_closes_the_publisher(tmp_path):
    callback = PublishCallback(tmp_path / "run")
    broken = trainer(tiny_llama(), tmp_path / "out", callback, max_steps=5)
    broken.add_callback(BreakingCallback())
    with pytest.raises(RuntimeError, match="fell off"):
        broken.train()
    assert wisp.status(tmp_path / "run").head.step == 2
    with pytest.raises(wisp.InvalidError, match="closed"):
        callback.publisher.publish()
    # The same callback serves the next training.
    trainer(tiny_llama(), tmp_path / "out", callback, max_steps=1).train()


class OtherFramework(transformers.TrainerCallback):
    """Publishes to the same run, as verl and NeMo-RL do, while a Trainer is at it."""

    def __init__(self, run, folder):
        self._run, self._folder = run, folder

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 2:
            wisp.export(self._run, self._folder)
            weights = load_file(self._folder / "model.safetensors")
            refit = Refit(RefitSettings.of("here", {"run": str(self._run), "dtype": None}))
            refit.send(weights.items(), 100)
            refit.close()


def test_of_two_frameworks_on_one_run_the_older_is_told(tmp_path):
    run = tmp_path / "run"
    callback = PatientCallback(run)
    training = trainer(tiny_llama(), tmp_path / "out", callback, max_steps=5)
    training.add_callback(OtherFramework(run, tmp_path / "export"))
    with pytest.raises(wisp.FencedError):
        training.train()
    assert training.state.global_step == 3
    assert wisp.status(run).head.step == 100


def test_the_best_model_is_the_last_step(tmp_path):
    model = tiny_llama()
    callback = PatientCallback(tmp_path / "run")
    training = trainer(
        model, tmp_path / "out", callback, max_steps=3, eval_strategy="steps", eval_steps=1,
        save_strategy="steps", save_steps=1, load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
    )  # fmt: skip
    losses = iter([1.0, 2.0, 3.0])
    evaluate = training.evaluate
    training.evaluate = lambda *a, **k: evaluate(*a, **k) | {"eval_loss": next(losses)}
    training.train()
    assert training.state.best_model_checkpoint.endswith("-1")
    assert [s.step for s in callback.publisher.stats] == [0, 1, 2, 3, 4]
    wisp.export(tmp_path / "run", tmp_path / "export")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_a_sharded_model_is_not_quantised(tmp_path, monkeypatch):
    monkeypatch.setattr("wisp.hf._is_sharded", lambda model: True)
    callback = PublishCallback(tmp_path / "run", quantize="fp8_block")
    with pytest.raises(wisp.UnsupportedError, match="rows they hold"):
        trainer(tiny_llama(), tmp_path, callback, max_steps=1).train()
    assert not (tmp_path / "run").exists()
