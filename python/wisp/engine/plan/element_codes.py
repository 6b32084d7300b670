"""Which element of the checkpoint each element of a tensor is, followed through a loader.

Every tensor that comes out of the checkpoint's has a code per element: where it is from, and what
was done to it since. What moves elements moves their codes; what maps each by itself is noted. The
rest is known by the names of the tensors that went into it only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .element_function import ELEMENTS, ElementFunction, Step, is_elementwise

__all__ = [
    "CONSTANT", "SHAPES_ONLY", "ElementCodes", "Expression", "code_of", "memory_code",
    "numbers_of", "positions_of", "tensors_in", "written_by",
]  # fmt: skip

#: The same in every loading.
CONSTANT = -1
_SHIFT = 40  # positions in a tensor are below it, the number of the expression above
_POSITION = (1 << _SHIFT) - 1
_FEW = 16

_aten = torch.ops.aten
#: Operators that move elements, and which arguments hold them; indices stay as they are.
_MOVES = {
    _aten.clone: (0,),
    _aten.cat: (0,),
    _aten.stack: (0,),
    _aten.constant_pad_nd: (0,),
    _aten.flip: (0,),
    _aten.gather: (0,),
    _aten.index: (0,),
    _aten.index_select: (0,),
    _aten.repeat: (0,),
    _aten.roll: (0,),
    _aten.select_scatter: (0, 1),
    _aten.slice_scatter: (0, 1),
    _aten._reshape_copy: (0,),
}
#: What they give does not depend on the values they are given.
SHAPES_ONLY = {
    _aten.empty_like, _aten.full_like, _aten.new_empty, _aten.new_empty_strided, _aten.new_full,
    _aten.new_ones, _aten.new_zeros, _aten.ones_like, _aten.zeros_like,
}  # fmt: skip


def memory_code(target: int) -> int:
    """For what was in a target before the loading."""
    return -2 - target


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """All that have memory, in arguments or results."""
    if isinstance(values, torch.Tensor):
        if not values.is_meta:
            yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()))


def written_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Those of its arguments that an operator writes to."""
    found: list[torch.Tensor] = []
    if not func._schema.is_mutable:
        return found
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        found.extend(tensors_in(value))
    return found


@dataclass(frozen=True, eq=False)
class Expression:
    """An element of a tensor of the checkpoint, and what was done to it."""

    name: str
    dtype: torch.dtype  #: of what comes out
    function: ElementFunction | None = None


@dataclass
class _Track:
    """What is known of a storage."""

    storage: StorageWeakRef
    names: set[str]
    #: One per element; None: known by names only. For tensors of the checkpoint, `start` alone.
    codes: torch.Tensor | None
    start: int | None = None
    width: int = 0


