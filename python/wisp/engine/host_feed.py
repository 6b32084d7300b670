"""The process that follows a run for all engine ranks of a host.

It fetches, verifies, decodes and proves every step once, keeps the newest state in shared memory
(`feed_files`), and tells its readers of each move (`feed_messages`), over a Unix socket that only
its user can reach. It starts with the first reader (`feed_link`) and ends when the last one is
gone.

usage: python -m wisp.engine.host_feed FOLDER    with FeedSettings as JSON on its standard input
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import _native
from ..errors import Error
from ..follower import Follower
from ..targets import MovedTensor, SharedTarget, element_width
from ..tensors import TensorEntry
from .feed_files import FeedSettings, WriterTurn, state_layout, write_move
from .feed_messages import (
    FeedMessage,
    FeedPosition,
    FollowStatus,
    LookNow,
    Move,
    Moved,
    RankReport,
    RankSays,
    Snapshot,
    StatusChanged,
    line_of,
    parse_reader_message,
)
from .feed_readers import FeedReader

__all__ = ["Feed"]

_log = logging.getLogger("wisp.feed")
_KEPT_MOVES = 64
_KEPT_BYTES = 64 << 20  # or half of the state, if that is more
_KEPT_FAULTS = 20
_LONELY = 5.0  # seconds without a reader after which it ends
_AWAITED = 60.0  # the same before the first one
_ABANDONED = 600.0  # the same since the last write of one that was killed


class _SharedState(SharedTarget):
    """The replica, in a file that readers map."""

    def __init__(self, folder: Path) -> None:
        self.schema: tuple[TensorEntry, ...] = ()
        self.file = ""
        self.serial = 0
        self.size = 0
        self.adopted = False
        self.moved: tuple[tuple[str, int], ...] | None = None
        self._folder = folder
        self._turn = WriterTurn(folder)
        self._weights: _native.HostWeights | None = None

    def memory(self, schema: list[TensorEntry]) -> _native.HostWeights:
        self._turn.take()
        if self._weights is not None and tuple(schema) == self.schema:
            return self._weights
        head, starts, self.size = state_layout(schema)
        file = f"state-{time.time_ns()}.safetensors"
        with open(self._folder / file, "xb") as out:
            os.posix_fallocate(out.fileno(), 0, self.size)  # no room: now, not as a dead process
            out.write(head)
        memory = np.memmap(self._folder / file, np.uint8, "r+", shape=(self.size,))
        entries = [
            (name, dtype, shape, memory[start : start + _size(dtype, shape)])
            for (name, dtype, shape), start in zip(schema, starts, strict=True)
        ]
        self._weights = _native.HostWeights(entries, True)
        if self.file:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self.file).unlink()
        self.schema, self.file = tuple(schema), file
        return self._weights

    def enter(self) -> None:
        self._turn.take()

    def adopt(self, step: int, seq: int, state: str) -> None:
        self.adopted = True

    def move(self, entries: list[MovedTensor], step: int, seq: int, state: str) -> None:
        self.moved = write_move(self._folder, f"move-{self.serial + 1}", entries)

    def release(self, whole: bool) -> None:
        """Readers may look again. A write that was begun and not told of leaves no state."""
        self.adopted, self.moved = False, None
        self._turn.give(self.serial if whole else 0)


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * element_width(dtype)


class Feed:
    """Follows the run, and tells readers what changes."""

    def __init__(self, folder: Path, settings: FeedSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._lock = threading.Lock()
        self._readers: set[FeedReader] = set()
        self._ranks: dict[str, FeedReader] = {}  # the reader that speaks for each
        self._had_readers = False
        self._alone_since = time.monotonic()
        self._shared = _SharedState(folder)
        self._moves: list[Move] = []
        self._at: FeedPosition | None = None
        self._times: dict[str, float] = {}
        self._status = FollowStatus()
        self._reports: dict[str, RankReport] = {}  # of ranks, by their labels
        self._looking = threading.Event()
        self._trusts_base = True
        self._follower = self._make_follower()

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
            replica_id=settings.replica_id,
            poll=settings.poll,
            on_event=self.take,
        )

    def take(self, event: _native.FollowEvent) -> None:
        """What the follower did, on its thread."""
        with self._lock:
            self._status = replace(
                self._status, head_seq=max(event.head_seq, event.seq), lag_steps=event.lag_steps,
                expired=event.expired,
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
            self._forget_moves()
            with contextlib.suppress(FileNotFoundError):
                (self._folder / file).unlink()
            self._tell(self._snapshot())
        else:
            if shared.moved is None:
                (self._folder / file).write_bytes(b"")  # another step, the same weights
            move = Move(
                before.serial, shared.serial, event.step, event.seq, event.state, file,
                shared.moved or (), self._times,
            )  # fmt: skip
            self._moves.append(move)
            self._trim_moves()
            self._tell(Moved(self._at, move, self._status))
        shared.release(True)
        for left in self._folder.glob("left-*.safetensors"):
            left.unlink()

    def _forget_moves(self) -> None:
        for move in self._moves:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / move.file).unlink()
        self._moves.clear()

    def _trim_moves(self) -> None:
        allowed = max(_KEPT_BYTES, self._shared.size // 2)
        sizes = [(self._folder / move.file).stat().st_size for move in self._moves]
        while len(self._moves) > 1 and (len(self._moves) > _KEPT_MOVES or sum(sizes) > allowed):
            (self._folder / self._moves.pop(0).file).unlink()
            sizes.pop(0)

    def _fault(self, text: str) -> None:
        faults = self._status.faults
        if faults[-1:] != (text,):
            self._status = replace(self._status, faults=(*faults, text)[-_KEPT_FAULTS:])
            _log.warning("%s: %s", self._settings.run, text)
        self._tell_status()

    def _tell_status(self) -> None:
        self._tell(StatusChanged(self._status))

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            pid=os.getpid(), run=self._settings.run, at=self._at, times=self._times,
            file=self._shared.file, schema=self._shared.schema, moves=tuple(self._moves),
            status=self._status, ranks=dict(self._reports),
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
            self._follower.stop()

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
        try:
            for line in connection.makefile("rb"):
                message = parse_reader_message(line)
                if isinstance(message, LookNow):
                    self._looking.set()
                elif message.report is not None:
                    self._rank(reader, message.label, message.report)
        except (OSError, ValueError):
            pass
        with self._lock:
            self._readers.discard(reader)
            if self._ranks.get(reader.label) is reader:
                del self._ranks[reader.label]
                self._reports.pop(reader.label, None)
                self._tell(RankSays(reader.label, None))
        reader.close()

    def _rank(self, reader: FeedReader, label: str, report: RankReport) -> None:
        with self._lock:
            reader.label = label
            self._ranks[label] = reader
            self._reports[label] = report
            self._tell(RankSays(label, report))

    def _look(self) -> None:
        """Passes on that a reader does not want to wait for the next look."""
        while True:
            self._looking.wait()
            self._looking.clear()
            self._follower.wake()

    def _keep_following(self) -> None:
        delay = 0.5
        while True:
            self._follower.start()
            started = time.monotonic()
            self._follower.join()
            error = self._follower.error
            if error is None:
                return
            with self._lock:
                self._shared.release(False)
                self._status = replace(self._status, failure=_text(error))
                self._fault(_text(error))
            with contextlib.suppress(BaseException):
                self._follower.stop()
            if self._trusts_base and self._at is None:
                self._trusts_base = False  # it only saves fetching an anchor
                self._follower = self._make_follower()
            delay = 0.5 if time.monotonic() - started > 60 else min(delay * 2, 30.0)
            self._looking.wait(min(delay, max(self._settings.poll, 0.1)))


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"


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


def _clear(folder: Path) -> None:
    """What a feed that was killed left: its state may serve as a base, the rest is of no use."""
    for path in folder.glob("left-*"):
        path.unlink()
    for path in [*folder.glob("move-*"), *folder.glob(".move-*"), *folder.glob("feed.sock")]:
        path.unlink()
    for index, path in enumerate(sorted(folder.glob("state-*.safetensors"), reverse=True)):
        if index == 0:
            path.rename(folder / path.name.replace("state-", "left-"))
        else:
            path.unlink()


def _sweep(home: Path) -> None:
    """Frees the memory of feeds that were killed and that nobody has started again."""
    for lock in home.glob("*/feed.lock"):
        if time.time() - (lock.parent / "turn").stat().st_mtime < _ABANDONED:
            continue
        with contextlib.suppress(OSError), open(lock, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for pattern in ("state-*", "left-*", "move-*"):
                for path in lock.parent.glob(pattern):
                    path.unlink()


def main() -> int:
    """Feeds, if nobody else does."""
    folder = Path(sys.argv[1])
    settings = FeedSettings(**json.load(sys.stdin))
    lock = os.open(folder / "feed.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    # A rank that is bound to cores of its own passes that on, which is not meant for us.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    _clear(folder)
    with contextlib.suppress(OSError):
        _sweep(folder.parent)
    feed = Feed(folder, settings)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / ".feed.sock"))
        listener.listen(64)
        os.rename(folder / ".feed.sock", folder / "feed.sock")
        feed.serve(listener)
    for pattern in ("feed.sock", "move-*", "state-*", "left-*"):
        for path in folder.glob(pattern):
            path.unlink()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # its threads wait for what will not come
