"""What feeds leave in their folders, by ending or by being killed, and how it is removed."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
import time
from pathlib import Path

__all__ = ["clear", "make_scratch", "remove_all", "sweep"]

_ABANDONED = 600.0  # seconds since the last write of a feed that was killed
_OF_STEPS = ("move-*", ".move-*", "gather-*", "kept-*", "feed.sock")
_STATES = ("state-*", "left-*")
_SCRATCH = "scratch"  # a link to a folder on disk


def make_scratch(folder: Path) -> Path:
    """A folder on disk for all that is temporary; it goes when the rest does."""
    made = tempfile.mkdtemp(prefix="wisp-feed-")
    (folder / _SCRATCH).symlink_to(made)
    return Path(made)


def clear(folder: Path) -> None:
    """What a feed that was killed left: its state may serve as a base, the rest is of no use."""
    _remove(folder, "left-*", *_OF_STEPS)
    for index, path in enumerate(sorted(folder.glob("state-*.safetensors"), reverse=True)):
        if index == 0:
            path.rename(folder / path.name.replace("state-", "left-"))
        else:
            path.unlink()


def remove_all(folder: Path) -> None:
    """Of a feed that ends; the folder itself and its lock stay for the next one."""
    _remove(folder, *_OF_STEPS, *_STATES)


def sweep(home: Path) -> None:
    """Frees the memory of feeds that were killed and that nobody has started again."""
    for lock in home.glob("*/feed.lock"):
        if time.time() - (lock.parent / "turn").stat().st_mtime < _ABANDONED:
            continue
        with contextlib.suppress(OSError), open(lock, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_all(lock.parent)


def _remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
    scratch = folder / _SCRATCH
    if scratch.is_symlink():
        shutil.rmtree(scratch.readlink(), ignore_errors=True)
        scratch.unlink()
