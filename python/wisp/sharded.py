"""Publishing a model whose weights are spread over ranks of torch.distributed, without a gather.

Each rank codes and uploads the rows it holds; rank 0 commits. What lands in the bucket is byte for
byte what a trainer with all weights in one place would have written.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from . import _native, runs
from .errors import Error, Fenced, Gap, Invalid, Unavailable, WrongBase, exception_of
from .optimizer_hooks import OptimizerHooks
from .shard_exchange import span_batches
from .shard_group import ShardGroup
from .shard_state import StagedTensors
from .staging import DtypeRule
from .stores import RunAddress, location

__all__ = ["ShardedPublisher", "ShardedReport"]

logger = logging.getLogger("wisp")

#: What rank 0 may take for the commit itself, after all slips are there.
_COMMIT_SECONDS = 180.0


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
class _Round:
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


class ShardedPublisher:
    """Publishes a model of DTensors (FSDP2, HSDP, tensor parallel), replicated and plain tensors.

    All ranks of `group` make one, and call publish() for the same steps. publish() returns when
    what changed is coded; uploading goes on behind the training's back until the next call.

    A rank that dies or hangs costs the step: after `timeout` seconds all others get Unavailable,
    which names it. Nothing is lost; the next step that all ranks deliver holds everything.

    dtype: what followers get; None keeps each tensor's, `torch.bfloat16` rounds all floating-point
      tensors, a function (name, tensor) -> dtype decides for each (None keeps it).
    group: the ranks that hold the model; all if None.
    timeout: seconds that a rank may take for its part of a step.
    open_timeout: seconds for taking the newest state from the bucket at the start.
    background: False: publish() waits until the step is committed, and returns its report.
    on_error: "warn" logs what fails and goes on with the next step; "raise" raises it at the next
      publish. Fenced, another trainer owns the run now, and Invalid are always raised.
    """

    def __init__(
        self,
        run: RunAddress,
        model: Any,
        *,
        dtype: DtypeRule = None,
        group: Any = None,
        timeout: float = 600.0,
        open_timeout: float = 3600.0,
        background: bool = True,
        every: int = 1,
        anchor_every: int | Literal["auto"] = "auto",
        on_error: Literal["warn", "raise"] = "warn",
        create: bool = True,
        allow_schema_change: bool = False,
        side_files: Iterable[str | os.PathLike[str]] = (),
        sign_key: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        trust: Any = None,
        scratch: str | os.PathLike[str] | None = None,
        expires_after: float = 0,
        threads: int = 0,
        log2_block_elements: int = _native.SHARD_LOG2_BLOCK_ELEMENTS,
    ) -> None:
        if not dist.is_initialized():
            raise Invalid("torch.distributed is not initialized; a sharded model needs it")
        self._place = location(run)
        self.url = self._place.url
        self._timeout = float(timeout)
        self._background = background
        self._on_error = on_error
        self._log2 = log2_block_elements
        self._trust = runs.trust_of(trust)
        self._scratch = None if scratch is None else os.fspath(scratch)
        self._threads = threads
        self._ranks = ShardGroup(model, dtype, group, self._timeout, log2_block_elements)
        self.rank = self._ranks.rank
        self._world = self._ranks.world
        self._exchange = self._ranks.exchange
        self._talk = self._ranks.talk
        self._locals = self._ranks.locals
        self._plan = self._ranks.plan
        self._hooks = OptimizerHooks(every)
        self._every = every
        self._round = 0
        self._worker: threading.Thread | None = None
        self._failure: Error | None = None
        self._unseen: int | None = None  # a round whose verdict this rank has missed
        self._landing: str | None = None  # the state of a step that may have been committed
        self._lost = False  # the blocks here are not what they should be
        self._whole = False
        self._renew = False
        self.stats: list[ShardedReport] = []

        schema = [local.entry for local in self._locals]
        self._writer = _native.open_shard_writer(
            self._place, schema, self.rank, self._plan.spans, self._scratch, threads, self._log2
        )
        self._session: Any = None

        def take_run() -> tuple[bool, int]:
            if self.rank != 0:
                return (False, 0)
            if create:
                runs.start_if_missing(
                    self._place, trust=trust, sign_key=sign_key, certificate=certificate
                )
            self._session = _native.open_woven_session(
                self._place,
                schema,
                0 if anchor_every == "auto" else anchor_every,
                self._trust,
                sign_key,
                certificate,
                {"format": "pt", **self._ranks.aliases},
                [os.fspath(path) for path in side_files],
                None,
                expires_after,
            )
            return (self._session.has_state, self._session.next_step)

        has_state, self._next_step = self._ranks.agree(take_run)[0]
        if has_state:
            # Without anything to stand on, the next step is a whole state.
            self._whole = not self._take_state(float(open_timeout), allow_schema_change)

    def _take_state(self, open_timeout: float, allow_schema_change: bool) -> bool:
        """One rank of each host takes the newest state from the bucket; all take their blocks."""

        def pull(folder: str) -> str:
            return _native.pull_head(self._place, folder, self._trust, self._threads)

        def adopt(folder: str, state: str) -> None:
            try:
                self._writer.adopt(folder, state)
            except Invalid:
                if not allow_schema_change:
                    raise

        return self._ranks.share_state(pull, adopt, self._scratch, open_timeout)

    # --- publishing

    def attach(self, optimizer: Any) -> ShardedPublisher:
        """Publishes after each `every` steps of a torch optimizer, until close()."""
        if self._next_step == 0:
            self.publish()
        self._hooks.hang_on(optimizer, lambda: self.publish(self._next_step + self._every - 1))
        return self

    def publish(self, step: int | None = None) -> ShardedReport | None:
        """Publishes the weights as they are now, as `step`; one after the newest if None.

        All ranks call it. Raises what went wrong with the step before (see `on_error`).
        """
        started = time.monotonic()
        self._settle_worker(raising=self._on_error == "raise")
        step = self._next_step if step is None else int(step)
        self._next_step = step + 1
        number = self._round
        self._round += 1
        try:
            round_ = self._begin(number, step, started)
        except Error as error:
            return self._failed(error)
        round_.blocked = time.monotonic() - started
        if self._background:
            self._worker = threading.Thread(target=self._finish_quietly, args=(round_,))
            self._worker.start()
            return None
        try:
            return self._finish(round_)
        except Error as error:
            return self._failed(error)

    def flush(self) -> None:
        """Waits until the step under way is committed; raises why it was not."""
        self._settle_worker(raising=True)

    def close(self) -> None:
        """Detaches, and waits as flush() does. All ranks call it."""
        self._hooks.remove()
        try:
            self.flush()
        finally:
            self._part()

    def _part(self) -> None:
        """Rank 0, where the ranks meet, stays until all others have heard the last verdict."""
        if self.rank != 0:
            self._talk.put(f"left/{self.rank}", b"")
            return
        others = [f"left/{rank}" for rank in range(1, len(self._world))]
        self._talk.wait(others, time.monotonic() + self._timeout)

    def heartbeat(self) -> None:
        """Says that the trainer lives; rank 0 alone does something."""
        self._settle_worker(raising=False)
        if self._session is not None:
            self._session.heartbeat()

    def __enter__(self) -> ShardedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _failed(self, error: Error) -> None:
        if self._on_error == "raise" or isinstance(error, (Fenced, Invalid)):
            raise error
        logger.warning("wisp: %s", error)

    def _settle_worker(self, *, raising: bool) -> None:
        if self._worker is not None:
            self._worker.join()
            self._worker = None
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if raising or isinstance(failure, (Fenced, Invalid)):
            raise failure
        logger.warning("wisp: %s", failure)

    def _finish_quietly(self, round_: _Round) -> None:
        try:
            self._finish(round_)
        except Error as error:
            self._failure = error
        except Exception as error:  # nothing may end a training's thread unseen
            self._failure = exception_of("internal", f"{type(error).__name__}: {error}")

    # --- one round: what keeps the training waiting

    def _begin(self, number: int, step: int, started: float) -> _Round:
        """The call, the pieces, the coding."""
        deadline = time.monotonic() + self._timeout
        if self.rank == 0:
            self._call(number, step)
        told = self._receive_call(number, step, deadline)
        call = told["call"]
        if self._unseen is not None:
            # A verdict that this rank missed: it was given before this call was made.
            self._read_verdict(self._unseen)
        round_ = _Round(number, step, call, deadline, started, {})
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
        missing = [] if late else self._talk.wait([f"{number}/call"], deadline, unless=verdict)
        self._raise_verdict(verdict)
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
            state = _native.pull_head(self._place, folder, self._trust, self._threads)
            if state != base:
                raise WrongBase(f"rank {self.rank}: the run is not where rank 0 says it is")
            self._writer.adopt(folder, state)
            self._lost = False
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _swap_pieces(self, round_: _Round, staged: StagedTensors) -> Any:
        renewing = self._exchange.broken
        in_rows = all(local.in_rows for local in self._locals)
        # A collective wants everybody there.
        peers = self._plan.peers if in_rows and not renewing else range(len(self._world))
        verdict = round_.key("verdict")
        keys = [round_.key("ready", peer) for peer in peers]
        # Nobody starts a message before its partner is there: a rank that hangs is named, and
        # leaves the group whole. Rank 0 gives up first, and says so.
        patience = round_.deadline + (0 if self.rank == 0 else self._timeout)
        missing = self._talk.wait(keys, patience, unless=verdict)
        self._raise_verdict(verdict)
        if missing:
            late = ", ".join(key.rsplit("/", 1)[1] for key in missing)
            raise Unavailable(
                f"rank {late} did not deliver step {round_.step} within {self._timeout:g} s"
            )
        if renewing:
            self._exchange.renew()
        with torch.no_grad():
            staged.bring_into_rows()
        return self._exchange.swap(self._plan, self._locals, staged, patience)

    def _give_up(self, round_: _Round, error: Exception) -> None:
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

    def _finish(self, round_: _Round) -> ShardedReport:
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

    def _commit(self, round_: _Round, slip: bytes) -> dict[str, Any]:
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

    def _gather(self, round_: _Round, what: str, own: bytes) -> list[bytes]:
        others = [rank for rank in range(len(self._world)) if rank != 0]
        missing = self._talk.wait([round_.key(what, r) for r in others], round_.deadline)
        late = {int(key.rsplit("/", 1)[1]) for key in missing}
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
            names = ", ".join(str(r) for r in sorted(silent or late))
            raise Unavailable(
                f"rank {names} did not deliver step {round_.step} within {self._timeout:g} s"
            )
        return slips

    def _anchor(self, round_: _Round, call: str | None) -> int:
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
