"""Functions for slime and miles, whose trainers and engines exchange folders `weight_v000012`:

    --update-weight-mode full --update-weight-transport disk
    --update-weight-disk-dir DIR --update-weight-local-checkpoint-dir LOCAL
    --custom-update-weight-post-write-path      wisp.slime.publish_written
    --sglang-custom-pull-weights-pre-read-hook  wisp.slime.pull_before_read

The first publishes what the trainer has written, the second brings the folder that a rollout engine
is about to read. WISP_RUN is the run, WISP_WAIT how many seconds an engine waits for its version
(600), WISP_KEEP how many folders stay on a rollout host (3). Deltas of the trainer's own, which
miles always hands over (`--update-weight-transfer-mode disk-delta`), are put together to the
checkpoint that they stand for, and that is published; engines get whole folders.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import GapError, InvalidError, NotFoundError, UnavailableError
from .folders import FolderPublisher, reading
from .follow.follower import Follower
from .lineage import commit_of
from .runs import export
from .trainer_deltas import WholeCheckpoint, default_folder, is_delta

__all__ = ["publish_written", "pull_before_read"]

_VERSION = re.compile(r"weight_v(\d+)")
_PATTERN = "weight_v{step:06}"
_EXPORTED = ".wisp-exported"  # in a folder that no follower made: the state that it holds
_AGAIN = 0.2  # seconds between two looks
_lock = threading.Lock()
_publishers: dict[str, FolderPublisher] = {}


def publish_written(args: Any, version_dir: str, rollout_engines: Any = None) -> None:
    """After the trainer wrote a folder: publishes it as the step that its name ends in.

    It is called on every rank, when all of them have written and before any goes on; the first one
    publishes. miles also calls it for the empty folder of all versions, before the first.
    """
    if not _is_first_rank():
        return
    folder, run = pathlib.Path(version_dir), _run()
    whole = WholeCheckpoint(default_folder(run))
    if str(folder) == str(getattr(args, "update_weight_disk_dir", "")).rstrip("/"):
        whole.forget()  # another training begins
        return
    named = _VERSION.fullmatch(folder.name)
    if named is None:
        raise InvalidError(f"{folder} is no folder of a version, as weight_v000012 is")
    if is_delta(folder):
        whole.bring_to(folder, int(named[1]), pathlib.Path(getattr(args, "hf_checkpoint", "")))
        folder = whole.folder
    elif not any(folder.glob("*.safetensors")):
        raise NotFoundError(f"{folder} holds no safetensors")
    with _lock:
        publisher = _publishers.get(run)
        if publisher is None:
            publisher = _publishers[run] = FolderPublisher(run)
        publisher.publish(folder, int(named[1]))


def pull_before_read(source_dir: str, target_version: int) -> None:
    """Before an engine reads a version: puts its folder into `source_dir`.

    Every process of an engine calls it: of those on one host one fetches, the others find it there.
    NotFoundError: the run is past that version, and does not have it any more.
    """
    root, step = pathlib.Path(source_dir), int(target_version)
    folder = root / _PATTERN.format(step=step)
    if folder.is_dir() and not (root / ".wisp").exists():
        return  # the trainer's own, on a file system that this host shares with it
    run, patience = _run(), float(os.environ.get("WISP_WAIT", "600"))
    deadline = time.monotonic() + patience
    root.mkdir(parents=True, exist_ok=True)
    keep = int(os.environ.get("WISP_KEEP", "3"))
    with _alone_in(root, deadline):
        _drop_exported(root, run, keep)
        held = _state_in(folder)
        # One that is there may be of a training before this one.
        if held is None or held != _state_of(run, step):
            _fetch(run, step, folder, keep, deadline, patience)


def _fetch(
    run: str, step: int, folder: pathlib.Path, keep: int, deadline: float, patience: float
) -> None:
    with Follower(run, str(folder.parent / _PATTERN), keep=keep) as follower:
        while (at := follower.sync().step) != step:
            if at is not None and at > step:
                _export(run, step, folder, at)
                return
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"version {step} is not in {run} after {patience:g} s (WISP_WAIT); it is at "
                    f"{'no step' if at is None else f'step {at}'}"
                )
            time.sleep(_AGAIN)


def _state_of(run: str, step: int) -> str | None:
    """What the run holds as this step now; None: nothing, or not yet."""
    commit = commit_of(run, step)
    return None if commit is None else commit.state


def _state_in(folder: pathlib.Path) -> str | None:
    """What a folder holds that was made here; None: it is none of ours."""
    exported = folder / _EXPORTED
    if exported.exists():
        return exported.read_text(encoding="utf-8")
    try:
        with reading(folder) as found:
            return found.state
    except (InvalidError, NotFoundError):
        return None


def _export(run: str, step: int, folder: pathlib.Path, at: int) -> None:
    """A version that the run is past, and of which no folder is here: it is put together anew."""
    half = folder.with_name(f".{folder.name}")
    shutil.rmtree(half, ignore_errors=True)
    try:
        state = export(run, half, step=step).state
    except (GapError, NotFoundError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise NotFoundError(
            f"{run} is at step {at}, and version {step} cannot be had any more: {error}"
        ) from error
    (half / _EXPORTED).write_text(state, encoding="utf-8")
    if _state_in(folder) is not None:  # of a training before this one
        shutil.rmtree(folder)
    half.rename(folder)


def _drop_exported(root: pathlib.Path, run: str, keep: int) -> None:
    """Followers leave alone what they did not make, and stop where it is in their way."""
    exported = sorted(root.glob(f"weight_v*/{_EXPORTED}"), key=lambda file: file.stat().st_mtime_ns)
    newest = commit_of(run, None) if exported else None
    for index, file in enumerate(exported):
        step = int(_VERSION.fullmatch(file.parent.name)[1])  # type: ignore[index]
        is_past = newest is not None and newest.step > step
        given_up = not is_past or _state_of(run, step) != file.read_text(encoding="utf-8")
        if given_up or index < len(exported) - keep:
            shutil.rmtree(file.parent, ignore_errors=True)


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
