"""`make demo` in short: the policy learns, nobody holds what was not committed, all converge."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import PROGRAMS, WISP_BIN

pytest.importorskip("torch")

MINUTES = 6  # a limit for slow machines; the steps come first


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    # Few updates leave much to learn, and a high rate learns it in few steps.
    done = subprocess.run(
        [
            sys.executable,
            PROGRAMS / "demo.py",
            folder,
            "--updates",
            "150",
            "--steps",
            "150",
            "--learning-rate",
            "3e-5",
            "--minutes",
            str(MINUTES),
            "--port",
            "0",
            "--wisp",
            WISP_BIN,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, json.loads((folder / "result.json").read_text()), done.stdout


def mean(values):
    return sum(values) / len(values)


def test_the_reward_rises(demo):
    rewards = [step["reward"] for step in demo[1]["steps"]]
    third = len(rewards) // 3
    assert mean(rewards[-third:]) > mean(rewards[:third]) + 0.02, rewards


def test_every_state_that_was_held_was_committed(demo):
    _, result, _ = demo
    assert result["wrong"] == []
    for server in result["servers"]:
        assert server["proven"] and server["held"] > 3
        assert (server["step"], server["state"]) == tuple(result["head"].values())


def test_the_late_one_and_the_killed_one_converged(demo):
    _, result, _ = demo
    a, b, c = result["servers"]
    assert a["story"] == "" and len(a["joined"]) == 1
    assert b["story"].startswith("killed") and "back" in b["story"] and len(b["joined"]) == 2
    assert c["story"].startswith("joined late") and c["joined"][0] > result["head"]["step"] // 3
    assert all(server["games"] > 0 for server in (a, b))


def test_the_age_of_every_sample_is_known(demo):
    steps = demo[1]["steps"]
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1))
    assert all(0 <= step["staleness"] <= step["staleness_max"] <= 64 for step in steps)


def test_deltas_are_small_and_what_is_left_can_be_looked_at(demo):
    folder, result, said = demo
    deltas = [line["delta_bytes"] for line in result["commits"] if line["delta_bytes"]]
    assert mean(deltas) < result["full_bytes"] / 5
    assert all(server["pauses"] for server in result["servers"])
    assert (folder / "report.svg").read_text().startswith("<svg")
    assert "<html" in (folder / "report.html").read_text()
    for row in ("steps", "reward", "full weights", "deltas", "ratio", "pause", "lag", "staleness"):
        assert f"\n  {row} " in said
    assert result["dashboard"] in said
