"""Runs of LoRA adapters: each step is a small folder with a name and a version, for vLLM's slots.

`wisp.Publisher(run, peft_model, side_files=["adapter_config.json"])` or `wisp.hf.PublishCallback`
publishes the adapter as peft would save it. Here it becomes the folder that servers load.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidError, UnavailableError
from .lineage import commit_of
from .runs import export
from .stores import RunAddress

__all__ = ["Adapter", "export_adapter", "load_adapter"]

_NAME = re.compile(r"[\w.][\w.-]*")
_WEIGHTS = "adapter_model.safetensors"
_FILES = [_WEIGHTS, "adapter_config.json"]  # what a version is
_COMMIT = ".wisp-commit"  # in its folder: which commit of a run it was made from


@dataclass(frozen=True)
class Adapter:
    """One version of an adapter, in a folder of its own."""

    name: str
    step: int
    folder: str


def export_adapter(
    run: RunAddress,
    name: str,
    into: str | os.PathLike[str],
    *,
    step: int | None = None,
    keep: int = 2,
    **trusted: Any,
) -> Adapter:
    """Writes `into/name-STEP` as peft and vLLM load it; the newest step if None.

    A step that a run which was set back has published anew gets a folder of its own, with more to
    its name: engines keep what they computed with an adapter by its path. A folder that is there
    already is not fetched again. Of this name `keep` folders stay, those that were asked for last.
    `trusted` are `trust`, `min_serial` and `run_id` of wisp.export.
    """
    if not _NAME.fullmatch(name) or keep < 1:
        raise InvalidError(f"'{name}' is no name for an adapter, or keep={keep} is less than 1")
    commit = commit_of(run, step, **trusted)
    if commit is None and step is None:
        raise InvalidError("the run is empty; publish an adapter first")
    root = Path(into)
    root.mkdir(parents=True, exist_ok=True)
    if commit is not None:
        step = int(commit.step)
        for there in _versions(root, name, step):
            if _commit_in(there) == commit.hash:
                return _taken(there, name, step, keep)
    assert step is not None
    folder = _make(run, name, root, step, **trusted)
    if commit is not None:
        (folder / _COMMIT).write_text(commit.hash, encoding="utf-8")
    return _taken(folder, name, step, keep)


def _make(run: RunAddress, name: str, root: Path, step: int, **trusted: Any) -> Path:
    """The folder of the step as it is in the run, under a name that no other content has."""
    folder = root / f"{name}-{step}"
    half = root / f".{name}-{step}.{os.getpid()}"
    try:
        export(run, half, step=step, **trusted)
        if not (half / "adapter_config.json").exists():
            raise InvalidError(
                "the run has no adapter_config.json, so that it is no adapter; publish a model of "
                "peft with wisp.hf.PublishCallback, or with that file among side_files"
            )
        (half / "model.safetensors").rename(half / _WEIGHTS)
        if folder.exists() and filecmp.cmpfiles(half, folder, _FILES, shallow=False)[0] != _FILES:
            digest = hashlib.sha256(b"".join((half / file).read_bytes() for file in _FILES))
            folder = root / f"{name}-{step}.{digest.hexdigest()[:8]}"
        if not folder.exists():
            half.rename(folder)
        return folder
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _taken(folder: Path, name: str, step: int, keep: int) -> Adapter:
    asked = {
        other: other.stat().st_mtime_ns
        for other in _versions(folder.parent, name)
        if other != folder
    }
    # The kernel's own stamp stands still for milliseconds, and two that are asked for in one tick
    # would be equally old.
    now = max([time.time_ns(), *(stamp + 1 for stamp in asked.values())])
    os.utime(folder, ns=(now, now))
    for other in sorted(asked, key=asked.__getitem__, reverse=True)[keep - 1 :]:
        shutil.rmtree(other, ignore_errors=True)
    return Adapter(name, step, str(folder))


def _commit_in(folder: Path) -> str:
    try:
        return (folder / _COMMIT).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _versions(root: Path, name: str, step: int | None = None) -> list[Path]:
    number = r"\d+" if step is None else str(step)
    pattern = re.compile(re.escape(name) + rf"-{number}(\.[0-9a-f]{{8}})?")
    return [folder for folder in root.iterdir() if pattern.fullmatch(folder.name)]


def load_adapter(
    run: RunAddress,
    name: str,
    into: str | os.PathLike[str],
    server: str,
    *,
    timeout: float = 60.0,
    **options: Any,
) -> Adapter:
    """Brings the adapter `name` of a vLLM server to a step of the run; the newest by default.

    The server (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora) reads the folder, so it must see
    `into` under the same path. `options` are those of export_adapter().
    """
    adapter = export_adapter(run, name, into, **options)
    body = {"lora_name": name, "lora_path": adapter.folder, "load_inplace": True}
    request = urllib.request.Request(
        f"{server.rstrip('/')}/v1/load_lora_adapter",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout):
            return adapter
    except urllib.error.HTTPError as error:
        told = error.read(2000).decode(errors="replace")
        cure = (
            "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            if error.code == 404
            else "see its log"
        )
        raise InvalidError(
            f"{server} does not load '{name}' ({error.code}: {told}); {cure}"
        ) from None
    except OSError as error:
        raise UnavailableError(f"{server} does not answer: {error}") from None
