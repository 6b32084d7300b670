"""A reader's end of a host's feed: starts the feed if need be, and knows what it told last."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .feed_files import FeedSettings, MappedState, Move, feed_folder, turn

__all__ = ["Board", "FeedLink"]

_log = logging.getLogger("wisp.feed")
_RETRY = 0.05
_STARTS = 0.5  # seconds between attempts to start a feed


class Board:
    """What the feed told: copied under the link's lock, then never changed."""

    def __init__(self) -> None:
        self.pid = 0  #: of the feed; another one counts from the start again
        self.at: dict[str, Any] | None = None  #: serial, step, seq, state
        self.times: dict[str, float] = {}
        self.file = ""
        self.schema: list[list[Any]] = []
        self.moves: tuple[Move, ...] = ()
        self.head_seq = 0
        self.lag = 0
        self.expired = False  #: the newest commit is older than it should be
        self.passes = 0
        self.failure: str | None = None
        self.faults: tuple[str, ...] = ()
        self.ranks: dict[str, dict[str, Any]] = {}
        self.connected = False

    def after(self, message: dict[str, Any]) -> Board:
        """The board once this is put on it."""
        new = Board()
        new.__dict__.update(self.__dict__)
        kind = message["kind"]
        if kind == "board":
            new.moves = tuple(_move(move) for move in message["moves"])
            new.connected = True
            for name in ("pid", "file", "schema", "at"):
                setattr(new, name, message[name])
            new.times = message.get("times", {})
            new.ranks = message["ranks"]
        elif kind == "move":
            move = _move(message["move"])
            new.moves = (*self.moves, move)[-200:]
            new.at, new.times = message["at"], move.times
        elif kind == "rank":
            new.ranks = dict(self.ranks)
            if message["report"] is None:
                new.ranks.pop(message["label"], None)
            else:
                new.ranks[message["label"]] = message["report"]
        if "passes" in message:
            for name in ("head_seq", "lag", "expired", "passes", "failure"):
                setattr(new, name, message[name])
            new.faults = tuple(message["faults"])
        return new

    def chain(self, serial: int) -> list[Move] | None:
        """The moves from state `serial` to the newest; None if there is no such way."""
        found: list[Move] = []
        for move in self.moves:
            if move.before == (found[-1].after if found else serial):
                found.append(move)
        end = found[-1].after if found else serial
        return found if self.at is not None and end == self.at["serial"] else None


def _move(told: dict[str, Any]) -> Move:
    return Move(**{**told, "tensors": [tuple(entry) for entry in told["tensors"]]})


class FeedLink:
    """Connected to the feed of a run, or about to be. Closed with close()."""

    def __init__(self, settings: FeedSettings, *, starts: bool = True) -> None:
        self.folder: Path = feed_folder(settings)
        self.board = Board()
        self._settings = settings
        self._starts = starts
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._last_report: tuple[str, dict[str, Any]] | None = None
        self._feed: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._closed = False
        self._state: MappedState | None = None
        self._state_file = ""
        self._thread = threading.Thread(target=self._listen, name="wisp-feed", daemon=True)
        self._thread.start()

    def wait(self, ready: Callable[[Board], bool], timeout: float | None) -> Board | None:
        """The first board that is ready; None after `timeout` seconds, or when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or ready(self.board), timeout)
            return self.board if not self._closed and ready(self.board) else None

    def wake(self) -> None:
        """Lets every wait() look at its condition again."""
        with self._changed:
            self._changed.notify_all()

    def look(self) -> None:
        """Asks the feed to look for a new step now."""
        self._send({"kind": "look"})

    def report(self, label: str, report: dict[str, Any]) -> None:
        """Puts what a rank says of itself on the board of every reader."""
        self._last_report = (label, report)
        self._send({"kind": "rank", "label": label, "report": report})

    @contextmanager
    def state(self, board: Board) -> Iterator[MappedState | None]:
        """The state that `board` shows, kept as it is; None when it has moved on.

        Raises StateMoved at the end if it was not kept, since this process was stopped meanwhile.
        """
        with turn(self.folder) as held:
            at = board.at
            if at is None or held.serial != at["serial"] or board.pid != self.board.pid:
                yield None
                return
            if self._state is None or self._state_file != board.file:
                try:
                    self._state = MappedState(self.folder, board.file, board.schema)
                except FileNotFoundError:
                    yield None
                    return
                self._state_file = board.file
            yield self._state
            held.check()

    def close(self) -> None:
        """The feed ends by itself when nobody is left."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with self._sending:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            if self._socket is None:
                return
            with contextlib.suppress(OSError):
                self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        while not self._closed:
            connection = self._connect()
            if connection is None:
                time.sleep(_RETRY)
                continue
            with connection:
                try:
                    for line in connection.makefile("rb"):
                        self._take(json.loads(line))
                except (OSError, ValueError, KeyError, TypeError) as error:
                    _log.debug("the feed went away: %s", error)
                with self._sending:
                    self._socket = None
            with self._changed:
                gone = Board()
                gone.__dict__.update(self.board.__dict__)
                gone.connected, gone.ranks = False, {}
                self.board = gone
                self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            self.board = self.board.after(message)
            self._changed.notify_all()

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(self.folder / "feed.sock"))
        except OSError:
            connection.close()
            self._start_feed()
            return None
        with self._sending:
            self._socket = connection
        if self._last_report is not None:
            self.report(*self._last_report)
        return connection

    def _start_feed(self) -> None:
        """Whoever comes first feeds; a second one finds the lock taken and ends."""
        if self._feed is not None and self._feed.poll() is None:
            return
        if not self._starts or time.monotonic() - self._started_at < _STARTS:
            return
        self._started_at = time.monotonic()
        self._feed = subprocess.Popen(
            [sys.executable, "-m", "wisp.host_feed", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert self._feed.stdin is not None
        with contextlib.suppress(OSError):
            self._feed.stdin.write(self._settings.as_json().encode())
            self._feed.stdin.close()
