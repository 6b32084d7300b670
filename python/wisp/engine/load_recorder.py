"""Learns a LoadPlan from the model's own loader, by catching every write to the model's memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import Error, InvalidError, UnsupportedError
from .coverage import region_of
from .load_plan import Loader, LoadPlan, Piece, Schema, Target, Write

__all__ = ["LoaderError", "capture", "learn"]


def learn(load: Loader, targets: list[Target], schema: Schema) -> LoadPlan:
    """The plan of a model whose loader is `load`; nothing is written to its memory.

    UnsupportedError when the loader writes in a way that cannot be followed; LoaderError when it
    fails.
    """
    plan = LoadPlan(targets)
    catcher = _Catcher(targets)
    for name, dtype, shape in schema:
        plan.dtypes[name], plan.shapes[name] = dtype, shape
    try:
        with catcher, torch.no_grad():
            load(_sources(schema, catcher))
    except Error:
        raise
    except Exception as error:
        raise LoaderError(catcher.current, error) from error
    if catcher.unknown:
        raise UnsupportedError(_told_unknown(catcher.unknown))
    for index, view, values in catcher.writes:
        region = region_of(view)
        plan.written.setdefault(index, {})[region] = catcher.names_of(values)
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


class LoaderError(InvalidError):
    """The model's loader has failed with a run's tensors."""

    def __init__(self, name: str | None, cause: Exception) -> None:
        super().__init__(f"the model's loader fails at '{name}': {type(cause).__name__}: {cause}")
        self.name = name  #: the tensor that it was given last
        self.cause = cause


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


class _Catcher(TorchDispatchMode):  # type: ignore[misc]
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
        self.writes: list[Write] = []
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

    def adopt(self, old: torch.Tensor, new: torch.Tensor) -> bool:
        """Writes to `new`, which takes the place of a target, count as writes to the target."""
        target = self._where.get(old.untyped_storage().data_ptr())
        same = (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
        if target is None or not same or old.storage_offset() or new.storage_offset():
            return False
        self._alive.append(new)
        self._where[new.untyped_storage().data_ptr()] = target
        return True

    @property
    def current(self) -> str | None:
        """What the loader was given last."""
        return self._current

    def names_of(self, values: torch.Tensor) -> frozenset[str]:
        """The tensors that went into them; none: the same each time."""
        return frozenset(self._names.get(values.untyped_storage().data_ptr(), ()))

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


def _piece(index: int, target: Target, view: torch.Tensor, source: torch.Tensor) -> Piece | None:
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


def capture(
    plan: LoadPlan, load: Loader, tensors: Iterable[tuple[str, torch.Tensor]]
) -> list[Write]:
    """What the loader would write: (target, view of its memory, values). Writes nothing."""
    catcher = _Catcher(plan.targets)
    with catcher, torch.no_grad():
        load(tensors)
    if catcher.unknown:
        raise UnsupportedError(_told_unknown(catcher.unknown))
    return catcher.writes
