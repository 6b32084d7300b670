"""What doc/cli.md and README.md show at a prompt, typed: every command ends well, and prints what the page says."""

import os
import re
import subprocess

import pytest

from run_wisp import BINARY, PATIENCE, ROOT, environment

BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What differs from one machine, or one run, to the next.
PASSING = [
    (r"\brun [0-9a-f]{32}\b", "run ID"),
    (r"\b[\d.]+ (ms|s|min)\b", "TIME"),
    (r"\bby \S+:\d+", "by WRITER"),
    (r"^(replica +)\S+:", r"\1NAME:"),
]


def transcripts_of(page):
    """Of each block at a prompt its commands, each with what it is said to print; nothing said is nothing asked."""
    for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
        if "$ wisp " not in block:
            continue
        commands = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif line:
                commands[-1][1].append(line)
        yield commands


def lasting(text):
    for pattern, name in PASSING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return [line.rstrip() for line in text.splitlines() if line]


@pytest.fixture
def clone(tmp_path):
    """A clone in which `make build` has been done."""
    (tmp_path / "bench").symlink_to(ROOT / "bench")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "wisp").symlink_to(BINARY)
    return tmp_path


def type_in(folder, commands):
    path = os.pathsep.join([str(folder / "build"), os.environ["PATH"]])
    env = environment({"PATH": path, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "LC_ALL": "C.UTF-8"})
    for command, printed in commands:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        if printed:
            assert lasting(done.stdout) == lasting("\n".join(printed)), command


def test_the_command_line_page_shows_what_is_printed(clone):
    run, *by_hand = transcripts_of("doc/cli.md")
    assert len(by_hand) == 4 and len(run) == 7
    # The run uses what the section after it makes.
    for commands in (by_hand[0], run, *by_hand[1:]):
        type_in(clone, commands)


def test_the_readme_shows_what_is_printed(clone):
    (run,) = transcripts_of("README.md")
    assert len(run) == 7
    type_in(clone, run)


def test_what_the_readme_has_made_can_be_made():
    goals = re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(goals) == 4
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [goal for goal in goals if not re.search(rf"^{goal}:.*##", made, re.MULTILINE)] == []
