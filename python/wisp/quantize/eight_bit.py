"""Schemes with a byte per element."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

from .scheme import (
    Part,
    Scheme,
    compressed_config,
    e8m0_codes,
    group_absmax,
    power_of_two,
    scales_of,
)

_FP8 = torch.float8_e4m3fn
_FP8_LARGEST = 448.0


def _as_fp8(scaled: torch.Tensor) -> torch.Tensor:
    return scaled.clamp(-_FP8_LARGEST, _FP8_LARGEST).to(_FP8)


class BlockFp8(Scheme):
    """e4m3 in blocks of 128 x 128, as DeepSeek-V3 is stored.

    scales: "fp32"; "ue8m0", rounded up to a power of two and stored as float32; or "e8m0", the same
      stored as its exponent.
    """

    unit_rows = 128

    def __init__(
        self,
        *,
        scales: Literal["fp32", "ue8m0", "e8m0"] = "fp32",
        ignore: Iterable[str] = (),
    ) -> None:
        super().__init__(ignore=ignore)
        if scales not in ("fp32", "ue8m0", "e8m0"):
            from ..errors import InvalidError

            raise InvalidError('scales is "fp32", "ue8m0" or "e8m0"')
        self._scales = scales

    def parts(self, rows: int, columns: int) -> list[Part]:
        blocks = (-(-rows // 128), -(-columns // 128))
        stored = torch.float8_e8m0fnu if self._scales == "e8m0" else torch.float32
        return [Part("weight", _FP8, (rows, columns)), Part("weight_scale_inv", stored, blocks)]

    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        height, width = rows.shape
        room = (0, -width % 128, 0, -height % 128)
        blocks = torch.nn.functional.pad(rows, room).unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
        scales = scales_of(blocks.abs().amax(dim=(1, 3)), _FP8_LARGEST)
        codes = None
        if self._scales != "fp32":
            bits = scales.view(torch.int32)
            codes = (bits + ((1 << 23) - 1)) >> 23  # of the next power of two
            scales = power_of_two(codes)
        if part == "weight_scale_inv":
            if self._scales == "e8m0" and codes is not None:
                return codes.to(torch.uint8).view(torch.float8_e8m0fnu)
            return scales
        scaled = blocks / scales[:, None, :, None]
        return _as_fp8(scaled.flatten(2, 3).flatten(0, 1)[:height, :width])

    def config(self, kept: list[str]) -> dict[str, Any]:
        config = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": kept,
        }
        return config if self._scales == "fp32" else {**config, "scale_fmt": "ue8m0"}


class _Channel(Scheme):
    """One float32 scale per row, and activations that are quantised token by token."""

    code_dtype: torch.dtype
    largest: float
    kind: Literal["int", "float"]

    def parts(self, rows: int, columns: int) -> list[Part]:
        scale = Part("weight_scale", torch.float32, (rows, 1))
        return [Part("weight", self.code_dtype, (rows, columns)), scale]

    def _codes(self, scaled: torch.Tensor) -> torch.Tensor:
        return _as_fp8(scaled)

    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        scales = scales_of(rows.abs().amax(dim=1, keepdim=True), self.largest)
        return scales if part == "weight_scale" else self._codes(rows / scales)

    def config(self, kept: list[str]) -> dict[str, Any]:
        both = {"num_bits": 8, "type": self.kind, "symmetric": True}
        weights = {**both, "strategy": "channel", "dynamic": False}
        activations = {**both, "strategy": "token", "dynamic": True}
        return compressed_config(weights, activations, f"{self.kind}-quantized", kept)


class ChannelFp8(_Channel):
    """e4m3 with a scale per row, in the layout of compressed-tensors (W8A8)."""

    code_dtype = _FP8
    largest = _FP8_LARGEST
    kind = "float"


class ChannelInt8(_Channel):
    """int8 with a scale per row, in the layout of compressed-tensors (W8A8)."""

    code_dtype = torch.int8
    largest = 127.5
    kind = "int"

    def _codes(self, scaled: torch.Tensor) -> torch.Tensor:
        return scaled.round().clamp(-128, 127).to(torch.int8)


class MxFp8(Scheme):
    """e4m3 in groups of 32 with a power of two each, in the layout of compressed-tensors."""

    multiple = 32

    def parts(self, rows: int, columns: int) -> list[Part]:
        scale = Part("weight_scale", torch.uint8, (rows, columns // 32))
        return [Part("weight", _FP8, (rows, columns)), scale]

    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        codes = e8m0_codes(group_absmax(rows, 32), 8)
        if part == "weight_scale":
            return codes.to(torch.uint8)
        return _as_fp8(rows.unflatten(1, (-1, 32)) / power_of_two(codes)[:, :, None]).flatten(1)

    def config(self, kept: list[str]) -> dict[str, Any]:
        both = {
            "num_bits": 8, "type": "float", "symmetric": True, "strategy": "group",
            "group_size": 32, "scale_dtype": "torch.uint8",
        }  # fmt: skip
        weights, activations = {**both, "dynamic": False}, {**both, "dynamic": True}
        return compressed_config(weights, activations, "mxfp8-quantized", kept)
