"""A run's newest state where the engines hold it: the feed keeps only what they cannot give back.

For each step the ranks of one engine are asked for the words that it touches (`Gather`), which
prove it. A whole state, on disk, is there from the time it was fetched until all ranks have staged
it. Tensors that no engine holds whole, bit for bit, are kept in shared memory from then on; in a
run whose deltas are sliced, of those that engines spread over hosts only what `held_slices` says.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from .. import _native
from ..errors import UnavailableError
from ..targets import UNSIGNED, MovedTensor, RelayTarget, element_width
from ..tensors import TensorEntry
from .feed_files import MappedState, WriterTurn, map_at_once, state_layout, write_move
from .feed_messages import Gather, Part, Verified
from .held_slices import HostSlices
from .rank_table import RankGroup, RankTable
from .whole_state import WholeState

__all__ = ["RejoinError", "RelayState"]

_log = logging.getLogger("wisp.feed")
_ANSWER = 3.0  # seconds for an answer, if others could give it too
_PATIENCE = 10.0  # seconds in which somebody must come who could ever answer
_AT_ONCE = 32 << 20  # bytes that a proof of all weights looks at, at a time


class RejoinError(Exception):
    """Ends the follower under way: only a whole state leads on."""


class RelayState(RelayTarget):
    """Asks the ranks in `ranks`; `tell` says something to all of them."""

    relay = True

    def __init__(
        self,
        folder: Path,
        turn: WriterTurn,
        ranks: RankTable,
        tell: Callable[[Gather], None],
        slices_of: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.schema: tuple[TensorEntry, ...] = ()
        self.file = ""  #: of what is kept
        self.kept: tuple[str, ...] = ()
        self.whole = self.whole_state = ""
        self.serial = 0
        self.size = 0
        self.adopted = False
        self.moved: tuple[tuple[str, int], ...] | None = None
        self.rejoin = threading.Event()  #: somebody needs a whole state
        self.joining = True  #: one is on its way
        self.turn = turn
        self._folder = folder
        self._ranks = ranks
        self._tell = tell
        self._gathering = threading.Lock()
        self._number = 0
        self._asked: list[str] = []
        self._silent: set[str] = set()  # ranks that let the others wait
        self._since: set[str] = set()  # states since the whole one
        self._touched: list[tuple[int, int]] = []
        self._room: np.ndarray = np.empty(0, np.uint8)
        self._kept_state: MappedState | None = None
        self._slices_of = slices_of  # of the run, by the bytes of its weights
        self._slices: HostSlices | None = None  # if this host needs only parts
        self._state = ""  # the newest

    def start_over(self) -> None:
        """The next state is a whole one."""
        self.joining = True
        self.rejoin.clear()

    def _take_whole(self, place: str, state: str) -> None:
        self.remove_whole()
        self.whole, self.whole_state, self._since = place, state, {state}
        self.joining = False
        self.rejoin.clear()
        self._slices, self._state = None, state
        self._keep((), None)

    def remove_whole(self) -> None:
        """Frees the disk; what ranks have open they can still read."""
        if self.whole:
            shutil.rmtree(self.whole, ignore_errors=True)
        self.whole = self.whole_state = ""

    def tidy(self) -> bool:
        """Removes the whole state if all ranks have it, and something was built on it."""
        if not self.whole or len(self._since) < 2 or not self._ranks.all_past(self._since):
            return False
        self.remove_whole()
        return True

    def close(self) -> None:
        """Nothing of it is left."""
        self.remove_whole()
        self._keep((), None)
        for path in self._folder.glob("gather-*"):
            path.unlink()

    # What the follower calls, on its thread.

    def room(self, touched: list[tuple[int, int]]) -> np.ndarray:
        self._touched = touched
        self._number += 1
        size = sum(_room_bytes(words) for _, words in touched)
        self._room = self._make_file(f"gather-{self._number}", size)
        return self._room

    def ask(self, state: str) -> None:
        try:
            with self._gathering:
                self._ask(state)
        finally:
            (self._folder / f"gather-{self._number}").unlink(missing_ok=True)

    def asked(self) -> str:
        return (
            "the memory of rank" + ("s " if len(self._asked) > 1 else " ") + ", ".join(self._asked)
        )

    def adopt(
        self, folder: str, schema: list[TensorEntry], step: int, seq: int, state: str
    ) -> None:
        with self._gathering:
            self.schema = tuple(schema)
            self._take_whole(folder, state)
        self.adopted = True

    def held(self) -> _native.HeldSlices | None:
        try:
            return self._find_held()
        except (RejoinError, UnavailableError):
            raise  # as ask() will, in its turn
        except Exception as error:
            _log.warning("what this host holds is not known (%s); deltas are fetched whole", error)
            raise

    def _find_held(self) -> _native.HeldSlices | None:
        with self._gathering:
            if self._slices is None and self._state == self.whole_state and self._is_sliced():
                self._keep_uncovered(self._wait_groups(self._state))
            if self._slices is None:
                return None
            if not self._slices.includes(self._ranks.parts()):
                _log.info("ranks hold more than before; a whole state is fetched")
                self.rejoin.set()
            self._go_on()
            return self._slices.native

    def _is_sliced(self) -> bool:
        return self._slices_of(sum(8 * _words_of(entry) for entry in self.schema)) > 0

    def move(
        self, entries: list[MovedTensor], step: int, seq: int, state: str, by: tuple[int, int]
    ) -> None:
        self._room = np.empty(0, np.uint8)
        with self._gathering:
            self._move_kept(entries)
            if self._slices is not None:
                self._slices.move(entries, by)
            self._state = state
        self.moved = write_move(self._folder, f"move-{self.serial + 1}", entries, with_old=True)
        self._since.add(state)

    def release(self, whole: bool) -> None:
        """Readers may look again at what is kept, unless it moved without anybody being told."""
        is_told = whole or self.moved is None
        self.adopted, self.moved = False, None
        self.turn.give(self.serial if is_told else 0)

    # Asking.

    def _go_on(self) -> None:
        if self.rejoin.is_set():
            raise RejoinError("a whole state is needed")

    def _wait_groups(self, state: str) -> list[RankGroup]:
        """Engines that stand at the state. Without a rank that could ever, it is given up."""
        alone_since = time.monotonic()
        while True:
            groups = self._ranks.groups_at(state, self.schema, self._sliced_parts())
            if groups:
                return groups
            self._go_on()
            if self._ranks.has_candidates():
                alone_since = time.monotonic()
            elif time.monotonic() - alone_since > _PATIENCE:
                raise UnavailableError(
                    "no engine of this host stands at the state that the next step changes; it is "
                    "tried again"
                )
            with self._ranks.changed:
                self._ranks.changed.wait(0.2)

    def _sliced_parts(self) -> dict[str, frozenset[Part]] | None:
        return None if self._slices is None else self._slices.parts

    def _ask(self, state: str) -> None:
        schema = self.schema
        self._silent = set()
        while True:
            groups = self._wait_groups(state)
            groups.sort(key=lambda group: not self._silent.isdisjoint(group.labels))
            if self.whole_state == state and self._slices is None:
                self._keep_uncovered(groups)
            wanted: dict[RankGroup, list[tuple[str, int, int, int]]] = {}
            missing: list[str] = []
            at = 0
            for index, words in self._touched:
                name = schema[index][0]
                group = next((g for g in groups if name in g.covered), None)
                if name in self.kept:
                    self._fill_kept(schema[index], self._indices(at, words), at, words)
                elif group is not None:
                    wanted.setdefault(group, []).append((name, -1, words, at))
                    self._fill_edges(name, at, words)
                else:
                    missing.append(name)
                at += _room_bytes(words)
            if missing:
                _log.warning(
                    "no engine of this host holds all of %s and %d more any longer; a whole state "
                    "is fetched", missing[0], len(missing) - 1,
                )  # fmt: skip
                raise RejoinError("tensors are held by no engine any more")
            # Somebody who is stopped is not waited for as long as there are others.
            patience = _ANSWER if len(groups) > len(wanted) else None
            failed = self._gather(state, f"gather-{self._number}", wanted, patience)
            if failed is None:
                return
            _log.info("asking again: %s", failed)
            time.sleep(0.02)

    def _indices(self, at: int, words: int) -> np.ndarray:
        return self._room[at : at + 4 * words].view(np.int32)

    def _gather(
        self,
        state: str,
        file: str,
        wanted: dict[RankGroup, list[tuple[str, int, int, int]]],
        patience: float | None = None,
        only_compare: bool = False,
    ) -> str | None:
        number = time.time_ns()
        self._asked = [label for group in wanted for label in group.labels]
        for group, tensors in wanted.items():
            self._tell(Gather(number, state, file, group.labels, tuple(tensors), only_compare))
        return self._ranks.wait_answers(number, self._asked, self._go_on, patience, self._silent)

    # What is kept.

    def _keep_uncovered(self, groups: Sequence[RankGroup]) -> None:
        covered = set().union(*(group.covered for group in groups))
        names = {name for name, _, _ in self.schema}
        opaque = self._ranks.opaque() & names
        if self._is_sliced() and not names <= covered | opaque:
            self._cut(covered, opaque)
            names = opaque
        missing = sorted({name for name in names if name not in covered} | opaque)
        if set(missing) <= set(self.kept):
            return
        if missing:
            _log.warning(
                "%d tensors that no engine of this host can give back bit for bit, %s the first, "
                "are kept in host memory", len(missing), missing[0],
            )  # fmt: skip
        self._keep(tuple(missing), WholeState(self.whole))

    def _cut(self, covered: set[str], opaque: set[str]) -> None:
        """From here on this host needs its slices alone."""
        whole = covered | opaque
        parts = {name: p for name, p in self._ranks.parts().items() if name not in whole}
        size = sum(8 * _words_of(entry) for entry in self.schema)
        state = WholeState(self.whole)
        self._slices = HostSlices(
            self.schema, self._slices_of(size), parts, sorted(whole), state.bits
        )
        _log.info(
            "this host holds slices: %d tensors in part, %d whole, of %d; %d bytes at their edges "
            "are kept in host memory", len(parts), len(whole), len(self.schema),
            self._slices.edge_bytes,
        )  # fmt: skip

    def _fill_edges(self, name: str, at: int, words: int) -> None:
        if self._slices is not None:
            room = self._room[at + _index_bytes(words) : at + _room_bytes(words)]
            self._slices.fill(name, self._indices(at, words), room)

    def _keep(self, names: tuple[str, ...], source: WholeState | None) -> None:
        old, self.file, self.kept, self._kept_state = self.file, "", names, None
        self.size = 0
        if old:
            (self._folder / old).unlink(missing_ok=True)
        if not names or source is None:
            return
        self.turn.take()
        schema = [entry for entry in self.schema if entry[0] in set(names)]
        head, _, self.size = state_layout(schema)
        file = f"kept-{time.time_ns()}.safetensors"
        with open(self._folder / file, "xb") as out:
            os.posix_fallocate(out.fileno(), 0, self.size)
            out.write(head)
        self._kept_state = MappedState(self._folder, file, schema)
        for name, _, _ in schema:
            self._kept_state.bits(name)[:] = source.bits(name)
        self.file, self.kept = file, tuple(entry[0] for entry in schema)

    def _move_kept(self, entries: list[MovedTensor]) -> None:
        if self._kept_state is None:
            return
        self.turn.take()
        for name, dtype, _, positions, bits, _ in entries:
            if name in self.kept:
                kind = UNSIGNED[element_width(dtype)]
                places = np.frombuffer(positions, np.int64)
                self._kept_state.bits(name)[places] = np.frombuffer(bits, kind)

    def _fill_kept(self, entry: TensorEntry, words: np.ndarray, at: int, count: int) -> None:
        assert self._kept_state is not None
        room = self._room[at + _index_bytes(count) : at + _room_bytes(count)]
        _put_words(self._kept_state.bits(entry[0]), words, room)

    # Proving everything.

    def verify(self, label: str, state: str, at: str) -> Verified:
        """Whether the words of all tensors, from wherever they are, add up to the state's digest.

        label: of a rank of the engine that is meant; at: the state of what is kept.
        """
        end = time.monotonic() + _PATIENCE
        with self._gathering:
            while True:  # what ranks say of themselves arrives a little later
                known = self._ranks.groups_at(state, self.schema, self._sliced_parts())
                groups = [group for group in known if label in group.labels]
                if groups or time.monotonic() > end:
                    break
                with self._ranks.changed:
                    self._ranks.changed.wait(0.1)
            if not groups:
                return Verified(label, state, "not all ranks stand at the state; try again")
            if self.whole_state == state and self._slices is None:
                self._keep_uncovered(known)
                self.turn.give(self.serial)
            if (self.kept or self._slices is not None) and at != state:
                return Verified(label, state, "the feed has gone on; update first")
            total = [0, 0]
            differing: dict[str, int] = {}
            if self._slices is not None:
                groups = [
                    group for group in self._ranks.groups_at(state, self.schema, self._slices.parts)
                    if label in group.labels
                ]  # fmt: skip
                failed = self._add_slices(self._slices, state, groups, total, differing)
                if failed is not None:
                    return Verified(label, state, failed)
            else:
                for batch in self._batches():
                    failed = self._add(batch, state, groups, total, differing)
                    if failed is not None:
                        return Verified(label, state, failed)
        found = f"{total[0] % 2**64:016x}{total[1] % 2**64:016x}"
        is_right = found == state
        if self._slices is not None:
            is_right = self._slices.is_digest(np.array([t % 2**64 for t in total], np.uint64))
        if is_right and not differing:
            return Verified(label, state, None)
        names = ", ".join(differing or groups[0].labels)
        what = "other words than its peers" if differing else f"state {found}, not {state}"
        return Verified(
            label, state,
            f"the memory of rank {names} holds {what}: somebody else wrote to it; a whole state is "
            "fetched, and the next update mends it",
            differs=True,
        )  # fmt: skip

    def _batches(self) -> Iterator[list[tuple[TensorEntry, int, int]]]:
        """(tensor, first word, words), a few at a time."""
        batch: list[tuple[TensorEntry, int, int]] = []
        size = 0
        for entry in self.schema:
            words = _words_of(entry)
            for first in range(0, words, _AT_ONCE // 8):
                count = min(words - first, _AT_ONCE // 8)
                if size + 8 * count > _AT_ONCE:
                    yield batch
                    batch, size = [], 0
                batch.append((entry, first, count))
                size += 8 * count
        yield batch

    def _add(
        self, batch: list[tuple[TensorEntry, int, int]], state: str, groups: list[RankGroup],
        total: list[int], differing: dict[str, int],
    ) -> str | None:  # fmt: skip
        file = f"gather-all-{time.time_ns()}"
        room = self._make_file(file, sum(8 * count for _, _, count in batch))
        wanted: dict[RankGroup, list[tuple[str, int, int, int]]] = {}
        at = 0
        for entry, first, count in batch:
            group = next((g for g in groups if entry[0] in g.covered), None)
            if entry[0] in self.kept and self._kept_state is not None:
                words = np.arange(first, first + count)
                _put_words(self._kept_state.bits(entry[0]), words, room[at : at + 8 * count])
            elif group is None:
                return f"'{entry[0]}' is held by no engine of this host"
            else:
                wanted.setdefault(group, []).append((entry[0], first, count, at))
            at += 8 * count
        # Parts that several ranks hold count once, and must be the same.
        failed = self._gather(state, file, wanted) or self._gather(
            state, file, wanted, only_compare=True
        )
        (self._folder / file).unlink(missing_ok=True)
        for label, count in self._ranks.differing(self._asked).items():
            differing[label] = differing.get(label, 0) + count
        at = 0
        for entry, first, count in batch:
            part = _native.digest_of_words(entry, first, room[at : at + 8 * count])
            total[:] = [total[0] + part[0], total[1] + part[1]]
            at += 8 * count
        return failed

    def _add_slices(
        self, slices: HostSlices, state: str, groups: list[RankGroup], total: list[int],
        differing: dict[str, int],
    ) -> str | None:  # fmt: skip
        """As _add, of all words that this host needs."""
        for name, words in slices.words():
            file = f"gather-all-{time.time_ns()}"
            data = self._make_file(file, _room_bytes(words.size))
            data[: 4 * words.size].view(np.int32)[:] = words
            room = data[_index_bytes(words.size) :]
            group = next((g for g in groups if name in g.covered), None)
            failed = None
            if name in self.kept and self._kept_state is not None:
                _put_words(self._kept_state.bits(name), words, room)
            elif group is None:
                failed = f"'{name}' is held by no engine of this host"
            else:
                slices.fill(name, words, room)
                wanted = {group: [(name, -1, words.size, 0)]}
                failed = self._gather(state, file, wanted) or self._gather(
                    state, file, wanted, only_compare=True
                )
                for label, count in self._ranks.differing(self._asked).items():
                    differing[label] = differing.get(label, 0) + count
            (self._folder / file).unlink(missing_ok=True)
            if failed is not None:
                return failed
            part = slices.digest(name, words, room)
            total[:] = [total[0] + int(part[0]), total[1] + int(part[1])]
        return None

    def _make_file(self, file: str, size: int) -> np.ndarray:
        with open(self._folder / file, "xb") as out:
            if size:
                os.posix_fallocate(out.fileno(), 0, size)
        return map_at_once(self._folder / file)


def _index_bytes(words: int) -> int:
    return -(-words * 4 // 8) * 8


def _room_bytes(words: int) -> int:
    return _index_bytes(words) + words * 8


def _words_of(entry: TensorEntry) -> int:
    _, dtype, shape = entry
    return -(-int(np.prod(shape, dtype=np.int64)) * element_width(dtype) // 8)


def _put_words(bits: np.ndarray, words: np.ndarray, room: np.ndarray) -> None:
    """Words of a tensor; what lies past its end stays as it is in the room, zero."""
    per = 8 // bits.itemsize
    elements = (words.astype(np.int64)[:, None] * per + np.arange(per)).reshape(-1)
    inside = elements < bits.size
    room.view(bits.dtype)[inside] = bits[elements[inside]]
