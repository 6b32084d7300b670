"""Torch and numpy tensors as the library sees them: a name, a dtype, a shape, and bytes in place.

Nothing is copied. Torch is never imported here: a caller with torch tensors has it already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _native
from .errors import InvalidError, UnsupportedError

#: Dtypes as safetensors spells them, by the name that torch, numpy and ml_dtypes give them.
DTYPES: dict[str, str] = {
    "bool": "BOOL",
    "bool_": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}

#: (name, dtype as safetensors spells it, shape).
TensorEntry = tuple[str, str, tuple[int, ...]]
#: One entry of what `_native.HostWeights` is made from.
HostEntry = tuple[str, str, tuple[int, ...], np.ndarray]


#: In the names of a module that torch.compile has wrapped.
_COMPILED = "_orig_mod."


@dataclass(frozen=True)
class NamedTensors:
    """The tensors of a model, each memory once; `aliases` are further names of tied weights."""

    tensors: dict[str, Any]
    aliases: dict[str, str] = field(default_factory=dict)


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: object) -> bool:
    """Whether `value` is a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_dtensor(value: object) -> bool:
    """Whether a tensor is spread over the ranks of a device mesh."""
    return type(value).__name__ == "DTensor" or hasattr(value, "device_mesh")


def dtype_text(tensor: Any) -> str:
    """The dtype as safetensors spells it; UnsupportedError for others (complex128, quantized)."""
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise UnsupportedError(f"dtype {tensor.dtype} has no place in a safetensors file")
    return DTYPES[name]


def torch_dtype(text: str) -> Any:
    """The torch dtype that safetensors spells `text`."""
    import torch

    for name, spelled in DTYPES.items():
        if spelled == text and hasattr(torch, name):
            return getattr(torch, name)
    raise UnsupportedError(f"this torch has no dtype for {text}")


def describe(name: str, tensor: Any) -> str:
    """A tensor for error messages: name, shape, dtype, device."""
    where = f" on {tensor.device}" if is_torch(tensor) else ""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"tensor '{name}' ({dtype} {list(tensor.shape)}{where})"


def _identity(tensor: Any) -> tuple[Any, ...] | None:
    """Equal for two tensors that are the same memory seen the same way; None: shares nothing."""
    if is_torch(tensor):
        local = getattr(tensor, "_local_tensor", tensor)
        if tensor.is_meta or local.numel() == 0 or str(tensor.layout) != "torch.strided":
            return None
        seen = (tuple(tensor.shape), tuple(local.stride()), tensor.dtype)
        return (str(tensor.device), local.data_ptr(), *seen)
    if tensor.size == 0:
        return None
    where = tensor.__array_interface__["data"][0]
    return (where, tensor.shape, tensor.strides, tensor.dtype.name)


def unwrapped(model: Any) -> Any:
    """The module inside torch.compile, DistributedDataParallel and the like."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if inner is None:
            return model
        model = inner


def state_of(model: Any) -> Any:
    """The tensors of a module by name, without what torch.compile puts into names of layers."""
    if not is_module(model):
        return model
    state = model.state_dict(keep_vars=True)
    return {name.replace(_COMPILED, ""): tensor for name, tensor in state.items()}


def entries_of(source: Any) -> Mapping[str, Any]:
    """The state dict of a torch module; a mapping as it is."""
    source = state_of(source)
    if not isinstance(source, Mapping):
        raise InvalidError(
            f"a torch module or a dict of tensors by name is needed, not {type(source).__name__}"
        )
    return source


def named_tensors(source: Any) -> NamedTensors:
    """What a torch module, a state dict, or a dict of torch or numpy arrays holds, by name.

    A module gives its state dict: parameters and persistent buffers. Tied weights come once, under
    the name that is first in the state dict. Entries that are no tensors (extra state) are refused.
    """
    tensors: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in entries_of(source).items():
        if not isinstance(name, str) or not (is_torch(tensor) or isinstance(tensor, np.ndarray)):
            raise InvalidError(f"'{name}' is no tensor but {type(tensor).__name__}; leave it out")
        identity = _identity(tensor)
        if identity is not None and identity in seen:
            aliases[name] = seen[identity]
            continue
        if identity is not None:
            seen[identity] = name
        tensors[name] = tensor
    return NamedTensors(tensors, aliases)


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape that a safetensors file would give; packed fp4 counts its halves."""
    shape = tuple(int(size) for size in tensor.shape)
    if shape and dtype_text(tensor) == "F4":
        shape = (*shape[:-1], shape[-1] * 2)
    return shape


def byte_view(name: str, tensor: Any, *, writable: bool = False) -> np.ndarray:
    """The bytes of a contiguous tensor in host memory, as a flat array that shares them.

    Raises InvalidError for a tensor that is not contiguous, on a device, or without memory.
    """
    if is_torch(tensor):
        import torch

        if is_dtensor(tensor):
            raise InvalidError(f"{describe(name, tensor)} is sharded; hand over its local tensor")
        if tensor.is_meta:
            raise InvalidError(f"{describe(name, tensor)} has no memory yet; materialize it first")
        if tensor.device.type != "cpu":
            raise InvalidError(
                f"{describe(name, tensor)} is not in host memory; copy it there first"
            )
        if tensor.layout != torch.strided or not tensor.is_contiguous():
            raise InvalidError(
                f"{describe(name, tensor)} is not contiguous; pass tensor.contiguous() instead"
            )
        if tensor.is_conj() or tensor.is_neg():
            raise InvalidError(f"{describe(name, tensor)} is a lazy conjugate; resolve it first")
        if tensor.numel() == 0:
            return np.empty(0, np.uint8)
        seen: np.ndarray = tensor.detach().reshape(-1).view(torch.uint8).numpy()
        return seen
    if not tensor.flags.c_contiguous:
        raise InvalidError(
            f"{describe(name, tensor)} is not contiguous; pass numpy.ascontiguousarray(it) instead"
        )
    if not tensor.dtype.isnative:
        raise InvalidError(f"{describe(name, tensor)} is not little-endian")
    if writable and not tensor.flags.writeable:
        raise InvalidError(f"{describe(name, tensor)} is read-only")
    flat: np.ndarray = tensor.reshape(-1)
    return flat.view(np.uint8)


def host_entries(tensors: Iterable[tuple[str, Any]], *, writable: bool = False) -> list[HostEntry]:
    """What `_native.HostWeights` is made from, one entry per (name, tensor)."""
    entries = []
    for name, tensor in tensors:
        try:
            dtype = dtype_text(tensor)
        except UnsupportedError as error:
            raise UnsupportedError(f"{describe(name, tensor)}: {error}") from None
        view = byte_view(name, tensor, writable=writable)
        entries.append((name, dtype, shape_of(tensor), view))
    return entries


def host_weights(source: Any, *, writable: bool = False) -> _native.HostWeights:
    """A view of a module, state dict or dict of arrays in host memory; tied weights once."""
    entries = host_entries(named_tensors(source).tensors.items(), writable=writable)
    return _native.HostWeights(entries, writable)
