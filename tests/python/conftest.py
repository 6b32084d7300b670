"""The package `wisp` from the tree, with the module that the build made (PYTHONPATH)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import wisp

TREE = Path(__file__).resolve().parents[2]


def bits(array: np.ndarray) -> np.ndarray:
    """An array as integers, so that NaNs compare."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    """The address of a fresh run in a folder."""
    if not hasattr(wisp, "init"):
        pytest.skip("this build of wisp has no runs")
    url = str(tmp_path / "bucket" / "run")
    wisp.init(url)
    return url
