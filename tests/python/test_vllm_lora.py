"""A real vLLM server whose weights follow one run while an adapter is in a slot of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from vllm_process import VllmServer  # noqa: E402

import wisp  # noqa: E402
from wisp.engine import Driver  # noqa: E402


@pytest.fixture
def served(tmp_path):
    return save_tiny_qwen3(tmp_path / "model")


@pytest.fixture
def server(served, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "1")
    options = ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "3", "--max-cpu-loras", "3"]
    made = VllmServer(served, tmp_path / "vllm.log", *options).start()
    yield made
    made.kill()


def answer(server, model):
    """What it generates, and how sure it is of each token."""
    asked = {"model": str(model), "prompt": "weights", "max_tokens": 12, "temperature": 0,
             "logprobs": 1, "ignore_eos": True}  # fmt: skip
    (choice,) = server.post("/v1/completions", asked)["choices"]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def test_weights_under_an_adapter_are_switched(served, server, tmp_path):
    """The model follows one run, the adapter another; a step of the first leaves the second."""
    base = AutoModelForCausalLM.from_pretrained(served, dtype=torch.bfloat16)
    weights = {name: tensor.detach().clone() for name, tensor in base.state_dict().items()
               if name != "lm_head.weight"}  # fmt: skip
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    model.save_pretrained(tmp_path / "saved")
    run = str(tmp_path / "run")
    server.wait_ready(900)
    server.post("/v1/load_lora_adapter",
                {"lora_name": "math", "lora_path": str(tmp_path / "saved")})  # fmt: skip
    before = answer(server, "math")
    with wisp.Publisher(run, weights, on_error="raise") as publisher:
        publisher.publish(0)
        publisher.flush()
        with Driver(run, [server.url], watch=0) as driver:
            (report,) = driver.update(0)
            assert report.ok, report.error
            assert answer(server, "math") == before
            for name, tensor in weights.items():
                if "proj" in name:
                    tensor.mul_(1.5)
            publisher.publish(1)
            publisher.flush()
            (report,) = driver.update(1)
            assert report.ok and report.served == 1, report.error
    after = answer(server, "math")
    assert after != before
    assert server.post("/wisp/verify")["differing"] == 0
    # The same weights and the same adapter, from files.
    merged = AutoModelForCausalLM.from_pretrained(served, dtype=torch.bfloat16)
    merged.load_state_dict(weights, strict=False)
    merged.save_pretrained(tmp_path / "moved")
    for file in served.iterdir():
        if not (tmp_path / "moved" / file.name).exists():
            (tmp_path / "moved" / file.name).write_bytes(file.read_bytes())
    server.kill()
    fresh = VllmServer(tmp_path / "moved", tmp_path / "fresh.log", "--enable-lora",
                       "--max-lora-rank", "8", "--max-loras", "3", "--max-cpu-loras", "3",
                       "--lora-modules", f"math={tmp_path / 'saved'}")  # fmt: skip
    try:
        fresh.start().wait_ready(900)
        assert answer(fresh, "math") == after
    finally:
        fresh.kill()
