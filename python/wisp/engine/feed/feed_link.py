"""A reader's end of a host's feed: starts the feed if need be, and knows what it told last."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...tensors import TensorEntry
from .feed_files import FeedSettings, MappedState, feed_folder, turn
from .feed_messages import (
    Coming,
    FeedMessage,
    FeedPosition,
    FollowStatus,
    Gather,
    Gathered,
    LookNow,
    Move,
    Moved,
    Part,
    RankHolds,
    RankReport,
    RankSays,
    ReaderMessage,
    Snapshot,
    StatusChanged,
    Verified,
    VerifyState,
    WantsState,
    line_of,
    parse_feed_message,
)

__all__ = ["FeedLink", "FeedState"]

_log = logging.getLogger("wisp.feed")
_RETRY = 0.05
_MOST_MOVES = 200
_STARTS = 0.5  # seconds between attempts to start a feed


@dataclass(frozen=True)
class FeedState:
    """What a reader knows of its feed: replaced as a whole, never changed."""

    pid: int = 0  #: of the feed; another one counts from the start again
    at: FeedPosition | None = None  #: None: there is no state yet
    times: dict[str, float] = field(default_factory=dict)
    file: str = ""
    schema: tuple[TensorEntry, ...] = ()
    moves: tuple[Move, ...] = ()
    status: FollowStatus = FollowStatus()
    ranks: dict[str, RankReport] = field(default_factory=dict)
    connected: bool = False
    relay: bool = False  #: the ranks hold the state; the feed has what they cannot give back
    kept: tuple[str, ...] = ()
    whole: str = ""
    whole_state: str = ""
    whole_parts: dict[str, tuple[Part, ...]] | None = None
    coming: Coming | None = None

    def after(self, message: Snapshot | Coming | Moved | StatusChanged | RankSays) -> FeedState:
        """What is known once the feed has told this."""
        if isinstance(message, Snapshot):
            return FeedState(
                pid=message.pid, at=message.at, times=message.times, file=message.file,
                schema=message.schema, moves=message.moves, status=message.status,
                ranks=message.ranks, connected=True, relay=message.relay, kept=message.kept,
                whole=message.whole, whole_state=message.whole_state,
                whole_parts=message.whole_parts, coming=message.coming,
            )  # fmt: skip
        if isinstance(message, Coming):
            return replace(self, coming=message)
        if isinstance(message, Moved):
            moves = (*self.moves, message.move)[-_MOST_MOVES:]
            times = message.move.times
            return replace(self, at=message.at, times=times, moves=moves, status=message.status)
        if isinstance(message, StatusChanged):
            return replace(self, status=message.status)
        ranks = {label: report for label, report in self.ranks.items() if label != message.label}
        if message.report is not None:
            ranks[message.label] = message.report
        return replace(self, ranks=ranks)

    def chain(self, serial: int) -> list[Move] | None:
        """The moves from state `serial` to the newest; None if there is no such way."""
        found: list[Move] = []
        for move in self.moves:
            if move.before == (found[-1].after if found else serial):
                found.append(move)
        end = found[-1].after if found else serial
        return found if self.at is not None and end == self.at.serial else None

    def chain_from(self, state: str) -> list[Move] | None:
        """The same from the state with this digest, no matter which feed counted it."""
        if self.at is None:
            return None
        if state == self.at.state:
            return []
        starts = [i for i, move in enumerate(self.moves) if move.base == state]
        return self.chain(self.moves[starts[-1]].before) if starts else None

    @property
    def is_behind(self) -> bool:
        """Whether the run has gone on from where the feed is."""
        return self.at is not None and self.status.head_seq > self.at.seq

    @property
    def held_schema(self) -> tuple[TensorEntry, ...]:
        """The tensors that the feed has in shared memory."""
        if not self.relay:
            return self.schema
        return tuple(entry for entry in self.schema if entry[0] in set(self.kept))


class FeedLink:
    """Connected to the feed of a run, or about to be. Closed with close()."""

    def __init__(self, settings: FeedSettings, *, starts: bool = True) -> None:
        self.folder: Path = feed_folder(settings)
        self.known = FeedState()
        self._settings = settings
        self._starts = starts
        self._changed = threading.Condition()
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._last_report: RankSays | None = None
        self._last_holds: RankHolds | None = None
        self._verified: dict[str, Verified] = {}
        self.on_gather: Callable[[Gather], object] = lambda _: None  #: must not take long
        self._feed: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._closed = False
        self._state: MappedState | None = None
        self._state_file = ""
        self._thread = threading.Thread(target=self._listen, name="wisp-feed", daemon=True)
        self._thread.start()

    def wait(self, ready: Callable[[FeedState], bool], timeout: float | None) -> FeedState | None:
        """The first feed state that is ready; None after `timeout` seconds, or when closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or ready(self.known), timeout)
            return self.known if not self._closed and ready(self.known) else None

    def wake(self) -> None:
        """Lets every wait() look at its condition again."""
        with self._changed:
            self._changed.notify_all()

    def look(self) -> None:
        """Asks the feed to look for a new step now."""
        self._send(LookNow())

    def report(self, label: str, report: RankReport) -> None:
        """Tells every reader what a rank says of itself."""
        self._last_report = RankSays(label, report)
        self._send(self._last_report)

    def hold(self, holds: RankHolds) -> None:
        """Tells the feed what a rank can give back."""
        if holds != self._last_holds:
            self._last_holds = holds
            self._send(holds)

    def gathered(self, answer: Gathered) -> None:
        """Answers a Gather."""
        self._send(answer)

    def want_state(self, label: str, why: str = "") -> None:
        """Asks the feed for a whole state: nothing else leads to the newest."""
        self._send(WantsState(label, self.known.whole, why))

    def verify(self, label: str, state: str, timeout: float) -> Verified | None:
        """Whether the ranks of `label`'s engine hold this state; None: nobody answered."""
        with self._changed:
            self._verified.pop(label, None)
        self._send(VerifyState(label, state))
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or label in self._verified or not self.known.connected, timeout
            )
            return self._verified.pop(label, None)

    @contextmanager
    def mapped(self, feed: FeedState) -> Iterator[MappedState | None]:
        """The weights at `feed`'s position (if `relay`, those that it keeps of them), kept as they
        are; None when they have moved on.

        Raises StateMovedError at the end if it was not kept, since this process was stopped
        meanwhile.
        """
        with turn(self.folder) as held:
            at = feed.at
            if at is None or held.serial != at.serial or feed.pid != self.known.pid:
                yield None
                return
            if self._state is None or self._state_file != feed.file:
                try:
                    self._state = MappedState(self.folder, feed.file, feed.held_schema)
                except FileNotFoundError:
                    yield None
                    return
                self._state_file = feed.file
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

    def _send(self, message: ReaderMessage) -> None:
        with self._sending:
            if self._socket is None:
                return
            with contextlib.suppress(OSError):
                self._socket.sendall(line_of(message))

    def _listen(self) -> None:
        while not self._closed:
            connection = self._connect()
            if connection is None:
                time.sleep(_RETRY)
                continue
            with connection:
                try:
                    for line in connection.makefile("rb"):
                        self._take(parse_feed_message(line))
                except (OSError, ValueError) as error:
                    _log.debug("the feed went away: %s", error)
                with self._sending:
                    self._socket = None
            with self._changed:
                self.known = replace(self.known, connected=False, ranks={})
                self._changed.notify_all()

    def _take(self, message: FeedMessage) -> None:
        if isinstance(message, Gather):
            self.on_gather(message)
            return
        with self._changed:
            if isinstance(message, Verified):
                self._verified[message.label] = message
                self._changed.notify_all()
                return
            self.known = self.known.after(message)
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
        for said in (self._last_report, self._last_holds):
            if said is not None:
                self._send(said)
        return connection

    def _start_feed(self) -> None:
        """The first process feeds; a second one finds the lock taken and ends."""
        if self._feed is not None and self._feed.poll() is None:
            return
        if not self._starts or time.monotonic() - self._started_at < _STARTS:
            return
        self._started_at = time.monotonic()
        self._feed = subprocess.Popen(
            [sys.executable, "-m", "wisp.engine.feed.feed_process", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert self._feed.stdin is not None
        with contextlib.suppress(OSError):
            self._feed.stdin.write(self._settings.as_json().encode())
            self._feed.stdin.close()
