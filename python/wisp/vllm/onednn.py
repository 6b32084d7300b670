"""oneDNN's packed int8 weights, of which vLLM gives up the original on CPUs.

An engine with this backend keeps the original beside the packed copy, and packs it again when a
step has changed it: that happens in the pause, for the touched layers.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm import _custom_ops as ops

__all__ = ["VisibleHandler", "handlers_on"]


class VisibleHandler(ops.CPUDNNLGEMMHandler):  # type: ignore[misc]
    """A handler of vLLM's that can be made anew from its weights."""

    def __init__(self, weight: torch.Tensor, weight_scales: torch.Tensor, *settings: Any) -> None:
        super().__init__()
        self.k, self.n = weight.size()
        self.weight, self.weight_scales = weight, weight_scales
        self._settings = settings
        self.handler_tensor = torch.tensor(self._make(), dtype=torch.int64)

    def pack_again(self) -> None:
        """Its weights or scales have changed."""
        before = int(self.handler_tensor.item())
        self.handler_tensor.fill_(self._make())  # compiled graphs hold on to this tensor
        self.dtor(before)

    def _make(self) -> int:
        make = torch.ops._C.create_onednn_scaled_mm_handler
        return int(make(self.weight, self.weight_scales, *self._settings))


def handlers_on(held: Any) -> list[VisibleHandler]:
    """Those that hang on an object."""
    return [value for value in vars(held).values() if isinstance(value, VisibleHandler)]
