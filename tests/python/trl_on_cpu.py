"""For tests only: TRL's AsyncGRPOTrainer where there is no GPU.

TRL 1.16 takes a GPU for granted in two places: it asks torch.cuda for the name of the device, to
look up its peak speed, and it attends with a FlashAttention kernel that it downloads. Importing
this module answers the first with "cpu" and the second with scaled_dot_product_attention, which
computes the same. Nothing that publishes or transfers weights is touched.
"""

from __future__ import annotations

import os
import types
from typing import Any

# Before TRL is imported: nothing is downloaded, and it need not say that this part may change.
os.environ.update(HF_HUB_OFFLINE="1", TRL_EXPERIMENTAL_SILENCE="1")

import torch  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from trl.experimental.async_grpo import packing  # noqa: E402
from trl.trainer import utils  # noqa: E402


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_starts: torch.Tensor,
    key_starts: torch.Tensor,
    *_: Any,
    softmax_scale: float | None = None,
    causal: bool = True,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """FlashAttention's flash_attn_varlen_func: sequences end to end, causal at the bottom right."""
    assert causal and window_size == (-1, -1)
    parts = []
    q_ends, k_ends = query_starts[1:].tolist(), key_starts[1:].tolist()
    q_from = k_from = 0
    for q_to, k_to in zip(q_ends, k_ends, strict=True):
        one = (query[q_from:q_to], key[k_from:k_to], value[k_from:k_to])
        seen = torch.ones(q_to - q_from, k_to - k_from, dtype=torch.bool)
        seen = seen.tril(diagonal=(k_to - k_from) - (q_to - q_from))
        q, k, v = (part.transpose(0, 1)[None] for part in one)
        attended = scaled_dot_product_attention(
            q, k, v, attn_mask=seen, scale=softmax_scale, enable_gqa=True
        )
        parts.append(attended[0].transpose(0, 1))
        q_from, k_from = q_to, k_to
    return torch.cat(parts)


packing._flash_attn = lambda: types.SimpleNamespace(flash_attn_varlen_func=_attend)
_name_of_gpu = torch.cuda.get_device_name


def _name_of(device: Any = None) -> str:
    return _name_of_gpu(device) if torch.cuda.is_available() else "cpu"


utils.torch.cuda.get_device_name = _name_of
