"""Copies of weights that vLLM keeps beside its parameters, in a layout of their own.

On a CPU, linear layers may be packed for oneDNN, AMX or zentorch, and the parameter emptied. A
write to the parameter would then change nothing that is served, or fail half-way. An engine with
this backend keeps its linear layers as they were loaded.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch

from ..engine.plan.load_plan import Layout, learn_layout
from ..errors import UnsupportedError
from .backend import is_ours

__all__ = ["expert_layouts", "keep_unpacked", "refuse_packed"]


def keep_unpacked() -> None:
    """Makes linear layers of engines with this backend use their parameters as they are, or keep
    them where oneDNN has to have a copy."""
    from vllm import _custom_ops as ops
    from vllm.config.vllm import get_current_vllm_config_or_none
    from vllm.model_executor.kernels.linear.scaled_mm import cpu as scaled
    from vllm.model_executor.layers import utils

    if getattr(utils.check_cpu_sgl_kernel, "knows_wisp", False):
        return

    def builds_ours() -> bool:
        """Whether the engine that is being built has this backend."""
        config = get_current_vllm_config_or_none()
        return is_ours(getattr(config, "weight_transfer_config", None))

    fits_amx, make_onednn = utils.check_cpu_sgl_kernel, ops.create_onednn_mm

    def check_cpu_sgl_kernel(n: int, k: int, dtype: torch.dtype) -> bool:
        if not builds_ours():
            return bool(fits_amx(n, k, dtype))
        if torch.cpu._is_amx_tile_supported():
            # vLLM's attention needs the kernel's leave to use AMX, and counts on oneDNN to ask.
            torch.cpu._init_amx()
        return False

    def create_onednn_mm(*args: Any, **kwargs: Any) -> Any:
        if builds_ours():
            # vLLM takes this for a CPU without oneDNN, and serves from the parameter.
            raise RuntimeError("kept unpacked, so that new weights reach what is served")
        return make_onednn(*args, **kwargs)

    make_scaled = ops.create_onednn_scaled_mm

    def create_onednn_scaled_mm(*args: Any, **kwargs: Any) -> Any:
        if not builds_ours():
            return make_scaled(*args, **kwargs)
        from .onednn import VisibleHandler

        given = inspect.signature(make_scaled).bind(*args, **kwargs)
        given.apply_defaults()
        return VisibleHandler(*given.arguments.values())

    check_cpu_sgl_kernel.knows_wisp = True  # type: ignore[attr-defined]
    utils.check_cpu_sgl_kernel = check_cpu_sgl_kernel
    scaled.check_cpu_sgl_kernel = check_cpu_sgl_kernel
    ops.create_onednn_mm = create_onednn_mm
    ops.create_onednn_scaled_mm = create_onednn_scaled_mm


def refuse_packed(model: torch.nn.Module) -> None:
    """UnsupportedError if a layer serves from another copy than its parameter."""
    for name, layer in model.named_modules():
        if hasattr(layer, "_cpu_unpacked_conv_weight"):
            raise UnsupportedError(
                f"vLLM has packed the convolution '{name}' for this CPU; {_CURE}"
            )
        gemm = getattr(layer, "cpu_linear", None)
        if gemm is None or gemm is torch.nn.functional.linear:
            continue
        weight = getattr(layer, "weight", None)
        emptied = isinstance(weight, torch.Tensor) and weight.numel() == 0
        if emptied or getattr(gemm, "__closure__", None) or getattr(gemm, "__defaults__", None):
            raise UnsupportedError(f"vLLM has packed the weights of '{name}' for this CPU; {_CURE}")


def expert_layouts(model: torch.nn.Module) -> dict[int, Layout]:
    """The order into which vLLM's CPU kernels put stacks of experts, by the stack's address."""
    from vllm._custom_ops import cpu_prepack_moe_weight

    layouts: dict[int, Layout] = {}
    learned: dict[Any, Layout] = {}
    for layer in model.modules():
        kernel = getattr(getattr(layer, "quant_method", None), "moe_kernel", None)
        experts = getattr(kernel, "fused_experts", None)
        isa = getattr(experts, "isa", None)
        if isa is None or getattr(experts, "_use_zentorch", True):
            continue
        for stack in (layer.w13_weight, layer.w2_weight):
            shape = (1, *stack.shape[1:])
            if (shape, stack.dtype) not in learned:
                pack = partial(cpu_prepack_moe_weight, isa=isa)
                learned[shape, stack.dtype] = learn_layout(pack, shape, stack.dtype)
            layouts[stack.untyped_storage().data_ptr()] = learned[shape, stack.dtype]
    return layouts


_CURE = (
    "it serves from that copy, which a step would not reach: serve this model on another device, "
    "or reload it from an export of each step"
)
