"""One rank of an engine at its host's feed: stages each step beside serving, switches when told.

Nothing here knows which engine it is: that gives the model's loader, the memory it serves from,
and a way for its ranks to agree.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..errors import Error, InvalidError, UnavailableError, UnsupportedError, WrongBaseError
from ..targets import element_width
from ..tensors import TensorEntry, torch_dtype
from .coverage import STRICT, Allowed, Coverage, PartedError, agree, check_twins, listed
from .element_function import is_steady
from .feed_files import MappedState, StateMovedError, read_move
from .feed_link import FeedLink, FeedState
from .feed_messages import (
    Gather,
    Gathered,
    Move,
    RankHolds,
    RankReport,
    RankState,
    state_key,
)
from .gather import fill, parts_of
from .load_plan import Layout, Loader, LoadPlan, Schema, Target, targets_of
from .load_recorder import LearningLoader, capture, learn
from .loader_guard import guarded
from .run_plan import plan_run
from .served_checkpoint import open_served
from .stage import Stage, Write
from .whole_state import WholeState

__all__ = ["RankFollower", "Served", "Vote"]

_log = logging.getLogger("wisp.engine")
_RETRY = 2.0  # seconds after a stage that failed
_DOUBTFUL = 1 << 60  # marks votes of ranks that have yet to agree on coverage: all of them, or none
_LISTED = 100  # names told of each kind that has no counterpart
_PROOF = 3600.0  # seconds that a proof of all weights may take

#: Gives every rank's (number, complaint) to every rank, in the order of ranks; complaint "": none.
Vote = Callable[[int, str], list[tuple[int, str]]]
#: Gives what each rank says to every rank, in the order of ranks.
Share = Callable[[Any], list[Any]]


@dataclass(frozen=True)
class Served:
    """A state of the run, as a rank knows it."""

    feed: int  #: which feed counted
    serial: int
    step: int
    seq: int
    state: str
    times: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """The same for the same weights under the same step, on whatever host."""
        return state_key(self.step, self.state)

    def as_message(self) -> RankState:
        """As other readers are told of it."""
        return RankState(self.step, self.seq, self.state, self.times)


class RankFollower:
    """Keeps a stage of the newest state ready; `switch` writes it.

    checkpoint: where the model's weights were loaded from (safetensors in a folder). They prove
    the plan: read back through it, the model's memory must hold them bit for bit.
    layouts: of storages that the engine has put into another order, by their address.
    peers: how many ranks its engine has on this host; labels are the same up to the last "/".
    share: how the ranks of the engine tell each other what they hold; None: there is one alone.
    tied: the served model's head is its embedding, by its configuration.
    allowed: what may be without a counterpart in run or model.
    replica: the name under which `wisp status` shows the engine; the same on all its ranks.
    """

    def __init__(
        self,
        link: FeedLink,
        model: torch.nn.Module,
        load: Loader | LearningLoader,
        *,
        label: str,
        checkpoint: str | None,
        layouts: dict[int, Layout] | None = None,
        peers: int = 1,
        share: Share | None = None,
        tied: bool = False,
        allowed: Allowed = STRICT,
        replica: str = "",
    ) -> None:
        self.link = link
        self.label = label
        self.served: Served | None = None
        self.failure: str | None = None  #: why there is nothing to switch to
        self._model = model
        self._load = load if isinstance(load, LearningLoader) else guarded(model, load)
        self._checkpoint = checkpoint
        self._layouts = layouts
        self._lock = threading.Condition()
        self._turns = 0  # how often the memory was written to
        self._staged: dict[str, tuple[Served, Stage]] = {}  # by key, the newest two
        self._targets: list[Target] = []
        self._proven: set[int] = set()
        self._unsteady: set[str] = set()  # functions whose kernels look at the place of an element
        self._share = share
        self._tied = tied
        self._allowed = allowed
        self._replica = replica
        self._served_plan: LoadPlan | None = None  # of the folder that was loaded
        self._read: Callable[[str], torch.Tensor] | None = None
        self._plan: LoadPlan | None = None
        self._plan_schema: tuple[TensorEntry, ...] = ()
        self._coverage = Coverage()
        self._refused: InvalidError | None = None  # for the run's schema, as it is known
        self._unfit = False  # `failure` is not for a moment
        self._closed = False
        self._peers = peers
        self._doubted = False  # memory is not what it should be: only a whole state helps
        self._asked: queue.SimpleQueue[Gather | None] = queue.SimpleQueue()
        link.on_gather = self._asked.put
        self._tell()
        self._thread = threading.Thread(target=self._run, name="wisp-stage", daemon=True)
        self._thread.start()
        threading.Thread(target=self._answer, name="wisp-gather", daemon=True).start()

    def close(self) -> None:
        """The memory stays as it is."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._asked.put(None)
        self.link.close()

    def allow(self, allowed: Allowed) -> None:
        """From now on this may be without a counterpart. All ranks must be told."""
        with self._lock:
            if allowed != self._allowed:
                self._allowed, self._plan_schema, self._refused = allowed, (), None
                self._staged.clear()  # under other terms
                self.failure, self._unfit = None, False
                self._lock.notify_all()
        self._tell()
        self.link.wake()

    def wait_staged(self, ready: Callable[[Served], bool], timeout: float) -> Served | None:
        """The newest staged or served state that is ready; None after `timeout` seconds."""

        def found() -> Served | None:
            states = [served for served, _ in self._staged.values()]
            states += [self.served] if self.served else []
            return next((state for state in reversed(states) if ready(state)), None)

        with self._lock:
            self._lock.wait_for(lambda: self._closed or found() is not None, timeout)
            return found()

    def switch(self, key: str, vote: Vote, during: Callable[[], object] = lambda: None) -> Served:
        """Writes the staged state `key` on all ranks, or on none.

        All ranks must call it together. What fails on one puts the old values back on all, and is
        raised on all, naming the rank.
        """
        with self._lock:
            served: Served | None
            stage: Stage | None
            if self.served is not None and self.served.key == key:
                served, stage = self.served, None
            else:
                served, stage = self._staged.get(key, (None, None))
            unknown = f"step {key.partition(':')[0]} is not staged"
            missing = "" if served else self.failure or unknown
            if missing and self._share is not None:
                missing += f" (on host {socket.gethostname()})"  # whose feed nobody else sees
            doubtful = stage is not None and not self._coverage.agreed
            number = _number(served) ^ (_DOUBTFUL if doubtful else 0)
            _refuse(vote(number, missing), UnavailableError)
            if doubtful:
                self._agree()
            complaint = ""
            try:
                if stage is not None:
                    self._turns += 1
                    stage.switch(during)
                    self._written(stage)
            except BaseException as error:
                complaint = _text(error)
            try:
                _refuse(vote(_number(served), complaint), Error)
            except BaseException:
                if stage is not None:
                    stage.restore()
                    self._written(stage)
                raise
            assert served is not None
            self.served = served
            self._staged.clear()
            self._lock.notify_all()
        self.link.wake()
        self._tell()
        return served

    def _written(self, stage: Stage) -> None:
        if isinstance(self._load, LearningLoader):
            self._load.written(stage.touched)

    def _agree(self) -> None:
        """That each tensor of the run is held by some rank. All ranks come here together."""
        assert self._share is not None
        said = self._share((self._coverage.absent, tuple(self._coverage.twins)))
        try:
            agree(self._coverage, said, self._allowed)
        except InvalidError as error:
            self._refused, self.failure, self._unfit = error, str(error), True
            self._staged.clear()
            self._tell()
            raise
        self._log_coverage()

    def verify(self) -> int:
        """How many elements of this rank's memory differ from the served state, read in full."""
        feed = self.link.known
        if feed.relay:
            return self._verify_together()
        with self._lock, self.link.mapped(feed) as state:
            if self.served is None or state is None or feed.at is None:
                raise UnavailableError("the feed has no state at hand just now; try again")
            if self.served.state != feed.at.state:
                raise UnavailableError("the feed has gone on; update first")
            plan = self._plan_for(feed)
            check_twins(self._coverage.twins, state.bits)
            return _count_differences(plan, state, self._captured(plan, state))

    def _verify_together(self) -> int:
        """Every word of every rank, through the feed: their sum must be the state's digest."""
        served, at = self.served, self.link.known.at
        if served is None or at is None:
            raise UnavailableError("no state of the run is served yet; update first")
        if served.state != at.state:
            raise UnavailableError("the feed has gone on; update first")
        found = self.link.verify(self.label, served.state, _PROOF)
        if found is None:
            raise UnavailableError("the feed went away; try again")
        if found.differs:
            with self._lock:
                self.served, self._doubted = None, True
                self._staged.clear()
            self.link.wake()
            raise WrongBaseError(found.failure or "")
        if found.failure is not None:
            raise UnavailableError(found.failure)
        return self._verify_kept(served)

    def _verify_kept(self, served: Served) -> int:
        """What memory cannot give back, since it is computed: made anew, and compared."""
        feed = self.link.known
        if not feed.kept:
            return 0
        with self._lock, self.link.mapped(feed) as state:
            if state is None or feed.at is None or feed.at.state != served.state:
                raise UnavailableError("the feed has gone on; update first")
            plan = self._plan_for(feed)
            return _count_differences(plan, state, self._captured(plan, state), set(feed.kept))

    def _answer(self) -> None:
        """Gathers what the feed asks for, beside everything else."""
        while (asked := self._asked.get()) is not None:
            if self.label not in asked.labels:
                continue
            failure, differing = None, 0
            try:
                differing = self._gather(asked)
            except Exception as error:
                _log.info("%s cannot gather: %s", self.label, _text(error))
                failure = _text(error)
            self.link.gathered(Gathered(self.label, asked.number, failure, differing))

    def _gather(self, asked: Gather) -> int:
        while not self._closed:
            with self._lock:
                plan, turns = self._plan, self._turns
                stages = {served.state: stage for served, stage in self._staged.values()}
                in_memory = self.served is not None and self.served.state == asked.state
            if plan is None or not (in_memory or asked.state in stages):
                raise UnavailableError("it does not stand at that state any more")
            stage = None if in_memory else stages[asked.state]
            differing = fill(plan, stage, asked, self.link.folder)
            with self._lock:
                if self._turns == turns:
                    return differing
        raise UnavailableError("it is closed")

    def _run(self) -> None:
        while not self._closed:
            try:
                if not self._targets:
                    self._learn_targets()
                self._stage_newest()
                continue
            except StateMovedError:
                continue
            except WrongBaseError as error:
                self._fail(error)
                if self._targets and self.link.known.relay:
                    self._doubted = True
                    self.link.want_state(self.label)
            except Exception as error:  # told to the next who asks for a step
                self._fail(error)
                feed = self.link.known
                if isinstance(error, PartedError) and feed.relay and feed.is_behind:
                    # No rank stands where the next step begins, so only a whole state leads on.
                    self.link.want_state(self.label)
            with self._lock:
                self._lock.wait(_RETRY)

    def _fail(self, error: Exception) -> None:
        if _text(error) != self.failure:
            trace = not isinstance(error, InvalidError)
            _log.warning("%s cannot stage: %s", self.label, _text(error), exc_info=trace)
        with self._lock:
            self.failure = _text(error)
            lasting = isinstance(error, (InvalidError, UnsupportedError))
            self._unfit = lasting or (isinstance(error, WrongBaseError) and not self._targets)
            self._lock.notify_all()
        self._tell()

    def _learn_targets(self) -> None:
        started = time.monotonic()
        schema, read = open_served(self._checkpoint)
        plan = learn(self._load, targets_of(self._model, self._layouts), schema)
        targets = plan.targets
        self._unsteady = _unsteady(plan, read)
        for name in self._unsteady:
            plan.forget_pieces(name)
        proven: set[int] = set()
        held = 0
        for name, pieces in plan.pieces.items():
            bits = read(name)
            for piece, mask, _ in plan.differences(name, bits):
                if bool(mask.any()):
                    raise WrongBaseError(
                        f"'{name}' is not in '{targets[piece.target].name}' as the model's loader "
                        "puts it there: the engine has packed or transformed it after loading, or "
                        "it was not loaded from this checkpoint; serve it unpacked and unquantised"
                    )
                held += mask.numel()
            proven.update(piece.target for piece in pieces)
        if plan.opaque:
            self._prove_opaque(plan, read)
            _log.warning(
                "%s: the model's loader computes with all of %s and %d tensors more, %.1f MB; each "
                "step that touches them reads them whole and runs it for them", self.label,
                next(iter(plan.opaque)), len(plan.opaque) - 1, plan.bytes_of(plan.opaque) / 1e6,
            )  # fmt: skip
        self._proven.update(proven)
        self._served_plan, self._read, self._targets = plan, read, targets
        _log.info(
            "%s: plan of %d tensors proven, %d elements in %d places, %.2f s", self.label,
            len(schema), held, len(targets), time.monotonic() - started,
        )  # fmt: skip

    def _prove_opaque(self, plan: LoadPlan, read: Callable[[str], torch.Tensor]) -> None:
        for group in sorted(set(plan.opaque.values())):
            whole = [(n, read(n).view(plan.dtypes[n]).view(plan.shapes[n])) for n in group]
            writes = capture(plan, self._load, whole)
            stage = Stage(plan)
            stage.put_writes(writes)
            if stage.seal().elements:
                raise WrongBaseError(
                    f"'{group[0]}' is not in memory as the model's loader puts it there: the "
                    "engine has packed or quantised it after loading; serve it without that"
                )
            self._proven.update(index for index, _, _ in writes)

    def _plan_for(self, feed: FeedState) -> LoadPlan:
        if self._refused is not None and self._plan_schema == feed.schema:
            raise self._refused  # learned once, told to all who ask
        if self._plan is not None and self._plan_schema == feed.schema:
            return self._plan
        assert self._served_plan is not None and self._read is not None
        schema: Schema = [(n, torch_dtype(d), s) for n, d, s in feed.schema]
        with self._lock:
            allowed, self._refused = self._allowed, None
        try:
            plan, coverage = plan_run(
                self._load, self._served_plan, schema, allowed, self._proven,
                self._unsteady,
                tied=self._read if self._tied else None, alone=self._share is None,
            )  # fmt: skip
        except InvalidError as error:
            with self._lock:
                if allowed is self._allowed:
                    self._refused, self._plan_schema = error, feed.schema
            raise
        with self._lock:
            if allowed is not self._allowed:
                raise UnavailableError("other tensors are allowed than before; it is tried again")
            self._plan, self._coverage, self._plan_schema = plan, coverage, feed.schema
        self._log_coverage()
        parts = parts_of(plan)
        opaque = tuple(sorted({*plan.opaque, *(plan.pieces.keys() - parts.keys())}))
        self.link.hold(RankHolds(self.label, self._peers, parts, opaque))
        return plan

    def _log_coverage(self) -> None:
        found = self._coverage
        for names, text in (
            (found.missing, "keeps %s as loaded, which the run does not write"),
            (found.unused, "does not hold %s of the run"),
            (found.ignored, "does not load %s, neither of the served folder nor of the run"),
        ):
            if names:
                _log.warning("%s: the model " + text, self.label, listed(names))

    def _stage_newest(self) -> None:
        def is_news(feed: FeedState) -> bool:
            return self._closed or (feed.at is not None and feed.at.key not in self._known())

        feed = self.link.wait(is_news, None)
        if feed is None or feed.at is None or self._closed:
            return
        with self._lock:
            started, turns, before = time.monotonic(), self._turns, self.served
        plan = self._plan_for(feed)
        stage = self._beyond(plan, feed) if feed.relay else self._toward(plan, feed, before)
        if stage is None:
            return
        stage.seal()
        at = feed.at
        times = {**feed.times, "staged": time.time()}
        served = Served(feed.pid, at.serial, at.step, at.seq, at.state, times)
        with self._lock:
            if self._turns != turns or self.served is not before:
                return  # what it would go back to is not there any more
            self._staged[served.key] = (served, stage)
            while len(self._staged) > 2:
                self._staged.pop(next(iter(self._staged)))
            self.failure, self._unfit, self._doubted = None, False, False
            self._lock.notify_all()
        _log.debug("%s: staged step %d in %.1f ms", self.label, served.step,
                   1000 * (time.monotonic() - started))  # fmt: skip
        self._tell()

    def _toward(self, plan: LoadPlan, feed: FeedState, before: Served | None) -> Stage | None:
        """By moves, or by the whole state that the feed keeps. None: it has just moved on."""
        assert feed.at is not None
        stage = Stage(plan)
        moves = None
        if before is not None and before.feed == feed.pid:
            moves = feed.chain(before.serial)
        elif before is not None and before.state == feed.at.state:
            moves = []
        try:
            done = self._put_moves(stage, feed, moves) if moves is not None else None
        except (FileNotFoundError, _UnlikeError):
            done = None  # the feed has let them go, or only the whole tells; its state is there
        if done is not None:
            return stage if done else None
        stage = Stage(plan)
        with self.link.mapped(feed) as state:
            if state is None:
                time.sleep(0.002)  # it has just moved on, and tells us so
                return None
            self._put_whole(stage, state)
        return stage

    def _beyond(self, plan: LoadPlan, feed: FeedState) -> Stage | None:
        """By moves beyond what is staged or served, else by a whole state; None: not yet."""
        with self._lock:
            known = [(s.state, stage) for s, stage in reversed(self._staged.values())]
            known += [(self.served.state, Stage(plan))] if self.served is not None else []
        for state, base in known if not self._doubted else ():
            moves = feed.chain_from(state)
            try:
                stage = Stage.beyond(base)
                if moves is not None and self._put_moves(stage, feed, moves):
                    return stage
            except (FileNotFoundError, _UnlikeError):
                continue
        moves = feed.chain_from(feed.whole_state) if feed.whole else None
        if moves is not None:
            try:
                stage = Stage(plan)
                self._put_whole(stage, WholeState(feed.whole))
                if self._put_moves(stage, feed, moves, from_memory=False):
                    return stage
            except (FileNotFoundError, _UnlikeError):
                pass
        self.link.want_state(self.label)
        self.link.wait(lambda now: self._closed or now.whole != feed.whole, _RETRY)
        return None

    def _put_whole(self, stage: Stage, state: MappedState | WholeState) -> None:
        check_twins(self._coverage.twins, state.bits)
        for name in stage.plan.pieces:
            stage.put_whole(name, _torch_bits(state, name))
        stage.put_writes(self._captured(stage.plan, state))

    def _put_moves(
        self, stage: Stage, feed: FeedState, moves: list[Move], *, from_memory: bool = True
    ) -> bool:
        """False: some of it needs a state that has moved on, or that the feed does not keep.

        from_memory: the moves begin where memory and `stage` are.
        """
        plan = stage.plan
        widths = {name: element_width(dtype) for name, dtype, _ in feed.schema}
        touched: set[str] = set()
        twins = self._coverage.twins
        for move in moves:
            tied: dict[str, tuple[np.ndarray, np.ndarray]] = {}
            for name, positions, bits, old in read_move(self.link.folder, move, widths):
                if name in twins or name in twins.values():
                    tied[name] = (positions, bits)
                if name in plan.opaque:
                    touched.update(plan.opaque[name])
                else:
                    stage.put(
                        name, torch.from_numpy(positions), _signed(bits),
                        _signed(old) if old is not None and from_memory else None,
                    )  # fmt: skip
            for name, twin in twins.items():
                if not _move_alike(tied.get(name), tied.get(twin)):
                    raise _UnlikeError(name)
        if not touched:
            return True
        if feed.relay and not touched <= set(feed.kept):
            return False
        with self.link.mapped(feed) as state:
            if state is None:
                return False
            stage.put_writes(self._captured(plan, state, touched), everything=feed.relay)
        return True

    def _captured(
        self,
        plan: LoadPlan,
        state: MappedState | WholeState,
        names: Iterable[str] | None = None,
    ) -> list[Write]:
        wanted = sorted(plan.opaque if names is None else names)
        if not wanted:
            return []
        whole = [
            (n, _torch_bits(state, n).view(plan.dtypes[n]).view(plan.shapes[n])) for n in wanted
        ]
        return capture(plan, self._load, whole)

    def _known(self) -> set[str]:
        with self._lock:
            return {*self._staged, *([self.served.key] if self.served else [])}

    def _tell(self) -> None:
        with self._lock:
            staged = [served for served, _ in self._staged.values()]
            newest = staged[-1] if staged else self.served
            report = RankReport(
                served=self.served.as_message() if self.served else None,
                staged=newest.as_message() if newest else None,
                all_staged=tuple(served.key for served in staged),
                failure=self.failure,
                refused=self.failure is not None and self._unfit,
                replica=self._replica,
                allowed=self._allowed.key,
                missing=self._coverage.missing[:_LISTED],
                unused=self._coverage.unused[:_LISTED],
                ignored=self._coverage.ignored[:_LISTED],
            )
        self.link.report(self.label, report)


