"""A real vLLM takes each version of an adapter into its slot, and answers as a fresh load of it."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from vllm_server import Server

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("vllm")

import transformers  # noqa: E402
from byte_model import save_tiny_qwen3  # noqa: E402

import wisp  # noqa: E402
from wisp.adapters import load_adapter  # noqa: E402

PROMPT = [7, 11, 13, 17, 19]


def answers(server: Server, model: str) -> Any:
    """Text and the logarithms of its probabilities: every bit counts."""
    body = {
        "model": model, "prompt": PROMPT, "max_tokens": 8, "temperature": 0, "logprobs": 3,
        "ignore_eos": True,
    }  # fmt: skip
    choice = server.call("/v1/completions", body)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def load_fresh(server: Server, name: str, folder: Path) -> None:
    """As anybody would; the answer is a text."""
    request = urllib.request.Request(
        f"{server.url}/v1/load_lora_adapter",
        json.dumps({"lora_name": name, "lora_path": str(folder)}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120):
        pass


def train(model: Any, step: int) -> None:
    chance = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                noise = torch.randn(parameter.shape, generator=chance)
                parameter.add_(0.2 * noise.to(parameter.dtype))


def test_versions_of_an_adapter_come_into_their_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    served = save_tiny_qwen3(tmp_path / "served")
    base = transformers.AutoModelForCausalLM.from_pretrained(served, dtype=torch.bfloat16)
    targets = ["q_proj", "v_proj", "down_proj"]
    settings = peft.LoraConfig(r=8, target_modules=targets, task_type="CAUSAL_LM")
    model = peft.get_peft_model(base, settings)
    run, folder, fresh = tmp_path / "run", tmp_path / "adapters", tmp_path / "fresh"
    model.save_pretrained(fresh / "0")
    files = [fresh / "0" / "adapter_config.json"]
    server = Server(served, tmp_path / "vllm.log", "--enable-lora", "--max-lora-rank", "8")
    try:
        said = [answers(server, str(served))]
        with wisp.Publisher(run, model, side_files=files, on_error="raise") as publisher:
            for step in range(1, 4):
                train(model, step)
                publisher.publish(step)
                publisher.flush()
                assert load_adapter(run, "math", folder, server.url).step == step
                model.save_pretrained(fresh / str(step))
                load_fresh(server, f"fresh-{step}", fresh / str(step))
                said.append(answers(server, "math"))
                assert said[-1] == answers(server, f"fresh-{step}")
                assert said[-1] not in said[:-1]
                (slot,) = [m for m in server.call("/v1/models")["data"] if m["id"] == "math"]
                assert slot["root"] == str(folder / f"math-{step}")
        assert answers(server, str(served)) == said[0]  # the base is as it was
        # An older version is asked for by its step.
        assert load_adapter(run, "math", folder, server.url, step=2, keep=3).step == 2
        assert answers(server, "math") == said[2]
        with pytest.raises(wisp.InvalidError, match="does not load 'other'"):
            load_adapter(wide_run(tmp_path, files[0]), "other", folder, server.url)
        assert answers(server, "math") == said[2]
    finally:
        server.close()


def wide_run(tmp_path: Path, config: Path) -> Path:
    """An adapter of a higher rank than the server has room for."""
    run, folder = tmp_path / "wide", tmp_path / "config"
    folder.mkdir()
    told = {**json.loads(config.read_text()), "r": 64}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    tensors = {name: torch.zeros(64, 64), name.replace("lora_A", "lora_B"): torch.zeros(128, 64)}
    files = [folder / "adapter_config.json"]
    with wisp.Publisher(run, tensors, side_files=files, on_error="raise") as publisher:
        publisher.publish(0)
    return run
