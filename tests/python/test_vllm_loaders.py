"""Real vLLM, models whose loaders or layers compute: every step is what a fresh load would give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from followed_engine import memory_of

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

import expert_kernels  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
import wisp  # noqa: E402
import wisp.vllm  # noqa: E402

BF16 = torch.bfloat16
SMALL = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip
LATENT = {
    "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 32, "qk_rope_head_dim": 64,
    "v_head_dim": 32, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
MIXER = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 16}
CONFIGS = {
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **{**SMALL, "hidden_size": 128}, head_dim=32, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=128, tie_word_embeddings=False,
    ),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL, head_dim=32, tie_word_embeddings=False),
    "mamba2": lambda: transformers.Mamba2Config(
        vocab_size=256, hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, expand=2,
        n_groups=1, state_size=16, chunk_size=16, tie_word_embeddings=False,
    ),
    "granite_hybrid": lambda: transformers.GraniteMoeHybridConfig(
        **SMALL, **MIXER, layer_types=["mamba", "attention"], num_local_experts=4,
        num_experts_per_tok=2, shared_intermediate_size=64, mamba_expand=2, mamba_chunk_size=16,
        tie_word_embeddings=False,
    ),
    "falcon_h1": lambda: transformers.FalconH1Config(
        **SMALL, **MIXER, mamba_d_ssm=128, mamba_expand=2, mamba_chunk_size=16, head_dim=32,
        tie_word_embeddings=False,
    ),
    "zamba2": lambda: transformers.Zamba2Config(
        **SMALL, mamba_d_state=16, mamba_ngroups=1, n_mamba_heads=8, mamba_expand=2,
        chunk_size=16, layers_block_type=["mamba", "hybrid"], num_mem_blocks=1,
        use_shared_attention_adapter=False,
    ),
    "nemotron_h": lambda: transformers.NemotronHConfig(
        **{**SMALL, "num_hidden_layers": 3}, layers_block_type=["mamba", "attention", "mlp"],
        mamba_num_heads=8, mamba_head_dim=16, n_groups=1, ssm_state_size=16, chunk_size=16,
        head_dim=32, tie_word_embeddings=False,
    ),
    "deepseek_v2": lambda: transformers.DeepseekV2Config(
        **SMALL, **LATENT, tie_word_embeddings=False,
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **SMALL, **LATENT, topk_method="noaux_tc", tie_word_embeddings=False,
    ),
}  # fmt: skip


class Training:
    """A saved checkpoint some of whose elements change in each step."""

    def __init__(self, folder: Path, kind: str, codec: str) -> None:
        torch.manual_seed(0)
        self.served, self.run = folder / "served", str(folder / "run")
        config = CONFIGS[kind]()
        transformers.AutoModelForCausalLM.from_config(config).to(BF16).save_pretrained(self.served)
        (file,) = self.served.glob("*.safetensors")
        self.tensors = load_file(file)
        self.publisher = wisp.Publisher(self.run, self.tensors, codec=codec)
        self._made = torch.Generator().manual_seed(1)

    def publish(self, step: int, share: float = 0.02) -> None:
        if step:
            self.change(share)
        self.publisher.publish(step)
        self.publisher.flush()

    def change(self, share: float) -> None:
        self.touch(self.tensors, share)

    def touch(self, tensors: dict[str, Any], share: float) -> None:
        for tensor in tensors.values():
            touched = torch.rand(tensor.shape, generator=self._made) < share
            noise = torch.randn(int(touched.sum()), generator=self._made) * 0.1
            tensor[touched] += noise.to(tensor.dtype)

    def save(self, folder: Path) -> Path:
        """As a fresh server would load it."""
        shutil.copytree(self.served, folder)
        (file,) = folder.glob("*.safetensors")
        save_file(self.tensors, file, {"format": "pt"})
        return folder


@contextmanager
def serving(folder: Path, run: str | None = None, **options: Any) -> Iterator[Any]:
    from vllm import LLM

    if run is not None:
        options["additional_config"] = {"wisp": {"run": run, "poll": 0.2}}
    llm = LLM(
        str(folder), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=64, max_num_seqs=2,
        enforce_eager=True, weight_transfer_config={"backend": "wisp"}, **options,
    )  # fmt: skip
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()


def model_of(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()


def answers(llm: Any) -> list[int]:
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=12, detokenize=False, ignore_eos=True)
    prompt = [{"prompt_token_ids": [7, 11, 13, 17, 19]}]
    return list(llm.generate(prompt, sampling, use_tqdm=False)[0].outputs[0].token_ids)


def differing(llm: Any) -> int:
    worker = llm.llm_engine.model_executor.driver_worker.worker
    return int(worker.weight_transfer_engine.verify())


def follow_and_compare(
    tmp_path: Path, kind: str, codec: str, make: type[Training] = Training, steps: int = 3,
    **options: Any,
) -> Any:  # fmt: skip
    training = make(tmp_path, kind, codec)
    try:
        with serving(training.served, training.run, **options) as llm:
            for step in range(steps + 1):
                training.publish(step)
                assert wisp.vllm.update(llm, step, timeout=120)["served"] == step
                assert differing(llm) == 0
            plan = model_plan(llm)
            followed, said = memory_of(model_of(llm)), answers(llm)
        with serving(training.save(tmp_path / "fresh"), **options) as llm:
            fresh, expected = memory_of(model_of(llm)), answers(llm)
    finally:
        training.publisher.close()
    assert set(followed) == set(fresh)
    for name, wanted in fresh.items():
        assert torch.equal(followed[name], wanted), name
    assert said == expected
    return plan


def model_plan(llm: Any) -> Any:
    worker = llm.llm_engine.model_executor.driver_worker.worker
    return worker.weight_transfer_engine._follower._plans.current


@pytest.mark.parametrize("kind", ["mamba2", "granite_hybrid", "falcon_h1", "zamba2", "nemotron_h"])
def test_what_a_loader_computes_is_followed(tmp_path: Path, kind: str) -> None:
    plan = follow_and_compare(tmp_path, kind, "swift" if kind == "granite_hybrid" else "compact")
    assert not plan.opaque
    computed = [n for n, pieces in plan.pieces.items() if any(p.function for p in pieces)]
    assert computed and all(name.endswith("A_log") for name in computed)


def scaled_fp8_quant(given: Any, scale: Any = None, *_: Any, **options: Any) -> tuple[Any, Any]:
    """vLLM's operator of this name, which its CPU build lacks."""
    values = given.float()
    if scale is None:
        by_token = options.get("use_per_token_if_dynamic", False)
        largest = values.abs().amax(-1, keepdim=True) if by_token else values.abs().amax().view(1)
        scale = (largest / 448).clamp_min(1e-12)
    return (values / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize(
    ("scales", "codec"), [("channel", "compact"), ("channel", "swift"), ("tensor", "compact")]
)
def test_a_quantised_server_follows_a_run_in_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scales: str, codec: str
) -> None:
    if scales == "tensor":
        monkeypatch.setattr("vllm._custom_ops.scaled_fp8_quant", scaled_fp8_quant)
    plan = follow_and_compare(tmp_path, "qwen3", codec, quantization=f"fp8_per_{scales}")
    assert all(name.endswith("_proj.weight") for name in plan.opaque) and len(plan.opaque) == 14
    # A step that touches one layer runs that layer.
    assert set(plan.opaque["model.layers.0.self_attn.q_proj.weight"]) == {
        f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"
    }


