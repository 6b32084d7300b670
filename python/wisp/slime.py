"""Functions for slime, whose trainer and engines exchange folders `weight_v000012`:

    --update-weight-mode full --update-weight-transport disk
    --update-weight-disk-dir DIR --update-weight-local-checkpoint-dir LOCAL
    --custom-update-weight-post-write-path      wisp.slime.publish_written
    --sglang-custom-pull-weights-pre-read-hook  wisp.slime.pull_before_read

The first publishes what the trainer has written, the second brings the folder that a rollout engine
is about to read. WISP_RUN is the run, WISP_WAIT how many seconds an engine waits for its version
(600), WISP_KEEP how many folders stay on a rollout host (3). Deltas of slime's own, and those of
miles, which calls the hooks for nothing else, are refused: wisp makes its own from whole
checkpoints.
"""

from __future__ import annotations

import fcntl
import json
import os
import pathlib
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import InvalidError, NotFoundError, UnavailableError
from .folders import FolderPublisher
from .follow.follower import Follower

__all__ = ["publish_written", "pull_before_read"]

_VERSION = re.compile(r"weight_v(\d+)")
_PATTERN = "weight_v{step:06}"
_AGAIN = 0.2  # seconds between two looks
_lock = threading.Lock()
_publishers: dict[str, FolderPublisher] = {}


def publish_written(args: Any, version_dir: str, rollout_engines: Any = None) -> None:
    """After the trainer wrote a folder: publishes it as the step that its name ends in.

    slime calls it on every rank, when all of them have written and before any goes on; the first
    one publishes.
    """
    if not _is_first_rank():
        return
    folder = pathlib.Path(version_dir)
    named = _VERSION.fullmatch(folder.name)
    if named is None:
        raise InvalidError(f"{folder} is no folder of a version, as weight_v000012 is")
    _refuse_deltas(folder)
    run = _run()
    with _lock:
        publisher = _publishers.get(run)
        if publisher is None:
            publisher = _publishers[run] = FolderPublisher(run)
        publisher.publish(folder, int(named[1]))


def pull_before_read(source_dir: str, target_version: int) -> None:
    """Before an engine reads a version: puts its folder into `source_dir`.

    Every process of an engine calls it: of those on one host one fetches, the others find it there.
    """
    root, step = pathlib.Path(source_dir), int(target_version)
    if (root / _PATTERN.format(step=step)).is_dir() and not (root / ".wisp").exists():
        return  # the trainer's own, on a file system that this host shares with it
    run, patience = _run(), float(os.environ.get("WISP_WAIT", "600"))
    deadline = time.monotonic() + patience
    root.mkdir(parents=True, exist_ok=True)
    keep = int(os.environ.get("WISP_KEEP", "3"))
    with _alone_in(root, deadline), Follower(run, str(root / _PATTERN), keep=keep) as follower:
        # Also if the folder is there: it may be of a training before this one.
        while (at := follower.sync().step) != step:
            if at is not None and at > step:
                raise NotFoundError(f"{run} is at step {at}, and version {step} is not here")
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"version {step} is not in {run} after {patience:g} s (WISP_WAIT); it is at "
                    f"{'no step' if at is None else f'step {at}'}"
                )
            time.sleep(_AGAIN)


def _is_first_rank() -> bool:
    torch = sys.modules.get("torch")  # where ranks are, it was imported
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return True


@contextmanager
def _alone_in(root: pathlib.Path, deadline: float) -> Iterator[None]:
    """One process of this host at a time: a place has one follower."""
    with (root / ".wisp-pull").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UnavailableError(f"another process still pulls into {root}") from None
                time.sleep(_AGAIN)
        yield


def _run() -> str:
    run = os.environ.get("WISP_RUN")
    if not run:
        raise InvalidError("set WISP_RUN to the address of the run, in every process of the job")
    return run


def _refuse_deltas(folder: pathlib.Path) -> None:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        if any(folder.glob("*.safetensors")):
            return
        raise NotFoundError(f"{folder} holds no safetensors")
    metadata = json.loads(index.read_text(encoding="utf-8")).get("metadata", {})
    if "delta_encoding" in metadata:
        raise InvalidError(
            f"{folder} is a delta of the trainer's own ({metadata['delta_encoding']}); set "
            "--update-weight-mode full: wisp makes its own from whole checkpoints"
        )
