"""Functions for slime and miles, which exchange weights through folders `weight_v000012`:

    --custom-update-weight-post-write-path wisp.slime.publish_written
    --custom-pull-weights-pre-read-hook    wisp.slime.pull_before_read

The first publishes what the trainer has written, the second brings the folder that a rollout engine
is about to read. WISP_RUN is the run, WISP_WAIT how many seconds an engine waits for its version
(600), WISP_KEEP how many folders stay on a rollout host (3). Neither framework says in a stable way
what it hands to its hooks: the folder is the one argument that names a checkpoint folder with a
number at its end. Deltas of slime's own must be off: these folders have to be whole checkpoints.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import threading
import time
from typing import Any

from . import runs
from .errors import InvalidError, NotFoundError, UnavailableError
from .folders import FolderPublisher
from .follower import Follower

__all__ = ["publish_written", "pull_before_read"]

_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<digits>\d+)$")
_lock = threading.Lock()
_publishers: dict[str, FolderPublisher] = {}
_followers: dict[tuple[str, str], Follower] = {}


def publish_written(*arguments: Any, **named: Any) -> None:
    """After the trainer wrote a folder: publishes it as the step that its name ends in."""
    folder = _folder_among(arguments, named, there=True)
    _refuse_deltas(folder)
    run = _run()
    with _lock:
        publisher = _publishers.get(run)
        if publisher is None:
            publisher = _publishers[run] = FolderPublisher(run)
        publisher.publish(folder, _step_of(folder))


def pull_before_read(*arguments: Any, **named: Any) -> None:
    """Before an engine reads a folder: puts the step that its name ends in there, if it is not."""
    folder = _folder_among(arguments, named, there=False)
    with _lock:
        _bring(folder)


def _bring(folder: pathlib.Path) -> None:
    run, step = _run(), _step_of(folder)
    match = _NUMBERED.fullmatch(folder.name)
    assert match is not None
    digits = match["digits"]
    form = f"{{step:0{len(digits)}}}" if digits.startswith("0") else "{step}"
    pattern = str(folder.parent / (match["prefix"] + form))
    follower = _followers.get((run, pattern))
    if follower is None:
        keep = int(os.environ.get("WISP_KEEP", "3"))
        follower = _followers[run, pattern] = Follower(run, pattern, keep=keep)
    deadline = time.monotonic() + float(os.environ.get("WISP_WAIT", "600"))
    while not folder.is_dir():
        report = follower.sync()
        if folder.is_dir():
            return
        if report.step is not None and report.step > step:
            # The run has moved on: an older version has to be put together.
            runs.export(run, folder, step=step)
            return
        if time.monotonic() > deadline:
            raise UnavailableError(f"step {step} of {run} was not published within WISP_WAIT")
        time.sleep(0.2)


def _run() -> str:
    run = os.environ.get("WISP_RUN")
    if not run:
        raise InvalidError("set WISP_RUN to the address of the run, in every process of the job")
    return run


def _step_of(folder: pathlib.Path) -> int:
    match = _NUMBERED.fullmatch(folder.name)
    assert match is not None
    return int(match["digits"])


def _folder_among(
    arguments: tuple[Any, ...], named: dict[str, Any], *, there: bool
) -> pathlib.Path:
    found = []
    for value in (*arguments, *named.values()):
        if not isinstance(value, (str, os.PathLike)):
            continue
        path = pathlib.Path(value)
        if _NUMBERED.fullmatch(path.name) and (path.is_dir() or not there) and path not in found:
            found.append(path)
    if len(found) == 1:
        return found[0]
    what = "none" if not found else ", ".join(map(str, found))
    raise InvalidError(
        "one argument of this hook must be the folder of a version, as in weight_v000012; among "
        f"{len(arguments) + len(named)} there is {what}"
    )


def _refuse_deltas(folder: pathlib.Path) -> None:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        if any(folder.glob("*.safetensors")):
            return
        raise NotFoundError(f"{folder} holds no safetensors")
    metadata = json.loads(index.read_text(encoding="utf-8")).get("metadata", {})
    if "delta_encoding" in metadata:
        raise InvalidError(
            f"{folder} is a delta of slime's own ({metadata['delta_encoding']}); switch those off: "
            "wisp makes its own from whole checkpoints"
        )
