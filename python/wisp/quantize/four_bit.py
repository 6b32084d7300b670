"""Schemes with half a byte per element (e2m1), two to a byte; activations stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from .scheme import Part, Scheme, compressed_config, e8m0_codes, group_absmax, power_of_two

_FP4_LARGEST = 6.0
_FP8_LARGEST = 448.0
#: Weights that servers make one layer of: it has room for one scale of the whole.
_FUSED = re.compile(
    r"(?:^|\.)(?:([qkv])_proj|(gate|up)_proj|(w1|w3)|(q_a_proj|kv_a_proj_with_mqa))\.weight$"
)


def _packed(scaled: torch.Tensor) -> torch.Tensor:
    """Codes of e2m1, to the nearest and ties to even; the first of a pair in the lower bits."""
    size = scaled.abs()
    codes = torch.signbit(scaled).to(torch.uint8) << 3
    # 0, 0.5, 1, 1.5, 2, 3, 4, 6: where one ends and the next begins.
    for middle, next_is_even in (
        (0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True),
        (5.0, False),
    ):  # fmt: skip
        codes += ((size >= middle) if next_is_even else (size > middle)).to(torch.uint8)
    pairs = codes.unflatten(-1, (-1, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


class MxFp4(Scheme):
    """e2m1 in groups of 32 with a power of two each, in the layout of compressed-tensors."""

    multiple = 32

    def parts(self, rows: int, columns: int) -> list[Part]:
        return [
            Part("weight_packed", torch.uint8, (rows, columns // 2)),
            Part("weight_scale", torch.uint8, (rows, columns // 32)),
        ]

    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        codes = e8m0_codes(group_absmax(rows, 32), 2)
        if part == "weight_scale":
            return codes.to(torch.uint8)
        scaled = rows.unflatten(1, (-1, 32)) / power_of_two(codes)[:, :, None]
        return _packed(scaled.flatten(1))

    def config(self, kept: list[str]) -> dict[str, Any]:
        weights = {
            "num_bits": 4, "type": "float", "symmetric": True, "strategy": "group",
            "group_size": 32, "scale_dtype": "torch.uint8", "dynamic": False,
        }  # fmt: skip
        return compressed_config(weights, None, "mxfp4-pack-quantized", kept)


class NvFp4(Scheme):
    """e2m1 in groups of 16 with an e4m3 scale each, and one float32 scale for the tensor.

    The latter is the same for weights that servers fuse (q, k and v; gate and up).
    """

    multiple = 16

    def fused(self, name: str) -> str:
        found = _FUSED.search(name)
        return name if found is None else f"{name[: found.start()]} {found.lastindex}"

    def parts(self, rows: int, columns: int) -> list[Part]:
        return [
            Part("weight_packed", torch.uint8, (rows, columns // 2)),
            Part("weight_scale", torch.float8_e4m3fn, (rows, columns // 16)),
            Part("weight_global_scale", torch.float32, (1,)),
        ]

    def constant(self, chunks: Iterable[torch.Tensor]) -> torch.Tensor:
        absmax = torch.stack([chunk.abs().amax() for chunk in chunks]).amax()
        scale = _FP8_LARGEST * _FP4_LARGEST / absmax.clamp(min=torch.finfo(torch.float32).tiny)
        return torch.nan_to_num(scale, nan=1.0, posinf=1.0, neginf=1.0).reshape(1)

    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        if part == "weight_global_scale":
            whole: torch.Tensor = constant
            return whole
        scales = constant * (group_absmax(rows, 16) / _FP4_LARGEST)
        stored = scales.clamp(-_FP8_LARGEST, _FP8_LARGEST).to(torch.float8_e4m3fn)
        stored = torch.where(stored.float() == 0, 0.125, stored.float()).to(torch.float8_e4m3fn)
        if part == "weight_scale":
            return stored
        local = stored.float() / constant
        return _packed((rows.unflatten(1, (-1, 16)) / local[:, :, None]).flatten(1))

    def config(self, kept: list[str]) -> dict[str, Any]:
        weights = {
            "num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group",
            "group_size": 16, "scale_dtype": "torch.float8_e4m3fn", "dynamic": False,
        }  # fmt: skip
        return compressed_config(weights, None, "nvfp4-pack-quantized", kept)
