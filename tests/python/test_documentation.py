"""Every Python block of doc/python.md runs, one after the other, in an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import TREE, WISP_BIN

BLOCK = re.compile(r"^```python *(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["doc/python.md", "README.md"])
def test_every_block_runs(page, tmp_path):
    blocks = BLOCK.findall((TREE / page).read_text(encoding="utf-8"))
    # A block that names a package needs it.
    code = [b for need, b in blocks if not need or importlib.util.find_spec(need)]
    if not code:
        pytest.skip("no block to run")
    commands = tmp_path / "bin"
    commands.mkdir()
    shutil.copy(TREE / WISP_BIN, commands / "wisp")
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}
    folder = tmp_path / "work"
    folder.mkdir()
    script = folder / "blocks.py"
    script.write_text("\n".join(code), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=300, check=False,
    )
    assert ran.returncode == 0, ran.stderr
