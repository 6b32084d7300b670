"""What changed in weights that are handed over one by one, found while they pass.

A trainer whose weights are sharded gathers them tensor by tensor, and lets go of each before the
next: they are never all in memory. So each is compared with the baseline as it comes. What changed
is kept as positions and bits; of a part of a tensor that changed in more places than that is worth,
the new elements are kept as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native
from ..errors import InvalidError
from ..follow.targets import UNSIGNED, element_width
from ..tensors import TensorEntry, is_dtensor, is_torch
from .device_diff import CHUNK_ELEMENTS, Change, bits_of
from .sources import DtypeRule, Source, numpy_dtype, published_dtype, schema_of

if TYPE_CHECKING:
    from ..quantize.quantized_sources import Quantizer

#: A change takes four bytes for its place, and its old and new bits; from one in so many elements
#: on the new elements alone take no more.
_DENSE = 4
_SHOWN = 5


class HandedChanges:
    """The changes of one step, in the order of the schema; read once, while the baseline rests."""

    def __init__(
        self,
        session: _native.PublishSession,
        schema: _native.Schema,
        rule: DtypeRule,
        quantizer: Quantizer | None,
        weights: Iterable[tuple[str, Any]],
    ) -> None:
        self._session = session
        self._entries: list[TensorEntry] = schema.tensors
        self._places = {entry[0]: index for index, entry in enumerate(self._entries)}
        self._rule = rule
        self._quantizer = quantizer
        self._weights = iter(weights)
        self._missing = set(self._places)
        self._waiting: dict[str, Source] = {}  # for weights that are quantised together with them
        self._changes: Iterator[Change] | None = None
        self._as_caller = device_of_thread()
        self._base = np.empty(0, np.uint8)
        self._base_of = -1

    def next(self) -> Change | None:
        """The next change; the first call takes in all weights."""
        if self._changes is None:
            with self._as_caller():
                self._changes = self._in_order(self._take_all())
        return next(self._changes, None)

    def drain(self) -> None:
        """Reads the weights to their end: what makes them may need this rank until then."""
        with self._as_caller():
            for _ in self._weights:
                pass

    def _take_all(self) -> dict[tuple[int, int], Change | np.ndarray]:
        found: dict[tuple[int, int], Change | np.ndarray] = {}
        for name, tensor in self._weights:
            for source in self._sources(name, tensor):
                index = self._place(source)
                for first in range(0, source.count, CHUNK_ELEMENTS):
                    changed = self._compare(index, source, first)
                    if changed is not None:
                        found[index, first] = changed
        if self._missing:
            raise InvalidError(
                "the trainer handed over no " + _listed(self._missing) + ", which the run has; "
                "publish another model to a new run"
            )
        return found

    def _sources(self, name: str, tensor: Any) -> Iterable[Source]:
        if is_dtensor(tensor):
            raise InvalidError(f"'{name}' is sharded; gather it before it is handed over")
        tensor = tensor.detach() if is_torch(tensor) else tensor
        source = Source(name, tensor, published_dtype(name, tensor, self._rule))
        if self._quantizer is None:
            return (source,)
        together = self._quantizer.fused_with(name)
        if len(together) > 1:
            # The trainer may use its memory for the next one.
            self._waiting[name] = Source(name, tensor.clone(), source.dtype)
            if not together <= self._waiting.keys():
                return ()
            return self._quantizer.sources({n: self._waiting.pop(n) for n in together}).values()
        return self._quantizer.sources({name: source}).values()

    def _place(self, source: Source) -> int:
        """Its number; InvalidError if the run has no such tensor, or the trainer gave it twice."""
        index = self._places.get(source.name)
        if index is None:
            raise InvalidError(
                f"the run has no tensor '{source.name}'; publish another model to a new run"
            )
        if source.name not in self._missing:
            raise InvalidError(f"the trainer hands over '{source.name}' twice in one state")
        self._missing.discard(source.name)
        handed = schema_of({source.name: source}).tensors[0]
        if handed != self._entries[index]:
            _, dtype, shape = handed
            _, there, wide = self._entries[index]
            raise InvalidError(
                f"'{source.name}' is {dtype} {list(shape)}, and {there} {list(wide)} in the run; "
                "publish another model to a new run"
            )
        return index

    def _baseline(self, index: int) -> np.ndarray:
        """A tensor of the last committed state, as unsigned integers."""
        _, dtype, shape = self._entries[index]
        width = element_width(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * width
        if self._base.size < size:
            self._base = np.empty(size, np.uint8)
        if self._base_of != index:
            self._session.read_baseline(index, self._base[:size])
            self._base_of = index
        return self._base[:size].view(UNSIGNED[width])

    def _compare(self, index: int, source: Source, first: int) -> Change | np.ndarray | None:
        """What changed in one part; its new elements where it is nearly everything."""
        old = self._baseline(index)[first : first + CHUNK_ELEMENTS]
        if is_on_host(source):
            new = _host_bits(source, first, old.size)
            return _changes(index, first, old, new, keep=True)
        import torch

        there = torch.from_numpy(old.view(f"i{old.itemsize}")).to(source.device)
        elements = bits_of(source.elements(first, old.size).to(source.dtype))
        there = there.view(elements.dtype)
        at = torch.nonzero(elements != there).reshape(-1)
        if at.numel() == 0:
            return None
        if at.numel() * _DENSE > old.size:
            return np.asarray(elements.cpu().numpy().view(old.dtype))
        positions = at.to(torch.int32).cpu().numpy().view(np.uint32)
        was, now = (bits[at].view(torch.uint8).cpu().numpy() for bits in (there, elements))
        return index, first, positions, was, now

    def _in_order(self, found: dict[tuple[int, int], Change | np.ndarray]) -> Iterator[Change]:
        for index, first in sorted(found):
            change = found.pop((index, first))
            if isinstance(change, np.ndarray):
                old = self._baseline(index)[first : first + change.size]
                listed = _changes(index, first, old, change, keep=False)
                assert isinstance(listed, tuple)
                change = listed
            yield change


def is_on_host(source: Source) -> bool:
    """Whether numpy sees its elements; else they are compared where they are."""
    return source.device is None or source.device.type == "cpu"


def device_of_thread() -> Callable[[], AbstractContextManager[object]]:
    """Makes another thread stand where this one stands: on its device, and without gradients.

    The library may call back on a thread of its own, and what hands over weights there gathers
    them by collectives that look for the thread's device.
    """
    import sys

    torch: Any = sys.modules.get("torch")
    if torch is None:
        return nullcontext
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None and not accelerator.is_available():
        accelerator = None
    device = None if accelerator is None else accelerator.current_device_index()

    def enter() -> AbstractContextManager[object]:
        if accelerator is not None:
            accelerator.set_device_index(device)
        without_gradients: AbstractContextManager[object] = torch.no_grad()
        return without_gradients

    return enter


def _host_bits(source: Source, first: int, count: int) -> np.ndarray:
    elements = source.elements(first, count)
    if source.device is not None:
        flat = bits_of(elements.to(source.dtype)).numpy()
        return np.asarray(flat.view(UNSIGNED[flat.itemsize]))
    flat = np.ascontiguousarray(elements).astype(numpy_dtype(source), copy=False)
    return np.asarray(flat.view(UNSIGNED[flat.itemsize]))


def _changes(
    index: int, first: int, old: np.ndarray, new: np.ndarray, *, keep: bool
) -> Change | np.ndarray | None:
    at = np.flatnonzero(old != new)
    if at.size == 0:
        return None
    if keep and at.size * _DENSE > old.size:
        return np.array(new)
    positions = at.astype(np.uint32)
    return index, first, positions, old[at].view(np.uint8), new[at].view(np.uint8)


def _listed(names: set[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:_SHOWN])
    more = len(names) - _SHOWN
    return shown + (f" and {more} more" if more > 0 else "")
