"""Catches what a loader writes to a model's memory, without a byte of it being written."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from .element_codes import SHAPES_ONLY, tensors_in, written_by
from .load_plan import Target, Write

__all__ = ["WriteCatcher"]

_aten = torch.ops.aten


class WriteCatcher(TorchDispatchMode):  # type: ignore[misc]
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
