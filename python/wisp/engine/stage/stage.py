"""What a rank is about to write, worked out beforehand, with what it takes to go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ... import _native
from ...errors import WrongBaseError
from ..plan.load_plan import LoadPlan, Piece, Write

__all__ = ["Stage", "Write"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DENSE = 8  # from one element in so many on, a run of rows is written whole


@dataclass
class _Scatter:
    target: int
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
    target: int
    view: torch.Tensor
    new: torch.Tensor
    old: torch.Tensor


@dataclass
class _Part:
    offsets: torch.Tensor
    values: torch.Tensor
    expected: torch.Tensor | None = None  # what must be there now


@dataclass
class Stage:
    """Changes of a model's memory on one rank: put in, sealed, then switched to, or back from.

    Positions that are put in more than once have the value that was put in last.
    """

    plan: LoadPlan
    elements: int = 0
    _pending: dict[int, list[_Part]] = field(default_factory=dict)
    _scatters: list[_Scatter] = field(default_factory=list)
    _rows: list[_Rows] = field(default_factory=list)

    @classmethod
    def beyond(cls, stage: Stage) -> Stage:
        """For a state beyond one that is staged: begins with all that leads there."""
        made = cls(stage.plan, _rows=list(stage._rows))
        made.elements = sum(rows.new.numel() for rows in made._rows)
        for scatter in stage._scatters:
            part = _Part(scatter.offsets, scatter.new, scatter.old)
            made._pending.setdefault(scatter.target, []).append(part)
        return made

    def put(
        self,
        name: str,
        positions: torch.Tensor,
        bits: torch.Tensor,
        old_bits: torch.Tensor | None = None,
    ) -> None:
        """New bits at ascending positions of a tensor of the checkpoint that has a manifest.

        old_bits: what is there before; seal() holds memory to it, where nothing was put in before.
        """
        for piece in self.plan.pieces.get(name, ()):
            offsets, new, old = _locate(piece, positions, bits, old_bits)
            if offsets.numel() == 0:
                continue
            # What stands in whole rows is not what is in memory.
            if any(rows.target == piece.target for rows in self._rows):
                old = None
            target = self.plan.targets[piece.target]
            new = self.plan.convert(new, name, piece)
            old = None if old is None else self.plan.convert(old, name, piece)
            self._put(piece.target, target.place(offsets), new, old)

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
                self._rows.append(_Rows(piece.target, view, wanted, view.clone()))
                self.elements += count

    def put_writes(self, writes: list[Write], *, everything: bool = False) -> None:
        """What a loader would write, from load_recorder.capture().

        everything: also what is in memory already, since another value may have been put in.
        """
        for index, view, values in writes:
            target = self.plan.targets[index]
            integers = _INTEGERS[target.width]
            wanted = values.to(device=view.device, dtype=view.dtype).contiguous().view(integers)
            now = target.read(list(view.shape), list(view.stride()), view.storage_offset())
            mask = torch.ones_like(now, dtype=torch.bool) if everything else now != wanted
            if bool(mask.any()):
                places = torch.full((int(mask.sum()),), view.storage_offset())
                for along, step in zip(mask.nonzero().unbind(1), view.stride(), strict=True):
                    places.add_(along.to(places.device), alpha=step)
                self._put(index, target.place(places), wanted[mask])

    def _put(
        self,
        index: int,
        offsets: torch.Tensor,
        values: torch.Tensor,
        expected: torch.Tensor | None = None,
    ) -> None:
        self._pending.setdefault(index, []).append(_Part(offsets, values, expected))

    def seal(self) -> Stage:
        """Merges what was put in and keeps what is there now; no further put() after it.

        WrongBaseError: what is there now is not what it must be.
        """
        for index, parts in self._pending.items():
            flat = self.plan.targets[index].flat
            offsets, values, expected = _merged(parts, flat.device)
            old = _take(flat, offsets)
            if expected is not None and not torch.equal(old, expected):
                raise WrongBaseError(
                    f"{int((old != expected).sum())} elements of '{self.plan.targets[index].name}' "
                    "are not what the step changes: somebody else wrote to this memory; a whole "
                    "state is fetched, and the next update writes what differs from it"
                )
            self._scatters.append(_Scatter(index, flat, offsets, values, old))
            self.elements += offsets.numel()
        self._pending.clear()
        return self

    def read(self, index: int, places: torch.Tensor) -> torch.Tensor:
        """What a target will hold at these places of its memory once this is switched to."""
        flat = self.plan.targets[index].flat
        rows = [rows for rows in self._rows if rows.target == index]
        if rows:
            flat = flat.clone()
            for part in rows:
                view = part.view
                flat.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(part.new)
        places = places.to(flat.device)
        found = flat[places]
        for scatter in self._scatters:
            if scatter.target == index and scatter.offsets.numel():
                ordered, order = torch.sort(scatter.offsets)
                at = torch.searchsorted(ordered, places).clamp_(max=len(ordered) - 1)
                hit = ordered[at] == places
                found[hit] = scatter.new[order[at[hit]]]
        return found

    @property
    def touched(self) -> set[int]:
        """The targets in which it changes anything."""
        return {s.target for s in self._scatters} | {rows.target for rows in self._rows}

    def switch(self, step: Callable[[], object] = lambda: None) -> None:
        """Writes the new values. `step` is called on the way, for tests that break it."""
        with torch.no_grad():
            # Rows first: what was put in later is in the scatters.
            for rows in self._rows:
                rows.view.copy_(rows.new)
            step()
            for scatter in self._scatters:
                scatter.write(scatter.new)

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


def _locate(
    piece: Piece, positions: torch.Tensor, bits: torch.Tensor, old_bits: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Of what lies in the piece: offsets in its target, and the bits that belong there."""
    count = positions.numel()
    offsets, new = torch.empty(count, dtype=torch.int64), torch.empty_like(bits)
    old = torch.empty_like(bits if old_bits is not None else bits[:0])
    found = piece.native.locate(
        positions.numpy(), bits.element_size(), bits.numpy(),
        old.numpy() if old_bits is None else old_bits.numpy(), offsets.numpy(), new.numpy(),
        old.numpy(),
    )  # fmt: skip
    return offsets[:found], new[:found], None if old_bits is None else old[:found]


def _take(flat: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    if flat.device.type != "cpu":
        if offsets.numel() and (offsets.min() < 0 or offsets.max() >= flat.numel()):
            raise AssertionError("a plan led out of its target")
        return flat[offsets]
    taken = torch.empty(offsets.numel(), dtype=flat.dtype)
    width = flat.element_size()
    if not _native.take_elements(flat.numpy(), width, offsets.numpy(), taken.numpy()):
        raise AssertionError("a plan led out of its target")
    return taken


def _merged(
    parts: list[_Part], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Each offset once: with the last of its values, and the first of what is expected there."""
    if len(parts) == 1:
        (part,) = parts
        expected = None if part.expected is None else part.expected.to(device)
        return part.offsets.to(device), part.values.to(device), expected
    wanted = [part.expected for part in parts if part.expected is not None]
    expected = torch.cat([w.to(device) for w in wanted]) if len(wanted) == len(parts) else None
    ordered, order = torch.sort(torch.cat([p.offsets.to(device) for p in parts]), stable=True)
    values = torch.cat([part.values.to(device) for part in parts])[order]
    last = torch.ones_like(ordered, dtype=torch.bool)
    last[:-1] = ordered[1:] != ordered[:-1]
    first = torch.ones_like(last)
    first[1:] = last[:-1]
    return ordered[last], values[last], None if expected is None else expected[order][first]
