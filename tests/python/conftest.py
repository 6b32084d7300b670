"""The package `wisp` from the tree, with the module that the build made (PYTHONPATH)."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wisp

WISP_BIN = os.environ.get("WISP_BIN", "build/release/bin/wisp")
TREE = Path(__file__).resolve().parents[2]


def import_or_skip(name: str) -> Any:
    """A package that an environment may lack; not the one that was made for it (WISP_REQUIRE)."""
    if name.partition(".")[0] in os.environ.get("WISP_REQUIRE", "").split(","):
        return importlib.import_module(name)
    return pytest.importorskip(name, exc_type=ImportError)


def bits(array: np.ndarray) -> np.ndarray:
    """An array as integers, so that NaNs compare."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """The address of a fresh run in a folder."""
    url = str(tmp_path / "bucket" / "run")
    wisp.init(url)
    return url


class CliPublisher:
    """Publishes dicts of arrays by the command line, so that followers meet another program."""

    def __init__(self, run: str, folder: Path) -> None:
        self.run = run
        self.folder = folder

    def __call__(self, arrays: dict[str, np.ndarray], step: int, *options: str) -> None:
        from safetensors.numpy import save_file

        checkpoint = self.folder / "to_publish.safetensors"
        save_file(arrays, checkpoint)
        command = [TREE / WISP_BIN, "publish", self.run, checkpoint, "--step", str(step)]
        command += ["--baseline", self.folder / "baseline", *options]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)


@pytest.fixture
def publish(bucket: str, tmp_path: Path) -> CliPublisher:
    """publish(arrays, step) into the run `bucket`."""
    return CliPublisher(bucket, tmp_path)


@pytest.fixture
def sglang_folder(tmp_path: Path) -> Path:
    """The checkpoint that a server of SGLang is started with: the model of sglang_model.py."""
    from safetensors.torch import save_file
    from sglang_model import checkpoint_tensors

    folder = tmp_path / "model"
    folder.mkdir()
    save_file(checkpoint_tensors(), folder / "model.safetensors")
    return folder
