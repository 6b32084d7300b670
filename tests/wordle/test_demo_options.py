"""What the demo says to wrong input: one line that names it, before anything is started."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import PROGRAMS, WISP_BIN


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--model", "/"], "/ is no checkpoint of Hugging Face's layout"),
        (["--servers", "0"], "--servers is a number from 1 to 15"),
        (["--minutes", "0"], "--minutes, --steps and --updates are above zero"),
        (["--minutes", "nan"], "--minutes, --steps and --updates are above zero"),
        (["--bucket", "s3://"], "--bucket s3:// names no bucket"),
        (["--engine", "other"], "invalid choice: 'other'"),
        (["--wisp", "/nowhere/wisp"], "there is no command /nowhere/wisp"),
    ],
)
def test_it_is_named(tmp_path, wrong, said):
    done = subprocess.run(
        [sys.executable, PROGRAMS / "demo.py", tmp_path / "demo", "--wisp", WISP_BIN, *wrong],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "demo").exists()
