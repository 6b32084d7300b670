"""Which engine a process belongs to, and where its ranks say what they follow."""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing
import os
import uuid
from pathlib import Path
from typing import Any

from ..engine.feed.feed_files import feed_home

__all__ = ["assign_engine_id", "engine_id", "forget_engine", "note_engine", "read_note"]

_VARIABLE = "WISP_ENGINE_ID"
_held: list[int] = []  # the note of this process, locked: so others see that it is in use


def assign_engine_id() -> None:
    """Gives an engine its name, in the first of its processes; the others inherit it."""
    owner = os.environ.get(_VARIABLE, "").partition("-")[0]
    if multiprocessing.parent_process() is None and owner != str(os.getpid()):
        os.environ[_VARIABLE] = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"


def engine_id() -> str:
    """The same in all processes of an engine on a host."""
    return os.environ.get(_VARIABLE, f"{os.getpid()}-alone")


def _note() -> Path:
    return feed_home() / f"engine-{engine_id()}.json"


def note_engine(init_info: dict[str, Any]) -> None:
    """Written by a rank, for the API server of its engine."""
    path = _note()
    _sweep(path.parent)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(init_info))
    descriptor = os.open(fresh, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    fresh.rename(path)
    _let_go()
    _held.append(descriptor)


def read_note() -> dict[str, Any] | None:
    """What note_engine wrote; None: nothing is followed yet."""
    try:
        told = json.loads(_note().read_text())
    except (FileNotFoundError, ValueError):
        return None
    return told if isinstance(told, dict) else None


def _sweep(home: Path) -> None:
    """What engines that were killed have left. Those of other containers have numbers that this one
    does not know, and hold their locks."""
    for path in [*home.glob("engine-*.json"), *home.glob("self-*")]:
        owner = path.name.split("-")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            with contextlib.suppress(OSError), open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def forget_engine() -> None:
    """Nothing is followed any more."""
    _let_go()
    with contextlib.suppress(FileNotFoundError):
        _note().unlink()


def _let_go() -> None:
    while _held:
        os.close(_held.pop())
