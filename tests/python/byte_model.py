"""Small language models with random weights and a tokenizer of bytes, as Hugging Face folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 320  # 256 bytes, the special tokens, and room

_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)
# How an answer is read back; TRL asks for it.
_ANSWER = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|start|>",
    "fields": {"content": {"close_pattern": r"<\|end\|>\s*", "content": "text"}},
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = models.BPE(vocab={text: number for number, text in enumerate(alphabet)}, merges=[])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|start|>", eos_token="<|end|>", pad_token="<|pad|>"
    )
    wrapped.chat_template = _TEMPLATE
    wrapped.response_template = _ANSWER
    return wrapped


def save_tiny_qwen3(folder: Path, *, tied: bool = True, **settings: Any) -> Path:
    """A Qwen3 of some 100,000 parameters in bf16."""
    tokenizer = byte_tokenizer()
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 512,
        **settings,
    }
    config = Qwen3Config(
        **sizes,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    """The weights in a folder that was saved here."""
    return load_file(folder / "model.safetensors")
