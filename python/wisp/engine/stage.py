"""What a rank is about to write, worked out beforehand, with what it takes to go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .load_plan import LoadPlan, Piece, Write

__all__ = ["Stage", "Write"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DENSE = 8  # from one element in so many on, a run of rows is written whole


@dataclass
class _Scatter:
    flat: torch.Tensor
    offsets: torch.Tensor
    new: torch.Tensor
    old: torch.Tensor

    def write(self, values: torch.Tensor) -> None:
        if self.flat.device.type == "cpu":
            # Half the time of index_copy_ there.
            self.flat.numpy()[self.offsets.numpy()] = values.numpy()
        else:
            self.flat.index_copy_(0, self.offsets, values)


@dataclass
class _Rows:
    view: torch.Tensor
    new: torch.Tensor
    old: torch.Tensor


@dataclass
class Stage:
    """Changes of a model's memory on one rank: put in, sealed, then switched to, or back from.

    Positions that are put in more than once have the value that was put in last.
    """

    plan: LoadPlan
    elements: int = 0
    _pending: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    _scatters: list[_Scatter] = field(default_factory=list)
    _rows: list[_Rows] = field(default_factory=list)

    def put(self, name: str, positions: torch.Tensor, bits: torch.Tensor) -> None:
        """New bits at ascending positions of a tensor of the checkpoint that has a manifest."""
        for piece in self.plan.pieces.get(name, ()):
            first, last, offsets, kept = piece.locate(positions)
            if offsets.numel() == 0:
                continue
            values = bits[first:last]
            values = values if kept is None else values[kept]
            target = self.plan.targets[piece.target]
            self._put(piece.target, target.place(offsets), self.plan.convert(values, name, target))

    def put_whole(self, name: str, bits: torch.Tensor) -> None:
        """All of a tensor that has a manifest; what the rank holds already costs nothing."""
        for piece, mask, wanted in self.plan.differences(name, bits):
            count = int(mask.sum())
            if count == 0:
                continue
            target = self.plan.targets[piece.target]
            sparse = count * _DENSE < mask.numel() or piece.target in self._pending
            if sparse or target.layout is not None:
                self._put(piece.target, target.place(_offsets(piece, mask)), wanted[mask])
            else:
                view = piece.target_view(target)
                self._rows.append(_Rows(view, wanted, view.clone()))
                self.elements += count

    def put_writes(self, writes: list[Write]) -> None:
        """What a loader would write, from load_recorder.capture()."""
        for index, view, values in writes:
            target = self.plan.targets[index]
            integers = _INTEGERS[target.width]
            wanted = values.to(device=view.device, dtype=view.dtype).contiguous().view(integers)
            now = target.read(list(view.shape), list(view.stride()), view.storage_offset())
            mask = now != wanted
            if bool(mask.any()):
                places = torch.full((int(mask.sum()),), view.storage_offset())
                for along, step in zip(mask.nonzero(as_tuple=True), view.stride(), strict=True):
                    places.add_(along.to(places.device), alpha=step)
                self._put(index, target.place(places), wanted[mask])

    def _put(self, index: int, offsets: torch.Tensor, values: torch.Tensor) -> None:
        self._pending.setdefault(index, []).append((offsets, values))

    def seal(self) -> Stage:
        """Merges what was put in and keeps what is there now; no further put() after it."""
        for index, parts in self._pending.items():
            flat = self.plan.targets[index].flat
            offsets = torch.cat([offsets for offsets, _ in parts])
            values = torch.cat([values.to(flat.device) for _, values in parts])
            if len(parts) > 1:
                offsets, values = _last_of_each(offsets, values)
            if offsets.numel() and (offsets.min() < 0 or offsets.max() >= flat.numel()):
                raise AssertionError("a plan led out of its target")
            offsets = offsets.to(flat.device)
            self._scatters.append(_Scatter(flat, offsets, values, flat[offsets]))
            self.elements += offsets.numel()
        self._pending.clear()
        return self

    def switch(self, step: Callable[[], object] = lambda: None) -> None:
        """Writes the new values. `step` is called on the way, for tests that break it."""
        with torch.no_grad():
            for scatter in self._scatters:
                scatter.write(scatter.new)
            step()
            for rows in self._rows:
                rows.view.copy_(rows.new)

    def restore(self) -> None:
        """Writes the values that were there before switch(), however far that came."""
        with torch.no_grad():
            for scatter in self._scatters:
                scatter.write(scatter.old)
            for rows in self._rows:
                rows.view.copy_(rows.old)


def _offsets(piece: Piece, mask: torch.Tensor) -> torch.Tensor:
    offsets = torch.full((int(mask.sum()),), piece.target_offset)
    for along, (_, _, step) in zip(mask.nonzero(as_tuple=True), piece.dims, strict=True):
        offsets.add_(along.to(offsets.device), alpha=step)
    return offsets


def _last_of_each(offsets: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ordered, order = torch.sort(offsets, stable=True)
    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    return ordered[last], values[order.to(values.device)][last.to(values.device)]
