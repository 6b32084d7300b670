"""Makes stages of what a feed tells: by its moves where they lead on, else by a whole state."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from ...errors import CorruptError, NotFoundError
from ..feed.feed_files import MappedState, read_move
from ..feed.feed_link import FeedLink, FeedState
from ..feed.feed_messages import Move, Part
from ..feed.held_slices import whole_part
from ..feed.join_parts import has_parts
from ..feed.whole_state import WholeState
from ..plan.coverage import check_twins
from ..plan.load_plan import LoadPlan
from ..stage.stage import Stage
from .gather import parts_of
from .own_decoding import can_decode, decoded
from .rank_plan import RankPlan
from .rank_vote import Served

__all__ = ["StageBuilder"]

_log = logging.getLogger("wisp.engine")


class StageBuilder:
    """For one rank; it writes nothing into the engine's memory."""

    def __init__(self, link: FeedLink, plans: RankPlan, label: str) -> None:
        self._link = link
        self._plans = plans
        self._label = label
        self._times: dict[str, float] = {}  # of the try under way, or of the last one

    def take_times(self) -> dict[str, float]:
        """When phases of the last stage ended that this rank saw to itself."""
        times, self._times = self._times, {}
        return times

    def toward(self, plan: LoadPlan, feed: FeedState, before: Served | None) -> Stage | None:
        """By moves, or by the whole state that the feed keeps. None: it has just moved on."""
        assert feed.at is not None
        stage = Stage(plan)
        moves = None
        if before is not None and before.feed == feed.pid:
            moves = feed.chain(before.serial)
        elif before is not None and before.state == feed.at.state:
            moves = []
        try:
            if moves is not None:
                return self._put_moves(stage, feed, moves)
        except (FileNotFoundError, _UnlikeError):
            pass  # the feed has let them go, or only the whole tells; its state is there
        stage = Stage(plan)
        with self._link.mapped(feed) as state:
            if state is None:
                time.sleep(0.002)  # it has just moved on, and tells us so
                return None
            self._put_whole(stage, state)
        return stage

    def beyond(
        self, plan: LoadPlan, feed: FeedState, known: Iterable[tuple[str, Stage]]
    ) -> Stage | None:
        """By moves beyond one of the known states, else by a whole state; None: by neither yet."""
        for state, base in known:
            moves = feed.chain_from(state)
            try:
                stage = None
                if moves is not None:
                    stage = self._put_moves(Stage.beyond(base), feed, moves)
                if stage is not None:
                    return stage
            except (FileNotFoundError, _UnlikeError):
                continue
        moves = feed.chain_from(feed.whole_state) if feed.whole else None
        if moves is None or not has_parts(feed.whole_parts, self._needed(plan), feed.schema):
            return None
        try:
            stage = Stage(plan)
            self._put_whole(stage, WholeState(feed.whole))
            return self._put_moves(stage, feed, moves, from_memory=False)
        except (FileNotFoundError, _UnlikeError):
            return None

    def _needed(self, plan: LoadPlan) -> dict[str, tuple[Part, ...]]:
        """What of a whole state is read."""
        twins = self._plans.coverage.twins
        whole = {*plan.opaque, *twins, *twins.values()}
        found = {name: parts for name, parts in parts_of(plan).items() if name not in whole}
        whole |= plan.pieces.keys() - found.keys()
        return found | {name: (whole_part(plan.shapes[name]),) for name in whole}

    def count_differences(
        self, plan: LoadPlan, state: MappedState, names: set[str] | None = None
    ) -> int:
        """How many elements of memory are not the state's.

        names: of these tensors, and what is computed; None: of all.
        """
        if names is None:
            check_twins(self._plans.coverage.twins, state.bits)
        total = 0
        for name in plan.pieces if names is None else names & set(plan.pieces):
            for _, mask, _ in plan.differences(name, _signed(state.bits(name))):
                total += int(mask.sum())
        stage = Stage(plan)
        stage.put_writes(self._plans.captured(plan, lambda n: _signed(state.bits(n))))
        return total + stage.seal().elements

    def _put_whole(self, stage: Stage, state: MappedState | WholeState) -> None:
        self._times.clear()
        check_twins(self._plans.coverage.twins, state.bits)
        for name in stage.plan.pieces:
            stage.put_whole(name, _signed(state.bits(name)))
        writes = self._plans.captured(stage.plan, lambda name: _signed(state.bits(name)))
        stage.put_writes(writes)

    def _put_moves(
        self, stage: Stage, feed: FeedState, moves: list[Move], *, from_memory: bool = True
    ) -> Stage | None:
        """`stage` and the moves, or one that begins with both.

        None: some of it needs a state that has moved on, or that the feed does not keep.
        from_memory: the moves begin where memory and `stage` are.
        """
        self._times.clear()
        for is_handed, run in itertools.groupby(moves, lambda move: bool(move.deltas)):
            if is_handed:
                stage = self._put_decoded(Stage.beyond(stage.seal()), stage, feed, list(run))
                from_memory = True
            elif not self._put_files(stage, feed, list(run), from_memory=from_memory):
                return None
        return stage

    def _put_decoded(
        self, stage: Stage, before: Stage, feed: FeedState, moves: list[Move]
    ) -> Stage:
        """What this rank decodes itself; `stage` begins with `before`."""
        plan = stage.plan
        if not can_decode(plan, feed.schema):
            raise _UnlikeError("deltas")
        tied: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        try:
            found = decoded(before, feed.schema, moves, self._label)
        except (NotFoundError, CorruptError) as error:
            # What is damaged can be read no more than what is gone: other moves, or a whole state.
            _log.warning("%s does without the deltas of the feed: %s", self._label, error)
            raise FileNotFoundError(str(error)) from error
        for name, positions, bits, old in found:
            tied[name] = (positions, bits)
            stage.put(name, positions, bits, old, is_proven=_is_given_alone(plan, name))
        self._check_twins(tied)
        self._times["decoded"] = time.time()
        return stage

    def _check_twins(self, tied: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        for name, twin in self._plans.coverage.twins.items():
            if not _move_alike(tied.get(name), tied.get(twin)):
                raise _UnlikeError(name)

    def _put_files(
        self, stage: Stage, feed: FeedState, moves: list[Move], *, from_memory: bool
    ) -> bool:
        plan = stage.plan
        schema = {entry[0]: entry for entry in feed.schema}
        touched: set[str] = set()
        kept = set(feed.kept)
        twins = self._plans.coverage.twins
        for move in moves:
            stage.next_move()
            is_proven = from_memory and move.proven_by == (self._label,)
            tied: dict[str, tuple[np.ndarray, np.ndarray]] = {}
            for name, positions, bits, old in read_move(self._link.folder, move, schema):
                if name in twins or name in twins.values():
                    tied[name] = (positions, bits)
                if name in plan.opaque:
                    touched.update(plan.opaque[name])
                else:
                    before = old if from_memory else None
                    is_given = name not in kept and _is_given_alone(plan, name)
                    stage.put(name, positions, bits, before, is_proven=is_proven and is_given)
            self._check_twins(tied)
        if not touched:
            return True
        if feed.relay and not touched <= kept:
            return False
        with self._link.mapped(feed) as state:
            if state is None:
                return False
            bits_of = state.bits
            writes = self._plans.captured(plan, lambda name: _signed(bits_of(name)), touched)
            stage.put_writes(writes, everything=feed.relay)
        return True


def _is_given_alone(plan: LoadPlan, name: str) -> bool:
    """Whether a feed that asks this rank alone learns the tensor from one place of its memory."""
    pieces = plan.pieces.get(name, [])
    return len(pieces) == 1 and plan.is_copy(name, pieces[0])


class _UnlikeError(Exception):
    """A move changes a tensor otherwise than the one that is served in its place."""


def _move_alike(
    one: tuple[np.ndarray, np.ndarray] | None, other: tuple[np.ndarray, np.ndarray] | None
) -> bool:
    if one is None or other is None:
        return one is other
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _signed(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(f"i{bits.itemsize}") if bits.itemsize > 1 else bits)
