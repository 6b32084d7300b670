"""Real vLLM with a draft model: what it has of its own follows a run that holds it, else it is said.

pytest tests/python/test_vllm_drafts.py
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from followed_engine import Engine, memory_of

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

import transformers  # noqa: E402
import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from wisp.vllm.offline import verify_offline  # noqa: E402

BF16 = torch.bfloat16
SIZES = {
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
    "tie_word_embeddings": False,
}  # fmt: skip


def save(folder: Path, config: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).to(BF16).save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def small(rows: int, columns: int, seed: int) -> Any:
    chance = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, columns, generator=chance) * 0.05).to(BF16)


class Small:
    """A model with fewer layers drafts for one of the same vocabulary."""

    method = "draft_model"

    def __init__(self, folder: Path) -> None:
        self.served, self.draft = folder / "served", folder / "draft"
        self.weights = save(self.served, transformers.Qwen3Config(**SIZES))
        fewer = transformers.Qwen3Config(**{**SIZES, "num_hidden_layers": 1})
        self.weights |= {f"draft.{n}": t for n, t in save(self.draft, fewer).items()}


class Eagle:
    """A layer that reads what the served model hides, and shares its embedding and head."""

    method = "eagle"

    def __init__(self, folder: Path) -> None:
        self.served, self.draft = folder / "served", folder / "draft"
        config = transformers.LlamaConfig(**SIZES)
        self.weights = save(self.served, config)
        own = {
            name.removeprefix("model."): tensor.clone() for name, tensor in self.weights.items()
            if name.startswith("model.layers.0.") and "input_layernorm" not in name
        }  # fmt: skip
        own["fc.weight"] = small(64, 128, 1)
        self.draft.mkdir()
        one = transformers.LlamaConfig(**{**SIZES, "num_hidden_layers": 1}).to_dict()
        one["architectures"] = ["LlamaForCausalLM"]
        (self.draft / "config.json").write_text(json.dumps(one))
        save_file(own, self.draft / "model.safetensors", {"format": "pt"})
        self.weights |= {f"draft.{n}": t for n, t in own.items()}


class Further:
    """A layer of the same checkpoint, beyond the last, that predicts one token more."""

    method = "mtp"

    def __init__(self, folder: Path) -> None:
        self.served, self.draft = folder / "served", None
        config = transformers.Glm4MoeConfig(
            **SIZES, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=64,
            n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1,
            num_nextn_predict_layers=1,
        )  # fmt: skip
        weights = save(self.served, config)
        last, beyond = "model.layers.1.", "model.layers.2."
        weights |= {
            n.replace(last, beyond): t.clone() for n, t in weights.items() if n.startswith(last)
        }
        for norm in ("enorm", "hnorm", "shared_head.norm"):
            weights[f"{beyond}{norm}.weight"] = torch.ones(64, dtype=BF16)
        weights[f"{beyond}eh_proj.weight"] = small(64, 128, 1)
        weights[f"{beyond}shared_head.head.weight"] = weights["lm_head.weight"].clone()
        weights[f"{beyond}embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, self.served / "model.safetensors", {"format": "pt"})
        self.weights = weights


@contextmanager
def serving(kind: Any, served: Path, draft: Path | None, run: Any) -> Iterator[Engine]:
    told = {"method": kind.method, "num_speculative_tokens": 2}
    if draft is not None:
        told["model"] = str(draft)
    # With it a fresh engine, too, keeps its layers unpacked.
    backend = {"backend": "wisp"}
    engine = Engine(served, run, speculative_config=told, weight_transfer_config=backend)
    try:
        yield engine
    finally:
        engine.close()


def both_memories(engine: Engine) -> dict[str, Any]:
    runner = engine.llm.llm_engine.model_executor.driver_worker.worker.model_runner
    own = memory_of(runner.drafter.model)
    assert own
    return {**memory_of(runner.model), **{f"draft of {n}": t for n, t in own.items()}}


def train(weights: dict[str, Any], step: int) -> None:
    for tensor in weights.values():
        tensor.view(torch.int16).view(-1)[step::7] ^= 3


def save_again(kind: Any, weights: dict[str, Any], folder: Path) -> tuple[Path, Path | None]:
    """The folders of served model and draft, of these weights."""
    served, draft = folder / "served", folder / "draft"
    shutil.copytree(kind.served, served)
    own = {n.removeprefix("draft."): t for n, t in weights.items() if n.startswith("draft.")}
    rest = {n: t for n, t in weights.items() if not n.startswith("draft.")}
    save_file(rest, served / "model.safetensors", {"format": "pt"})
    if kind.draft is None:
        return served, None
    shutil.copytree(kind.draft, draft)
    if own:
        save_file(own, draft / "model.safetensors", {"format": "pt"})
    return served, draft


@pytest.mark.parametrize("codec", ["compact", "swift"])
@pytest.mark.parametrize("make", [Small, Eagle, Further])
def test_a_draft_follows_a_run_that_holds_it(tmp_path: Path, make: Any, codec: str) -> None:
    kind, run = make(tmp_path), tmp_path / "run"
    with wisp.Publisher(run, kind.weights, codec=codec, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        with serving(kind, kind.served, kind.draft, run) as engine:
            before = both_memories(engine)
            for step in range(1, 4):
                train(kind.weights, step)
                publisher.publish(step)
                publisher.flush()
                assert wisp.vllm.update(engine.llm, step, timeout=120)["served"] == step
                assert verify_offline(engine.llm) == 0
            followed, said = both_memories(engine), engine.answers()
            status = wisp.vllm.status(engine.llm)
    assert "its own weights follow the run" in status["draft"], status
    assert not status["missing"] and not status["unused"] and not status["faults"], status
    with serving(kind, *save_again(kind, kind.weights, tmp_path / "fresh"), None) as engine:
        fresh, expected = both_memories(engine), engine.answers()
    assert set(followed) == set(fresh)
    for name, wanted in fresh.items():
        assert torch.equal(followed[name], wanted), name
    own = [name for name in fresh if name.startswith("draft of ")]
    assert any(not torch.equal(before[name], fresh[name]) for name in own)
    assert said == expected


def own_names(kind: Any) -> list[str]:
    return [n for n in kind.weights if n.startswith(("draft.", "model.layers.2."))]


@pytest.mark.parametrize("make", [Eagle, Further])
def test_a_draft_that_the_run_lacks_stays_and_that_is_said(tmp_path: Path, make: Any) -> None:
    kind, run = make(tmp_path), tmp_path / "run"
    weights = {n: t for n, t in kind.weights.items() if n not in own_names(kind)}
    with wisp.Publisher(run, weights, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        with serving(kind, kind.served, kind.draft, run) as engine:
            before = both_memories(engine)
            train(weights, 1)
            publisher.publish(1)
            publisher.flush()
            assert wisp.vllm.update(engine.llm, 1, timeout=120)["served"] == 1
            assert verify_offline(engine.llm) == 0
            followed = both_memories(engine)
            status = wisp.vllm.status(engine.llm)
    assert "since the run does not hold them" in status["draft"], status
    held = {n: t for n, t in before.items() if torch.equal(t, followed[n])}
    assert any(name.startswith("draft of ") for name in held)
    assert any(not name.startswith("draft of ") for name in before.keys() - held.keys())


def test_half_a_draft_is_refused_by_name(tmp_path: Path) -> None:
    kind, run = Eagle(tmp_path), tmp_path / "run"
    del kind.weights["draft.fc.weight"]
    with wisp.Publisher(run, kind.weights, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        with serving(kind, kind.served, kind.draft, run) as engine:
            with pytest.raises(wisp.InvalidError, match=r"does not write 'draft\.fc\.weight'"):
                wisp.vllm.update(engine.llm, 0, timeout=120)


def test_a_server_without_a_draft_refuses_a_run_with_one(tmp_path: Path) -> None:
    kind, run = Eagle(tmp_path), tmp_path / "run"
    with wisp.Publisher(run, kind.weights, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        engine = Engine(kind.served, run)
        try:
            with pytest.raises(wisp.InvalidError, match=r"draft model's.*--speculative-config"):
                wisp.vllm.update(engine.llm, 0, timeout=120)
        finally:
            engine.close()
