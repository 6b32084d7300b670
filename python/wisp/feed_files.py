"""What a host's feed and its readers share: a folder in memory, a state, and moves of it.

The folder belongs to one user and one run. `state-N.safetensors` holds the newest proven state,
`move-N` what changed on the way to it, `turn` is locked by the feed while it writes the state and
by readers while they read it whole. Positions are int64, bits have the width of their elements.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .errors import Invalid
from .targets import UNSIGNED, element_width

__all__ = ["FeedSettings", "MappedState", "Move", "feed_folder", "feed_home", "read_move", "turn"]


@dataclass
class FeedSettings:
    """What a follower needs to know of a run. The same for all that share a feed."""

    run: str
    trust: list[str] = field(default_factory=list)
    poll: float = 1.0
    base: str | None = None  #: a checkpoint to start from instead of fetching one
    scratch: str | None = None
    replica_id: str = ""

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
    key = json.dumps([settings.run, sorted(settings.trust)])
    return _own_folder(feed_home() / hashlib.sha256(key.encode()).hexdigest()[:20])


def _own_folder(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise Invalid(f"{path} is open to others, or belongs to them; remove it")
    return path


@contextmanager
def turn(folder: Path) -> Iterator[int]:
    """Keeps the state as it is while it is read; gives its serial number, 0 if there is none."""
    with open(folder / "turn", "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield int.from_bytes(file.read(8), "little")


class WriterTurn:
    """The feed's side of `turn`."""

    def __init__(self, folder: Path) -> None:
        descriptor = os.open(folder / "turn", os.O_RDWR | os.O_CREAT, 0o600)
        self._file = open(descriptor, "r+b", buffering=0)
        self._held = False

    def take(self) -> None:
        """Waits for readers to let go. Taking it twice is taking it once."""
        if not self._held:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._held = True
            # Should this process die now, the kernel lets readers in to what is no state.
            os.pwrite(self._file.fileno(), bytes(8), 0)

    def give(self, serial: int) -> None:
        """The state is whole, and has this number; 0: it is not, do not read it."""
        if self._held:
            os.pwrite(self._file.fileno(), serial.to_bytes(8, "little"), 0)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._held = False


def state_layout(schema: list[tuple[str, str, tuple[int, ...]]]) -> tuple[bytes, list[int], int]:
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
    """The newest state, as arrays of unsigned integers; read it in your turn() only."""

    def __init__(self, folder: Path, file: str, schema: list[list[Any]]) -> None:
        self.schema = [(name, dtype, tuple(shape)) for name, dtype, shape in schema]
        _, starts, length = state_layout(self.schema)
        self._bytes = np.memmap(_inside(folder, file), np.uint8, "r+", shape=(length,))
        self._starts = {entry[0]: start for entry, start in zip(self.schema, starts, strict=True)}
        self._entries = {entry[0]: entry for entry in self.schema}

    def bits(self, name: str) -> np.ndarray:
        """A tensor's elements, flattened."""
        _, dtype, shape = self._entries[name]
        width = element_width(dtype)
        start = self._starts[name]
        size = int(np.prod(shape, dtype=np.int64)) * width
        return self._bytes[start : start + size].view(UNSIGNED[width])


@dataclass
class Move:
    """From one state to the next: what readers are told of it."""

    before: int  #: serial numbers of the states
    after: int
    step: int
    seq: int
    state: str
    file: str
    tensors: list[tuple[str, int]]  #: (name, how many elements changed), in the file's order
    times: dict[str, float] = field(default_factory=dict)


def write_move(folder: Path, file: str, entries: list[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Entries as a follower tells them; gives what Move.tensors is to be."""
    told: list[tuple[str, int]] = []
    with open(folder / f".{file}", "wb") as out:
        for name, _, _, positions, bits, _ in entries:
            out.write(positions)
            out.write(bits)
            out.write(b"\0" * (-len(bits) % 8))
            told.append((name, len(positions) // 8))
    os.rename(folder / f".{file}", folder / file)
    return told


def read_move(
    folder: Path, move: Move, widths: dict[str, int]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, positions, bits as unsigned integers). FileNotFoundError: it was let go."""
    path = _inside(folder, move.file)
    length = path.stat().st_size
    if length == 0:
        return
    data = np.memmap(path, np.uint8, "r+", shape=(length,))
    at = 0
    for name, count in move.tensors:
        width = widths[name]
        middle = at + 8 * count
        end = middle + width * count
        if end > length:
            raise Invalid(f"{path} is shorter than it was said to be")
        yield name, data[at:middle].view(np.int64), data[middle:end].view(UNSIGNED[width])
        at = end + -end % 8


def _inside(folder: Path, file: str) -> Path:
    if "/" in file or file.startswith("."):
        raise Invalid(f"not a file of a feed: {file!r}")
    return folder / file