@pytest.mark.parametrize(
    ("way", "codec"), [("int8", "compact"), ("int8", "swift"), ("fp8", "compact")]
)
def test_quantised_experts_follow_a_run_in_bf16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, codec: str
) -> None:
    expert_kernels.install(monkeypatch)
    options: dict[str, Any] = {"quantization": "int8_per_channel_weight_only"}
    if way == "fp8":
        options = {
            "quantization": "online", "quantization_config": {"moe": "fp8_per_block_static"},
        }  # fmt: skip
    plan = follow_and_compare(tmp_path, "qwen3_moe", codec, **options)
    assert all(".mlp.experts." in name for name in plan.opaque) and len(plan.opaque) == 24
    # A step that touches one expert runs the experts of its layer.
    group = plan.opaque["model.layers.0.mlp.experts.0.up_proj.weight"]
    assert len(group) == 12 and all(".layers.0." in name for name in group)


class Int8Training(Training):
    """Compressed-tensors W8A8: int8 weights by channel and their scales, of masters in bf16."""

    def __init__(self, folder: Path, kind: str, codec: str) -> None:
        super().__init__(folder, kind, codec)
        self.publisher.close()
        self.masters = self.tensors
        self.run += "-int8"
        self.tensors = self.quantised()
        self.publisher = wisp.Publisher(self.run, self.tensors, codec=codec)
        weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
        inputs = {**weights, "strategy": "token", "dynamic": True}
        group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
        settings = {
            "quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"],
            "config_groups": {"group_0": group},
        }  # fmt: skip
        config = json.loads((self.served / "config.json").read_text())
        text = json.dumps({**config, "quantization_config": settings})
        (self.served / "config.json").write_text(text)
        (file,) = self.served.glob("*.safetensors")
        save_file(self.tensors, file, {"format": "pt"})

    def quantised(self) -> dict[str, Any]:
        made = {}
        for name, master in self.masters.items():
            if not name.endswith("_proj.weight"):
                made[name] = master.clone()
                continue
            scale = (master.float().abs().amax(1, keepdim=True) / 127).to(BF16)
            codes = (master.float() / scale.float()).round().clamp(-127, 127)
            made[name], made[f"{name}_scale"] = codes.to(torch.int8), scale
        return made

    def change(self, share: float) -> None:
        self.touch(self.masters, share)
        for name, tensor in self.quantised().items():
            self.tensors[name].copy_(tensor)


@pytest.mark.parametrize("codec", ["compact", "swift"])
def test_a_server_of_int8_weights_follows_a_quantised_run(tmp_path: Path, codec: str) -> None:
    follow_and_compare(tmp_path, "qwen3", codec, Int8Training, steps=10)


@pytest.mark.parametrize("kind", ["deepseek_v2", "deepseek_v3"])
def test_absorbed_attention_is_followed(tmp_path: Path, kind: str) -> None:
    plan = follow_and_compare(tmp_path, kind, "compact")
    assert not plan.opaque


def test_an_engine_that_copies_what_it_absorbs_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vllm.model_executor.layers.attention import mla_attention

    replace = mla_attention.replace_parameter

    def copied(layer: Any, name: str, tensor: Any, prefer_copy: bool = False) -> None:
        replace(layer, name, tensor.clone(memory_format=torch.contiguous_format), prefer_copy)

    monkeypatch.setattr(mla_attention, "replace_parameter", copied)
    plan = follow_and_compare(tmp_path, "deepseek_v2", "compact")
    assert not plan.opaque
    projection = plan.pieces["model.layers.0.self_attn.kv_b_proj.weight"]
    assert len({piece.target for piece in projection}) == 3  # itself, W_UK_T and W_UV
