"""A second model of the same make, for what vLLM does to its weights after loading them.

It is made like the first, without memory, and its layers get some when they are worked on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..engine.plan.load_plan import Layout
from ..engine.stage.held_tensors import objects_on, tensors_on
from ..engine.stage.layer_reprocessor import LayerReprocessor, ScratchLayer
from ..errors import UnsupportedError
from .onednn import handlers_on
from .versions import is_deferred_attention

__all__ = ["computing_layers", "reprocessor_of"]


def reprocessor_of(
    model: torch.nn.Module, vllm_config: Any, layouts: dict[int, Layout]
) -> LayerReprocessor | None:
    """None if the model serves from its parameters as they were loaded."""
    paths = computing_layers(model)
    if not paths:
        return None
    for path in paths:
        _refuse_hidden(path, model.get_submodule(path))
    scratch = _build(vllm_config)
    device = next(model.parameters()).device
    units = []
    for path in paths:
        layer = scratch.get_submodule(path)
        _copy_buffers(model.get_submodule(path), layer)
        units.append(ScratchLayer(path, _processing(layer, vllm_config, device)))
    packed = [
        ([handler.weight, handler.weight_scales], handler.pack_again)
        for path in paths
        for held in objects_on(model.get_submodule(path))
        for handler in handlers_on(held)
    ]
    return LayerReprocessor(
        model, scratch, lambda given: scratch.load_weights(given), units, layouts, packed
    )


def computing_layers(model: torch.nn.Module) -> list[str]:
    """Paths of layers that are quantised, or that keep copies of weights."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
    from vllm.model_executor.layers.quantization.kv_cache import BaseKVCacheMethod

    registered = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    found: list[str] = []
    for path, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if is_deferred_attention(module):
            held = tensors_on(module).values()
            copies = [t for t in held if t.untyped_storage().data_ptr() not in registered]
            holds = next(module.parameters(), None) is not None
            computes = holds and (any(t.numel() > 1 for t in copies) or _absorbs(module))
        else:
            computes = (
                isinstance(method, QuantizeMethodBase)
                and not isinstance(method, BaseKVCacheMethod)
                and not type(method).__name__.startswith("Unquantized")
            )
        if computes:
            found.append(path)
    # A layer within another is processed along with it.
    return [p for p in found if not any(p.startswith(f"{other}.") for other in found)]


def _absorbs(module: torch.nn.Module) -> bool:
    """Whether it has parameters that were made after loading. Views of others need nothing."""
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

    loaded = get_layerwise_info(module).restore_metadata[0]
    own = [(n, p.untyped_storage().data_ptr()) for n, p in module.named_parameters(recurse=False)]
    others = {p.untyped_storage().data_ptr() for n, p in module.named_parameters() if "." in n}
    return any(name not in loaded and place not in others for name, place in own)


def _refuse_hidden(path: str, module: torch.nn.Module) -> None:
    for held in objects_on(module):
        for name, value in vars(held).items():
            is_handle = type(value).__name__ == "CPUDNNLGEMMHandler"
            if is_handle or isinstance(value, torch.ScriptObject):
                raise UnsupportedError(
                    f"vLLM keeps the weights of '{path}' in '{name}', which is oneDNN's own and "
                    "cannot be written to; serve this model on another device, or reload it from "
                    "an export of each step"
                )


def _build(vllm_config: Any) -> torch.nn.Module:
    from vllm.model_executor.model_loader.reload.meta import materialize_meta_tensor
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config = copy.copy(vllm_config)
    config.compilation_config = copy.copy(vllm_config.compilation_config)
    # Layers are looked up there by name when they serve; these never do.
    config.compilation_config.static_forward_context = {}
    config.compilation_config.static_all_moe_layers = []
    try:
        with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
            scratch: torch.nn.Module = initialize_model(config)
    except Exception as error:
        raise UnsupportedError(
            "the model is quantised or keeps copies of its weights, and a second one to make them "
            f"with could not be set up: {type(error).__name__}: {error}; serve it unquantised, or "
            "reload it from an export of each step"
        ) from error
    for module in scratch.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            loader: Any = getattr(parameter, "weight_loader", None)
            while getattr(loader, "__name__", "") == "online_process_loader":
                loader = loader.__wrapped__  # vLLM would process as soon as all is loaded
                parameter.weight_loader = loader
            if parameter.is_meta:
                with torch.device("cpu"):
                    module._parameters[name] = materialize_meta_tensor(parameter)
    return scratch


def _copy_buffers(served: torch.nn.Module, scratch: torch.nn.Module) -> None:
    """What no checkpoint holds, and processing may look at."""
    for path, part in scratch.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and buffer.is_meta:
                same = served.get_submodule(path)._buffers.get(name)
                fits = same is not None and same.shape == buffer.shape
                empty = torch.zeros_like(buffer, device="cpu")
                part._buffers[name] = same.clone() if fits else empty


def _parts(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    for part in module.modules():
        if isinstance(getattr(part, "quant_method", None), QuantizeMethodBase):
            yield part


def _processing(
    module: torch.nn.Module, vllm_config: Any, device: torch.device
) -> Callable[[], object]:
    from vllm.config import set_current_vllm_config

    def process() -> None:
        with set_current_vllm_config(vllm_config):
            for parameter in module.parameters():
                parameter.data = parameter.data.to(device)
            for part in _parts(module):
                part.quant_method.process_weights_after_loading(part)
            if is_deferred_attention(module):
                module.process_weights_after_loading(vllm_config.model_config.dtype)

    return process
