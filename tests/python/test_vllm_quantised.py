"""Real vLLM serves what the trainer quantised: outputs are those of a fresh load.

    pytest tests/python/test_vllm_quantised.py [-m "not slow"]
"""

from __future__ import annotations

import pytest
from followed_engine import Engine

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

import expert_kernels  # noqa: E402
import fused_models  # noqa: E402
import narrow_kernels  # noqa: E402
import transformers  # noqa: E402
import wisp  # noqa: E402
import wisp.quantize  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.vllm.offline import verify_offline  # noqa: E402


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16)


def mixture():
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=32, max_position_embeddings=128,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=128,
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config).to(torch.bfloat16)


def publisher_of(run, model, folder, quantize="int8_channel"):
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    files = [folder / "config.json"]
    return wisp.Publisher(run, model, quantize=quantize, side_files=files, on_error="raise")


def test_a_fresh_engine_loads_what_was_published(tmp_path):
    run, model = tmp_path / "run", llama()
    with publisher_of(run, model, tmp_path / "config") as publisher:
        publisher.publish()
    wisp.export(run, tmp_path / "export")
    engine = Engine(tmp_path / "export")
    try:
        tokens = [tokens for tokens, _ in engine.answers()]
    finally:
        engine.close()
    assert all(len(answer) == 8 for answer in tokens)


#: What is published, by the way it is served.
SCHEMES = {
    "int8": "int8_channel",
    "fp8": "fp8_channel",
    "int8 experts": "int8_channel",
    "fp8 blocks": "fp8_block",
    "fp8 blocks, UE8M0": wisp.quantize.BlockFp8(scales="ue8m0"),
    "fp8 blocks, UE8M0 stored as exponents": wisp.quantize.BlockFp8(scales="e8m0"),
    "fp8 experts": "fp8_block",
    "fp8 experts, UE8M0": wisp.quantize.BlockFp8(scales="ue8m0"),
    "mxfp8": "mxfp8",
    "mxfp8, decoded while it loads": "mxfp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
}
#: Steps whose outputs a fresh load must give; memory is proven after each.
COMPARED = {"int8": range(1, 11)}
FIRST_AND_LAST = (1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SCHEMES))
def test_ten_steps_are_served_as_a_fresh_load_would(tmp_path, monkeypatch, kind):
    run = tmp_path / "run"
    model = mixture() if "experts" in kind else llama()
    expert_kernels.install(monkeypatch)
    narrow_kernels.install(monkeypatch)
    decoded = "1" if "decoded" in kind else "0"
    monkeypatch.setenv("VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD", decoded)
    quantize = SCHEMES[kind]
    answers = {}
    with publisher_of(run, model, tmp_path / "config", quantize) as publisher:
        publisher.publish(0)
        publisher.flush()
        wisp.export(run, tmp_path / "served")
        engine = Engine(tmp_path / "served", run)
        try:
            for step in range(1, 11):
                fused_models.train_a_little(model, step)
                publisher.publish(step)
                publisher.flush()
                assert wisp.vllm.update(engine.llm, step, timeout=120)["served"] == step
                assert verify_offline(engine.llm) == 0
                answers[step] = engine.answers()
        finally:
            engine.close()
    for step in COMPARED.get(kind, FIRST_AND_LAST):
        wisp.export(run, tmp_path / f"export-{step}", step=step)
        fresh = Engine(tmp_path / f"export-{step}")
        try:
            assert fresh.answers() == answers[step], step
        finally:
            fresh.close()
