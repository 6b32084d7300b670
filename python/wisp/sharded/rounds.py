"""One publish call of a sharded trainer: the call, the pieces, the coding, the verdict.

Each rank codes and uploads the blocks it answers for; rank 0 gathers their manifests and commits. A
rank acts on the verdict of rank 0 alone, and one that missed it reads it before the next step.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace

import numpy as np
import torch

from .. import _native
from ..errors import (
    Error,
    FencedError,
    GapError,
    InvalidError,
    UnavailableError,
    WrongBaseError,
    exception_of,
)
from .local_tensors import StagedTensors
from .piece_exchange import Received, span_batches
from .presence import RankPresence
from .rank_group import RankGroup
from .round_messages import (
    Committed,
    RankFailure,
    Refused,
    ShardedReport,
    StepBase,
    StepCall,
    StepReport,
    Verdict,
    parse_base,
    parse_call,
    parse_delivery,
    write_delivery,
    write_message,
)
from .step_queue import Round, StepQueue
from .verdicts import Verdicts

logger = logging.getLogger("wisp")

#: What rank 0 may take for the commit itself, after all manifests are there.
_COMMIT_SECONDS = 180.0


class ShardRounds:
    """What one rank does for each step.

    begin() is the training's thread, finish() may be another, and one step behind: with one on its
    way begin() leaves the writer, the committer and what is known of verdicts to finish().

    queue: the rounds on their way; the caller of begin() puts what it returns there.
    committer: the run, as rank 0 has taken it; None on the others.
    whole: the next step must be a whole state, there being nothing to stand on.
    """

    def __init__(
        self,
        ranks: RankGroup,
        writer: _native.ShardWriter,
        committer: _native.ShardCommitter | None,
        pull: Callable[[str], str | None],
        queue: StepQueue,
        *,
        timeout: float,
        log2: int,
        scratch: str | None,
        whole: bool,
    ) -> None:
        self.stats: list[ShardedReport] = []
        self.rank = ranks.rank
        self._ranks = ranks
        self._world = ranks.world
        self._exchange = ranks.exchange
        self._keys = ranks.keys
        self._locals = ranks.locals
        self._plan = ranks.plan
        self._writer = writer
        self._committer = committer
        self._pull = pull
        self._queue = queue
        self._presence = RankPresence(ranks.keys)
        self._timeout = timeout
        self._log2 = log2
        self._scratch = scratch
        self._whole = whole
        self._verdicts = Verdicts(ranks.keys, writer)
        self._renew = False
        self._renewing = threading.Lock()  # around _renew

    def silent_ranks(self) -> set[int]:
        """Those that were waited for in vain, and have not come back."""
        return self._presence.silent()

    # --- one round: what keeps the training waiting

    def begin(self, number: int, step: int, started: float) -> Round:
        """The call, the pieces, what changed; of a step that has to wait, the weights are kept."""
        deadline = time.monotonic() + self._timeout
        self._keys.put(f"{number}/begun/{self.rank}", b"")
        if self.rank == 0:
            self._call(number, step)
        told = self._receive_call(number, step, deadline)
        round_ = Round(number, step, told.call, deadline, started)
        if round_.call is not None:
            self._queue.join()  # rank 0 is done with the step before, and so is this rank, nearly
            self._verdicts.catch_up()
        else:
            self._queue.drop(self._is_folded)
        try:
            if told.step != step:
                raise InvalidError(
                    f"rank {self.rank} publishes step {step}, rank 0 step {told.step}: all "
                    "ranks must publish the same"
                )
            if self._exchange.broken and not told.renew:
                raise UnavailableError(
                    f"rank {self.rank}: an exchange of pieces broke off; the ranks meet again "
                    "at the next step, which brings everything"
                )
            if round_.call is not None:
                self._stand_on(_native.call_base(round_.call))
            staged = StagedTensors(self._ranks.tensors(), self._locals, keep=round_.waits)
            self._keys.put(round_.key("ready", self.rank), b"")
            received = self._swap_pieces(round_, staged, told.renew)
            batches = span_batches(self._plan, self._locals, staged, received, self._log2)
            if round_.call is not None:
                self._find(round_.call, batches)
            else:
                round_.kept = list(batches)
        except Exception as error:
            raise self._give_up(round_, error) from error
        return round_

    def _find(self, call: str, batches: Iterable[list[np.ndarray]]) -> None:
        self._writer.begin(call)
        for batch in batches:
            self._writer.add(batch)
        self._writer.finish()

    def _call(self, number: int, step: int) -> None:
        self._keys.forget(self._verdicts.closed)
        call = None
        if self._queue.busy():
            # What it stands on is not known before the step on its way is through. One that waits
            # for the same is not needed any more: this one holds everything.
            if (folded := self._queue.take_back()) is not None:
                self._keys.put(folded.key("base"), write_message(StepBase(None)))
        elif (call := self._base_call(number, step)) is None:
            return
        with self._renewing:
            told = StepCall(step, call, self._renew)
            self._renew = False
        self._keys.put(f"{number}/call", write_message(told))

    def _base_call(self, number: int, step: int) -> str | None:
        """Rank 0: what the step stands on; None: all were told why there is no step."""
        assert self._committer is not None
        try:
            return self._committer.call(step, self._whole)
        except Error as error:
            self._verdicts.say(number, Refused(RankFailure.of(error)))
            return None

    def _receive_call(self, number: int, step: int, deadline: float) -> StepCall:
        verdict = f"{number}/verdict"
        closed = self._keys.get("closed")
        late = closed is not None and int(closed) >= number and self._keys.get(verdict) is None
        call = {0: f"{number}/call"}
        missing = [] if late else self._presence.wait(number, call, deadline, unless=verdict)
        self._verdicts.raise_refusal(verdict)
        self._presence.note_silent(missing)
        if late or missing:
            raise UnavailableError(
                f"rank {self.rank} came too late for step {step}"
                if late
                else f"rank 0 did not call for step {step} within {self._timeout:g} s"
            )
        return parse_call(self._keys.get(f"{number}/call") or b"")

    def _stand_on(self, base: str | None) -> None:
        """Brings this rank's blocks to the state that the call stands on."""
        landing, self._verdicts.landing = self._verdicts.landing, None
        if base is None or (self._writer.base == base and not self._verdicts.lost):
            return
        if landing == base:
            # The answer to the commit was lost; the commit was not.
            self._writer.advance(base)
            return
        folder = tempfile.mkdtemp(prefix="wisp-", dir=self._scratch)
        try:
            state = self._pull(folder)
            if state != base:
                raise WrongBaseError(f"rank {self.rank}: the run is not where rank 0 says it is")
            self._writer.adopt(folder, state)
            self._verdicts.lost = False
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _swap_pieces(self, round_: Round, staged: StagedTensors, renewing: bool) -> Received:
        in_rows = all(local.in_rows for local in self._locals)
        # A collective wants everybody there.
        peers = self._plan.peers if in_rows and not renewing else range(len(self._world))
        verdict = round_.key("verdict")
        keys = {peer: round_.key("ready", peer) for peer in peers}
        # Nobody starts a message before its partner is there: a rank that hangs is named, and
        # leaves the group whole. Rank 0 gives up first, and says so.
        patience = round_.deadline + (0 if self.rank == 0 else self._timeout)
        missing = self._presence.wait(round_.number, keys, patience, unless=verdict)
        self._verdicts.raise_refusal(verdict)
        if missing:
            raise self._presence.overdue(missing, round_.step, self._timeout)
        if renewing:
            self._exchange.renew()
        with torch.no_grad():
            staged.bring_into_rows()
        return self._exchange.swap(self._plan, self._locals, staged, patience)

    def _give_up(self, round_: Round, error: Exception) -> Error:
        """Tells rank 0, or as rank 0 all, that this rank has no part in the step; what to raise."""
        if not round_.waits:
            self._writer.drop()
        if self._keys.get(round_.key("verdict")) is None:
            told = RankFailure.of(error, renew=self._exchange.broken)
            if self.rank != 0:
                self._keys.put(round_.key("manifest", self.rank), write_delivery(told))
            else:
                self._note_renewal(self._exchange.broken)
                self._verdicts.say(round_.number, Refused(told), closing=not round_.waits)
        if isinstance(error, Error):
            return error
        return exception_of("internal", f"rank {self.rank}: {error}")

    def _note_renewal(self, broken: bool) -> None:
        with self._renewing:
            self._renew = self._renew or broken

    # --- one round: what goes on in the background

    def finish(self, round_: Round) -> ShardedReport | None:
        """The coding, the upload, the commit, the verdict; None: a newer step holds this one."""
        call = round_.call or self._resume(round_)
        if call is None:
            return None
        try:
            manifest = self._writer.deliver(call)
        except Error as error:
            raise self._give_up(round_, error) from error
        if self.rank == 0:
            committed = self._commit(round_, call, manifest)
            self._writer.advance(committed.report.state)
        else:
            committed = self._await_verdict(round_, manifest)
        anchor_bytes = self._anchor(round_, committed.anchor_call)
        report = committed.report
        report = replace(report, anchor_bytes=report.anchor_bytes or anchor_bytes)
        done = ShardedReport(
            **asdict(report),
            rank_changed=self._writer.delivered.changed_elements,
            rank_bytes=self._writer.delivered.bytes,
            blocked_seconds=round_.blocked,
            seconds=time.monotonic() - round_.started,
        )
        self.stats.append(done)
        if self.rank == 0:
            logger.info("wisp: %s", asdict(done))
        return done

    def _resume(self, round_: Round) -> str | None:
        """A step that had to wait: what it stands on, and what changed since."""
        round_.deadline = time.monotonic() + self._timeout
        if self.rank == 0:
            call = self._base_call(round_.number, round_.step)
            if call is not None:
                self._keys.put(round_.key("base"), write_message(StepBase(call)))
        else:
            call = self._await_base(round_)
        if call is None:
            self._verdicts.raise_refusal(round_.key("verdict"))
            return None
        kept, round_.kept, round_.call = round_.kept, None, call
        assert kept is not None
        try:
            self._verdicts.catch_up()
            self._stand_on(_native.call_base(call))
            self._find(call, kept)
        except Exception as error:
            raise self._give_up(round_, error) from error
        return call

    def _await_base(self, round_: Round) -> str | None:
        patience = time.monotonic() + 2 * self._timeout + _COMMIT_SECONDS
        verdict = round_.key("verdict")
        base = {0: round_.key("base")}
        if self._presence.wait(round_.number, base, patience, unless=verdict):
            self._verdicts.raise_refusal(verdict)
            self._presence.note_silent([0])
            raise UnavailableError(f"rank 0 did not say what step {round_.step} stands on")
        return parse_base(self._keys.get(base[0]) or b"").call

    def _is_folded(self, round_: Round) -> bool:
        told = self._keys.get(round_.key("base"))
        return told is not None and parse_base(told).call is None

    def _await_verdict(self, round_: Round, manifest: bytes) -> Committed:
        """Another rank: delivers, and hears what rank 0 made of it."""
        self._keys.put(round_.key("manifest", self.rank), write_delivery(manifest))
        patience = time.monotonic() + 2 * self._timeout + _COMMIT_SECONDS
        if self._keys.wait([round_.key("verdict")], patience):
            self._verdicts.unseen = round_.number
            self._presence.note_silent([0])
            raise UnavailableError(f"rank 0 did not say what became of step {round_.step}")
        return self._verdicts.required(self._verdicts.read(round_.number))

    def _commit(self, round_: Round, call: str, manifest: bytes) -> Committed:
        """Rank 0: all manifests, the commit, the verdict."""
        assert self._committer is not None
        verdict: Verdict
        try:
            manifests = self._gather(round_, "manifest", manifest)
            report = StepReport.of(self._committer.commit(call, manifests))
            self._whole = False
            verdict = Committed(report, self._committer.anchor_call())
        except Exception as raised:
            error = raised if isinstance(raised, Error) else exception_of("internal", repr(raised))
            self._verdicts.landing = self._committer.landing
            verdict = Refused(RankFailure.of(error), self._verdicts.landing)
            if isinstance(error, GapError):
                self._whole = True
            if self._verdicts.landing is None:
                self._writer.drop()
        self._verdicts.say(round_.number, verdict)
        return self._verdicts.required(verdict)

    def _gather(self, round_: Round, what: str, own: bytes) -> list[bytes]:
        others = [rank for rank in range(len(self._world)) if rank != 0]
        keys = {rank: round_.key(what, rank) for rank in others}
        late = set(self._presence.wait(round_.number, keys, round_.deadline))
        manifests = [own]
        for rank in others:
            told = b"" if rank in late else self._keys.get(round_.key(what, rank)) or b""
            delivery = parse_delivery(told)
            if isinstance(delivery, RankFailure):
                self._note_renewal(delivery.renew)
                if delivery.error_kind == UnavailableError.kind and late:
                    continue  # it waits for one of those that are late
                raise delivery.as_exception(f"rank {rank}: ")
            manifests.append(delivery)
        if late:
            # Of those without a manifest, the ones that did not even get ready hold up the others.
            silent = {r for r in late if self._keys.get(round_.key("ready", r)) is None}
            raise self._presence.overdue(silent or late, round_.step, self._timeout)
        return manifests

    def _anchor(self, round_: Round, call: str | None) -> int:
        """A whole state for late joiners, if one is due. Failing, it is due again next time."""
        if call is None:
            return 0
        try:
            manifest = self._writer.deliver(call)
            if self._committer is None:
                self._keys.put(round_.key("anchor", self.rank), write_delivery(manifest))
                return 0
            round_.deadline = time.monotonic() + self._timeout
            manifests = self._gather(round_, "anchor", manifest)
            return self._committer.commit_anchor(call, manifests).anchor_bytes
        except FencedError:
            raise
        except Error as error:
            if self.rank != 0:
                failed = write_delivery(RankFailure.of(error))
                self._keys.put(round_.key("anchor", self.rank), failed)
            logger.warning("wisp: no anchor of step %d: %s", round_.step, error)
            return 0
