"""wisp.hf.PublishCallback with trainers of TRL that have no rollout servers of their own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import byte_model  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl import (  # noqa: E402
    DPOConfig,
    DPOTrainer,
    GRPOConfig,
    GRPOTrainer,
    SFTConfig,
    SFTTrainer,
)

import wisp  # noqa: E402
from patient_callback import PatientCallback  # noqa: E402

COMMON = {
    "per_device_train_batch_size": 2, "max_steps": 2, "learning_rate": 1e-4, "report_to": [],
    "save_strategy": "no", "use_cpu": True, "bf16": False, "disable_tqdm": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return byte_model.save_tiny_qwen3(tmp_path_factory.mktemp("model"))


def model_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def sft(folder, out, **given):
    rows = Dataset.from_dict({"text": ["one two", "three four", "five", "six"]})
    arguments = SFTConfig(str(out), max_length=32, **COMMON)
    return SFTTrainer(model_of(folder), args=arguments, train_dataset=rows, **given)


def dpo(folder, out, **given):
    rows = Dataset.from_dict({"prompt": ["a"] * 4, "chosen": ["b"] * 4, "rejected": ["c"] * 4})
    arguments = DPOConfig(str(out), max_length=32, **COMMON)
    return DPOTrainer(model_of(folder), args=arguments, train_dataset=rows, **given)


def distinct_letters(completions, **_):
    return [float(len(set(text))) for text in completions]


def grpo(folder, out, **given):
    rows = Dataset.from_dict({"prompt": ["a", "b", "c", "d"]})
    arguments = GRPOConfig(str(out), num_generations=2, max_completion_length=4, **COMMON)
    return GRPOTrainer(
        model_of(folder), args=arguments, train_dataset=rows, reward_funcs=distinct_letters, **given
    )


@pytest.mark.parametrize("make", [sft, dpo, grpo])
def test_a_trainer_of_trl_publishes(tmp_path, model_folder, make):
    run = tmp_path / "run"
    callback = PatientCallback(run, dtype=torch.bfloat16)
    trainer = make(
        model_folder, tmp_path / "out", processing_class=byte_model.byte_tokenizer(),
        callbacks=[callback],
    )  # fmt: skip
    trainer.train()
    assert [stats.step for stats in callback.publisher.stats] == [0, 1, 2]
    assert callback.publisher.stats[-1].changed > 0
    wisp.export(run, tmp_path / "export")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "export").state_dict()
    expected = trainer.model.state_dict()
    assert loaded.keys() == expected.keys()
    for name, tensor in loaded.items():
        wanted = expected[name].to(torch.bfloat16).view(torch.int16)
        assert torch.equal(tensor.view(torch.int16), wanted), name
