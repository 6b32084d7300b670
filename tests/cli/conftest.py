"""What every test here stands on: the binary, and a small pair of checkpoints."""

import pytest

import checkpoints
import run_wisp


def pytest_sessionstart(session):
    if not run_wisp.BINARY.is_file():
        pytest.exit(f"no wisp at {run_wisp.BINARY}; build it, or set WISP_BIN", returncode=2)


@pytest.fixture
def pair(tmp_path):
    """Two small checkpoints of several tensors, one step apart."""
    return checkpoints.write_pair(tmp_path)


@pytest.fixture
def chain(tmp_path):
    """Four checkpoints, a step apart each, and the three compact deltas between them."""
    return checkpoints.write_chain(tmp_path, steps=4)
