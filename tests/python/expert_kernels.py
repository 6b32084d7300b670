"""vLLM's operators for quantised experts and for linear layers in blocks of fp8, in Python: its CPU
build has them for AMX only."""

from __future__ import annotations

from typing import Any

import torch

_ROWS = 16  # of a tile


def pack(weight: torch.Tensor) -> torch.Tensor:
    """Matrices in tiles of 16 rows, in each tile groups of columns together; int8 with its sums.

    Like AMX's order: a permutation for fp8; for int8 each row's compensation comes behind it.
    """
    if weight.dim() == 2:
        return pack(weight[None])[0]
    experts, rows, columns = weight.shape
    group = 4 if weight.dtype == torch.int8 else 2
    bits = weight.view(torch.int8)
    tiles = bits.view(experts, rows // _ROWS, _ROWS, columns // group, group)
    packed = tiles.transpose(2, 3).reshape(experts, rows, columns)
    if weight.dtype != torch.int8:
        return packed.contiguous().view(weight.dtype)
    sums = weight.to(torch.int32).sum(2, dtype=torch.int32) * 128
    return torch.cat([packed, sums.view(torch.int8).view(experts, rows, 4)], 2).contiguous()


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """The way back; int8 whose sums are another step's is refused."""
    whole = packed.dtype == torch.int8
    group = 4 if whole else 2
    experts, rows = packed.shape[:2]
    bits = packed.view(torch.int8)
    codes = bits[..., :-4] if whole else bits
    columns = codes.shape[2]
    tiles = codes.reshape(experts, rows // _ROWS, columns // group, _ROWS, group)
    found = tiles.transpose(2, 3).reshape(experts, rows, columns)
    if whole:
        sums = bits[..., -4:].contiguous().view(torch.int32).view(experts, rows)
        assert torch.equal(sums, found.to(torch.int32).sum(2, dtype=torch.int32) * 128)
    return found.contiguous().view(packed.dtype)


def _values(packed: torch.Tensor, scale: torch.Tensor, block: list[int] | None) -> torch.Tensor:
    codes = unpack(packed).float()
    experts, rows, columns = codes.shape
    if block is None:
        return codes * scale.view(experts, rows, 1)
    wide = scale.repeat_interleave(block[0], 1).repeat_interleave(block[1], 2)
    return codes * wide[:, :rows, :columns]


def fused_experts(
    out: Any, hidden: Any, w1: Any, w2: Any, weights: Any, ids: Any, method: Any, w1_scale: Any,
    w2_scale: Any, w1_zero: Any, w2_zero: Any, block: Any, *_: Any,
) -> None:  # fmt: skip
    first, second = _values(w1, w1_scale, block), _values(w2, w2_scale, block)
    for token, (shares, chosen) in enumerate(zip(weights, ids, strict=True)):
        made = torch.zeros(hidden.shape[1])
        for share, expert in zip(shares, chosen.tolist(), strict=True):
            gate, up = (first[expert] @ hidden[token].float()).chunk(2)
            made += share.float() * (second[expert] @ (torch.nn.functional.silu(gate) * up))
        out[token] = made.to(out.dtype)


def scaled_mm(
    x: Any, weight: Any, scale: Any, block: Any, bias: Any, dtype: Any, packed: bool
) -> torch.Tensor:
    assert packed and bias is None  # what the models of the tests have
    values = _values(weight[None], scale[None], list(block))[0]
    return (x.float() @ values.T).to(dtype)


def install(monkeypatch: Any) -> None:
    """In place of those that this machine cannot run."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.experts import cpu_moe

    blocks = linear.CPUFp8BlockScaledMMKernel
    monkeypatch.setattr(blocks, "is_supported", classmethod(lambda cls, *_: (True, None)))
    monkeypatch.setattr(torch.ops._C, "fp8_scaled_mm_cpu", scaled_mm, raising=False)

    for kind in (cpu_moe.CPUExpertsInt8, cpu_moe.CPUExpertsFp8):
        monkeypatch.setattr(kind, "_supports_current_device", staticmethod(lambda: True))
    monkeypatch.setattr(cpu_moe, "fused_experts_cpu", fused_experts)
    monkeypatch.setattr(torch.ops._C, "convert_weight_packed", pack, raising=False)
