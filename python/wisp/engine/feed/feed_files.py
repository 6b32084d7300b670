"""What a host's feed and its readers share: a folder in memory, a state, and moves of it.

The folder belongs to one user and one run. `state-N.safetensors` holds the newest proven state,
`move-N` what changed on the way to it, `turn` is locked by the feed while it writes the state and
by readers while they read it whole; it holds the state's number, 0 while it is written. Positions
are uint32 (int64 in a tensor of 2^32 elements or more), bits have the width of their elements.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ... import _native
from ...errors import InternalError, InvalidError, UnavailableError
from ...follow.targets import UNSIGNED, element_width
from ...tensors import TensorEntry
from .feed_messages import Move

__all__ = [
    "FeedSettings",
    "MappedState",
    "StateMovedError",
    "feed_folder",
    "feed_home",
    "inside",
    "map_at_once",
    "read_move",
    "turn",
]


@dataclass
class FeedSettings:
    """What a follower needs to know of a run. The same for all that share a feed."""

    run: str
    trust: list[str] = field(default_factory=list)
    poll: float = 1.0
    base: str | None = None  #: a checkpoint to start from instead of fetching one
    scratch: str | None = None
    min_serial: int = 0  #: certificates below it are revoked
    run_id: str = ""  #: the run that must be at the address; empty: whichever is there
    whole: bool = False  #: the feed keeps all weights itself, whatever the run's codec

    def as_json(self) -> str:
        """For the process that feeds."""
        return json.dumps(asdict(self))


def feed_home() -> Path:
    """Where this user's feeds are on this host: in memory, and closed to others."""
    shared = Path("/dev/shm")
    top = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return _own_folder(top / f"wisp-{os.getuid()}")


def feed_folder(settings: FeedSettings) -> Path:
    """The folder of this run's feed; made if it is not there."""
    believed = [sorted(settings.trust), settings.min_serial, settings.run_id]
    key = json.dumps([settings.run, *believed, *(["whole"] if settings.whole else [])])
    return _own_folder(feed_home() / hashlib.sha256(key.encode()).hexdigest()[:20])


