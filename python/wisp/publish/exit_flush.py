"""What becomes of publishers that nobody closes: steps that were submitted are committed, or named.

At the end of the interpreter (the script's end, an exception, sys.exit) that takes at most the
publisher's `exit_timeout`. A publisher that is collected goes on in the background.
"""

from __future__ import annotations

import _thread
import atexit
import concurrent.futures.thread  # noqa: F401 - its own end must come after ours: stores use it
import os
import sys
import threading
import time
import weakref
from typing import Protocol

from .. import _native

__all__ = ["ExitFlush", "finish_at_exit", "warn_at_exit"]

#: How long an upload under way may take to notice that it shall end.
_STOP_SECONDS = 2.0


class FinishesAtExit(Protocol):
    """What may have work under way when the interpreter ends."""

    def finish_at_exit(self, began: float) -> None:
        """Waits for it within a time of its own, counted from `began` (time.monotonic())."""


class ExitFlush:
    """The end of one native session. It outlives its publisher, and holds nothing of it."""

    def __init__(self, url: str, session: _native.PublishSession, timeout: float) -> None:
        self._url = url
        self._session = session
        self._timeout = timeout
        self._process = os.getpid()
        self._taken = threading.Lock()  # by the one who ends the session
        self._done = threading.Event()
        _sessions.add(self)

    @property
    def alive(self) -> bool:
        return not self._taken.locked()

    def stop(self) -> None:
        """What is still under way is dropped; flush() comes before it."""
        if not self._taken.acquire(blocking=False):
            return
        self._session.stop()
        self._end()

    def collected(self) -> None:
        """The publisher is gone. This may be the very thread that uploads, so no waiting."""
        if os.getpid() != self._process or not self._taken.acquire(blocking=False):
            return
        try:
            _thread.start_new_thread(self._finish, (time.monotonic(),))
        except RuntimeError:  # the interpreter ends
            self._taken.release()

    def finish_at_exit(self, began: float) -> None:
        """The interpreter ends."""
        if os.getpid() != self._process:
            return
        if self._taken.acquire(blocking=False):
            self._finish(began)
        else:
            self._done.wait(max(0.0, began + self._timeout + _STOP_SECONDS - time.monotonic()))

    def _finish(self, began: float) -> None:
        try:
            left = began + self._timeout - time.monotonic()
            self._session.flush_within(max(0.0, left))
        except BaseException as error:
            warn_at_exit(f"{self._url}: {_naming(self._session.uncommitted, error)}")
        if self._session.stop_within(_STOP_SECONDS):
            self._session.stop()
        else:
            _native.keep_for_ever(self._session)
        self._end()

    def _end(self) -> None:
        _sessions.discard(self)
        self._done.set()


def _naming(step: int | None, error: BaseException) -> str:
    """What a store written in Python raised comes back as it was, without the step."""
    text = f"step {step} is not committed"
    return str(error) if text in str(error) else f"{text}: {type(error).__name__}: {error}"


def finish_at_exit(owner: FinishesAtExit) -> None:
    """Has owner.finish_at_exit(when) called when the interpreter ends, if it is still there."""
    _owners.add(owner)


def warn_at_exit(text: str) -> None:
    """To stderr: at the end of a process logging may be gone, and seldom has a handler."""
    if sys.stderr is not None:
        print(f"wisp: {text}", file=sys.stderr, flush=True)


_sessions: set[ExitFlush] = set()
_owners: weakref.WeakSet[FinishesAtExit] = weakref.WeakSet()


def _finish_all() -> None:
    began = time.monotonic()
    for session in list(_sessions):
        session.finish_at_exit(began)
    for owner in list(_owners):
        owner.finish_at_exit(began)


def _forget() -> None:
    """In a forked child: the sessions are the parent's."""
    for session in _sessions:
        _native.keep_for_ever(session._session)
    _sessions.clear()
    _owners.clear()


os.register_at_fork(after_in_child=_forget)
try:
    # Before the interpreter waits for threads and forbids new ones, which stores may need.
    threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
except (AttributeError, RuntimeError):
    atexit.register(_finish_all)
