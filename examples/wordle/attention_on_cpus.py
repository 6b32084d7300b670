"""TRL's AsyncGRPO where there is no GPU.

It attends with a FlashAttention kernel for GPUs, and asks CUDA for the name of the device to look
up its peak speed. `answer_for_gpu` does the second, `use_plain_attention` replaces the first by
PyTorch's scaled_dot_product_attention, which computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from trl.experimental.async_grpo.packing import TREE_ATTENTION


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, *,
    tree_kv_index: Tensor, tree_cu_seqlens_q: Tensor, tree_cu_seqlens_k: Tensor,
    scaling: float | None = None, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Pieces of many games end to end; each piece sees itself and its own game before it."""
    new = [end - start for start, end in pairwise(tree_cu_seqlens_q.tolist())]
    seen = [end - start for start, end in pairwise(tree_cu_seqlens_k.tolist())]
    keys, values = (x.index_select(2, tree_kv_index).split(seen, 2) for x in (key, value))
    mixed = []
    for q, k, v in zip(query.split(new, 2), keys, values, strict=True):
        length, whole = q.shape[2], k.shape[2]
        mask = torch.ones(length, whole, dtype=torch.bool).tril(whole - length)
        mixed.append(
            scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, enable_gqa=True)
        )
    return torch.cat(mixed, 2).transpose(1, 2), None


def use_plain_attention() -> None:
    """After the trainer was made, which registers its own."""
    AttentionInterface.register(TREE_ATTENTION, attend)


@contextmanager
def answer_for_gpu() -> Iterator[None]:
    """While the trainer is made. A GPU answers by itself."""
    if torch.cuda.is_available():
        yield
        return
    with patch("torch.cuda.get_device_name", lambda *_: "cpu"):
        yield
