"""Where each element of a checkpoint lives in the parameters of a running model, on this rank.

An engine's model fuses, slices, stacks and pads what a checkpoint holds. How it does that is
learned from the model itself: its own `load_weights` runs once while every write to its memory is
caught, not done. The views that meet in each copy give an affine map from positions in the
checkpoint's tensor to offsets in the model's memory. A delta is then a scatter that costs what it
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch

from ... import _native
from ...errors import InvalidError, UnsupportedError
from .element_function import ElementFunction

__all__ = [
    "Layout", "LoadPlan", "Piece", "Region", "Target", "Write", "add_targets", "learn_layout",
    "targets_of",
]  # fmt: skip

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Hands (name, tensor) pairs to the model, as its own loader does.
Loader = Callable[[Iterable[tuple[str, torch.Tensor]]], object]
#: (name, torch dtype, shape) of every tensor of a checkpoint.
Schema = list[tuple[str, torch.dtype, tuple[int, ...]]]
#: What a loader writes: (target, view of its memory, values).
Write = tuple[int, torch.Tensor, torch.Tensor]
#: Bytes of a target: the first, and (size, stride) of each dimension.
Region = tuple[int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Layout:
    """An order of elements that the engine chose after loading, the same in every `unit`."""

    unit: int
    places: torch.Tensor  #: where each element that the loader knows of is now


@dataclass(frozen=True)
class Target:
    """One storage of the model: a parameter, or several that share their memory.

    Offsets are those that the loader sees; `layout` says where they are, if that is elsewhere.
    """

    name: str
    dtype: torch.dtype
    flat: torch.Tensor  #: all of the storage, as integers of the elements' width
    layout: Layout | None = None

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return int(self.flat.element_size())

    def place(self, offsets: torch.Tensor) -> torch.Tensor:
        """Where in `flat` the elements at these offsets are."""
        if self.layout is None:
            return offsets
        unit = self.layout.unit
        within = offsets % unit
        return offsets - within + self.layout.places[within]

    def read(self, sizes: list[int], strides: list[int], offset: int) -> torch.Tensor:
        """Elements as the loader sees them: the memory itself, or with a layout a copy of it."""
        if self.layout is None:
            return self.flat.as_strided(sizes, strides, offset)
        unit = self.layout.unit
        end = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        first, last = offset // unit, -(-end // unit)
        units = self.flat[first * unit : last * unit].view(-1, unit)
        seen = units[:, self.layout.places.to(units.device)].reshape(-1)
        return seen.as_strided(sizes, strides, offset - first * unit)


@dataclass(frozen=True)
class Piece:
    """A part of a checkpoint's tensor that lies in one target.

    `dims` are (size, stride in the checkpoint, stride in the target), by falling stride in the
    checkpoint: what is outside a step of one dimension lies within it in the next. `function`: what
    the loader does to each element on the way.
    """

    target: int
    source_offset: int
    target_offset: int
    dims: tuple[tuple[int, int, int], ...]
    function: ElementFunction | None = None

    @property
    def native(self) -> _native.PieceMap:
        """The same for loops over elements in host memory. Made anew: it must not be there when the
        interpreter ends, which nanobind would complain about."""
        return _native.PieceMap(self.source_offset, self.target_offset, list(self.dims))

    @property
    def count(self) -> int:
        """Elements of it."""
        total = 1
        for size, _, _ in self.dims:
            total *= size
        return total

    @property
    def source_end(self) -> int:
        """One past the last position in the checkpoint's tensor."""
        return self.source_offset + sum((size - 1) * stride for size, stride, _ in self.dims) + 1

    @property
    def target_end(self) -> int:
        """One past the last offset in the target."""
        return self.target_offset + sum((size - 1) * step for size, _, step in self.dims) + 1

    def source_view(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements in the flattened tensor of the checkpoint."""
        sizes = [size for size, _, _ in self.dims]
        return flat.as_strided(sizes, [stride for _, stride, _ in self.dims], self.source_offset)

    def target_view(self, target: Target) -> torch.Tensor:
        """Its elements in the target, in the same order."""
        sizes = [size for size, _, _ in self.dims]
        return target.read(sizes, [stride for _, _, stride in self.dims], self.target_offset)

    def locate(self, positions: torch.Tensor) -> tuple[int, int, torch.Tensor, torch.Tensor | None]:
        """Offsets in the target of those of the ascending `positions` that lie in this piece.

        (first, last, offsets, kept): of positions[first:last], those that `kept` (None: all) marks.
        """
        bounds = torch.tensor([self.source_offset, self.source_end])
        first, last = torch.searchsorted(positions, bounds).tolist()
        rest = positions[first:last] - self.source_offset
        if len(self.dims) == 1 and self.dims[0][1:] == (1, 1):
            return first, last, rest.add_(self.target_offset), None
        offsets = torch.full_like(rest, self.target_offset)
        kept: torch.Tensor | None = None
        for size, stride, step in self.dims:
            at = rest if stride == 1 else torch.div(rest, stride, rounding_mode="floor")
            offsets.add_(at, alpha=step)
            rest = rest - at * stride
            kept = _both(kept, at < size)
        kept = _both(kept, rest == 0)
        if kept is not None and bool(kept.all()):
            return first, last, offsets, None
        return first, last, offsets if kept is None else offsets[kept], kept


def _both(one: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    return other if one is None else one.logical_and_(other)


@dataclass
class LoadPlan:
    """The map of one rank, and the loader for what has no map."""

    targets: list[Target]
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    #: Tensors that the loader transforms, each with all that go into the same write.
    opaque: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: And the targets that they are written to.
    computed: dict[str, set[int]] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    #: Tensors that loading did read, though nothing of the loader's memory tells of it any more.
    consumed: set[str] = field(default_factory=set)
    #: Tensors of a draft model that uses the served model's in their place.
    shared: set[str] = field(default_factory=set)
    #: What the loader writes to: the targets, or what they are made of after loading.
    loaded: list[Target] = field(default_factory=list)
    #: All that it writes, by number of those, and the tensors whose values go there.
    written: dict[int, dict[Region, frozenset[str]]] = field(default_factory=dict)

    def absent(self) -> list[str]:
        """Tensors of which this rank holds nothing."""
        return [n for n in self.shapes if not self.pieces.get(n) and n not in self.opaque]

    def bytes_of(self, names: Iterable[str]) -> int:
        """Of these tensors in the checkpoint."""
        return sum(torch.Size(self.shapes[n]).numel() * self.dtypes[n].itemsize for n in names)

    def is_copy(self, name: str, piece: Piece) -> bool:
        """Whether its target holds the elements of a piece as they are, bit for bit."""
        return piece.function is None and self.targets[piece.target].dtype == self.dtypes[name]

    def convert(self, bits: torch.Tensor, name: str, piece: Piece) -> torch.Tensor:
        """Elements of a piece as its target holds them: computed, and rounded as a copy would."""
        if self.is_copy(name, piece):
            return bits
        dtype, target = self.dtypes[name], self.targets[piece.target]
        if piece.function is not None:
            values = piece.function(bits.view(dtype))
            return values.to(target.dtype).contiguous().view(_INTEGERS[target.width])
        return bits.view(dtype).to(target.dtype).view(_INTEGERS[target.width])

    def forget_pieces(self, name: str) -> None:
        """The loader runs for this tensor, whatever is known of it."""
        targets = {piece.target for piece in self.pieces.pop(name, ())}
        self.computed.setdefault(name, set()).update(targets)
        self.opaque.setdefault(name, (name,))

    def differences(
        self, name: str, bits: torch.Tensor
    ) -> Iterator[tuple[Piece, torch.Tensor, torch.Tensor]]:
        """Where this rank's memory differs from the whole tensor, in runs of a piece's first rows.

        (piece of those rows, their differing elements as a mask, their values for the target)
        """
        for piece in self.pieces.get(name, ()):
            target = self.targets[piece.target]
            for part in _parts(piece):
                wanted = self.convert(part.source_view(bits).contiguous(), name, part)
                wanted = wanted.to(target.flat.device)
                yield part, part.target_view(target) != wanted, wanted


_PART = 1 << 22  # elements compared at a time


def _parts(piece: Piece) -> Iterator[Piece]:
    if not piece.dims or piece.count <= _PART:
        yield piece
        return
    (size, stride, step), inner = piece.dims[0], piece.dims[1:]
    rows = max(1, _PART * size // piece.count)
    for first in range(0, size, rows):
        yield replace(
            piece,
            source_offset=piece.source_offset + first * stride,
            target_offset=piece.target_offset + first * step,
            dims=((min(rows, size - first), stride, step), *inner),
        )


def targets_of(model: torch.nn.Module, layouts: dict[int, Layout] | None = None) -> list[Target]:
    """Every storage of the model's parameters and buffers that has memory.

    layouts: for storages, by their address.
    """
    everything = [*model.named_parameters(), *model.named_buffers()]
    return add_targets([], dict(everything), layouts)


def add_targets(
    targets: list[Target],
    tensors: dict[str, torch.Tensor],
    layouts: dict[int, Layout] | None = None,
) -> list[Target]:
    """With the storages of these tensors that are not among them yet."""
    found = {target.flat.untyped_storage().data_ptr(): target for target in targets}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        if tensor.is_meta or storage.nbytes() == 0 or storage.data_ptr() in found:
            continue
        width = tensor.element_size()
        flat = torch.empty(0, dtype=_INTEGERS[width], device=tensor.device)
        flat.set_(storage, 0, (storage.nbytes() // width,), (1,))
        layout = (layouts or {}).get(storage.data_ptr())
        found[storage.data_ptr()] = Target(name, tensor.dtype, flat, layout)
    return list(found.values())


def learn_layout(
    pack: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> Layout:
    """Where `pack` puts the elements of a tensor: found by packing their numbers, bit by bit.

    UnsupportedError when it does more than move them.
    """
    width = torch.empty(0, dtype=dtype).element_size()
    numbers = torch.arange(torch.Size(shape).numel())
    came_from = torch.zeros_like(numbers)
    bits = 7 if width == 1 else 15
    for shift in range(0, max(1, len(numbers).bit_length()), bits):
        plane = ((numbers >> shift) & ((1 << bits) - 1)).to(_INTEGERS[width])
        packed = pack(plane.view(dtype).view(shape)).reshape(-1)
        if packed.numel() != numbers.numel() or packed.element_size() != width:
            raise UnsupportedError("weights are packed into another size than they have")
        came_from |= packed.view(_INTEGERS[width]).to(torch.int64) << shift
    places = torch.full_like(numbers, -1)
    places[came_from.clamp(0, len(numbers) - 1)] = numbers
    if bool((places < 0).any()):
        raise UnsupportedError("weights are packed in a way that is more than another order")
    return Layout(len(numbers), places)


def check_covers(plan: LoadPlan, proven: set[int]) -> None:
    """InvalidError if the plan writes to a target that no proof has reached."""
    for name, pieces in plan.pieces.items():
        for piece in pieces:
            if piece.target not in proven:
                raise InvalidError(
                    f"'{name}' goes to '{plan.targets[piece.target].name}', whose layout could not "
                    "be proven against the served checkpoint; serve a checkpoint that holds it"
                )
