"""pip builds a wheel that holds the module, its types and the command."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import pytest
from conftest import TREE

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_module_types_and_command(tmp_path):
    pytest.importorskip("scikit_build_core")
    pytest.importorskip("nanobind")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", TREE, "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path,
        env={**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"})
    wheel = next(tmp_path.glob("wisp_sync-*.whl"))
    names = zipfile.ZipFile(wheel).namelist()
    assert "wisp/py.typed" in names and "wisp/_native.pyi" in names
    assert not [n for n in names if n.startswith(("tests", "src")) or n.endswith(".a")]
    place = tmp_path / "installed"
    run(*pip, "install", "--no-deps", "--target", place, wheel)
    outside = {**os.environ, "PYTHONPATH": str(place)}
    code = "import numpy as np, wisp; print(wisp.__file__, wisp.digest({'w': np.ones(3)}))"
    assert str(place) in run(sys.executable, "-c", code, env=outside, cwd=tmp_path)
    assert "diff" in run(place / "bin" / "wisp", "--help")
