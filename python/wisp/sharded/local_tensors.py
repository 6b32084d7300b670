"""A sharded model as one rank holds it: ranges of flat tensors, and their bytes in host memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import InvalidError
from ..model.checkpoint_names import View
from ..publish.sources import DtypeRule, published_dtype
from ..tensors import byte_view, describe, dtype_text, is_dtensor, shape_of
from .shard_plan import Range


@dataclass(frozen=True)
class LocalTensor:
    """What this rank holds of one tensor."""

    name: str
    dtype: torch.dtype
    entry: tuple[str, str, tuple[int, ...]]  # as the schema has it
    elements: int
    held: Range
    in_rows: bool  # False: it is brought into rows at every publish
    source: str  # the tensor of the model that it lies in,
    offset: int  # so many elements behind the first,
    source_held: Range  # and what this rank holds of that
    source_shape: tuple[int, ...]  # on all ranks together; views are rank 0's, this is our own


def _as_rows(tensor: Any) -> Any:
    """The tensor with its rows, and nothing else, divided among the ranks. A collective."""
    from torch.distributed.tensor import Replicate, Shard

    placements = [Replicate() if p.is_replicate() else Shard(0) for p in tensor.placements]
    try:
        return tensor.redistribute(placements=placements)
    except (NotImplementedError, RuntimeError, ValueError):
        # Some ways between placements are not paved; every tensor can be made whole.
        return tensor.redistribute(placements=[Replicate()] * len(placements))


def _has_rows(tensor: Any) -> bool:
    from torch.distributed.tensor import Shard

    return all(p.is_replicate() or (type(p) is Shard and p.dim == 0) for p in tensor.placements)


def _held_rows(tensor: Any, shape: tuple[int, ...]) -> Range:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if tensor.device_mesh.get_coordinate() is None:
        return (0, 0)
    local, offset = compute_local_shape_and_global_offset(
        shape, tensor.device_mesh, tensor.placements
    )
    row = int(np.prod(shape[1:], dtype=np.int64)) if shape else 1
    if not shape:
        return (0, 1)
    return (offset[0] * row, (offset[0] + local[0]) * row) if 0 not in local else (0, 0)


def describe_local(name: str, view: View, tensor: Any, rule: DtypeRule) -> LocalTensor:
    """What this rank holds of a view of `tensor`. A collective if that is not divided by rows."""
    if tensor.is_meta:
        raise InvalidError(f"{describe(name, tensor)} has no memory yet; materialize it first")
    dtype = published_dtype(name, tensor, rule)
    probe = torch.empty(0, dtype=dtype)
    shape = tuple(int(size) for size in tensor.shape)
    entry = (name, dtype_text(probe), shape_of(torch.empty(view.shape, dtype=dtype, device="meta")))
    in_rows = True
    held = (0, int(np.prod(shape, dtype=np.int64)))
    if is_dtensor(tensor):
        in_rows = _has_rows(tensor)
        held = _held_rows(tensor if in_rows else _as_rows(tensor), shape)
    elements = int(np.prod(view.shape, dtype=np.int64))
    low = min(max(held[0] - view.offset, 0), elements)
    high = min(max(held[1] - view.offset, 0), elements)
    part = (low, high) if low < high else (0, 0)
    return LocalTensor(
        name, dtype, entry, elements, part, in_rows, view.source, view.offset, held, shape
    )  # fmt: skip


class StagedTensors:
    """The weights of this rank as they are now, brought to the host a few tensors at a time.

    keep: what bytes_of() gives is a copy, which training on leaves as it is.
    """

    def __init__(
        self, tensors: Mapping[str, Any], locals_: list[LocalTensor], *, keep: bool = False
    ) -> None:
        self._keep = keep
        self._tensors = tensors
        self._locals = locals_
        self._rows: dict[str, torch.Tensor] = {}

    def bring_into_rows(self) -> None:
        """Tensors that are not divided by rows, one after the other. A collective."""
        for local in self._locals:
            if not local.in_rows and local.source not in self._rows:
                self._rows[local.source] = _as_rows(self._tensors[local.source].detach()).to_local()

    def bytes_of(self, number: int, low: int, high: int) -> np.ndarray:
        """Elements [low, high) of what is held, in the published dtype; in place where it may."""
        local = self._locals[number]
        tensor = self._rows.get(local.source)
        if tensor is None:
            tensor = self._tensors[local.source].detach()
            tensor = tensor.to_local() if is_dtensor(tensor) else tensor
        start, end = local.source_held
        if tensor.numel() != end - start:
            raise InvalidError(
                f"tensor '{local.source}' has {tensor.numel()} elements on this rank, "
                f"{end - start} at first; it was replaced by another: make a new publisher"
            )
        # Rounded where it lies: what crosses to the host is what is published.
        first = local.offset - start
        part = tensor.reshape(-1)[first + low : first + high]
        host = part.to(local.dtype).to("cpu").contiguous()
        if self._keep and host.data_ptr() == part.data_ptr():
            host = host.clone()
        return byte_view(local.name, host)
