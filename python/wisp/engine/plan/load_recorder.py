"""Learns a LoadPlan from the model's own loader, by catching every write to the model's memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...errors import Error, InvalidError, UnsupportedError
from .coverage import region_of
from .element_codes import (
    CONSTANT,
    ElementCodes,
    Expression,
    code_of,
    memory_code,
    numbers_of,
    positions_of,
)
from .element_map import factor
from .load_plan import Loader, LoadPlan, Piece, Region, Schema, Target, Write
from .write_catcher import WriteCatcher
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
    catcher = WriteCatcher(plan.targets)
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


#: Where a write went: (sizes, strides, offset).
_Region = tuple[tuple[int, ...], tuple[int, ...], int]


class _Learner(WriteCatcher):
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
