"""A run's newest state where the engines hold it: the feed keeps only what they cannot give back.

Ranks that hold every tensor without a gap decode each step themselves, over their own memory. Else
the ranks of one engine are asked for the words that it touches (`Gather`), which prove it. A whole
state, on disk, is there from the time it was fetched until all ranks have staged it. Tensors that
no engine holds whole, bit for bit, are kept in shared memory from then on; in a run whose deltas
are sliced, of those that engines spread over hosts only what `held_slices` says.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ... import _native
from ...errors import UnavailableError
from ...follow.targets import RelayTarget
from ...tensors import TensorEntry
from .feed_files import WriterTurn, check_told, write_move
from .feed_messages import Coming, Gather, Part, Verified
from .held_slices import HostSlices
from .join_parts import JoinParts, StateParts, native, parts_of_host
from .kept_tensors import KeptTensors
from .memory_proof import MemoryProof
from .rank_gather import RankGather
from .rank_table import EngineRanks, RankTable
from .whole_state import WholeState
from .word_buffers import buffer_bytes, index_bytes, words_in

__all__ = ["RejoinError", "RelayState"]

_log = logging.getLogger("wisp.feed")
_ANSWER = 3.0  # seconds for an answer, if others could give it too
_PATIENCE = 10.0  # seconds in which somebody must come who could ever answer


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
        tell: Callable[[Gather | Coming], None],
        slices_of: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.schema: tuple[TensorEntry, ...] = ()
        self.whole = self.whole_state = ""
        self.whole_parts: dict[str, tuple[Part, ...]] | None = None  #: None: it is all there
        self.serial = 0
        self.adopted = False
        self.moved: tuple[tuple[str, int], ...] | None = None
        self.proven_by: tuple[str, ...] = ()  #: the ranks whose words proved the last move
        self.handed: tuple[str, ...] = ()  #: the deltas of it, if ranks decode them
        self.rejoin = threading.Event()  #: somebody needs a whole state
        self.joining = True  #: one is on its way
        self.turn = turn
        self._folder = folder
        self._ranks = ranks
        self._tell = tell
        self._kept = KeptTensors(folder, turn)
        self._gather = RankGather(folder, ranks, tell, self._go_on)
        self._gathering = threading.Lock()
        self._join = JoinParts(ranks, tell, self._go_on)
        self._fetched: StateParts | None = None  # of the state that is on its way; None: all
        self._since: set[str] = set()  # states since the whole one
        self._touched: list[tuple[int, int]] = []
        self._buffer: np.ndarray = np.empty(0, np.uint8)
        self._slices_of = slices_of  # of the run, by the bytes of its weights
        self._slices: HostSlices | None = None  # if this host needs only parts
        self._state = ""  # the newest

    @property
    def coming(self) -> Coming | None:
        """The state that ranks are asked about."""
        return self._join.coming

    @property
    def file(self) -> str:
        """Of what is kept."""
        return self._kept.file

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of what is kept."""
        return self._kept.names

    @property
    def size(self) -> int:
        """The bytes of what is kept."""
        return self._kept.size

    def start_over(self) -> None:
        """The next state is a whole one."""
        self.joining = True
        self._fetched = None
        self.rejoin.clear()

    def _take_whole(self, place: str, state: str) -> None:
        self.remove_whole()
        self.whole, self.whole_state, self._since = place, state, {state}
        self.joining = False
        self.rejoin.clear()
        self._slices, self._state, self.whole_parts = None, state, None
        self._kept.clear()

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
        self._kept.clear()
        self._gather.close()

    # What the follower calls, on its thread.

    def room(self, touched: list[tuple[int, int]]) -> np.ndarray:
        self._touched = touched
        self._buffer = self._gather.buffer(sum(buffer_bytes(words) for _, words in touched))
        return self._buffer

    def ask(self, state: str) -> None:
        with self._gathering:
            self._ask(state)

    def asked(self) -> str:
        ranks = self._gather.asked
        return "the memory of rank" + ("s " if len(ranks) > 1 else " ") + ", ".join(ranks)

    def adopt(
        self, folder: str, schema: list[TensorEntry], step: int, seq: int, state: str
    ) -> None:
        with self._gathering:
            self.schema = tuple(schema)
            self._take_whole(folder, state)
            if self._fetched is not None:
                self.whole_parts = self._fetched.listed(self.schema)
                self._cut(self._fetched)
                self._keep(set(self._fetched.kept))
                self._fetched = None
        self.adopted = True

    def held_of(self, schema: list[TensorEntry]) -> _native.HeldSlices | None:
        self._fetched = None
        try:
            self._fetched = self._join.ask(tuple(schema))
        except Exception as error:
            _log.warning("what this host will hold is not known (%s); a whole state is fetched",
                         error)  # fmt: skip
        return None if self._fetched is None else native(self._fetched, schema)

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
        return self._slices_of(self._weight_bytes()) > 0

    def _weight_bytes(self) -> int:
        return sum(8 * words_in(entry) for entry in self.schema)

    def hand_over(self, deltas: list[str], step: int, seq: int, state: str) -> bool:
        check_told(self.moved)
        with self._gathering:
            if self._slices is not None:
                return False
            groups = self._wait_groups(self._state)
            if self.whole_state == self._state:
                self._keep_uncovered(groups)
            if self._slices is not None or self._kept.names or not self._ranks.all_decode():
                return False
            self._state = state
        self.proven_by, self.moved, self.handed = (), (), tuple(deltas)
        self._since.add(state)
        return True

    def move(
        self, move: _native.ToldMove, step: int, seq: int, state: str, by: tuple[int, int]
    ) -> None:
        check_told(self.moved)
        self._buffer = np.empty(0, np.uint8)
        with self._gathering:
            self._kept.move(move.tensors([*self._kept.names]))
            if self._slices is not None:
                self._slices.move(move.tensors(self._slices.edge_names), by)
            self._state = state
        self.proven_by, self.handed = tuple(self._gather.asked), ()
        self.moved = write_move(self._folder, f"move-{self.serial + 1}", move, with_old=True)
        self._since.add(state)

    def release(self, whole: bool) -> None:
        """Readers may look again at what is kept, unless it moved without anybody being told."""
        is_told = whole or self.moved is None
        self.adopted, self.moved, self.handed = False, None, ()
        self.turn.give(self.serial if is_told else 0)

    # Asking.

    def _go_on(self) -> None:
        if self.rejoin.is_set():
            raise RejoinError("a whole state is needed")

    def _wait_groups(self, state: str) -> list[EngineRanks]:
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
        self._gather.silent.clear()
        while True:
            groups = self._wait_groups(state)
            groups.sort(key=lambda group: not self._gather.silent.isdisjoint(group.labels))
            if self.whole_state == state and self._slices is None:
                self._keep_uncovered(groups)
            wanted: dict[EngineRanks, list[tuple[str, int, int, int]]] = {}
            missing: list[str] = []
            at = 0
            for index, words in self._touched:
                name = schema[index][0]
                group = next((g for g in groups if name in g.covered), None)
                if name in self._kept:
                    self._kept.fill(name, self._indices(at, words), self._words(at, words))
                elif group is not None:
                    wanted.setdefault(group, []).append((name, -1, words, at))
                    self._fill_edges(name, at, words)
                else:
                    missing.append(name)
                at += buffer_bytes(words)
            if missing:
                _log.warning(
                    "no engine of this host holds all of %s and %d more any longer; a whole state "
                    "is fetched", missing[0], len(missing) - 1,
                )  # fmt: skip
                raise RejoinError("tensors are held by no engine any more")
            # Somebody who is stopped is not waited for as long as there are others.
            patience = _ANSWER if len(groups) > len(wanted) else None
            failed = self._gather.fill(state, wanted, patience)
            if failed is None:
                return
            _log.info("asking again: %s", failed)
            time.sleep(0.02)

    def _indices(self, at: int, words: int) -> np.ndarray:
        return self._buffer[at : at + 4 * words].view(np.int32)

    def _words(self, at: int, words: int) -> np.ndarray:
        return self._buffer[at + index_bytes(words) : at + buffer_bytes(words)]

    # What is kept.

    def _keep_uncovered(self, groups: Sequence[EngineRanks]) -> None:
        covered = set().union(*(group.covered for group in groups))
        names = {name for name, _, _ in self.schema}
        parts = parts_of_host(self._ranks, self.schema) if self._is_sliced() else None
        if parts is not None:
            self._cut(parts)
            self._keep(set(parts.kept))
        else:
            self._keep((names - covered) | (self._ranks.opaque() & names))

    def _keep(self, names: set[str]) -> None:
        """Those that no engine of this host can give back."""
        if names <= set(self._kept.names):
            return
        _log.warning(
            "%d tensors that no engine of this host can give back bit for bit, %s the first, are "
            "kept in host memory", len(names), min(names),
        )  # fmt: skip
        kept = [entry for entry in self.schema if entry[0] in names]
        self._kept.keep(kept, WholeState(self.whole))

    def _cut(self, parts: StateParts) -> None:
        """From here on this host needs its slices alone."""
        slices = self._slices_of(self._weight_bytes())
        state = WholeState(self.whole)
        self._slices = HostSlices(self.schema, slices, parts.parts, parts.whole, state.bits)
        _log.info(
            "this host holds slices: %d tensors in part, %d whole, of %d; %d bytes at their edges "
            "are kept in host memory", len(parts.parts), len(parts.whole), len(self.schema),
            self._slices.edge_bytes,
        )  # fmt: skip

    def _fill_edges(self, name: str, at: int, words: int) -> None:
        if self._slices is not None:
            self._slices.fill(name, self._indices(at, words), self._words(at, words))

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
            if self._slices is not None:
                known = self._ranks.groups_at(state, self.schema, self._slices.parts)
                groups = [group for group in known if label in group.labels]
            ranks = RankGather(self._folder, self._ranks, self._tell, self._go_on)
            try:
                proof = MemoryProof(ranks, self.schema, self._kept, state)
                return proof.prove(label, groups, self._slices)
            finally:
                ranks.close()
