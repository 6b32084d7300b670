"""The policy: a small transformer that writes guesses, letter by letter.

Its architecture and tensor names are those of Hugging Face's Llama, so what `save` writes is also
served by vLLM and loaded by transformers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from game import LETTERS
from safetensors.torch import load_file, save_file
from tokens import ALPHABET, START, VOCABULARY, write_tokenizer
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """Named as in a Llama's config.json."""

    vocab_size: int = len(VOCABULARY)
    hidden_size: int = 256
    intermediate_size: int = 1024
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    max_position_embeddings: int = 128
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10_000.0
    tie_word_embeddings: bool = False

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.heads = shape.num_attention_heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, turn: Tensor, cache: Cache | None, layer: int) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotated(q, turn), rotated(k, turn)
        if cache is not None:
            k, v = cache.extend(layer, k, v)
        # One new token sees everything; several see what lies before each.
        past, new = k.shape[2] - q.shape[2], q.shape[2]
        mask = None
        if new > 1:
            mask = torch.ones(new, past + new, dtype=torch.bool).tril(past)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor, turn: Tensor, cache: Cache | None, layer: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)


class Policy(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        frequencies = shape.rope_theta ** -(torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = torch.arange(shape.max_position_embeddings)[:, None] * frequencies
        self.register_buffer(
            "turns", torch.polar(torch.ones_like(angles), angles), persistent=False
        )
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits for the token after each of `tokens` [games, length]."""
        start = 0 if cache is None else cache.length
        turn = self.turns[start : start + tokens.shape[1]]
        x = self.model.embed_tokens(tokens)
        for index, layer in enumerate(self.model.layers):
            x = layer(x, turn, cache, index)
        return self.lm_head(self.model.norm(x))


class Cache:
    """What the layers have already computed for the tokens so far."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        return self.parts[0][0].shape[2] if self.parts else 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self.parts:
            old_keys, old_values = self.parts[layer]
            keys, values = torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2)
        self.parts[layer] = keys, values
        return keys, values

    def keep(self, rows: Tensor) -> None:
        self.parts = {layer: (k[rows], v[rows]) for layer, (k, v) in self.parts.items()}


def rotated(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary positions, with the halves apart as Llama's checkpoints have them."""
    half = x.shape[-1] // 2
    spun = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat([spun.real, spun.imag], -1)


@torch.no_grad()
def write_guess(policy: Policy, told: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
    """Five letters after `told`, what the cache has not seen yet; and their log-probabilities."""
    letters, chances = [], []
    for _ in range(LETTERS):
        likely = policy(told, cache)[:, -1, :ALPHABET].log_softmax(-1)
        told = torch.multinomial(likely.exp(), 1)
        letters.append(told)
        chances.append(likely.gather(1, told))
    return torch.cat(letters, 1), torch.cat(chances, 1)


def letter_chances(policy: Policy, games: Tensor) -> Tensor:
    """Log-probabilities of tokens 1, 2, … of each game; of those that are marks, nonsense."""
    likely = policy(games[:, :-1])[..., :ALPHABET].log_softmax(-1)
    return likely.gather(2, games[:, 1:, None].clamp(max=ALPHABET - 1)).squeeze(2)


def save(policy: Policy, folder: Path) -> None:
    """A checkpoint of Hugging Face's layout, in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in policy.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "dtype": "bfloat16",
        "bos_token_id": START,
        "eos_token_id": VOCABULARY.index("<end>"),
        **asdict(policy.shape),
    }
    (folder / "config.json").write_text(json.dumps(settings, indent=2))
    write_tokenizer(folder)


def from_config(folder: Path) -> Policy:
    """A policy of the shape that the folder's config.json says, with weights yet to come."""
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    if settings.get("model_type") != "llama" or settings.get("vocab_size") != len(VOCABULARY):
        raise SystemExit(
            f"{path}: not a policy for this game; `warm_start.py` makes one "
            "(other models need ENGINE=vllm)"
        )
    return Policy(Shape(**{part.name: settings[part.name] for part in fields(Shape)}))


def load(folder: Path) -> Policy:
    """In float32, to compute with and to train."""
    policy = from_config(folder)
    policy.load_state_dict(load_file(folder / "model.safetensors"))
    return policy
