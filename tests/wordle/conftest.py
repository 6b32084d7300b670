"""The programs of examples/wordle, as a user starts them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
PROGRAMS = TREE / "examples" / "wordle"
sys.path.insert(0, str(PROGRAMS))
WISP_BIN = TREE / os.environ.get("WISP_BIN", "build/release/bin/wisp")


@pytest.fixture
def start(tmp_path):
    """start(name, *arguments): one of the programs; it is gone when the test is."""
    from processes import Process, program

    processes = []

    def begin(name: str, *arguments: object) -> Process:
        command = [*program(name), *map(str, arguments)]
        processes.append(Process(name, command, tmp_path / f"{name}.log"))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()


@pytest.fixture
def environment(start):
    """The address of an environment server."""
    return start("environment.py", "--port", 0, "--seed", 1).wait_for("address", 60)["address"]
