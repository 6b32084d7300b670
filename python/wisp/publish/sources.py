"""The tensors to publish: the name of each, its dtype, and how its elements are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native
from ..errors import InvalidError, UnsupportedError
from ..model.checkpoint_names import ComputedTensor, Naming
from ..tensors import describe, dtype_text, is_dtensor, is_torch, shape_of

#: What a user may say about the dtype to publish in.
DtypeRule = Any | Callable[[str, Any], Any] | None


@dataclass(frozen=True)
class Source:
    """One tensor of the model as it is now, and the dtype it is published in."""

    name: str
    tensor: Any
    dtype: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def count(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def device(self) -> Any:
        """Of torch tensors; None for numpy."""
        return getattr(self.tensor, "device", None) if is_torch(self.tensor) else None

    @property
    def is_cast(self) -> bool:
        return dtype_name(self.dtype) != dtype_name(self.tensor.dtype)

    @property
    def in_place(self) -> bool:
        """Whether the library can read it where it lies, rounding it if need be."""
        if not is_torch(self.tensor):
            contiguous = bool(self.tensor.flags.c_contiguous)
        elif self.tensor.device.type != "cpu":
            return False
        else:
            contiguous = self.tensor.is_contiguous()
        return contiguous and (not self.is_cast or self.rounds)

    @property
    def rounds(self) -> bool:
        return (dtype_name(self.tensor.dtype), dtype_name(self.dtype)) == ("float32", "bfloat16")

    def elements(self, first: int, count: int) -> Any:
        """Elements of the flat tensor, before the cast. A copy, of rows that hold them, only where
        the tensor is not contiguous."""
        tensor = self.tensor.detach() if is_torch(self.tensor) else self.tensor
        contiguous = tensor.is_contiguous() if is_torch(tensor) else tensor.flags.c_contiguous
        while not contiguous and tensor.shape[0] == 1:
            tensor = tensor[0]
        if contiguous or tensor.ndim < 2:
            return tensor.reshape(-1)[first : first + count]
        row = self.count // tensor.shape[0]
        low, high = first // row, -(-(first + count) // row)
        return tensor[low:high].reshape(-1)[first - low * row : first - low * row + count]


@dataclass(frozen=True)
class MadeSource(Source):
    """A tensor that is made when it is read: `tensor` has its shape, dtype and device only."""

    make: Callable[[int, int], Any]

    @property
    def device(self) -> Any:
        return self.tensor.device

    @property
    def in_place(self) -> bool:
        return False

    def elements(self, first: int, count: int) -> Any:
        return self.make(first, count)


def published_dtype(name: str, tensor: Any, rule: DtypeRule) -> Any:
    """The dtype that followers get `tensor` in."""
    if rule is None:
        return tensor.dtype
    if not is_torch(tensor) and isinstance(tensor, np.ndarray):
        return _array_dtype(name, tensor, rule)
    if callable(rule) and not isinstance(rule, type(tensor.dtype)):
        wanted = rule(name, tensor)
        return tensor.dtype if wanted is None else wanted
    return rule if tensor.dtype.is_floating_point else tensor.dtype


def dtype_named(dtype: DtypeRule | str) -> DtypeRule:
    """A rule for dtypes; the name of a torch dtype becomes that."""
    if not isinstance(dtype, str):
        return dtype
    import torch

    named = getattr(torch, dtype, None)
    if not isinstance(named, torch.dtype):
        raise InvalidError(f"torch has no dtype {dtype!r}")
    return named


def _array_dtype(name: str, array: np.ndarray, rule: DtypeRule) -> Any:
    """The same of a numpy array: dtypes of numpy, of ml_dtypes and, by their names, of torch."""
    is_dtype = isinstance(rule, (str, type, np.dtype)) or str(rule).startswith("torch.")
    wanted = rule(name, array) if callable(rule) and not is_dtype else rule
    if wanted is None or (is_dtype and not dtype_text(array).startswith(("F", "BF"))):
        return array.dtype
    return np.dtype(wanted) if isinstance(wanted, (str, type)) else wanted


def sources_of(naming: Naming, rule: DtypeRule) -> tuple[dict[str, Source], dict[str, str]]:
    """The model's tensors by name, and the aliases of tied ones. Looked up anew at each publish."""
    named, aliases = naming.tensors()
    sources: dict[str, Source] = {}
    for name, tensor in named.items():
        dtype = published_dtype(name, tensor, rule)
        if isinstance(tensor, ComputedTensor):
            sources[name] = _computed(name, tensor, dtype)
            continue
        if is_dtensor(tensor):
            raise InvalidError(f"{describe(name, tensor)} is sharded; use wisp.ShardedPublisher")
        if is_torch(tensor) and tensor.is_meta:
            raise InvalidError(f"{describe(name, tensor)} has no memory yet; materialize it first")
        sources[name] = Source(name, tensor, dtype)
    return sources, aliases


def _computed(name: str, tensor: ComputedTensor, dtype: Any) -> Source:
    def make(first: int, count: int) -> Any:
        return tensor.value().reshape(-1)[first : first + count]

    return MadeSource(name, tensor, dtype, make)


class _Typed:
    """A tensor's shape with another dtype, for dtype_text() and shape_of()."""

    def __init__(self, dtype: Any, shape: Any) -> None:
        self.dtype = dtype
        self.shape = shape


def schema_of(sources: dict[str, Source]) -> _native.Schema:
    """Names, dtypes as published, shapes."""
    entries = []
    for source in sources.values():
        typed = _Typed(source.dtype, source.shape)
        try:
            entries.append((source.name, dtype_text(typed), shape_of(typed)))
        except UnsupportedError as error:
            raise UnsupportedError(f"{describe(source.name, source.tensor)}: {error}") from None
    return _native.Schema(entries)


def dtype_name(dtype: Any) -> str:
    """`bfloat16` for torch's, numpy's and ml_dtypes' type of that name."""
    return str(dtype).removeprefix("torch.")


def numpy_dtype(source: Source) -> np.dtype[Any]:
    """What numpy writes the source as."""
    try:
        return np.dtype(dtype_name(source.dtype))
    except TypeError:
        raise UnsupportedError(
            f"numpy cannot write {describe(source.name, source.tensor)} as "
            f"{dtype_name(source.dtype)}; import ml_dtypes, or hand over torch tensors"
        ) from None


def item_size(source: Source) -> int:
    if source.device is not None:
        return int(source.dtype.itemsize)
    return int(numpy_dtype(source).itemsize)
