"""Where each element of a checkpoint lives in the parameters of a running model, on this rank.

An engine's model fuses, slices, stacks and pads what a checkpoint holds. How it does that is learned
from the model itself: its own `load_weights` runs once while every write to its memory is caught, not
done. The views that meet in each copy give an affine map from positions in the checkpoint's tensor to
offsets in the model's memory. A delta is then a scatter that costs what it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import Invalid, Unsupported

__all__ = ["LoadPlan", "Piece", "Target", "learn"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Hands (name, tensor) pairs to the model, as its own loader does.
Loader = Callable[[Iterable[tuple[str, torch.Tensor]]], object]
#: (name, torch dtype, shape) of every tensor of a checkpoint.
Schema = list[tuple[str, torch.dtype, tuple[int, ...]]]


@dataclass(frozen=True)
class Target:
    """One storage of the model: a parameter, or several that share their memory."""

    name: str
    dtype: torch.dtype
    flat: torch.Tensor  #: all of the storage, as integers of the elements' width

    @property
    def width(self) -> int:
        """Bytes of an element."""
        return self.flat.element_size()


@dataclass(frozen=True)
class Piece:
    """A part of a checkpoint's tensor that lies in one target.

    `dims` are (size, stride in the checkpoint, stride in the target), by falling stride in the
    checkpoint: what is outside a step of one dimension lies within it in the next.
    """

    target: int
    source_offset: int
    target_offset: int
    dims: tuple[tuple[int, int, int], ...]

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

    def source_view(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements in the flattened tensor of the checkpoint."""
        sizes = [size for size, _, _ in self.dims]
        return flat.as_strided(sizes, [stride for _, stride, _ in self.dims], self.source_offset)

    def target_view(self, flat: torch.Tensor) -> torch.Tensor:
        """Its elements in the target's memory, in the same order."""
        sizes = [size for size, _, _ in self.dims]
        return flat.as_strided(sizes, [stride for _, _, stride in self.dims], self.target_offset)

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
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def absent(self) -> list[str]:
        """Tensors of which this rank holds nothing."""
        return [n for n in self.shapes if not self.pieces.get(n) and n not in self.opaque]

    def convert(self, bits: torch.Tensor, name: str, target: Target) -> torch.Tensor:
        """Bits of the checkpoint's dtype as bits of the target's, rounded as a copy would."""
        dtype = self.dtypes[name]
        if dtype == target.dtype:
            return bits
        return bits.view(dtype).to(target.dtype).view(_INTEGERS[target.width])

    def differences(
        self, name: str, bits: torch.Tensor
    ) -> Iterator[tuple[Piece, torch.Tensor, torch.Tensor]]:
        """Where this rank's memory differs from the whole tensor, in runs of a piece's first rows.

        (piece of those rows, their differing elements as a mask, their values for the target)
        """
        for piece in self.pieces.get(name, ()):
            target = self.targets[piece.target]
            for part in _parts(piece):
                wanted = self.convert(part.source_view(bits).contiguous(), name, target)
                wanted = wanted.to(target.flat.device)
                yield part, part.target_view(target.flat) != wanted, wanted

    def capture(
        self, load: Loader, tensors: Iterable[tuple[str, torch.Tensor]]
    ) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
        """What the loader would write: (target, view of its memory, values). Writes nothing."""
        catcher = _Catcher(self.targets)
        with catcher, torch.no_grad():
            load(tensors)
        if catcher.unknown:
            raise Unsupported(_told_unknown(catcher.unknown))
        return catcher.writes


_PART = 1 << 22  # elements compared at a time


