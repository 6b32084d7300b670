"""One rank of an engine at its host's feed: stages each step while serving, switches when told.

Nothing here knows which engine it is: that gives the model's loader, the memory it serves from,
and a way for its ranks to agree.
"""

from __future__ import annotations

import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Callable

import torch

from ...errors import (
    Error,
    InvalidError,
    UnavailableError,
    UnsupportedError,
    WrongBaseError,
    text_of,
)
from ...tensors import TensorEntry
from ..feed.feed_files import StateMovedError
from ..feed.feed_link import FeedLink, FeedState
from ..feed.feed_messages import Coming, Gather, Gathered, RankHolds, RankReport
from ..plan.coverage import STRICT, Allowed, PartedError
from ..plan.draft_loader import Draft
from ..plan.load_plan import Layout, Loader, LoadPlan
from ..plan.load_recorder import LearningLoader
from ..stage.stage import Stage
from .gather import WordGather, opaque_of, parts_of
from .own_decoding import can_decode
from .rank_plan import RankPlan
from .rank_vote import Served, Share, Vote, number_of, refuse
from .stage_builder import StageBuilder

__all__ = ["RankFollower"]

_log = logging.getLogger("wisp.engine")
_RETRY = 2.0  # seconds after a stage that failed
_LISTED = 100  # names told of each kind that has no counterpart
_PROOF = 3600.0  # seconds that a proof of all weights may take


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
    draft: a model of speculative decoding beside the served one.
    consumed: names of tensors that the engine has made something else of, and which no loader finds
    a place for any more.
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
        draft: Draft | None = None,
        consumed: re.Pattern[str] | None = None,
    ) -> None:
        self.link = link
        self.label = label
        self.served: Served | None = None
        self.failure: str | None = None  #: why there is nothing to switch to
        self._plans = RankPlan(
            model, load, label=label, checkpoint=checkpoint, layouts=layouts, share=share,
            tied=tied, allowed=allowed, draft=draft, consumed=consumed,
        )  # fmt: skip
        self._builder = StageBuilder(link, self._plans, label)
        self._words = WordGather(link.folder)
        self._told_plan: LoadPlan | None = None  # that the feed knows of
        self._answered = 0  # the number of the last Coming
        self._lock = threading.Condition()
        self._turns = 0  # how often the memory was written to
        self._staged: dict[str, tuple[Served, Stage]] = {}  # by key, the newest two
        self._is_alone = share is None
        self._replica = replica
        self._unfit = False  # `failure` is not for a moment
        self._reported = self._told = 0  # how many reports were made; the newest that was told
        self._telling = threading.Lock()  # taken last, so that reports are told in their order
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
            if self._plans.allow(allowed):
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
            if missing and not self._is_alone:
                missing += f" (on host {socket.gethostname()})"  # whose feed nobody else sees
            doubtful = stage is not None and not self._plans.coverage.agreed
            refuse(vote(number_of(served, doubtful=doubtful), missing), UnavailableError)
            if doubtful:
                self._agree()
            complaint = ""
            try:
                if stage is not None:
                    self._turns += 1
                    stage.switch(during)
                    self._plans.written(stage)
            except BaseException as error:
                complaint = text_of(error)
            try:
                refuse(vote(number_of(served), complaint), Error)
            except BaseException:
                if stage is not None:
                    stage.restore()
                    self._plans.written(stage)
                raise
            assert served is not None
            self.served = served
            self._staged.clear()
            self._lock.notify_all()
        self.link.wake()
        self._tell()
        return served

    def _agree(self) -> None:
        try:
            self._plans.agree()
        except InvalidError as error:
            self.failure, self._unfit = str(error), True
            self._staged.clear()
            self._tell()
            raise

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
            return self._builder.count_differences(self._plan_for(feed), state)

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
            return self._builder.count_differences(self._plan_for(feed), state, set(feed.kept))

    def _answer(self) -> None:
        """Gathers what the feed asks for, beside everything else."""
        while (asked := self._asked.get()) is not None:
            if self.label not in asked.labels:
                continue
            failure, differing = None, 0
            try:
                differing = self._gather(asked)
            except Exception as error:
                _log.info("%s cannot gather: %s", self.label, text_of(error))
                failure = text_of(error)
            self.link.gathered(Gathered(self.label, asked.number, failure, differing))

    def _gather(self, asked: Gather) -> int:
        while not self._closed:
            with self._lock:
                plan, turns = self._plans.current, self._turns
                stages = {served.state: stage for served, stage in self._staged.values()}
                in_memory = self.served is not None and self.served.state == asked.state
            if plan is None or not (in_memory or asked.state in stages):
                raise UnavailableError("it does not stand at that state any more")
            stage = None if in_memory else stages[asked.state]
            differing = self._words.fill(plan, stage, asked)
            with self._lock:
                if self._turns == turns:
                    return differing
        raise UnavailableError("it is closed")

    def _run(self) -> None:
        while not self._closed:
            try:
                if not self._plans.is_learned:
                    self._plans.learn()
                self._stage_newest()
                continue
            except StateMovedError:
                continue
            except WrongBaseError as error:
                self._fail(error)
                if self._plans.is_learned and self.link.known.relay:
                    self._doubted = True
                    self.link.want_state(self.label, text_of(error))
            except Exception as error:  # told to the next who asks for a step
                self._fail(error)
                feed = self.link.known
                if isinstance(error, PartedError) and feed.relay and feed.is_behind:
                    # No rank stands where the next step begins, so only a whole state leads on.
                    self.link.want_state(self.label)
            with self._lock:
                self._lock.wait(_RETRY)

    def _fail(self, error: Exception) -> None:
        if text_of(error) != self.failure:
            trace = not isinstance(error, InvalidError)
            _log.warning("%s cannot stage: %s", self.label, text_of(error), exc_info=trace)
        with self._lock:
            self.failure = text_of(error)
            lasting = isinstance(error, (InvalidError, UnsupportedError))
            unproven = isinstance(error, WrongBaseError) and not self._plans.is_learned
            self._unfit = lasting or unproven
            self._lock.notify_all()
        self._tell()

    def _plan_for(self, feed: FeedState) -> LoadPlan:
        plan = self._plans.of(feed.schema)
        if plan is not self._told_plan:
            self._tell_holds(plan, feed.schema)
        return plan

    def _tell_holds(self, plan: LoadPlan, schema: tuple[TensorEntry, ...]) -> None:
        parts, opaque = parts_of(plan), opaque_of(plan)
        twins = {*self._plans.coverage.twins, *self._plans.coverage.twins.values()}
        number, decodes = self._answered, can_decode(plan, schema)
        holds = RankHolds(self.label, self._peers, parts, opaque, tuple(twins), number, decodes)
        self.link.hold(holds)
        self._told_plan = plan

    def _answer_coming(self, coming: Coming) -> None:
        """Of a state that is about to be fetched the feed wants to know what this rank needs."""
        plan = self._plans.of(coming.schema)
        self._answered = coming.number
        self._tell_holds(plan, coming.schema)

    def _stage_newest(self) -> None:
        def is_asked(feed: FeedState) -> bool:
            return feed.coming is not None and feed.coming.number != self._answered

        def is_news(feed: FeedState) -> bool:
            is_new = feed.at is not None and feed.at.key not in self._known()
            return self._closed or is_asked(feed) or is_new

        feed = self.link.wait(is_news, None)
        if feed is not None and feed.coming is not None and is_asked(feed) and not self._closed:
            self._answer_coming(feed.coming)
            return
        if feed is None or feed.at is None or self._closed:
            return
        with self._lock:
            turns, before = self._turns, self.served
        plan = self._plan_for(feed)
        try:
            toward = self._builder.toward
            stage = self._beyond(plan, feed) if feed.relay else toward(plan, feed, before)
            if stage is None:
                return
            stage.seal()
        except WrongBaseError:
            if self._turns == turns:
                raise
            return  # this rank wrote to it itself meanwhile
        at = feed.at
        times = {**feed.times, **self._builder.take_times(), "staged": time.time()}
        served = Served(feed.pid, at.serial, at.step, at.seq, at.state, times)
        with self._lock:
            if self._turns != turns or self.served is not before:
                return  # what it would go back to is not there any more
            self._staged[served.key] = (served, stage)
            while len(self._staged) > 2:
                self._staged.pop(next(iter(self._staged)))
            self.failure, self._unfit, self._doubted = None, False, False
            self._lock.notify_all()
        self._tell()

    def _beyond(self, plan: LoadPlan, feed: FeedState) -> Stage | None:
        """Where the feed keeps no weights; None: not yet."""
        with self._lock:
            known = [(s.state, stage) for s, stage in reversed(self._staged.values())]
            known += [(self.served.state, Stage(plan))] if self.served is not None else []
        stage = self._builder.beyond(plan, feed, known if not self._doubted else ())
        if stage is None:
            self.link.want_state(self.label)
            self.link.wait(lambda now: self._closed or now.whole != feed.whole, _RETRY)
        return stage

    def _known(self) -> set[str]:
        with self._lock:
            return {*self._staged, *([self.served.key] if self.served else [])}

    def _tell(self) -> None:
        with self._lock:
            self._reported += 1
            number = self._reported
            coverage = self._plans.coverage
            staged = [served for served, _ in self._staged.values()]
            newest = staged[-1] if staged else self.served
            report = RankReport(
                served=self.served.as_message() if self.served else None,
                staged=newest.as_message() if newest else None,
                all_staged=tuple(served.key for served in staged),
                failure=self.failure,
                refused=self.failure is not None and self._unfit,
                replica=self._replica,
                allowed=self._plans.allowed.key,
                missing=coverage.missing[:_LISTED],
                unused=coverage.unused[:_LISTED],
                ignored=coverage.ignored[:_LISTED] if coverage.agreed else (),
                draft=self._plans.draft,
                unknown=coverage.unknown(self._plans.allowed)[:_LISTED],
            )
        with self._telling:
            if number > self._told:  # another thread may have told a newer one meanwhile
                self._told = number
                self.link.report(self.label, report)
