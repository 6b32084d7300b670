"""The page in the tree is the one that its sources make."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "dashboard"
NODE = ROOT / "build/node-venv/bin/node"


def stamp_is_right(folder):
    done = subprocess.run([sys.executable, ROOT / "tools/dashboard_stamp.py", folder],
                          capture_output=True, text=True)
    assert done.returncode == 0 or "make dashboard" in done.stderr
    return done.returncode == 0


def test_its_stamp_is_that_of_the_sources(tmp_path):
    assert stamp_is_right(FOLDER)
    copy = tmp_path / "dashboard"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("node_modules"))
    with (copy / "src/main.tsx").open("a") as file:
        file.write("\n")
    assert not stamp_is_right(copy)


# Of npm's packages; `make test` says aloud that it was left out.
@pytest.mark.skipif(not NODE.exists(), reason="npm's packages are not installed (make test-all)")
def test_building_it_again_gives_the_same(tmp_path):
    def node(*arguments):
        return subprocess.run([NODE, *arguments], cwd=FOLDER, check=True, capture_output=True)

    node("node_modules/typescript/bin/tsc", "--noEmit")
    node("build.mjs", tmp_path / "index.html")
    assert (tmp_path / "index.html").read_bytes() == (FOLDER / "dist/index.html").read_bytes()
