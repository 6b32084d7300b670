"""Linear layers in mxfp8, mxfp4 and nvfp4 for a vLLM on a CPU, whose build has no kernels for them."""

from __future__ import annotations

from typing import Any

import torch

_FP4 = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6])


def fp4_values(packed: torch.Tensor) -> torch.Tensor:
    """Two elements of e2m1 to a byte, the first in the lower bits."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
    return torch.where(codes >= 8, -1.0, 1.0) * _FP4[(codes & 7).int()]


def _scaled(values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    groups = values.unflatten(-1, (scales.shape[-1], -1))
    return (groups * scales[..., None]).flatten(-2)


def install(monkeypatch: Any) -> None:
    """mxfp8 by vLLM's own emulation, which it offers to other platforms; fp4 by what is here."""
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    class Whole:
        """Keeps what was loaded, and decodes it with every call."""

        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, None]:
            return True, None

        @classmethod
        def can_implement(cls, config: Any) -> tuple[bool, None]:
            return True, None

        def process_weights_after_loading(self, layer: Any) -> None:
            pass

        def weight(self, layer: Any) -> torch.Tensor:
            raise NotImplementedError

        def apply_weights(self, layer: Any, x: torch.Tensor, bias: Any = None) -> torch.Tensor:
            return torch.nn.functional.linear(x, self.weight(layer).to(x.dtype), bias)

    class MxFp4(Whole, linear.MxFp4LinearKernel):
        def weight(self, layer: Any) -> torch.Tensor:
            scales = torch.exp2(layer.weight_scale.float() - 127)
            return _scaled(fp4_values(layer.weight), scales)

    class NvFp4(Whole, linear.NvFp4LinearKernel):
        def weight(self, layer: Any) -> torch.Tensor:
            scales = layer.weight_scale.float() * layer.weight_global_scale
            return _scaled(fp4_values(layer.weight), scales)

    cpu = PlatformEnum.CPU
    mxfp8 = linear.EmulationMxfp8LinearKernel
    monkeypatch.setitem(linear._POSSIBLE_MXFP8_KERNELS, cpu, [mxfp8])
    monkeypatch.setitem(linear._POSSIBLE_MXFP4_KERNELS, cpu, [MxFp4])
    # For weights alone in nvfp4 vLLM asks no table, but takes this one.
    monkeypatch.setattr(linear, "MarlinNvFp4LinearKernel", NvFp4)
