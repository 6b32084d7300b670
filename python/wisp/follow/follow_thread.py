"""The thread that moves a follower's replica, and what is done when it does not come back.

A store written in Python cannot be interrupted. A thread that does not return from one is left
behind: the replica is taken away from it, so that it changes nothing when it comes back.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import _native
from ..errors import InvalidError, UnavailableError

__all__ = ["FollowThread"]

#: Seconds that halt() and close() wait for what a store does; a move that has begun is finished.
_PATIENCE = 0.8
_PATIENCE_WITH_FAREWELL = 0.3


class FollowThread:
    """A session, moved by one thread at a time: one in the background, or the caller's own."""

    def __init__(self, session: _native.FollowSession, url: str) -> None:
        self._session = session
        self._url = url
        self._process = os.getpid()
        self._moving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._left_behind: threading.Thread | None = None  # in a store that it cannot leave
        self._abandoned = False  # the replica was taken away from the thread that moved it
        self._closed = False

    @property
    def started(self) -> bool:
        """Whether there is a background thread, also one that has ended by itself."""
        return self._thread is not None

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Only inside this may the session be moved; take_back() comes first."""
        with self._moving:
            try:
                yield
            finally:
                if self._closed:  # and close() could not wait any longer
                    self._session.shut()

    def start(self, follow: Callable[[], None]) -> None:
        """Calls `follow` in the background, until halt()."""
        self._session.arm()
        self._thread = threading.Thread(target=follow, name="wisp-follower", daemon=True)
        _running.add(self)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Waits until the background thread has ended; whether it has, or there is none."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return not self.alive

    def halt(self) -> None:
        """Ends the background thread after the move under way, or leaves it behind."""
        thread = self._thread
        if thread is None:
            return
        if thread is threading.current_thread():
            raise InvalidError("on_step cannot stop the thread that it runs on; raise instead")
        self._session.halt()
        thread.join(_PATIENCE)
        if thread.is_alive():
            self._abandon()
            self._left_behind = thread if thread.is_alive() else None
        self._thread = None
        _running.discard(self)
        if self._left_behind is not None:
            self._warn_of_left_behind()

    def is_left_behind(self) -> bool:
        """Whether the calling thread was: what it meets matters to nobody any more."""
        return threading.current_thread() is self._left_behind

    def take_back(self) -> None:
        """The replica, from a thread that was left behind and has come back since."""
        if self._closed:
            raise InvalidError("this follower is closed")
        if self._left_behind is not None and self._left_behind.is_alive():
            raise UnavailableError(
                f"the store of {self._url} still holds a thread of this follower; wait for "
                "it to return, or make another follower"
            )
        self._left_behind = None
        if self._abandoned:
            self._session.reclaim()
            self._abandoned = False

    def close(self) -> None:
        """Shuts the session, by the thread that moves it if that takes too long; after halt()."""
        self._closed = True
        end = time.monotonic() + _PATIENCE
        while self._left_behind is None and not self._moving.acquire(timeout=0.05):
            self._session.halt()
            if time.monotonic() > end:
                self._abandon()
                self._warn_of_left_behind()
                return
        if self._left_behind is None:
            self._moving.release()
            self._shut()

    def _abandon(self) -> None:
        """Waits for a move that has begun; no other one begins."""
        self._abandoned = True
        self._session.abandon()

    def _shut(self) -> None:
        """With a last heartbeat, in a thread of its own: the store may not return from that."""
        thread = threading.Thread(target=self._session.shut, name="wisp-farewell", daemon=True)
        thread.start()
        thread.join(_PATIENCE_WITH_FAREWELL)
        if thread.is_alive():
            self._warn_of_left_behind()

    def _warn_of_left_behind(self) -> None:
        warnings.warn(
            f"the store of {self._url} does not return: the thread that asked it is left "
            "behind, and changes nothing any more; see why the store hangs",
            RuntimeWarning,
            stacklevel=4,
        )


#: Those in the background: they must be gone before the interpreter is.
_running: weakref.WeakSet[FollowThread] = weakref.WeakSet()


@atexit.register
def _halt_all() -> None:
    threads = [thread for thread in list(_running) if thread._process == os.getpid()]
    for thread in threads:
        thread._session.halt()
    for thread in threads:
        thread.halt()
