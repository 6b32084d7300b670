"""The rollout side: keeps tensors, a folder or your own code at the newest step of a run."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from .. import _native
from ..errors import InvalidError, UnavailableError
from ..forks import OfOneProcess
from ..model.checkpoint_names import NamingRule
from ..runs import TrustedKeys, trust_of
from ..stores import RunAddress, location
from .follow_thread import FollowThread
from .sync_report import SyncReport
from .targets import connect

__all__ = ["Follower", "SyncReport"]

FollowerStatus = Literal["new", "idle", "following", "rolled_back", "failed", "closed"]


_Position = _native.FollowReport | _native.FollowEvent


class Follower(OfOneProcess):
    """Brings `target` to the newest committed step of `run`, and keeps it there.

    `target` is a torch module, a dict of torch or numpy arrays, a folder, folders
    ("models/step_{step}": one for each step, and a link `current`), or a function that receives the
    `Changes` of each step. Everything is proven before the first weight is written; a
    failure leaves the target at its last good step. Tensors in host memory are written in place and
    need no second copy: they are the replica. Do not write to them yourself; where a step touches
    what you wrote, the follower notices and starts over from a whole state.

    base: a checkpoint to start from instead of fetching an anchor.
    trust: public keys (text or files); with any, only what they signed or certified is accepted.
    min_serial: certificates with a lower serial are revoked.
    run_id: the identity of the run that must be there (wisp.init tells it); another is ForkedError.
    scratch: a folder for what is being fetched, kept so that a restart resumes; else a
        temporary one.
    replica_id: the name under which `wisp.status` shows this follower.
    poll: seconds between looks when nothing is new.
    device: where the target's tensors must be; a tensor elsewhere is an error.
    names: how the run names the tensors of a transformers model, as of Publisher.
    cast: the target's dtypes differ from the run's (an fp32 module, a bf16 run): write converted
        values, through a copy in host memory.
    own_copy: follow through a copy in host memory even where that is not needed.
    strict: tensors of the target that the run does not have are an error.
    keep, mark: of a folder for each step: how many stay (3), and the name of an empty file that
        says that a folder is complete.
    on_step: called with a `FollowEvent` after each move; what it raises ends the call under way.
    on_event: the same for every event: also faults that were worked around, and looks that found
        nothing more to do (`kind` "fault" and "waiting").
    layout: "wisp", or "trl" for a bucket in TRL's layout (doc/trl.md). Nothing is signed there and
        nobody sees who follows: `trust`, `min_serial`, `run_id` and `replica_id` are refused.
    """

    def __init__(
        self,
        run: RunAddress,
        target: Any,
        *,
        base: str | os.PathLike[str] | None = None,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        scratch: str | os.PathLike[str] | None = None,
        replica_id: str = "",
        poll: float = 1.0,
        heartbeat: float = 30.0,
        max_staleness: float = 0.0,
        accept_rewind: bool = False,
        device: Any = None,
        names: NamingRule = "checkpoint",
        cast: bool = False,
        own_copy: bool = False,
        strict: bool = True,
        keep: int | None = None,
        mark: str = "",
        on_step: Callable[[_native.FollowEvent], object] | None = None,
        on_event: Callable[[_native.FollowEvent], object] | None = None,
        layout: Literal["wisp", "trl"] = "wisp",
        threads: int = 0,
        parallel_fetches: int = 4,
    ) -> None:
        if layout not in ("wisp", "trl"):
            raise InvalidError('layout is "wisp" or "trl"')
        if layout == "trl" and (trust or min_serial or run_id or replica_id):
            raise InvalidError(
                "TRL's layout has no place for trust, min_serial, run_id and replica_id; follow a "
                "run in wisp's own layout"
            )
        self.on_step = on_step
        self.on_event = on_event
        self._place = location(run)
        self._poll = max(poll, self._place.poll)
        self._changed = threading.Condition()
        self._holder: int | None = None
        self._error: BaseException | None = None
        self._events: list[_native.FollowEvent] = []
        self._passes = 0  # how often the background thread found nothing more to do
        self._step: int | None = None
        self._status: FollowerStatus = "new"
        me = weakref.ref(self)  # the session must not keep its owner alive

        def take(event: _native.FollowEvent) -> None:
            owner = me()
            if owner is not None:
                owner._take(event)

        self._session = _native.FollowSession(
            self._place,
            take,
            trust_of(trust, min_serial, run_id),
            None if base is None else os.fspath(base),
            None if scratch is None else os.fspath(scratch),
            replica_id,
            poll,
            heartbeat,
            max_staleness,
            accept_rewind,
            threads,
            parallel_fetches,
            layout == "trl",
        )
        self._own(self._session)
        self._thread = FollowThread(self._session, self._place.url)
        connect(
            self._session, target, cast=cast, own_copy=own_copy, strict=strict, device=device,
            names=names, keep=keep, mark=mark,
        )  # fmt: skip

    @property
    def step(self) -> int | None:
        """The step that the target holds; None before the first."""
        return self._step

    @property
    def status(self) -> FollowerStatus:
        """What the follower is about; which weights it holds, SyncReport.state says."""
        return self._status

    def sync(self) -> SyncReport:
        """Goes to the newest step there is and returns. Wakes the background thread if it runs."""
        self._forbid_when_held("sync()")
        if self._thread.started:
            return self._sync_in_background()
        self._thread.take_back()
        with self._thread.moving():
            return self._sync_here()

    def wait_for(self, step: int, timeout: float | None = None) -> SyncReport:
        """Returns when the target holds `step` or a later one; TimeoutError after `timeout` s."""
        self._forbid_when_held("wait_for()")
        end = None if timeout is None else time.monotonic() + timeout
        report = self.sync()
        while report.step is None or report.step < step:
            left = self._poll if end is None else min(self._poll, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(
                    f"step {step} of {self._place.url} was not there within {timeout} s; "
                    f"the newest is {report.step}"
                )
            with self._changed:
                # The background thread, if there is one, tells; else it is time to look again.
                self._changed.wait(left)
            report = self.sync()
        return report

    def start(self) -> Follower:
        """Follows the run on a thread of its own until stop(). Errors end it; see `error`."""
        self._forbid_when_held("start()")
        if self._status == "closed":
            raise InvalidError("this follower is closed")
        if self._thread.started:
            return self
        self._thread.take_back()
        self._error = None
        self._status = "following"
        self._thread.start(self._follow)
        return self

    def stop(self) -> None:
        """Ends the background thread after the move under way; raises what had ended it before.

        Returns within about a second, whatever the store does: transfers and waits are broken off.
        A store written in Python that does not return keeps its thread; a warning says so, and
        that thread changes nothing any more when it comes back.
        """
        self._require_own()
        self._halt()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the background thread has ended; whether it has, or there is none."""
        return self._thread.join(timeout)

    def wake(self) -> None:
        """Has the background thread look for a new step now."""
        self._require_own()
        self._session.wake()

    @property
    def error(self) -> BaseException | None:
        """What ended the background thread, if anything did."""
        return self._error

    def rollback(self) -> int | None:
        """Back to the step before the last one, and stays there until sync() or start() is called.

        NotFoundError when no step was taken since the follower joined or last went back;
        UnsupportedError for folders (`wisp.export` writes any step). Ends the background thread.
        """
        self._forbid_when_held("rollback()")
        self._halt()
        self._thread.take_back()
        with self._thread.moving():
            self._step = self._session.step_back()
            self._status = "rolled_back"
            return self._step

    def verify(self) -> bool:
        """Proves every byte of the target in host memory (or of the copy behind it).

        False: somebody else wrote to it, and the next sync() takes the whole state anew.
        """
        self._require_own()
        running = self._thread.alive
        self._halt()
        self._thread.take_back()
        try:
            with self._thread.moving():
                return self._session.prove()
        finally:
            if running:
                self.start()

    @contextmanager
    def hold(self) -> Iterator[int | None]:
        """Keeps moves away from the target, e.g. while it generates; fetching goes on.

        Yields the step that the target holds meanwhile: exact, also beside a background thread,
        where `step` may be a moment late. None before the first state, and for folders.
        """
        self._forbid_when_held("hold()")
        step = self._session.hold()
        self._holder = threading.get_ident()
        try:
            yield step
        finally:
            self._holder = None
            self._session.release()

    def close(self) -> None:
        """Ends the follower, and a sync() of another thread with it; the target stays as it is.

        Returns within about a second, as stop() does.
        """
        self._require_own()
        if self._status == "closed":
            return
        self._halt()
        self._status = "closed"
        self._thread.close()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_inherited:
            self.close()

    def __repr__(self) -> str:
        return f"<Follower of {self._place.url}, step {self._step}, {self._status}>"

    def _forbid_when_held(self, what: str) -> None:
        self._require_own()
        if self._holder == threading.get_ident():
            raise InvalidError(f"{what} inside hold() would wait for itself")

    def _sync_here(self) -> SyncReport:
        if self._status == "closed":
            raise InvalidError("this follower is closed")
        started = time.monotonic()
        self._events = []
        self._session.arm()
        report = self._session.catch_up()
        if report.has_state:
            self._step = report.step
        self._become("idle")
        return self._report(report, self._events, time.monotonic() - started)

    def _sync_in_background(self) -> SyncReport:
        started = time.monotonic()
        with self._changed:
            self._events = []
            # A pass that is under way may have looked before the caller's step was there.
            wanted = self._passes + 2
            while self._passes < wanted and self._error is None and self._thread.alive:
                self._session.wake()
                self._changed.wait(0.05)
                self._raise_if_out_of_reach()
            if self._error is not None:
                raise self._error
            last = self._events[-1] if self._events else None
            return self._report(last, list(self._events), time.monotonic() - started)

    def _raise_if_out_of_reach(self) -> None:
        """The background thread waits for a store that is away; a caller wants to know."""
        for event in self._events:
            if event.kind == "fault" and event.fault_kind == UnavailableError.kind:
                raise UnavailableError(event.fault)

    def _report(
        self, at: _Position | None, events: list[_native.FollowEvent], seconds: float
    ) -> SyncReport:
        moves = [event for event in events if event.kind in ("applied", "joined")]
        return SyncReport(
            step=self._step,
            seq=at.seq if at else 0,
            state=at.state if at else "",
            moved=bool(moves),
            joined=any(event.kind == "joined" for event in moves),
            changed_elements=sum(event.changed_elements for event in moves),
            fetched_bytes=sum(event.fetched_bytes for event in moves),
            lag_steps=at.lag_steps if at else 0,
            expired=at.expired if at else False,
            seconds=seconds,
            faults=tuple(event.fault for event in events if event.kind == "fault"),
            unproven=at.unproven if at else False,
        )

    def _follow(self) -> None:
        try:
            with self._thread.moving():
                self._session.follow()
        except BaseException as error:
            if not self._thread.is_left_behind():
                self._error = error
                self._become("failed")
        with self._changed:
            self._changed.notify_all()

    def _halt(self) -> None:
        self._thread.halt()
        if self._status == "following":
            self._status = "idle"

    def _become(self, status: FollowerStatus) -> None:
        if self._status != "closed":
            self._status = status

    def _take(self, event: _native.FollowEvent) -> None:
        moved = event.kind in ("applied", "joined")
        with self._changed:
            self._events.append(event)
            del self._events[:-1000]
            if moved:
                self._step = event.step
            if event.kind == "waiting":
                self._passes += 1
            self._changed.notify_all()
        if moved and self.on_step is not None:
            self.on_step(event)
        if self.on_event is not None:
            self.on_event(event)