def _own_folder(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InvalidError(f"{path} is open to others, or belongs to them; remove it")
    return path


class Turn:
    """A reader's: the feed waits for it to end, unless its process is stopped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.serial = self._now()  #: of the state; 0: there is none

    def _now(self) -> int:
        return int.from_bytes(os.pread(self._descriptor, 8, 0), "little")

    def check(self) -> None:
        """Raises StateMovedError if what was read so far may be of two states."""
        if self._now() != self.serial:
            raise StateMovedError("the state was written to while it was read; try again")


@contextmanager
def turn(folder: Path) -> Iterator[Turn]:
    """Keeps the state as it is while it is read; check() before you use what you read."""
    with open(folder / "turn", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield Turn(file.fileno())


class StateMovedError(UnavailableError):
    """Read again: the feed did not wait for this reader."""


class WriterTurn:
    """The feed's side of `turn`."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / "turn", os.O_RDWR | os.O_CREAT, 0o600)
        self._file = open(descriptor, "r+b", buffering=0)
        self._held = False

    def take(self) -> None:
        """Waits for readers that read. Taking it twice is taking it once."""
        if not self._held:
            while not self._locks() and not self._is_kept_by_stopped():
                time.sleep(0.01)
            self._held = True
            # Should this process die now, the kernel lets readers in to what is no state.
            os.pwrite(self._file.fileno(), bytes(8), 0)

    def give(self, serial: int) -> None:
        """The state is whole, and has this number; 0: it is not, do not read it."""
        if self._held:
            os.pwrite(self._file.fileno(), serial.to_bytes(8, "little"), 0)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._held = False

    def _locks(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _is_kept_by_stopped(self) -> bool:
        """Whether all who keep it are stopped: nobody waits for those, and they check() later."""
        keepers = _keepers(self._file.fileno())
        return bool(keepers) and all(_is_stopped(process) for process in keepers)


def _keepers(descriptor: int) -> list[int]:
    """The processes that have a file locked; none where the system does not tell."""
    file = os.fstat(descriptor)
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return []
    return [int(line[4]) for line in lines if line[1] == "FLOCK" and line[5] == place]


def _is_stopped(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in "Tt"


def state_layout(schema: Sequence[TensorEntry]) -> tuple[bytes, list[int], int]:
    """The head of a safetensors file, where each tensor starts in it, and its length."""
    order = sorted(range(len(schema)), key=lambda i: -element_width(schema[i][1]))
    entries: dict[str, Any] = {}
    starts = [0] * len(schema)
    end = 0
    for index in order:
        name, dtype, shape = schema[index]
        size = int(np.prod(shape, dtype=np.int64)) * element_width(dtype)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        starts[index] = end
        end += size
    head = json.dumps(entries).encode()
    head += b" " * (-(len(head) + 8) % 64)
    head = len(head).to_bytes(8, "little") + head
    return head, [len(head) + start for start in starts], len(head) + end


class MappedState:
    """The newest state, or what the feed keeps of it, as arrays of unsigned integers.

    Read it in your turn() only. private: what you write to the arrays stays in this process.
    """

    def __init__(
        self, folder: Path, file: str, schema: Sequence[TensorEntry], *, private: bool = False
    ) -> None:
        self.schema = schema
        _, starts, length = state_layout(self.schema)
        mode: Literal["c", "r+"] = "c" if private else "r+"
        self._bytes = np.memmap(inside(folder, file), np.uint8, mode, shape=(length,))
        self._starts = {entry[0]: start for entry, start in zip(self.schema, starts, strict=True)}
        self._entries = {entry[0]: entry for entry in self.schema}

    def bits(self, name: str) -> np.ndarray:
        """A tensor's elements, flattened."""
        _, dtype, shape = self._entries[name]
        width = element_width(dtype)
        start = self._starts[name]
        size = int(np.prod(shape, dtype=np.int64)) * width
        return self._bytes[start : start + size].view(UNSIGNED[width])


def check_told(moved: object) -> None:
    """A second move before ranks heard of the first would have them go on without it."""
    if moved is not None:
        raise InternalError("a move of the weights was not told of before the next one; restart")


def write_move(
    folder: Path, file: str, move: _native.ToldMove, *, with_old: bool = False
) -> tuple[tuple[str, int], ...]:
    """Gives what Move.tensors is to be."""
    told = move.write(str(folder / f".{file}"), with_old)
    os.rename(folder / f".{file}", folder / file)
    return tuple(told)


def read_move(
    folder: Path, move: Move, schema: Mapping[str, TensorEntry]
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray | None]]:
    """(name, positions, new and old bits as unsigned integers). FileNotFoundError: it was let go.

    There are no old bits where the feed keeps the weights itself.
    """
    path = inside(folder, move.file)
    length = path.stat().st_size
    if length == 0:
        return
    data = map_at_once(path)
    at = 0
    for name, count in move.tensors:
        _, dtype, shape = schema[name]
        width = element_width(dtype)
        places = np.uint32 if math.prod(shape) < 1 << 32 else np.int64
        parts = []
        sizes = (np.dtype(places).itemsize, width)
        for size in (*sizes, width) if move.has_old else sizes:
            end = at + size * count
            if end > length:
                raise InvalidError(f"{path} is shorter than it was said to be")
            parts.append(data[at:end])
            at = end + -end % 8
        kind = UNSIGNED[width]
        old = parts[2].view(kind) if move.has_old else None
        yield name, parts[0].view(places), parts[1].view(kind), old


def map_at_once(path: Path) -> np.ndarray:
    """All bytes of a file, to be written to; its pages are there before they are touched."""
    with open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return np.empty(0, np.uint8)
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return np.frombuffer(mmap.mmap(file.fileno(), size, flags), np.uint8)


def inside(folder: Path, file: str) -> Path:
    """A file of the feed's folder; InvalidError for a name that leads elsewhere."""
    if "/" in file or file.startswith("."):
        raise InvalidError(f"not a file of a feed: {file!r}")
    return folder / file
