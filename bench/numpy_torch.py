"""The few corners of torch that `fireworks-delta-compression` touches, on top of numpy.

The package asks for torch, but only as a holder of bytes: it views tensors as integers and hands
them to numpy. A CUDA build of torch is half a gigabyte and more, so where none is installed this
stands in, and the package's own code makes the bytes: the same ones as with torch.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import safetensors.numpy

_NUMPY_TYPE = {
    "uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "float16": "<f2",
    "bfloat16": "<u2", "uint32": "<u4", "int32": "<i4", "float32": "<f4", "uint64": "<u8",
    "int64": "<i8", "float64": "<f8", "bool": "?", "float8_e4m3fn": "u1", "float8_e4m3fnuz": "u1",
    "float8_e5m2": "u1",
}


class dtype:  # noqa: N801, torch's own spelling
    """A named element type; prints as torch prints it, because the package stores that text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numpy_type = np.dtype(_NUMPY_TYPE[name])

    def __repr__(self) -> str:
        return f"torch.{self.name}"


_DTYPES = {name: dtype(name) for name in _NUMPY_TYPE}


class Tensor:
    """A numpy array with a torch dtype."""

    device = "cpu"

    def __init__(self, array: np.ndarray, kind: dtype | None = None) -> None:
        self._array = array
        self.dtype = kind or _DTYPES[array.dtype.name]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, slowest first."""
        return self._array.shape

    def contiguous(self) -> Tensor:
        """The same elements in row-major order."""
        return Tensor(np.ascontiguousarray(self._array), self.dtype)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape."""
        return Tensor(self._array.reshape(*shape), self.dtype)

    def flatten(self) -> Tensor:
        """The same elements in one dimension."""
        return self.reshape(-1)

    def view(self, kind: dtype) -> Tensor:
        """The same bytes as another type."""
        return Tensor(self._array.view(kind.numpy_type), kind)

    def clone(self) -> Tensor:
        """A copy."""
        return Tensor(self._array.copy(), self.dtype)

    def to(self, _device: object) -> Tensor:
        """There is one device."""
        return self

    cpu = detach = lambda self: self

    def numpy(self) -> np.ndarray:
        """The array itself, sharing memory."""
        return self._array

    def numel(self) -> int:
        """Elements."""
        return self._array.size

    def element_size(self) -> int:
        """Bytes per element."""
        return self._array.itemsize


def _save(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return safetensors.numpy.save({k: t.numpy() for k, t in tensors.items()}, metadata)


def _save_file(
    tensors: dict[str, Tensor], path: str, metadata: dict[str, str] | None = None
) -> None:
    safetensors.numpy.save_file({k: t.numpy() for k, t in tensors.items()}, path, metadata)


def _load(data: bytes) -> dict[str, Tensor]:
    return {k: Tensor(array) for k, array in safetensors.numpy.load(data).items()}


def _load_file(path: str, device: str = "cpu") -> dict[str, Tensor]:
    return {k: Tensor(array) for k, array in safetensors.numpy.load_file(path).items()}


def _module(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module


def install() -> None:
    """Puts the stand-in where `import torch` and `import safetensors.torch` will find it."""
    sys.modules["torch"] = _module(
        "torch",
        Tensor=Tensor,
        dtype=dtype,
        device=str,
        from_numpy=Tensor,
        bitwise_xor=lambda a, b: Tensor(a.numpy() ^ b.numpy(), a.dtype),
        empty=lambda shape, dtype, device=None: Tensor(np.empty(shape, dtype.numpy_type), dtype),
        frombuffer=lambda data, dtype: Tensor(np.frombuffer(data, dtype.numpy_type), dtype),
        inference_mode=lambda: lambda function: function,
        version=_module("torch.version", hip=None, cuda=None),
        cuda=_module("torch.cuda", is_available=lambda: False),
        **_DTYPES,
    )
    sys.modules["safetensors.torch"] = _module(
        "safetensors.torch", save=_save, save_file=_save_file, load=_load, load_file=_load_file
    )
