"""One publish call of a sharded trainer: the call, the pieces, the coding, the verdict.

Each rank codes and uploads the blocks it answers for; rank 0 gathers the slips and commits. A rank
acts on the verdict of rank 0 alone, and one that missed it reads it before the next step.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import _native
from .errors import Error, Fenced, Gap, Invalid, Unavailable, WrongBase, exception_of
from .shard_exchange import span_batches
from .shard_group import ShardGroup
from .shard_state import StagedTensors

logger = logging.getLogger("wisp")

#: What rank 0 may take for the commit itself, after all slips are there.
_COMMIT_SECONDS = 180.0
#: What a rank that was missed before, and not heard of since, gets to give a sign of life.
_GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class ShardedReport:
    """A committed step, the same on every rank, and what this rank had to do for it."""

    step: int
    seq: int
    epoch: int
    kind: str
    state: str
    changed: int
    total: int
    delta_bytes: int
    anchor_bytes: int
    rank_changed: int
    rank_bytes: int
    blocked_seconds: float
    seconds: float


@dataclass
class Round:
    """One publish call on its way."""

    number: int
    step: int
    call: str
    deadline: float
    started: float
    coded: dict[str, Any]
    blocked: float = 0.0

    def key(self, what: str, rank: int | None = None) -> str:
        return f"{self.number}/{what}" if rank is None else f"{self.number}/{what}/{rank}"


class ShardRounds:
    """What one rank does for each step. One thread at a time.

    session: the run, as rank 0 has taken it; None on the others.
    whole: the next step must be a whole state, there being nothing to stand on.
    """

    def __init__(
        self,
        ranks: ShardGroup,
        writer: Any,
        session: Any,
        pull: Callable[[str], str],
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
        self._talk = ranks.talk
        self._locals = ranks.locals
        self._plan = ranks.plan
        self._writer = writer
        self._session = session
        self._pull = pull
        self._timeout = timeout
        self._log2 = log2
        self._scratch = scratch
        self._whole = whole
        self._unseen: int | None = None  # a round whose verdict this rank has missed
        self._landing: str | None = None  # the state of a step that may have been committed
        self._lost = False  # the blocks here are not what they should be
        self._renew = False
        self._silent: set[int] = set()  # ranks that were waited for in vain

    # --- who is there

    def silent_ranks(self) -> set[int]:
        """Those that were waited for in vain, and have not come back."""
        return set(self._silent)

    def _await(
        self, number: int, keys: dict[int, str], deadline: float, unless: str | None = None
    ) -> list[int]:
        """Waits for a key of each rank; those whose keys are missing at the deadline.

        Nobody is waited for twice: a rank that was missed before has to show that it takes part in
        this round, which takes it no time if it lives.
        """
        doubted = self._silent & keys.keys()
        if doubted:
            grace = min(deadline, time.monotonic() + _GRACE_SECONDS)
            begun = {f"{number}/begun/{rank}": rank for rank in doubted}
            gone = {begun[key] for key in self._talk.wait(begun, grace, unless=unless)}
            self._silent -= doubted - gone
            if gone:
                return sorted(gone)
        missing = set(self._talk.wait(keys.values(), deadline, unless=unless))
        return [rank for rank, key in keys.items() if key in missing]

    def _overdue(self, ranks: Iterable[int], step: int) -> Unavailable:
        """What is said of ranks that did not deliver, and noted for the next time."""
        late = set(ranks)
        since = (
            "and was not heard of since an earlier one"
            if late <= self._silent
            else f"within {self._timeout:g} s"
        )
        self._silent |= late
        names = ", ".join(str(rank) for rank in sorted(late))
        return Unavailable(f"rank {names} did not deliver step {step} {since}")

    # --- one round: what keeps the training waiting

    def begin(self, number: int, step: int, started: float) -> Round:
        """The call, the pieces, the coding."""
        deadline = time.monotonic() + self._timeout
        self._talk.put(f"{number}/begun/{self.rank}", b"")
        if self.rank == 0:
            self._call(number, step)
        told = self._receive_call(number, step, deadline)
        call = told["call"]
        if self._unseen is not None:
            # A verdict that this rank missed: it was given before this call was made.
            self._read_verdict(self._unseen)
        round_ = Round(number, step, call, deadline, started, {})
        try:
            if told["step"] != step:
                raise Invalid(
                    f"rank {self.rank} publishes step {step}, rank 0 step {told['step']}: all "
                    "ranks must publish the same"
                )
            self._stand_on(_native.call_base(call))
            staged = StagedTensors(self._ranks.tensors(), self._locals)
            self._talk.put(round_.key("ready", self.rank), b"")
            received = self._swap_pieces(round_, staged)
            self._writer.begin(call)
            for batch in span_batches(self._plan, self._locals, staged, received, self._log2):
                self._writer.add(batch)
            round_.coded = self._writer.finish()
        except Exception as error:
            self._give_up(round_, error)
            if isinstance(error, Error):
                raise
            raise exception_of("internal", f"rank {self.rank}: {error}") from error
        return round_

    def _call(self, number: int, step: int) -> None:
        self._talk.forget(number)
        try:
            call = self._session.call(step, self._whole)
        except Error as error:
            self._say_verdict(number, _failure_verdict(error))
            return
        told = {"step": step, "call": call, "renew": self._renew}
        self._renew = False
        self._talk.put(f"{number}/call", json.dumps(told).encode())

    def _receive_call(self, number: int, step: int, deadline: float) -> dict[str, Any]:
        verdict = f"{number}/verdict"
        closed = self._talk.get("closed")
        late = closed is not None and int(closed) >= number and self._talk.get(verdict) is None
        call = {0: f"{number}/call"}
        missing = [] if late else self._await(number, call, deadline, unless=verdict)
        self._raise_verdict(verdict)
        self._silent.update(missing)
        if late or missing:
            raise Unavailable(
                f"rank {self.rank} came too late for step {step}"
                if late
                else f"rank 0 did not call for step {step} within {self._timeout:g} s"
            )
        told = json.loads(self._talk.get(f"{number}/call") or b"{}")
        if told["renew"]:
            self._exchange.broken = True
        return told

    def _stand_on(self, base: str | None) -> None:
        """Brings this rank's blocks to the state that the call stands on."""
        landing, self._landing = self._landing, None
        if base is None or (self._writer.base == base and not self._lost):
            return
        if landing == base:
            # The answer to the commit was lost; the commit was not.
            self._writer.advance(base)
            return
        folder = tempfile.mkdtemp(prefix="wisp-", dir=self._scratch)
        try:
            state = self._pull(folder)
            if state != base:
                raise WrongBase(f"rank {self.rank}: the run is not where rank 0 says it is")
            self._writer.adopt(folder, state)
            self._lost = False
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _swap_pieces(self, round_: Round, staged: StagedTensors) -> Any:
        renewing = self._exchange.broken
        in_rows = all(local.in_rows for local in self._locals)
        # A collective wants everybody there.
        peers = self._plan.peers if in_rows and not renewing else range(len(self._world))
        verdict = round_.key("verdict")
        keys = {peer: round_.key("ready", peer) for peer in peers}
        # Nobody starts a message before its partner is there: a rank that hangs is named, and
        # leaves the group whole. Rank 0 gives up first, and says so.
        patience = round_.deadline + (0 if self.rank == 0 else self._timeout)
        missing = self._await(round_.number, keys, patience, unless=verdict)
        self._raise_verdict(verdict)
        if missing:
            raise self._overdue(missing, round_.step)
        if renewing:
            self._exchange.renew()
        with torch.no_grad():
            staged.bring_into_rows()
        return self._exchange.swap(self._plan, self._locals, staged, patience)

    def _give_up(self, round_: Round, error: Exception) -> None:
        """Tells rank 0, or as rank 0 all, that this rank has no part in the step."""
        self._writer.drop()
        if self._talk.get(round_.key("verdict")) is not None:
            return
        kind = error.kind if isinstance(error, Error) else "internal"
        told = {"kind": kind, "text": str(error), "renew": self._exchange.broken}
        if self.rank != 0:
            self._talk.put(round_.key("slip", self.rank), b"E" + json.dumps(told).encode())
            return
        self._renew = self._renew or self._exchange.broken
        self._say_verdict(round_.number, {"committed": False, "landing": None, **told})

    # --- one round: what goes on behind the training's back

    def finish(self, round_: Round) -> ShardedReport:
        try:
            slip = self._writer.deliver(round_.call)
        except Error as error:
            self._give_up(round_, error)
            raise
        if self.rank != 0:
            self._talk.put(round_.key("slip", self.rank), b"S" + slip)
            patience = time.monotonic() + 2 * self._timeout + _COMMIT_SECONDS
            if self._talk.wait([round_.key("verdict")], patience):
                self._unseen = round_.number
                self._silent.add(0)
                raise Unavailable(f"rank 0 did not say what became of step {round_.step}")
            verdict = self._read_verdict(round_.number)
            self._raise_failure(verdict)
        else:
            verdict = self._commit(round_, slip)
            self._raise_failure(verdict)
            self._writer.advance(verdict["report"]["state"])
        anchor_bytes = self._anchor(round_, verdict["anchor"])
        report = verdict["report"]
        done = ShardedReport(
            step=report["step"],
            seq=report["seq"],
            epoch=report["epoch"],
            kind=report["kind"],
            state=report["state"],
            changed=report["changed"],
            total=report["total"],
            delta_bytes=report["delta_bytes"],
            anchor_bytes=report["anchor_bytes"] or anchor_bytes,
            rank_changed=round_.coded["changed"],
            rank_bytes=round_.coded["payload_bytes"],
            blocked_seconds=round_.blocked,
            seconds=time.monotonic() - round_.started,
        )
        self.stats.append(done)
        if self.rank == 0:
            logger.info("wisp: %s", asdict(done))
        return done

    def _commit(self, round_: Round, slip: bytes) -> dict[str, Any]:
        """Rank 0: all slips, the commit, the verdict."""
        try:
            slips = self._gather(round_, "slip", slip)
            report = self._session.commit(round_.call, slips)
            self._whole = False
            verdict = {"committed": True, "report": report, "anchor": self._session.anchor_call()}
        except Exception as raised:
            error = raised if isinstance(raised, Error) else exception_of("internal", repr(raised))
            verdict = _failure_verdict(error, self._session.landing)
            if isinstance(error, Gap):
                self._whole = True
            if verdict["landing"] is None:
                self._writer.drop()
            self._landing = verdict["landing"]
        self._say_verdict(round_.number, verdict)
        return verdict

    def _gather(self, round_: Round, what: str, own: bytes) -> list[bytes]:
        others = [rank for rank in range(len(self._world)) if rank != 0]
        keys = {rank: round_.key(what, rank) for rank in others}
        late = set(self._await(round_.number, keys, round_.deadline))
        slips = [own]
        for rank in others:
            told = b"" if rank in late else self._talk.get(round_.key(what, rank)) or b""
            if told[:1] == b"E":
                failure = json.loads(told[1:])
                self._renew = self._renew or failure["renew"]
                if failure["kind"] == Unavailable.kind and late:
                    continue  # it waits for one of those that are late
                raise exception_of(failure["kind"], f"rank {rank}: {failure['text']}")
            slips.append(told[1:])
        if late:
            # Of those without a slip, the ones that did not even get ready hold up the others.
            silent = {r for r in late if self._talk.get(round_.key("ready", r)) is None}
            raise self._overdue(silent or late, round_.step)
        return slips

    def _anchor(self, round_: Round, call: str | None) -> int:
        """A whole state for late joiners, if one is due. Failing, it is due again next time."""
        if call is None:
            return 0
        try:
            slip = self._writer.deliver(call)
            if self.rank != 0:
                self._talk.put(round_.key("anchor", self.rank), b"S" + slip)
                return 0
            round_.deadline = time.monotonic() + self._timeout
            slips = self._gather(round_, "anchor", slip)
            return self._session.commit_anchor(call, slips)["anchor_bytes"]
        except Fenced:
            raise
        except Error as error:
            if self.rank != 0:
                told = {"kind": error.kind, "text": str(error), "renew": False}
                self._talk.put(round_.key("anchor", self.rank), b"E" + json.dumps(told).encode())
            logger.warning("wisp: no anchor of step %d: %s", round_.step, error)
            return 0

    # --- verdicts

    def _say_verdict(self, number: int, verdict: dict[str, Any]) -> None:
        self._talk.put(f"{number}/verdict", json.dumps(verdict).encode())
        self._talk.put("closed", str(number).encode())

    def _read_verdict(self, number: int) -> dict[str, Any]:
        """Acts on the verdict of a round that this rank delivered a slip for."""
        told = self._talk.get(f"{number}/verdict")
        self._unseen = None
        if told is None:
            return {}
        verdict = json.loads(told)
        if verdict["committed"]:
            self._writer.advance(verdict["report"]["state"])
        else:
            self._landing = verdict["landing"]
            if self._landing is None:
                self._writer.drop()
        return verdict

    def _raise_verdict(self, key: str) -> None:
        told = self._talk.get(key)
        if told is not None:
            self._raise_failure(json.loads(told))

    def _raise_failure(self, verdict: dict[str, Any]) -> None:
        if not verdict["committed"]:
            self._lost = self._lost or verdict["kind"] == WrongBase.kind
            raise exception_of(verdict["kind"], verdict["text"])


def _failure_verdict(error: Error, landing: str | None = None) -> dict[str, Any]:
    return {
        "committed": False,
        "kind": error.kind,
        "text": str(error),
        "landing": landing,
        "renew": False,
    }
