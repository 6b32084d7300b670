"""Learns a LoadPlan from the model's own loader, by catching every write to the model's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import Error, InvalidError, UnsupportedError
from .coverage import region_of
from .element_codes import (
    CONSTANT,
    SHAPES_ONLY,
    ElementCodes,
    Expression,
    code_of,
    memory_code,
    numbers_of,
    positions_of,
    tensors_in,
    written_by,
)
from .element_map import factor
from .load_plan import Loader, LoadPlan, Piece, Region, Schema, Target, Write
from .written_pieces import last_of, piece_of

__all__ = ["LearningLoader", "LoaderError", "capture", "learn"]

_aten = torch.ops.aten


class LearningLoader(ABC):
    """A loader that does more than to call the model's: it says itself what that comes to."""

    @abstractmethod
    def learn(self, targets: list[Target], schema: Schema) -> LoadPlan:
        """As the function of this name; the plan may have more targets."""

    @abstractmethod
    def capture(self, plan: LoadPlan, tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Write]:
        """As the function of this name."""

    def written(self, targets: set[int]) -> None:  # noqa: B027 - most have nothing to do
        """The served memory of these targets has been written to; the engine stands still."""


def learn(load: Loader | LearningLoader, targets: list[Target], schema: Schema) -> LoadPlan:
    """The plan of a model whose loader is `load`; nothing is written to its memory.

    UnsupportedError when the loader writes in a way that cannot be followed; LoaderError when it
    fails.
    """
    if isinstance(load, LearningLoader):
        return load.learn(targets, schema)
    plan = LoadPlan(targets)
    learner = _Learner(targets)
    for name, dtype, shape in schema:
        plan.dtypes[name], plan.shapes[name] = dtype, shape
    try:
        with learner, torch.no_grad():
            load(_sources(schema, learner))
    except Error:
        raise
    except Exception as error:
        raise LoaderError(learner.current, error) from error
    learner.refuse_unknown()
    plan.loaded, plan.written = targets, learner.written
    groups: dict[str, set[str]] = {}
    for names, target in learner.transformed:
        for name in names:
            plan.computed.setdefault(name, set()).add(target)
        joined = set(names).union(*(groups.get(name, set()) for name in names))
        for name in joined:
            groups[name] = joined
    for name, piece in learner.pieces:
        plan.pieces.setdefault(name, []).append(piece)
    for name, pieces in plan.pieces.items():
        plan.pieces[name] = last_of(pieces)
    for name, group in groups.items():
        plan.opaque[name] = tuple(sorted(group))
        plan.pieces.pop(name, None)
    return plan


def capture(
    plan: LoadPlan, load: Loader | LearningLoader, tensors: Iterable[tuple[str, torch.Tensor]]
) -> list[Write]:
    """What the loader would write of tensors that the plan has no map of: (target, view of its
    memory, values). Writes nothing."""
    if isinstance(load, LearningLoader):
        return load.capture(plan, tensors)
    catcher = _Catcher(plan.targets)
    names: set[str] = set()

    def given() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in tensors:
            names.add(name)
            catcher.give(tensor)
            yield name, tensor

    with catcher, torch.no_grad():
        load(given())
    # At its end a loader may make something of all parameters, whatever it was given.
    wanted = set().union(*(plan.computed.get(name, set()) for name in names))
    return [write for write in catcher.final_writes() if write[0] in wanted]


class LoaderError(InvalidError):
    """The model's loader has failed with a run's tensors."""

    def __init__(self, name: str | None, cause: Exception) -> None:
        super().__init__(f"the model's loader fails at '{name}': {type(cause).__name__}: {cause}")
        self.name = name  #: the tensor that it was given last
        self.cause = cause


def _sources(schema: Schema, learner: _Learner) -> Iterator[tuple[str, torch.Tensor]]:
    for name, dtype, shape in schema:
        # Memory that is never touched costs address space only.
        tensor = torch.empty(shape, dtype=dtype)
        learner.announce(name, tensor)
        yield name, tensor


