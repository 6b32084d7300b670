"""A model's tensors as the pieces that the library asks for, none of them copied without need.

Contiguous tensors in host memory are handed over where they lie, and float32 that is published as
bf16 is rounded by the library on its way. Everything else (devices, other casts, strides) goes
through two reusable buffers: while one group is being compared, the next is on its way. The device
code is written for any device that torch knows, the CPU included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native
from ..errors import InvalidError
from ..model.checkpoint_names import Naming
from ..tensors import byte_view, is_torch
from .sources import DtypeRule, Source, item_size, numpy_dtype, schema_of, sources_of

if TYPE_CHECKING:
    from ..quantize.quantized_sources import Quantizer

#: Bytes of one staging buffer; there are two.
GROUP_BYTES = 64 << 20

#: A tensor by its number, the first element, the bytes, and whether they are float32 to be rounded.
WeightPiece = tuple[int, int, np.ndarray, bool]


def _torch_place(tensor: Any) -> tuple[Any, ...]:
    """Where a tensor lies and how it is to be read; changes with whatever makes it another one."""
    return (
        tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device,
        tensor.is_neg(), tensor.is_conj(),
    )  # fmt: skip


def _array_place(array: Any) -> tuple[Any, ...]:
    return (array.__array_interface__["data"][0], array.dtype, array.shape, array.strides)


def _is_plain(tensor: Any) -> bool:
    """Whether its place tells all: subclasses and sparse tensors may hide more."""
    kind = type(tensor)
    if kind is np.ndarray:
        return True
    return kind.__module__ in ("torch", "torch.nn.parameter") and "strided" in str(tensor.layout)


class ModelTensors:
    """The tensors of a model as they are at each publish.

    Looking at one of them takes longer than copying a small one, so a model whose tensors lie where
    they lay is not looked at again. One whose memory was seen to move is looked at every time:
    what is kept of it would keep the old memory alive.
    """

    def __init__(self, naming: Naming, rule: DtypeRule, quantizer: Quantizer | None = None) -> None:
        self._naming = naming
        self.rule = rule
        self._quantizer = quantizer
        self._known: list[tuple[str, Any, Callable[[Any], tuple[Any, ...]], Any]] | None = None
        # A function may answer something else next time.
        self._keeps = rule is None or not callable(rule) or type(rule).__module__ == "torch"
        self.aliases: dict[str, str] = {}
        self._sources: dict[str, Source] = {}
        self._schema: _native.Schema | None = None

    def look(self) -> tuple[dict[str, Source], _native.Schema]:
        """The same objects as last time if nothing has changed but the weights."""
        entries = self._naming.entries()
        if self._schema is not None and self._known is not None:
            if self._is_known(entries):
                return self._sources, self._schema
            self._keeps = False
        self._sources, self.aliases = sources_of(self._naming, self.rule)
        if self._quantizer is not None:
            self._sources = self._quantizer.sources(self._sources)
        self._schema = schema_of(self._sources)
        self._known = None
        # What is made when it is read may remember what it made.
        plain = all(type(source) is Source for source in self._sources.values())
        if self._keeps and plain and all(map(_is_plain, entries.values())):
            self._known = []
            for name, tensor in entries.items():
                place = _torch_place if is_torch(tensor) else _array_place
                self._known.append((name, tensor, place, place(tensor)))
        return self._sources, self._schema

    def let_go(self) -> None:
        """Keeps no tensor; the next look takes in whatever the model has then."""
        self._known = None
        self._sources = {}

    def _is_known(self, entries: Mapping[str, Any]) -> bool:
        if self._known is None or len(entries) != len(self._known):
            return False
        return all(
            tensor is known and name == known_name and place(tensor) == known_place
            for (name, tensor), (known_name, known, place, known_place) in zip(
                entries.items(), self._known, strict=True
            )
        )


@dataclass
class _Group:
    pieces: list[WeightPiece]
    staged: list[tuple[Source, int, Any]]  # (what, from which element, where in the buffer)
    ready: Any = None


class Stager:
    """Reads one state of the model, group by group; keeps its buffers for the next."""

    def __init__(self, *, group_bytes: int = GROUP_BYTES, stage_all: bool = False) -> None:
        self._group_bytes = group_bytes
        self._stage_all = stage_all
        self._buffers: dict[tuple[bool, int], Any] = {}
        self._streams: dict[Any, Any] = {}
        self._sources: dict[str, Source] | None = None
        self._whole: list[WeightPiece] | None = None  # all tensors, none of which is staged

    def begin(self, schema: _native.Schema, sources: dict[str, Source]) -> None:
        """From here until the last group was read the tensors must not be written to.

        The same `sources` as last time are tensors that lie where they lay.
        """
        if sources is not self._sources:
            self._sources = sources
            self._order = [sources[name] for name, _, _ in schema.tensors]
            self._whole = None
        self._before = {} if self._whole is not None else events_before(self._order)
        self._is_at_start = False
        self.restart()

    def let_go(self) -> None:
        """Keeps no tensor."""
        self._sources, self._order, self._whole = None, [], None

    def restart(self) -> None:
        """Goes back to the first group, which may be on its way already."""
        if self._is_at_start:
            return
        self._groups = self._plan()
        self._coming: _Group | None = self._start()
        self._is_at_start = True

    def next(self) -> list[WeightPiece]:
        """The pieces of the next group; what it returned before may be overwritten now."""
        group = self._coming
        self._is_at_start = False
        if group is None:
            return []
        self._coming = self._start()
        if group.ready is not None:
            for event in group.ready:
                if event is not None:  # host memory is copied at once
                    event.synchronize()
        return group.pieces

    def _start(self) -> _Group | None:
        """Sets the next group in motion."""
        group = next(self._groups, None)
        if group is None or not group.staged:
            return group
        events = {}
        for source, first, target in group.staged:
            if source.device is None:
                target[...] = source.elements(first, target.size)
                continue
            with self._beside(source.device) as stream:
                elements = source.elements(first, target.numel())
                cast = elements if elements.dtype == target.dtype else elements.to(target.dtype)
                target.copy_(cast, non_blocking=True)
                events[source.device] = stream.record_event()
        group.ready = list(events.values())
        return group

    @contextmanager
    def _beside(self, device: Any) -> Iterator[Any]:
        """A stream of our own on the device, after what the training has asked of it so far."""
        module = device_module(device)
        if device not in self._streams:
            self._streams[device] = module.Stream(device)
        stream = self._streams[device]
        with module.stream(stream):
            if device in self._before:
                stream.wait_event(self._before[device])
            yield stream

    def _plan(self) -> Iterator[_Group]:
        if self._whole is not None:
            yield _Group(self._whole, [])
            return
        turn = 0
        group = _Group([], [])
        used = 0
        for index, source in enumerate(self._order):
            if source.in_place and not self._stage_all:
                view = byte_view(source.name, source.tensor)
                group.pieces.append((index, 0, view, source.is_cast))
                continue
            count = source.count
            size = item_size(source)
            first = 0
            while first < count:
                room = (self._group_bytes - used) // size // _native.BLOCK_ELEMENTS
                if room == 0:
                    if not group.pieces:
                        raise InvalidError(f"{self._group_bytes} bytes are too few for a group")
                    yield group
                    turn, used, group = 1 - turn, 0, _Group([], [])
                    continue
                taken = min(count - first, room * _native.BLOCK_ELEMENTS)
                target, view = self._buffer(turn, source, used, taken, size)
                group.staged.append((source, first, target))
                group.pieces.append((index, first, view, False))
                # The next one starts on a cache line.
                used = -(-(used + taken * size) // 64) * 64
                first += taken
        if len(group.pieces) == len(self._order) and not group.staged:
            self._whole = group.pieces
        if group.pieces:
            yield group

    def _buffer(
        self, turn: int, source: Source, used: int, count: int, size: int
    ) -> tuple[Any, np.ndarray]:
        """Room for `count` elements: as the tensor that is copied to, and as bytes."""
        if source.device is None:
            raw = self._buffers.setdefault((False, turn), np.empty(self._group_bytes, np.uint8))
            view = raw[used : used + count * size]
            return view.view(numpy_dtype(source)), view
        import torch

        pinned = source.device.type == "cuda"
        key = (True, turn + 2 * pinned)
        if key not in self._buffers:
            self._buffers[key] = torch.empty(
                self._group_bytes, dtype=torch.uint8, pin_memory=pinned
            )
        part = self._buffers[key][used : used + count * size]
        return part.view(source.dtype), part.numpy()


def device_module(device: Any) -> Any:
    """torch.cuda and its kin, torch.cpu among them."""
    import torch

    return torch.get_device_module(device)


def events_before(sources: Iterable[Source]) -> dict[Any, Any]:
    """By device, what the calling thread has asked of it so far; host memory needs no waiting."""
    events: dict[Any, Any] = {}
    for source in sources:
        device = source.device
        if device is not None and device.type != "cpu" and device not in events:
            events[device] = device_module(device).current_stream(device).record_event()
    return events
