"""Follows a run for all engine ranks of a host, in a process of its own (`feed_process`).

It fetches and verifies every step once, decodes and proves it unless the ranks do, and tells its
readers of each move (`feed_messages`), over a Unix socket that only its user can reach. The newest
state it keeps in shared memory (`shared_state`), unless the run's deltas are swift: then the ranks
have it (`relay_state`). It starts with the first reader (`feed_link`) and ends when the last one is
gone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

from ... import _native
from ...errors import Error, UnsupportedError, text_of
from ...follow.follower import Follower
from ...runs import trust_of
from ...stores import location
from .feed_files import FeedSettings
from .feed_messages import (
    FeedMessage,
    FeedPosition,
    FollowStatus,
    Gathered,
    LookNow,
    Move,
    Moved,
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
    parse_reader_message,
)
from .feed_readers import FeedReader
from .move_backlog import MoveBacklog
from .rank_table import RankTable
from .relay_state import RejoinError, RelayState
from .server_beats import ServerBeats
from .shared_state import SharedState

__all__ = ["Feed"]

_log = logging.getLogger("wisp.feed")
_KEPT_FAULTS = 20
_LONELY = 5.0  # seconds without a reader after which it ends
_AWAITED = 60.0  # the same before the first one


class Feed:
    """Follows the run, and tells readers what changes."""

    def __init__(self, folder: Path, settings: FeedSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._readers: set[FeedReader] = set()
        self._speakers: dict[str, FeedReader] = {}  # the reader that speaks for each rank
        self._ranks = RankTable()
        self._had_readers = False
        self._alone_since = time.monotonic()
        self._shared: SharedState | RelayState = SharedState(folder)
        self._codec = ""  # of the run, once it is known
        self._slices: int | None = None  # that its deltas are cut into, the same
        self._told_file = ""
        self._proofs: dict[tuple[str, str], list[str]] = {}  # by engine and state: who waits
        self._moves = MoveBacklog(folder)
        self._at: FeedPosition | None = None
        self._times: dict[str, float] = {}
        self._status = FollowStatus()
        self._reports: dict[str, RankReport] = {}  # of ranks, by their labels
        self._looking = threading.Event()
        self._trusts_base = True
        self._follower: Follower | None = None
        self._beats = ServerBeats(settings, lambda: dict(self._reports))

    def _make_follower(self) -> Follower:
        settings = self._settings
        left: list[str | Path] = [*self._folder.glob("left-*.safetensors")]
        bases = [*left, settings.base] if settings.base else left
        base = next((b for b in bases if os.path.exists(b)), None)
        return Follower(
            settings.run,
            self._shared,
            base=base if self._trusts_base else None,
            trust=settings.trust,
            scratch=settings.scratch,
            min_serial=settings.min_serial,
            run_id=settings.run_id or None,
            poll=settings.poll,
            on_event=self.take,
        )

    def take(self, event: _native.FollowEvent) -> None:
        """What the follower did, on its thread."""
        with self._lock:
            self._status = replace(
                self._status, head_seq=max(event.head_seq, event.seq), lag_steps=event.lag_steps,
                expired=event.expired,
                fetched_bytes=self._status.fetched_bytes + event.fetched_bytes,
            )  # fmt: skip
            if event.kind in ("applied", "joined"):
                self._moved(event)
            elif event.kind == "fault":
                self._shared.release(False)
                self._fault(event.fault)
            else:
                self._shared.release(False)
                self._status = replace(self._status, passes=self._status.passes + 1)
                self._tell_status()
            if isinstance(self._shared, RelayState):
                if self._shared.tidy():
                    self._tell(self._snapshot())
                if self._shared.rejoin.is_set():
                    raise RejoinError("a whole state is needed")

    def _moved(self, event: _native.FollowEvent) -> None:
        shared, before = self._shared, self._at
        if (
            before is not None and not shared.adopted and shared.moved is None
            and (before.step, before.state) == (event.step, event.state)
        ):  # fmt: skip
            # A commit that brings what is there: an anchor.
            self._at = replace(before, seq=event.seq)
            shared.release(True)
            return
        shared.serial += 1
        self._at = FeedPosition(shared.serial, event.step, event.seq, event.state)
        self._times = _times(event)
        self._status = replace(self._status, failure=None)
        file = f"move-{shared.serial}"
        if shared.adopted or before is None:
            self._moves.forget()
            (self._folder / file).unlink(missing_ok=True)
            self._tell(self._snapshot())
        else:
            if shared.moved is None:
                (self._folder / file).write_bytes(b"")  # another step, the same weights
                shared.turn.take()  # under another number
            move = Move(
                before.serial, shared.serial, event.step, event.seq, event.state, file,
                shared.moved or (), self._times, before.state, shared.relay, shared.proven_by,
                shared.handed,
            )  # fmt: skip
            self._moves.add(move)
            if shared.file == self._told_file:
                self._tell(Moved(self._at, move, self._status))
            else:
                self._tell(self._snapshot())  # other tensors are kept than before
            # Last, so that whatever fails here leaves no move untold.
            self._moves.trim(None if shared.relay else shared.size, self._ranks)
        shared.release(True)
        for left in self._folder.glob("left-*.safetensors"):
            left.unlink()

    def _fault(self, text: str) -> None:
        faults = self._status.faults
        if faults[-1:] != (text,):
            self._status = replace(self._status, faults=(*faults, text)[-_KEPT_FAULTS:])
            _log.warning("%s: %s", self._settings.run, text)
        self._tell_status()

    def _tell_status(self) -> None:
        self._tell(StatusChanged(self._status))

    def _snapshot(self) -> Snapshot:
        shared = self._shared
        self._told_file = shared.file
        return Snapshot(
            pid=os.getpid(), run=self._settings.run, at=self._at, times=self._times,
            file=shared.file, schema=shared.schema, moves=self._moves.all(),
            status=self._status, ranks=dict(self._reports), relay=shared.relay, kept=shared.kept,
            whole=shared.whole, whole_state=shared.whole_state, whole_parts=shared.whole_parts,
            coming=shared.coming,
        )  # fmt: skip

    def _tell(self, message: FeedMessage) -> None:
        """To every reader; one that takes nothing is let go, and waited for by nobody."""
        line = line_of(message)
        lost = [reader for reader in self._readers if not reader.tell(line)]
        self._readers.difference_update(lost)
        for reader in lost:
            reader.let_go()
            self._fault(
                f"{reader.name} does not take what the feed tells it and was let go; it comes back "
                "by itself once it runs again"
            )

    def serve(self, listener: socket.socket) -> None:
        """Until nobody listens any more."""
        threading.Thread(target=self._keep_following, daemon=True).start()
        threading.Thread(target=self._look, daemon=True).start()
        listener.settimeout(0.5)
        while not self._is_lonely():
            with contextlib.suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(None)  # its own threads wait for it, and nobody else
                threading.Thread(target=self._hear, args=(connection,), daemon=True).start()
        with contextlib.suppress(Exception):
            if self._follower is not None:
                self._follower.close()
        with self._lock:
            self._moves.forget()
            if isinstance(self._shared, RelayState):
                self._shared.close()
        self._beats.beat(everybody=False)  # those that have gone

    def _is_lonely(self) -> bool:
        with self._lock:
            if self._readers:
                self._alone_since = time.monotonic()
                return False
            patience = _LONELY if self._had_readers else _AWAITED
            return time.monotonic() - self._alone_since > patience

    def _hear(self, connection: socket.socket) -> None:
        reader = FeedReader(connection)
        with self._lock:
            reader.tell(line_of(self._snapshot()))
            self._readers.add(reader)
            self._had_readers = True
        with contextlib.suppress(OSError, ValueError):
            for line in connection.makefile("rb"):
                self._take_message(reader, parse_reader_message(line))
        with self._lock:
            self._readers.discard(reader)
            if self._speakers.get(reader.label) is reader:
                del self._speakers[reader.label]
                self._reports.pop(reader.label, None)
                self._ranks.leave(reader.label)
                self._tell(RankSays(reader.label, None))
                self._beats.wake()
        reader.close()

    def _take_message(self, reader: FeedReader, message: ReaderMessage) -> None:
        if isinstance(message, LookNow):
            self._looking.set()
        elif isinstance(message, RankHolds):
            self._ranks.hold(message)
        elif isinstance(message, Gathered):
            self._ranks.answer(message)
        elif isinstance(message, WantsState):
            self._want_state(message)
        elif isinstance(message, VerifyState):
            self._want_proof(message)
        elif message.report is not None:
            self._rank(reader, message.label, message.report)

    def _want_state(self, message: WantsState) -> None:
        with self._lock:
            shared = self._shared
            if message.why:
                self._fault(message.why)
            if not isinstance(shared, RelayState) or shared.joining or shared.rejoin.is_set():
                return
            if message.known != shared.whole and shared.whole:
                return  # it knows better by now
            _log.info("rank %s needs a whole state; it is fetched", message.label)
            shared.rejoin.set()
        self._looking.set()

    def _want_proof(self, message: VerifyState) -> None:
        """One proof for all ranks of an engine that ask for it at the same time."""
        key = (message.label.rpartition("/")[0], message.state)
        with self._lock:
            waiting = self._proofs.setdefault(key, [])
            waiting.append(message.label)
            if len(waiting) == 1:
                threading.Thread(target=self._prove, args=(key,), daemon=True).start()

    def _prove(self, key: tuple[str, str]) -> None:
        with self._lock:
            shared, at, label = self._shared, self._at, self._proofs[key][0]
        try:
            if not isinstance(shared, RelayState) or at is None:
                raise UnsupportedError("the feed keeps the state itself")
            found = shared.verify(label, key[1], at.state)
        except Exception as error:
            found = Verified(label, key[1], text_of(error))
        with self._lock:
            for waiting in self._proofs.pop(key):
                self._tell(replace(found, label=waiting))

    def _rank(self, reader: FeedReader, label: str, report: RankReport) -> None:
        with self._lock:
            reader.label = label
            self._speakers[label] = reader
            self._reports[label] = report
            self._ranks.report(label, report)
            self._tell(RankSays(label, report))
        self._beats.wake()

    def _look(self) -> None:
        """Passes on that a reader does not want to wait for the next look."""
        while True:
            self._looking.wait()
            self._looking.clear()
            if self._follower is not None:
                self._follower.wake()

    def _keep_following(self) -> None:
        delay = 0.5
        while True:
            started = time.monotonic()
            error = self._follow()
            if error is None:
                return
            if isinstance(error, (RejoinError, UnsupportedError)) and self._change_over(error):
                continue
            with self._lock:
                self._shared.release(False)
                self._status = replace(self._status, failure=text_of(error))
                self._fault(text_of(error))
            if self._follower is not None:
                with contextlib.suppress(BaseException):
                    self._follower.stop()
            if self._trusts_base and self._at is None and self._codec:
                self._trusts_base = False  # it only saves fetching an anchor
                self._follower = None
            delay = 0.5 if time.monotonic() - started > 60 else min(delay * 2, 30.0)
            self._looking.wait(min(delay, max(self._settings.poll, 0.1)))

    def _follow(self) -> BaseException | None:
        """Until something ends it: what that was."""
        try:
            if not self._codec:
                self._choose_keeper()
            if self._follower is None:
                self._follower = self._make_follower()
            self._follower.start()
        except Error as error:
            return error
        self._follower.join()
        return self._follower.error

    def _choose_keeper(self) -> None:
        """Deltas of the codec swift need no copy of the weights here."""
        settings = self._settings
        trust = trust_of(settings.trust, settings.min_serial, settings.run_id or None)
        self._codec = _native.read_codec(location(settings.run), trust)
        if self._codec == "swift" and not settings.whole:
            turn = self._shared.turn
            self._shared = RelayState(
                self._folder, turn, self._ranks, self._tell_all,
                lambda size: self._slices_of(size, trust),
            )  # fmt: skip

    def _slices_of(self, weight_bytes: int, trust: _native.Trust) -> int:
        if self._slices is None:
            place = location(self._settings.run)
            self._slices = _native.read_slices(place, weight_bytes, trust)
        return self._slices

    def _tell_all(self, message: FeedMessage) -> None:
        with self._lock:
            self._tell(message)

    def _change_over(self, error: BaseException) -> bool:
        """Another follower goes on: from a whole state, or with the state kept here."""
        old = self._shared
        if not isinstance(old, RelayState):
            return False
        if self._follower is not None:
            with contextlib.suppress(BaseException):
                self._follower.close()
        self._follower = None
        with self._lock:
            if isinstance(error, RejoinError):
                old.start_over()
            else:
                _log.warning("%s: %s; the feed keeps the weights itself", self._settings.run, error)
                old.close()
                self._shared = SharedState(self._folder, old.turn)
                self._shared.serial = old.serial
        return True


def _times(event: _native.FollowEvent) -> dict[str, float]:
    """When each phase ended, as seconds since the epoch."""
    decoded = time.time()
    verified = decoded - event.apply_seconds
    fetched = verified - event.verify_seconds
    visible = fetched - event.fetch_seconds
    published = decoded - event.commit_age_ms / 1000
    return {
        "published": min(published, visible), "visible": visible, "fetched": fetched,
        "verified": verified, "decoded": decoded,
    }  # fmt: skip