class _Catcher(TorchDispatchMode):  # type: ignore[misc]
    """Catches every write to the targets, on the thread that enters it, and lets none through.

    A loader that reads what it has written before is shown that, in a shadow of the target.
    """

    def __init__(self, targets: list[Target]) -> None:
        super().__init__()
        self._targets = targets
        self._where = {t.flat.untyped_storage().data_ptr(): i for i, t in enumerate(targets)}
        self._adopted: list[torch.UntypedStorage] = []  # so that none gets the address of another
        self._shadows: dict[int, torch.Tensor] = {}
        self._writes: list[Write] = []
        # Storages that values of the given tensors went into; a reference keeps its key its own.
        self._given: dict[int, StorageWeakRef] = {}

    def adopt(self, old: torch.Tensor, new: torch.Tensor) -> bool:
        """`new` takes the place of a target: what it holds and what is written to it counts as
        written to the target. False: that cannot be told."""
        target = self._where.get(old.untyped_storage().data_ptr())
        storage = new.untyped_storage()
        same = (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
        if target is None or not same or old.storage_offset() or new.storage_offset():
            return False
        if storage.data_ptr() == old.untyped_storage().data_ptr():
            return True
        if storage.nbytes() != new.numel() * new.element_size():
            return False  # a part of something: what is written to the rest is not the target's
        if self.holds_given(new):
            old.data.copy_(new.data)  # caught, like every write
        self._adopted.append(storage)
        self._where[storage.data_ptr()] = target
        return True

    def give(self, tensor: torch.Tensor) -> None:
        """The loader is given this tensor, or has made it from such."""
        storage = tensor.untyped_storage()
        self._given[storage._cdata] = StorageWeakRef(storage)

    def holds_given(self, tensor: torch.Tensor) -> bool:
        """Whether a value in it comes from what the loader was given."""
        return tensor.untyped_storage()._cdata in self._given

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        written = written_by(func, args, kwargs)
        for tensor in written:
            target = self._target(tensor)
            if target is not None:
                self._write(func, target, tensor, args, kwargs)
                return tensor
        reads = not any(returned.alias_info for returned in func._schema.returns)  # not views
        if reads and any(self._target(t) is not None for t in tensors_in((args, kwargs))):
            args, kwargs = self._shown(args), self._shown(kwargs)
        result = func(*args, **kwargs)
        self._ran(func, args, kwargs, result)
        return result

    def _target(self, tensor: torch.Tensor) -> int | None:
        return self._where.get(tensor.untyped_storage().data_ptr())

    def _shown(self, value: Any) -> Any:
        """With shadows in place of targets."""
        if isinstance(value, torch.Tensor):
            target = None if value.is_meta else self._target(value)
            if target is None or not self._is_written(target):
                self._reads_memory(target)
                return value
            return self._shadow(target, value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._shown(v) for v in value)
        if isinstance(value, dict):
            return {key: self._shown(v) for key, v in value.items()}
        return value

    def _shadow(self, target: int, view: torch.Tensor) -> torch.Tensor:
        """What the loading has written so far, in place of a view of a target."""
        if target not in self._shadows:
            held = self._targets[target]
            empty = torch.zeros(held.flat.numel(), dtype=held.dtype, device=held.flat.device)
            self._shadows[target] = empty
            self._fill_shadow(target, empty)
        flat = self._shadows[target]
        if flat.element_size() != view.element_size():
            flat = flat.view(view.dtype)
        shown = flat.as_strided(view.shape, view.stride(), view.storage_offset())
        return shown if shown.dtype == view.dtype else shown.view(view.dtype)

    def _write(
        self, func: Any, target: int, view: torch.Tensor, args: tuple[Any, ...], kwargs: Any
    ) -> None:
        packet = func.overloadpacket
        if packet is _aten.copy_:
            source = self._shown(args[1])
        elif packet is _aten.fill_ and not isinstance(args[1], torch.Tensor):
            source = torch.as_tensor(args[1], dtype=view.dtype, device=view.device)
        elif packet is _aten.zero_:
            source = torch.zeros((), dtype=view.dtype, device=view.device)
        else:  # in place: on the shadow, whose view then is what is written
            shown = self._shadow(target, view)
            given = [shown if a is view else self._shown(a) for a in args]
            options = {k: shown if v is view else self._shown(v) for k, v in kwargs.items()}
            self._ran(func, tuple(given), options, func(*given, **options))
            source = shown.clone()
            self._ran(_aten.clone.default, (shown,), {}, source)
        source = source.expand(view.shape)
        self._caught(func, target, view, source)
        if target in self._shadows:
            shown = self._shadow(target, view)
            shown.copy_(source)
            self._ran(_aten.copy_.default, (shown, source), {}, shown)

    def final_writes(self) -> list[Write]:
        """Where something was written twice, what was written last."""
        views: dict[int, list[torch.Tensor]] = {}
        for target, view, _ in self._writes:
            views.setdefault(target, []).append(view)
        again = {target for target, those in views.items() if _may_overlap(those)}
        again |= self._shadows.keys()
        return [
            (i, view, self._shadow(i, view).clone() if i in again else values)
            for i, view, values in self._writes
        ]

    def _is_written(self, target: int) -> bool:
        return any(index == target for index, _, _ in self._writes)

    def _caught(self, func: Any, target: int, view: torch.Tensor, source: torch.Tensor) -> None:
        self._writes.append((target, view, source))

    def _fill_shadow(self, target: int, flat: torch.Tensor) -> None:
        for index, view, values in self._writes:
            if index == target:
                self._shadow(target, view).copy_(values)
        self.give(flat)

    def _reads_memory(self, target: int | None) -> None:
        """A read of what no write of this loading has reached."""

    def _ran(self, func: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        """An operator, on something else than targets."""
        read = () if func.overloadpacket in SHAPES_ONLY else tensors_in((args, kwargs))
        if any(map(self.holds_given, read)):
            for tensor in [*written_by(func, args, kwargs), *tensors_in(result)]:
                self.give(tensor)


def _may_overlap(views: list[torch.Tensor]) -> bool:
    spans = []
    for view in views:
        ends = [(n - 1) * s for n, s in zip(view.shape, view.stride(), strict=True)]
        spans.append((view.storage_offset(), view.storage_offset() + sum(ends) + 1))
    spans.sort()
    return any(one[1] > two[0] for one, two in zip(spans, spans[1:], strict=False))


#: Where a write went: (sizes, strides, offset).
_Region = tuple[tuple[int, ...], tuple[int, ...], int]


class _Learner(_Catcher):
    """Learns where what is written comes from. The values are not looked at."""

    def __init__(self, targets: list[Target]) -> None:
        super().__init__(targets)
        self._codes = ElementCodes()
        self._current: str | None = None
        # By target: each write's region, and its codes as pieces, or the names it is made of.
        self._known: dict[int, list[tuple[_Region, list[Piece] | None, list[int], set[str]]]] = {}
        self._unknown: list[tuple[str, set[int]]] = []
        self.pieces: list[tuple[str, Piece]] = []
        self.transformed: list[tuple[set[str], int]] = []
        self.written: dict[int, dict[Region, frozenset[str]]] = {}

    def announce(self, name: str, tensor: torch.Tensor) -> None:
        """The loader is given this tensor next."""
        self._current = name
        # They can be made again, and a model's worth of them is too much.
        self._shadows.clear()
        if tensor.numel():
            self._codes.announce(name, tensor)

    def holds_given(self, tensor: torch.Tensor) -> bool:
        """Also what comes from memory, which is refused when it is written."""
        return bool(self._codes.names(tensor))

    @property
    def current(self) -> str | None:
        """What the loader was given last."""
        return self._current

    def refuse_unknown(self) -> None:
        """UnsupportedError if something depends on what was in memory before."""
        writes = [text for text, targets in self._unknown if not targets.isdisjoint(self._known)]
        if not writes:
            return
        more = f"; and {len(writes) - 3} more" if len(writes) > 3 else ""
        raise UnsupportedError(
            "the model's loader makes new weights out of what is in memory before it runs: "
            f"{'; '.join(writes[:3])}{more}; reload the server from an export of each step"
        )

    def _is_written(self, target: int) -> bool:
        return target in self._known

    def _reads_memory(self, target: int | None) -> None:
        if target is not None:
            flat = self._targets[target].flat
            if not self._codes.names(flat):
                self._codes.adopt(flat, {_memory(target)}, memory_code(target))

    def _ran(self, func: Any, args: tuple[Any, ...], kwargs: Any, result: Any) -> None:
        self._codes.follow(func, args, kwargs, result)

    def _fill_shadow(self, target: int, flat: torch.Tensor) -> None:
        known = self._known.get(target, [])
        is_whole = any(torch.Size(region[0]).numel() == flat.numel() for region, _, _, _ in known)
        self._codes.adopt(flat, set() if is_whole else {_memory(target)}, memory_code(target))
        for region, pieces, numbers, names in known:
            view = flat.as_strided(*region)
            if pieces is None:
                self._codes.put(view, names, None)
                continue
            self._codes.put(view, names, torch.tensor(CONSTANT))
            for piece, number in zip(pieces, numbers, strict=True):
                held = flat.as_strided(
                    [dim[0] for dim in piece.dims], [dim[2] for dim in piece.dims],
                    piece.target_offset,
                )  # fmt: skip
                codes = torch.tensor(code_of(number, piece.source_offset))
                for size, stride, _ in piece.dims:
                    codes = codes.unsqueeze(-1) + torch.arange(size) * stride
                self._codes.put(held, names, self._codes.as_dtype(codes, flat.dtype))

    def _caught(self, func: Any, target: int, view: torch.Tensor, source: torch.Tensor) -> None:
        names = {n for n in self._codes.names(source) if not n.startswith(_MEMORY)}
        if func.overloadpacket is _aten.fill_ and view.numel() == 1 and self._current:
            names = {self._current}  # a single element may arrive as a number
            found = None
        else:
            found = self._found(func, target, view, source)
        region = (tuple(view.shape), tuple(view.stride()), view.storage_offset())
        pieces = None if found is None else [piece for _, piece in found]
        numbers = [] if found is None else [number for number, _ in found]
        self._known.setdefault(target, []).append((region, pieces, numbers, names))
        self.written.setdefault(target, {})[region_of(view)] = frozenset(names)
        if found is None:
            self.transformed.append((names, target))
        for number, piece in found or ():
            self.pieces.append((self._codes.expressions[number].name, piece))

    def _found(
        self, func: Any, target: int, view: torch.Tensor, source: torch.Tensor
    ) -> list[tuple[int, Piece]] | None:
        """(expression, piece) of each part of a write; None: it is computed from whole tensors."""
        everything = self._codes.names(source)
        if not everything:
            return []  # the same each time
        held = self._targets[target]
        same_width = view.element_size() == held.width
        number = self._codes.source(source)
        if number is not None and same_width:
            piece = piece_of(target, view, source)
            if piece is not None:
                return [(number, piece)]
        codes = self._codes.codes(source)
        if codes is None:
            memories = {int(n[len(_MEMORY) :]) for n in everything if n.startswith(_MEMORY)}
            if memories:
                self._unknown.append((f"{func} on '{held.name}'", memories))
            return None if len(everything) > len(memories) else []
        memories = {-2 - code for code in codes[codes < CONSTANT].unique().tolist()}
        if memories:
            self._unknown.append((f"{func} on '{held.name}'", memories))
        return self._pieces(target, view, codes) if same_width else None

    def _pieces(
        self, target: int, view: torch.Tensor, codes: torch.Tensor
    ) -> list[tuple[int, Piece]] | None:
        places = torch.tensor(view.storage_offset())
        for size, stride in zip(view.shape, view.stride(), strict=True):
            places = places.unsqueeze(-1) + torch.arange(size) * stride
        codes, places = codes.reshape(-1), places.reshape(-1)
        numbers = numbers_of(codes)
        found: list[tuple[int, Piece]] = []
        for number in numbers[codes >= 0].unique().tolist():
            mine = numbers == number
            parts = factor(positions_of(codes[mine]), places[mine])
            if parts is None:
                return None
            expression: Expression = self._codes.expressions[number]
            for first, place, dims in parts:
                found.append((number, Piece(target, first, place, dims, expression.function)))
        return found


_MEMORY = "\0memory of "  # no tensor has such a name


def _memory(target: int) -> str:
    return f"{_MEMORY}{target}"
