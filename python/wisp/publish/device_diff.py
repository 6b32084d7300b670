"""Finding what changed on the device that holds the weights: only positions and bits travel.

The device keeps a copy of the last committed state. It follows the baseline on the host, change by
change, so that a publish which failed or was folded into another leaves the two alike; the old bits
go along with every change and are held against the host's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from ..errors import UnsupportedError
from ..tensors import describe
from .sources import Source, item_size
from .staging import device_module, events_before

#: Elements that are compared at a time: bounds what the comparison takes of the device's memory.
CHUNK_ELEMENTS = 1 << 26

Change = tuple[int, int, np.ndarray, np.ndarray, np.ndarray]


def bits_of(tensor: Any) -> Any:
    """A flat view as integers: NaNs, signs of zero and payloads compare as they are."""
    import torch

    wide = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().reshape(-1).view(wide[tensor.dtype.itemsize])


class DeviceDetector:
    """Compares a model with the session's baseline, where the model is."""

    def __init__(self, session: _native.PublishSession) -> None:
        self._session = session
        self._baseline: list[Any] = []

    def forget(self) -> None:
        """Takes the baseline from the host again before the next comparison."""
        self._baseline = []

    def begin(self, schema: _native.Schema, sources: dict[str, Source]) -> None:
        self._order = [sources[name] for name, _, _ in schema.tensors]
        for source in self._order:
            if source.device is None or item_size(source) not in (1, 2, 4, 8):
                raise UnsupportedError(
                    f"{describe(source.name, source.tensor)} cannot be compared on its device; "
                    "leave device_diff off"
                )
        self._before = events_before(self._order)
        self._changes = self._compare()

    def next(self) -> Change | None:
        return next(self._changes, None)

    def _follow(self) -> None:
        """Brings the device's baseline to where the host's is now."""
        import torch

        adopted = self._session.take_adopted()
        moves = self._session.take_moves()
        if adopted or not self._baseline:
            self._baseline = []
            for index, source in enumerate(self._order):
                count = source.count
                host = torch.empty(count * item_size(source), dtype=torch.uint8)
                if count:
                    self._session.read_baseline(index, host.numpy())
                wide = bits_of(host.view(source.dtype))
                self._baseline.append(wide.to(source.device, copy=True))
            return
        for index, first, positions, new_bits in moves:
            base = self._baseline[index]
            at = torch.from_numpy(np.frombuffer(positions, np.uint32).astype(np.int64) + first)
            bits = torch.frombuffer(bytearray(new_bits), dtype=torch.uint8).view(base.dtype)
            base[at.to(base.device)] = bits.to(base.device)

    def _compare(self) -> Any:
        import torch

        for device, event in self._before.items():
            device_module(device).current_stream(device).wait_event(event)
        self._follow()
        for index, source in enumerate(self._order):
            base = self._baseline[index]
            if base.device != source.device:
                base = self._baseline[index] = base.to(source.device)
            for first in range(0, source.count, CHUNK_ELEMENTS):
                old = base[first : first + CHUNK_ELEMENTS]
                new = bits_of(source.elements(first, old.numel()).to(source.dtype))
                at = torch.nonzero(new != old).reshape(-1)
                if at.numel() == 0:
                    continue
                positions = at.to(torch.int32).cpu().numpy().view(np.uint32)
                yield (
                    index,
                    first,
                    positions,
                    *(bits[at].view(torch.uint8).cpu().numpy() for bits in (old, new)),
                )