class ElementCodes:
    """Codes of all tensors that a loader has got or made."""

    def __init__(self) -> None:
        self.expressions: list[Expression] = []
        self._tracks: dict[int, _Track] = {}
        self._enough = _FEW  # tracks before those are looked for whose tensors are gone

    def announce(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor of the checkpoint."""
        if len(self._tracks) > self._enough:
            for key in [k for k, track in self._tracks.items() if track.storage.expired()]:
                del self._tracks[key]
            self._enough = 2 * len(self._tracks) + _FEW
        self.expressions.append(Expression(name, tensor.dtype))
        start = (len(self.expressions) - 1) << _SHIFT
        self._begin(tensor, _Track(_weak(tensor), {name}, None, start, tensor.element_size()))

    def adopt(self, tensor: torch.Tensor, names: set[str], code: int) -> None:
        """A tensor of one code, until something is written to it."""
        codes = torch.full((_elements(tensor),), code)
        self._begin(tensor, _Track(_weak(tensor), set(names), codes, None, tensor.element_size()))

    def _begin(self, tensor: torch.Tensor, track: _Track) -> None:
        self._tracks[tensor.untyped_storage()._cdata] = track

    def names(self, tensor: torch.Tensor) -> set[str]:
        """Tensors of the checkpoint that went into it."""
        track = self._of(tensor)
        return track.names if track else set()

    def source(self, view: torch.Tensor) -> int | None:
        """The expression, if it is a view of a tensor of the checkpoint as the loader got it."""
        track = self._of(view)
        if track is None or track.start is None:
            return None
        number = track.start >> _SHIFT
        return number if self.expressions[number].dtype == view.dtype else None

    def codes(self, view: torch.Tensor) -> torch.Tensor | None:
        """One per element; None: they are not known."""
        track = self._of(view)
        if track is None:
            return torch.tensor(CONSTANT).expand(view.shape)
        if track.width != view.element_size():
            return None
        if track.start is not None:
            found = torch.tensor(track.start + view.storage_offset())
            for size, stride in zip(view.shape, view.stride(), strict=True):
                found = found.unsqueeze(-1) + torch.arange(size) * stride
        elif track.codes is not None:
            found = track.codes.as_strided(view.shape, view.stride(), view.storage_offset())
        else:
            return None
        return self.as_dtype(found, view.dtype, reinterpreted=True)

    def put(self, view: torch.Tensor, names: set[str], codes: torch.Tensor | None) -> None:
        """The view has got these elements; None: some function of the tensors `names`."""
        track = self._of(view)
        if track is None:
            self.adopt(view, names, CONSTANT)
            track = self._of(view)
            assert track is not None
        elif track.start is not None and codes is not None:  # a loader that writes to what it got
            track.codes, track.start = torch.arange(_elements(view)) + track.start, None
        track.names |= names
        if codes is None or track.codes is None or track.width != view.element_size():
            track.codes = track.start = None
            return
        held = track.codes.as_strided(view.shape, view.stride(), view.storage_offset())
        held.copy_(codes.expand(view.shape))

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """An operator has run."""
        known = [t for t in tensors_in((args, kwargs)) if self._of(t) is not None]
        if not known or func.overloadpacket in SHAPES_ONLY:
            return
        names = set().union(*(self.names(tensor) for tensor in known))
        written = written_by(func, args, kwargs)
        before = {tensor.untyped_storage()._cdata for tensor in tensors_in((args, kwargs))}
        made = [t for t in tensors_in(result) if t.untyped_storage()._cdata not in before]
        outputs = [*written, *made]
        if not outputs:
            return  # a view
        found = self._codes_after(func, args, kwargs, outputs[0]) if len(outputs) == 1 else None
        for tensor in outputs:
            self.put(tensor, names, found)

    def _codes_after(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor
    ) -> torch.Tensor | None:
        packet = func.overloadpacket
        if packet in (_aten.fill_, _aten.zero_) and not any(map(self._of, tensors_in(args[1:]))):
            return torch.tensor(CONSTANT)
        if packet is _aten.copy_:
            moved = self.codes(args[1])
            if moved is None or args[1].dtype == args[0].dtype:
                return moved
            return self.as_dtype(moved, args[0].dtype)
        if packet in _MOVES:
            return self._moved(func, args, kwargs)
        if is_elementwise(packet):
            return self._mapped(func, args, kwargs, output)
        return None

    def _moved(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor | None:
        given: list[Any] = list(args)
        for index in _MOVES[func.overloadpacket]:
            parts = list(tensors_in(args[index]))
            codes = [self.codes(part) for part in parts]
            if any(c is None for c in codes) or len({part.dtype for part in parts}) > 1:
                return None
            given[index] = codes if isinstance(args[index], (list, tuple)) else codes[0]
        if func.overloadpacket is _aten.constant_pad_nd:
            given[2:], kwargs = [CONSTANT], {}
        return _on_cpu(func, given, kwargs)

    def _mapped(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: torch.Tensor
    ) -> torch.Tensor | None:
        at = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and self._of(a)]
        others = [t for i, a in enumerate(args) if i not in at for t in tensors_in(a)]
        if len(at) != 1 or any(map(self._of, tensors_in(kwargs))) or at[0] > 1:
            return None
        if any(t.numel() != 1 for t in [*others, *tensors_in(kwargs)]):
            return None
        elements = args[at[0]]
        codes = self.codes(elements)
        if codes is None:
            return None
        packet = func.overloadpacket
        if packet is _aten._to_copy and output.dtype == elements.dtype:
            return codes.expand(output.shape)
        name = func._schema.name.removeprefix("aten::")
        if name.endswith("_"):
            func = getattr(getattr(_aten, name.removesuffix("_")), func._overloadname)
        held = tuple(ELEMENTS if i == at[0] else _kept(a) for i, a in enumerate(args))
        options = {k: _kept(v) for k, v in kwargs.items() if k != "memory_format"}
        step = Step(func, held, options, str(elements.device))
        dtype = step(elements.new_empty(0)).dtype
        mapped = self._step(codes, step, dtype).expand(output.shape)
        return mapped if dtype == output.dtype else self.as_dtype(mapped, output.dtype)

    def as_dtype(
        self, codes: torch.Tensor, dtype: torch.dtype, *, reinterpreted: bool = False
    ) -> torch.Tensor:
        """The same elements, converted or (in the same width) seen as another dtype."""
        known = codes[codes >= 0]
        numbers = (known >> _SHIFT).unique().tolist() if known.numel() else []
        if all(self.expressions[n].dtype == dtype for n in numbers):
            return codes
        if reinterpreted:
            step = Step(_aten.view.dtype, (ELEMENTS, dtype))
        else:
            step = Step(_aten._to_copy.default, (ELEMENTS,), {"dtype": dtype})
        return self._step(codes, step, dtype, others_only=True)

    def _step(
        self, codes: torch.Tensor, step: Step, dtype: torch.dtype, *, others_only: bool = False
    ) -> torch.Tensor:
        """others_only: for elements that have another dtype yet."""
        codes = codes.clone()
        known = codes >= 0
        numbers = codes >> _SHIFT
        for number in numbers[known].unique().tolist():
            old = self.expressions[number]
            if others_only and old.dtype == dtype:
                continue
            function = (old.function or ElementFunction()).then(step)
            self.expressions.append(Expression(old.name, dtype, function))
            leap = (len(self.expressions) - 1 - number) << _SHIFT
            codes[known & (numbers == number)] += leap
        return codes

    def _of(self, tensor: torch.Tensor) -> _Track | None:
        return self._tracks.get(tensor.untyped_storage()._cdata)


def _weak(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())


def _elements(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes() // tensor.element_size())


def _kept(value: Any) -> Any:
    """A number stays one: dimensions decide which dtype a result has."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.clone().reshape(1 if value.dim() else ())


def _on_cpu(func: Any, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
    def moved(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cpu()
        return [moved(v) for v in value] if isinstance(value, (list, tuple)) else value

    result: torch.Tensor = func(*map(moved, args), **kwargs)
    return result


def positions_of(codes: torch.Tensor) -> torch.Tensor:
    """Where in its tensor each element is."""
    return codes & _POSITION


def numbers_of(codes: torch.Tensor) -> torch.Tensor:
    """Which expression each element is of."""
    return codes >> _SHIFT


def code_of(number: int, position: int) -> int:
    """Of an element of an expression."""
    return (number << _SHIFT) + position
