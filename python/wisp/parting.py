"""What becomes of publishers that nobody closes: steps that were submitted are committed, or named.

At the end of the interpreter (the script's end, an exception, sys.exit) that takes at most the
publisher's `exit_timeout`. A publisher that is collected goes on behind the program's back.
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
from typing import Any, Protocol

from . import _native

__all__ = ["Parting", "leave_at_exit"]

#: How long an upload under way may take to notice that it shall end.
_STOP_SECONDS = 2.0


class _Leaver(Protocol):
    def _leave(self, began: float) -> None: ...


class Parting:
    """The end of one native session. It outlives its publisher, and holds nothing of it."""

    def __init__(self, url: str, session: Any, timeout: float) -> None:
        self._url = url
        self._session = session
        self._timeout = timeout
        self._process = os.getpid()
        self._taken = threading.Lock()  # by whoever ends the session
        self._done = threading.Event()
        _sessions.add(self)

    @property
    def alive(self) -> bool:
        return not self._taken.locked()

    def stop(self) -> None:
        """What is still under way is dropped; whoever wanted it has flushed."""
        if not self._taken.acquire(blocking=False):
            return
        self._session.stop()
        self._end()

    def collected(self) -> None:
        """Nobody has the publisher any more; maybe on the very thread that uploads, so no waiting."""
        if os.getpid() != self._process or not self._taken.acquire(blocking=False):
            return
        try:
            _thread.start_new_thread(self._finish, (time.monotonic(),))
        except RuntimeError:  # the interpreter ends
            self._taken.release()

    def leave(self, began: float) -> None:
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
        except BaseException as error:  # noqa: BLE001 - the last chance to tell
            say(f"{self._url}: {_naming(self._session.uncommitted, error)}")
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


def leave_at_exit(owner: _Leaver) -> None:
    """Has owner._leave(when) called when the interpreter ends, if it is still there."""
    _leavers.add(owner)


def say(text: str) -> None:
    """To stderr: at the end of a process logging may be gone, and seldom has a handler."""
    if sys.stderr is not None:
        print(f"wisp: {text}", file=sys.stderr, flush=True)


_sessions: set[Parting] = set()
_leavers: weakref.WeakSet[Any] = weakref.WeakSet()


def _leave() -> None:
    began = time.monotonic()
    for parting in list(_sessions):
        parting.leave(began)
    for owner in list(_leavers):
        owner._leave(began)


def _forget() -> None:
    """In a forked child: the sessions are the parent's."""
    for parting in _sessions:
        _native.keep_for_ever(parting._session)
    _sessions.clear()
    _leavers.clear()


os.register_at_fork(after_in_child=_forget)
try:
    # Before the interpreter waits for threads and forbids new ones, which stores may need.
    threading._register_atexit(_leave)  # type: ignore[attr-defined]
except (AttributeError, RuntimeError):
    atexit.register(_leave)
