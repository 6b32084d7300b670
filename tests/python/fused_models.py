"""Tiny models of transformers whose checkpoints have other tensors than their modules."""

from __future__ import annotations

import torch
import transformers


def _text(**more):
    return {
        "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
        "max_position_embeddings": 128, **more,
    }  # fmt: skip


def _deepseek(**more):
    return _text(
        num_key_value_heads=4, moe_intermediate_size=64, n_routed_experts=4, n_shared_experts=1,
        num_experts_per_tok=2, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=32,
        v_head_dim=32, first_k_dense_replace=1, **more,
    )  # fmt: skip


def mixtral():
    config = transformers.MixtralConfig(**_text(num_local_experts=4))
    return transformers.MixtralForCausalLM(config)


def deepseek_v2():
    config = transformers.DeepseekV2Config(**_deepseek(q_lora_rank=None, n_group=1, topk_group=1))
    return transformers.DeepseekV2ForCausalLM(config)


def deepseek_v3():
    more = {"q_lora_rank": 32, "n_group": 2, "topk_group": 1, "topk_method": "noaux_tc"}
    config = transformers.DeepseekV3Config(**_deepseek(**more))
    return transformers.DeepseekV3ForCausalLM(config)


def qwen3_moe():
    more = {"head_dim": 32, "moe_intermediate_size": 64, "num_experts": 4, "num_experts_per_tok": 2}
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**_text(**more)))


def gpt_oss():
    more = {"head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2}
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(**_text(**more)))


def phimoe():
    return transformers.PhimoeForCausalLM(
        transformers.PhimoeConfig(
            # As the published one has them, and vLLM expects them.
            attention_bias=True, lm_head_bias=True,
            **_text(num_local_experts=4, num_experts_per_tok=2),
        )  # fmt: skip
    )


def gemma3():
    config = transformers.Gemma3Config(
        text_config=_text(head_dim=32, sliding_window=64),
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
        },
        mm_tokens_per_image=4, image_token_index=5, boi_token_index=6, eoi_token_index=7,
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration(config)


FAMILIES = {
    "Mixtral": mixtral,
    "DeepSeek-V2": deepseek_v2,
    "DeepSeek-V3": deepseek_v3,
    "Qwen3-MoE": qwen3_moe,
    "GPT-OSS": gpt_oss,
    "Gemma3": gemma3,
    "PhiMoE": phimoe,
}


def make(family: str, dtype=torch.bfloat16):
    """A random model of the family, the same at every call."""
    torch.manual_seed(0)
    return FAMILIES[family]().to(dtype)


def train_a_little(model, seed: int) -> None:
    """Moves some elements of every parameter, as a step of training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            touched = torch.rand(parameter.shape, generator=generator) < 0.02
            parameter.add_(touched.to(parameter.dtype) * 0.03125)