class _UnlikeError(Exception):
    """A move changes a tensor otherwise than the one that is served in its place."""


def _move_alike(
    one: tuple[np.ndarray, np.ndarray] | None, other: tuple[np.ndarray, np.ndarray] | None
) -> bool:
    if one is None or other is None:
        return one is other
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def _number(served: Served | None) -> int:
    """The same on all ranks only for the same state under the same step."""
    return 0 if served is None else int(served.state[:12], 16) ^ served.step


def _refuse(votes: list[tuple[int, str]], kind: type[Error]) -> None:
    complaints = [f"rank {i}: {text}" for i, (_, text) in enumerate(votes) if text]
    if complaints:
        raise kind("; ".join(complaints))
    if len({number for number, _ in votes}) > 1:
        raise UnavailableError("the ranks have staged different states; try again")


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"


def _torch_bits(state: MappedState | WholeState, name: str) -> torch.Tensor:
    return _signed(state.bits(name))


def _signed(bits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(bits.view(f"i{bits.itemsize}") if bits.itemsize > 1 else bits)


def _count_differences(
    plan: LoadPlan, state: MappedState, writes: list[Write], names: set[str] | None = None
) -> int:
    """names: of these tensors, and what is written of others."""
    total = 0
    for name in plan.pieces if names is None else names & set(plan.pieces):
        for _, mask, _ in plan.differences(name, _torch_bits(state, name)):
            total += int(mask.sum())
    stage = Stage(plan)
    stage.put_writes(writes)
    return total + stage.seal().elements


def _unsteady(plan: LoadPlan, read: Callable[[str], torch.Tensor]) -> set[str]:
    """Tensors whose functions do not give what is in memory when elements are computed alone."""
    found = set()
    for name, pieces in plan.pieces.items():
        functions = {id(p.function): p.function for p in pieces if p.function is not None}
        if not functions:
            continue
        bits = read(name)
        values = bits.view(plan.dtypes[name])
        if not all(is_steady(function, values) for function in functions.values()) or any(
            bool(mask.any()) for _, mask, _ in plan.differences(name, bits)
        ):
            found.add(name)
    return found
