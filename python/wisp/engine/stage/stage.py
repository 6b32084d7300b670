"""What a rank is about to write, worked out beforehand, with what it takes to go back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from ... import _native
from ...errors import WrongBaseError
from ..plan.load_plan import LoadPlan, Piece, Target, Write
from .room import Room

__all__ = ["Stage", "Write"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_DENSE = 8  # from one element in so many on, a run of rows is written whole

#: Changes of one tensor: (piece, positions, new bits, old bits if known); without a piece offsets
#: in the target instead of positions.
_Part = tuple[_native.PieceMap | None, np.ndarray, np.ndarray, np.ndarray | None]


@dataclass
class _Scatter:
    """Changes of one target by ascending offset, in its device's memory."""

    target: int
    flat: torch.Tensor
    offsets: torch.Tensor
    new: torch.Tensor
    old: torch.Tensor


@dataclass
class _Rows:
    target: int
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
    #: By target and move.
    _pending: dict[int, dict[int, list[_Part]]] = field(default_factory=dict)
    _scatters: dict[int, _Scatter] = field(default_factory=dict)
    _rows: list[_Rows] = field(default_factory=list)
    _move: int = 0
    _base: dict[int, _Scatter] = field(default_factory=dict)
    _unproven: set[int] = field(default_factory=set)  # targets that seal() has to look at

    @classmethod
    def beyond(cls, stage: Stage) -> Stage:
        """For a state beyond one that is staged: begins with all that leads there."""
        made = cls(stage.plan, _rows=list(stage._rows))
        made.elements = sum(rows.new.numel() for rows in made._rows)
        made._base = stage._scatters
        return made

    def next_move(self) -> None:
        """What is put in from here on may change what was put in before."""
        self._move += 1

    def put(
        self,
        name: str,
        positions: np.ndarray,
        bits: np.ndarray,
        old_bits: np.ndarray | None = None,
        *,
        is_proven: bool = False,
    ) -> None:
        """New bits at ascending positions of a tensor of the checkpoint that has a manifest.

        old_bits: what is there before; seal() holds memory to it, where nothing was put in before.
        is_proven: that was done already, with what this very memory held. The arrays are read by
        seal().
        """
        for piece in self.plan.pieces.get(name, ()):
            target = self.plan.targets[piece.target]
            # What stands in whole rows is not what is in memory.
            in_rows = any(rows.target == piece.target for rows in self._rows)
            old = None if in_rows else old_bits
            if old is None or not is_proven:
                self._unproven.add(piece.target)
            if target.layout is None and self.plan.is_copy(name, piece):
                self._add(piece.target, (piece.native, positions, bits, old))
            else:
                self._put_converted(name, piece, positions, bits, old)

    def _put_converted(
        self,
        name: str,
        piece: Piece,
        positions: np.ndarray,
        bits: np.ndarray,
        old: np.ndarray | None,
    ) -> None:
        """Where elements are computed, rounded, or in another order."""
        where = torch.from_numpy(positions.astype(np.int64))
        first, last, offsets, kept = piece.locate(where)
        if offsets.numel() == 0:
            return

        def converted(values: np.ndarray) -> np.ndarray:
            found = _signed(values)[first:last]
            found = found if kept is None else found[kept]
            return np.asarray(self.plan.convert(found, name, piece).cpu().numpy())

        places = self.plan.targets[piece.target].place(offsets)
        before = None if old is None else converted(old)
        self._add(piece.target, (None, places.cpu().numpy(), converted(bits), before))

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
        self.next_move()
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

    def _put(self, index: int, offsets: torch.Tensor, values: torch.Tensor) -> None:
        self._unproven.add(index)
        self._add(index, (None, offsets.cpu().numpy(), values.cpu().numpy(), None))

    def _add(self, index: int, part: _Part) -> None:
        self._pending.setdefault(index, {}).setdefault(self._move, []).append(part)

    def seal(self) -> Stage:
        """Merges what was put in and keeps what is there now; no further put() after it.

        WrongBaseError: what is there now is not what it must be.
        """
        for index, base in self._base.items():
            if index not in self._pending:
                self._keep(base)
        room = Room(sum(self._room_bytes(index) for index in self._pending))
        columns = {index: self._columns(index, room) for index in self._pending}
        jobs = [self._job(index, columns[index]) for index in self._pending]
        found = _native.stage_changes(jobs)
        for index, (count, differing, knows_old) in zip(self._pending, found, strict=True):
            target = self.plan.targets[index]
            offsets, new, old = (torch.from_numpy(part[:count]) for part in columns[index])
            if not _is_host(target):
                device = target.flat.device
                offsets, new, expected = offsets.to(device), new.to(device), old.to(device)
                old = target.flat[offsets]
                differing = int((old != expected).sum()) if knows_old else 0
            if differing:
                raise WrongBaseError(
                    f"{differing} elements of '{target.name}' are not what the step changes: "
                    "somebody else wrote to this memory; a whole state is fetched, and the next "
                    "update writes what differs from it"
                )
            self._keep(_Scatter(index, target.flat, offsets, new, old))
        self._pending.clear()
        return self

    def _keep(self, scatter: _Scatter) -> None:
        self._scatters[scatter.target] = scatter
        self.elements += scatter.offsets.numel()

    def _most(self, index: int) -> int:
        """Changes of a target that there may be."""
        parts = sum(len(new) for group in self._pending[index].values() for _, _, new, _ in group)
        return parts + (self._base[index].offsets.numel() if index in self._base else 0)

    def _room_bytes(self, index: int) -> int:
        return self._most(index) * (8 + 2 * self.plan.targets[index].width) + 3 * 8

    def _columns(self, index: int, room: Room) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        most, kind = self._most(index), np.dtype(f"i{self.plan.targets[index].width}")
        if kind.itemsize == 1:
            kind = np.dtype(np.uint8)
        return room.take(most, np.dtype(np.int64)), room.take(most, kind), room.take(most, kind)

    def _job(self, index: int, columns: tuple[np.ndarray, np.ndarray, np.ndarray]) -> object:
        target = self.plan.targets[index]
        base: tuple[np.ndarray | None, ...] = (None, None, None)
        if index in self._base:
            known = self._base[index]
            base = tuple(part.cpu().numpy() for part in (known.offsets, known.new, known.old))
        # Reading it once more would take as long as asking for it did.
        is_read = _is_host(target) and index in self._unproven
        memory = target.flat.numpy() if is_read else None
        groups = [*self._pending[index].values()]
        return target.width, target.flat.numel(), memory, base, groups, columns

    def staged(self, index: int) -> _Scatter | None:
        """What is scattered over a target; not its rows."""
        return self._scatters.get(index)

    def changes(self, index: int) -> bool:
        """Whether anything of a target is written."""
        return index in self._scatters or self.has_rows(index)

    def has_rows(self, index: int) -> bool:
        """Whether rows of a target are written whole."""
        return any(rows.target == index for rows in self._rows)

    def read(self, index: int, places: torch.Tensor) -> torch.Tensor:
        """What a target will hold at these places of its memory once this is switched to."""
        flat = self._with_rows(index)
        places = places.to(flat.device)
        found = flat[places]
        scatter = self.staged(index)
        if scatter is not None and scatter.offsets.numel():
            offsets = scatter.offsets
            at = torch.searchsorted(offsets, places).clamp_(max=len(offsets) - 1)
            hit = offsets[at] == places
            found[hit] = scatter.new[at[hit]]
        return found

    def after(self, index: int) -> torch.Tensor:
        """A copy of a target of which rows are written whole, as it will be after switch()."""
        flat = self._with_rows(index)
        scatter = self.staged(index)
        if scatter is not None:
            flat[scatter.offsets] = scatter.new
        return flat

    def _with_rows(self, index: int) -> torch.Tensor:
        flat = self.plan.targets[index].flat
        rows = [rows for rows in self._rows if rows.target == index]
        if rows:
            flat = flat.clone()
            for part in rows:
                view = part.view
                flat.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(part.new)
        return flat

    @property
    def touched(self) -> set[int]:
        """The targets in which it changes anything."""
        return set(self._scatters) | {rows.target for rows in self._rows}

    def switch(self, step: Callable[[], object] = lambda: None) -> None:
        """Writes the new values. `step` is called on the way, for tests that break it."""
        with torch.no_grad():
            # Rows first: what was put in later is in the scatters.
            for rows in self._rows:
                rows.view.copy_(rows.new)
            step()
            _write([(scatter, scatter.new) for scatter in self._scatters.values()])

    def restore(self) -> None:
        """Writes the values that were there before switch(), however far that came."""
        with torch.no_grad():
            _write([(scatter, scatter.old) for scatter in self._scatters.values()])
            for rows in self._rows:
                rows.view.copy_(rows.old)


def _write(parts: list[tuple[_Scatter, torch.Tensor]]) -> None:
    jobs = []
    for scatter, values in parts:
        if scatter.flat.device.type == "cpu":
            width = scatter.flat.element_size()
            jobs.append((scatter.flat.numpy(), width, scatter.offsets.numpy(), values.numpy()))
        else:
            scatter.flat.index_copy_(0, scatter.offsets, values)
    _native.scatter_elements(jobs)


def _is_host(target: Target) -> bool:
    return bool(target.flat.device.type == "cpu")


def _signed(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(f"i{bits.itemsize}") if bits.itemsize > 1 else bits)


def _offsets(piece: Piece, mask: torch.Tensor) -> torch.Tensor:
    offsets = torch.full((int(mask.sum()),), piece.target_offset)
    for along, (_, _, step) in zip(mask.nonzero(as_tuple=True), piece.dims, strict=True):
        offsets.add_(along.to(offsets.device), alpha=step)
    return offsets