def _parts(piece: Piece) -> Iterator[Piece]:
    if not piece.dims or piece.count <= _PART:
        yield piece
        return
    (size, stride, step), inner = piece.dims[0], piece.dims[1:]
    rows = max(1, _PART * size // piece.count)
    for first in range(0, size, rows):
        dims = ((min(rows, size - first), stride, step), *inner)
        yield Piece(
            piece.target,
            piece.source_offset + first * stride,
            piece.target_offset + first * step,
            dims,
        )


def targets_of(model: torch.nn.Module) -> list[Target]:
    """Every storage of the model's parameters and buffers that has memory."""
    found: dict[int, Target] = {}
    everything = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in everything:
        storage = tensor.untyped_storage()
        if tensor.is_meta or storage.nbytes() == 0 or storage.data_ptr() in found:
            continue
        width = tensor.element_size()
        flat = torch.empty(0, dtype=_INTEGERS[width], device=tensor.device)
        flat.set_(storage, 0, (storage.nbytes() // width,), (1,))
        found[storage.data_ptr()] = Target(name, tensor.dtype, flat)
    return list(found.values())


def learn(load: Loader, targets: list[Target], schema: Schema) -> LoadPlan:
    """The plan of a model whose loader is `load`; nothing is written to its memory.

    Unsupported when the loader writes in a way that cannot be followed.
    """
    plan = LoadPlan(targets)
    catcher = _Catcher(targets)
    for name, dtype, shape in schema:
        plan.dtypes[name], plan.shapes[name] = dtype, shape
    with catcher, torch.no_grad():
        load(_sources(schema, catcher))
    if catcher.unknown:
        raise Unsupported(_told_unknown(catcher.unknown))
    groups: dict[str, set[str]] = {}
    for names, _ in catcher.transformed:
        joined = set(names).union(*(groups.get(name, set()) for name in names))
        for name in joined:
            groups[name] = joined
    for name, piece in catcher.pieces:
        if piece is None:
            groups.setdefault(name, {name})
        else:
            plan.pieces.setdefault(name, []).append(piece)
    for name, group in groups.items():
        plan.opaque[name] = tuple(sorted(group))
        plan.pieces.pop(name, None)
    return plan


def _sources(schema: Schema, catcher: _Catcher) -> Iterator[tuple[str, torch.Tensor]]:
    for name, dtype, shape in schema:
        # Memory that is never touched costs address space only.
        tensor = torch.empty(shape, dtype=dtype)
        catcher.announce(name, tensor)
        yield name, tensor


def _told_unknown(writes: list[str]) -> str:
    shown = "; ".join(writes[:3]) + (f"; and {len(writes) - 3} more" if len(writes) > 3 else "")
    return (
        f"the model's loader writes in a way that cannot be followed: {shown}; "
        "serve the model unquantised and in the dtype of the run, or reload it from an export"
    )


class _Catcher(TorchDispatchMode):
    """Catches every write to the targets, on the thread that enters it, and lets none through."""

    def __init__(self, targets: list[Target]) -> None:
        super().__init__()
        self._targets = targets
        self._where = {t.flat.untyped_storage().data_ptr(): i for i, t in enumerate(targets)}
        self._names: dict[int, set[str]] = {}  # storage -> tensors whose values went into it
        self._alive: list[torch.Tensor] = []  # so that no storage gets the address of another
        self._sources: dict[int, torch.Tensor] = {}
        self._current: str | None = None
        self.pieces: list[tuple[str, Piece | None]] = []
        self.transformed: list[tuple[set[str], int]] = []
        self.writes: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        self.unknown: list[str] = []

    def announce(self, name: str, tensor: torch.Tensor) -> None:
        """The loader is given this tensor next."""
        self._current = name
        if tensor.numel() == 0:
            return
        self._alive.append(tensor)
        key = tensor.untyped_storage().data_ptr()
        self._names[key] = {name}
        self._sources[key] = tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        written = _written(func, args, kwargs)
        for tensor in written:
            target = self._where.get(tensor.untyped_storage().data_ptr())
            if target is not None:
                self._write(func, target, tensor, args)
                return tensor
        result = func(*args, **kwargs)
        self._follow(written, args, kwargs, result)
        return result

    def _write(self, func: Any, target: int, view: torch.Tensor, args: tuple[Any, ...]) -> None:
        packet = func.overloadpacket
        aten = torch.ops.aten
        if packet is aten.copy_:
            source = args[1]
            self.writes.append((target, view, source.expand(view.shape)))
            self._note(target, view, source)
        elif packet in (aten.fill_, aten.zero_):
            value = 0 if packet is aten.zero_ else args[1]
            full = torch.as_tensor(value, dtype=view.dtype).expand(view.shape)
            self.writes.append((target, view, full))
            # A single element may arrive as a number; padding is the same each time.
            if self._current and view.numel() == 1 and packet is aten.fill_:
                self.pieces.append((self._current, None))
        else:
            self.unknown.append(f"{func} on '{self._targets[target].name}'")

    def _note(self, target: int, view: torch.Tensor, source: torch.Tensor) -> None:
        key = source.untyped_storage().data_ptr()
        names = self._names.get(key)
        if not names:
            return  # a constant, the same each time
        whole = self._sources.get(key)
        if whole is None or source.shape != view.shape or source.dtype != whole.dtype:
            self.transformed.append((names, target))
            return
        (name,) = names
        piece = _piece(target, self._targets[target], view, source)
        self.pieces.append((name, piece))

    def _follow(
        self, written: list[torch.Tensor], args: tuple[Any, ...], kwargs: Any, result: Any
    ) -> None:
        """What is computed from a checkpoint's tensor carries its name."""
        names: set[str] = set()
        for tensor in _tensors((args, kwargs)):
            names |= self._names.get(tensor.untyped_storage().data_ptr(), set())
        if not names:
            return
        for tensor in [*written, *_tensors(result)]:
            key = tensor.untyped_storage().data_ptr()
            if key in self._sources and not any(tensor is w for w in written):
                continue  # a view
            if key not in self._names:
                self._alive.append(tensor)
            self._names[key] = self._names.get(key, set()) | names
            if any(tensor is w for w in written):
                self._sources.pop(key, None)  # no longer what the checkpoint holds


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        if not values.is_meta:
            yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    if not func._schema.is_mutable:
        return found
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        found.extend(_tensors(value))
    return found


def _piece(
    index: int, target: Target, view: torch.Tensor, source: torch.Tensor
) -> Piece | None:
    """None when the views are not each other's image by steps alone."""
    if view.element_size() != target.width:
        return None
    dims = [
        (size, stride, step)
        for size, stride, step in zip(source.shape, source.stride(), view.stride(), strict=True)
        if size != 1
    ]
    dims.sort(key=lambda dim: -dim[1])
    joined: list[tuple[int, int, int]] = []
    for size, stride, step in dims:
        if joined and joined[-1][1] == stride * size and joined[-1][2] == step * size:
            joined[-1] = (joined[-1][0] * size, stride, step)
        else:
            joined.append((size, stride, step))
    inner = 1
    for size, stride, _ in reversed(joined):
        if stride < inner:
            return None  # elements that occur twice
        inner = (size - 1) * stride + inner
    return Piece(index, source.storage_offset(), view.storage_offset(), tuple(joined))


def check_covers(plan: LoadPlan, proven: set[int]) -> None:
    """Invalid if the plan writes to a target that no proof has reached."""
    for name, pieces in plan.pieces.items():
        for piece in pieces:
            if piece.target not in proven:
                raise Invalid(
                    f"'{name}' goes to '{plan.targets[piece.target].name}', whose layout could not "
                    "be proven against the served checkpoint; serve a checkpoint that holds it"
                )
