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
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InvalidError, UnavailableError
from .runs import export, status
from .stores import RunAddress

__all__ = ["Adapter", "export_adapter", "load_adapter"]

_NAME = re.compile(r"[\w.][\w.-]*")
_WEIGHTS = "adapter_model.safetensors"


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
    its name: engines keep what they computed with an adapter by its path. Of this name the newest
    `keep` folders stay. `trusted` are `trust`, `min_serial` and `run_id` of wisp.export.
    """
    if not _NAME.fullmatch(name) or keep < 1:
        raise InvalidError(f"'{name}' is no name for an adapter, or keep={keep} is less than 1")
    if step is None:
        head = status(run, **trusted).head
        if head is None:
            raise InvalidError("the run is empty; publish an adapter first")
        step = int(head.step)
    root = Path(into)
    folder = root / f"{name}-{step}"
    root.mkdir(parents=True, exist_ok=True)
    half = root / f".{name}-{step}.{os.getpid()}"
    try:
        export(run, half, step=step, **trusted)
        if not (half / "adapter_config.json").exists():
            raise InvalidError(
                "the run has no adapter_config.json, so that it is no adapter; publish a model of "
                "peft with wisp.hf.PublishCallback, or with that file among side_files"
            )
        weights = (half / "model.safetensors").rename(half / _WEIGHTS)
        if folder.exists() and not filecmp.cmp(weights, folder / _WEIGHTS, shallow=False):
            digest = hashlib.sha256(weights.read_bytes()).hexdigest()
            folder = root / f"{name}-{step}.{digest[:8]}"
        if not folder.exists():
            half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    _forget_older(root, name, keep)
    return Adapter(name, step, str(folder))


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


def _forget_older(root: Path, name: str, keep: int) -> None:
    pattern = re.compile(re.escape(name) + r"-\d+(\.[0-9a-f]{8})?")
    versions = {}
    for folder in root.iterdir():
        if pattern.fullmatch(folder.name):
            versions[folder] = folder.stat().st_mtime_ns
    for folder in sorted(versions, key=lambda f: versions[f])[:-keep]:
        shutil.rmtree(folder, ignore_errors=True)
