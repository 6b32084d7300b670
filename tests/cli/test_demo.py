"""`wisp demo`: what it shows is true, what it makes goes away, and what is missing is named."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import time

import pytest

import runs
from run_wisp import (BINARY, DAMAGED, DISK_FULL, ERROR, LOCKED, USAGE, answer, environment, refused,
                      run, start, wisp)

SMALL = ["--layers", "1", "--followers", "1"]
TRY_LATER = 5


@pytest.fixture
def place(tmp_path):
    """A folder in memory where there is one: demos are about bytes, not about the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="wisp-test-demo-") as folder:
        yield pathlib.Path(folder)


def lines_of(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_followers_are_proven_and_one_joins_late(place):
    done = wisp("demo", "--layers", "1", "--steps", "4", "--dir", place / "demo", "--json")
    *events, summary = lines_of(done)
    assert summary["ok"] and summary["bit_exact"] and summary["verb"] == "demo"
    published = {e["step"]: e for e in events if e["event"] == "published"}
    assert sorted(published) == [0, 1, 2, 3, 4]
    for event in events:
        if event["event"] in ("joined", "applied"):
            assert event["state"] == published[event["step"]]["state"]
    early, late = summary["followers"]
    # The trainer is never more than two steps ahead of the first.
    assert early["joined_at_step"] <= 2 and late["joined_at_step"] >= 2
    for follower in (early, late):
        assert follower["step"] == 4 and follower["states_proven"] == follower["states"]
    assert summary["state"] == published[4]["state"]
    # The copies of two followers and the trainer.
    assert summary["compared_weights"] == 3 * summary["weights"]
    deltas = sum(e["delta_bytes"] for e in published.values())
    assert summary["delta_bytes"] == deltas and summary["full_bytes"] == 4 * 2 * summary["weights"]
    assert 0.003 < summary["mean_changed"] < 0.01
    changed = {e["changed_elements"] for s, e in published.items() if s > 0}
    assert len(changed) == 4, "every step is one of its own"
    assert done.err == "" and not (place / "demo").exists()


def test_kept_run_can_be_pulled_and_is_the_state_that_was_proven(place):
    folder = place / "demo"
    folder.mkdir()
    done = wisp("demo", *SMALL, "--steps", "1", "--dir", folder, "--keep")
    assert "\033" not in done.out and "bit for bit" in done.out
    assert f"wisp dashboard {folder}/run" in done.out and os.listdir(folder) == ["run"]
    assert answer("status", folder / "run")["head"]["step"] == 1
    _, summary = runs.pull(folder / "run", place / "policy")
    assert summary["state"] in done.out and summary["step"] == 1


def test_terminal_sees_a_table_redrawn_in_place(place):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BINARY, "demo", *SMALL, "--steps", "2", "--dir", place / "demo"],
                               stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                               env=environment())
    os.close(theirs)
    shown = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody holds the other end
            break
        if not some:
            break
        shown += some
    os.close(ours)
    assert process.wait() == 0
    text = shown.decode()
    assert "\033[7A" in text and "2/2" in text and "follower 1" in text
    assert "bit for bit" in text.split("\033")[-1]


def until(process, event):
    """The first line of this kind, and where the children are then."""
    for line in process.stdout:
        told = json.loads(line)
        if told.get("event") == event:
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            return told, [int(child) for child in children.split()]
    raise AssertionError(process.stderr.read())


def are_gone(processes, within=30):
    """Whether they end by themselves; only the kernel says when."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        states = [state_of(process) for process in processes]
        if all(state in ("", "Z") for state in states):
            return True
        time.sleep(0.01)
    return False


def state_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_interrupted_demo_leaves_neither_files_nor_processes(place):
    process = start("demo", *SMALL, "--steps", "1000", "--dir", place / "demo", "--json")
    _, children = until(process, "joined")
    assert len(children) == 2
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"stopped" in err
    assert are_gone(children) and not (place / "demo").exists()


def test_children_do_not_outlive_a_killed_parent(place):
    process = start("demo", *SMALL, "--steps", "1000", "--dir", place / "demo", "--json")
    _, children = until(process, "joined")
    process.kill()
    process.communicate()
    assert len(children) == 2 and are_gone(children)


def test_killed_follower_ends_the_demo_with_a_cure(place):
    process = start("demo", *SMALL, "--steps", "1000", "--dir", place / "demo", "--json")
    _, children = until(process, "joined")
    os.kill(children[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == TRY_LATER and b"follower 1 was killed" in err
    assert b"--layers" in err and are_gone(children) and not (place / "demo").exists()


def test_one_wrong_bit_in_a_follower_is_found(place):
    process = start("demo", *SMALL, "--steps", "2", "--dir", place / "demo", "--json")
    until(process, "joined")
    weights = place / "demo/follower-1/weights.safetensors"
    with open(weights, "r+b") as file:
        file.seek(-2, os.SEEK_END)  # the last weight, a norm's: no step of two changes it
        (low,) = file.read(1)
        file.seek(-2, os.SEEK_END)
        file.write(bytes([low ^ 1]))
    out, err = process.communicate(timeout=120)
    assert process.returncode == DAMAGED and b"follower 1 holds other weights" in err
    assert b"model.norm.weight" in err and json.loads(out.splitlines()[-1])["ok"] is False
    assert not (place / "demo").exists()


@pytest.mark.parametrize("more", [
    ["--layers", "0"], ["--layers", "1001"], ["--steps", "0"], ["--followers", "0"],
    ["--learning-rate", "0"], ["--learning-rate", "nan"], ["--learning-rate", "2"], ["extra"]])
def test_wrong_usage_exits_with_2(more, tmp_path):
    refused(USAGE, "demo", "--dir", tmp_path / "demo", *more, cwd=tmp_path, within=tmp_path)


def test_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("here")
    refused(ERROR, "demo", *SMALL, "--dir", tmp_path, names=["not an empty folder", "--dir"],
            within=tmp_path)


def test_run_that_is_there_already_is_left_alone(tmp_path):
    wisp("init", tmp_path / "run")
    refused(LOCKED, "demo", *SMALL, "--dir", tmp_path / "demo", "--bucket", tmp_path / "run",
            names=["run"], within=tmp_path)


@pytest.fixture
def disk(tmp_path, request):
    """A file system in memory of the size the test asks for."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", place],
                             capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a file system here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("disk", ["2g"], indirect=True)
def test_too_small_a_disk_is_named_with_what_would_fit(disk):
    done = refused(DISK_FULL, "demo", "--dir", disk / "demo", names=["of disk", disk, "--dir"],
                   within=disk)
    assert "--layers " in done.err and "would fit" in done.err


@pytest.mark.parametrize("disk", ["4000g"], indirect=True)
def test_too_little_memory_is_named_with_what_would_fit(disk):
    done = refused(TRY_LATER, "demo", "--layers", "1000", "--followers", "16", "--dir",
                   disk / "demo", names=["of memory", "--followers", "would fit"], within=disk)
    fitting = int(done.err.split("--layers ")[1].split()[0])
    assert 1 <= fitting < 1000


def test_no_room_anywhere_is_said_without_a_folder_being_made(tmp_path):
    done = run("demo", "--layers", "1000", "--followers", "16", env={"TMPDIR": str(tmp_path)})
    assert done.code in (DISK_FULL, TRY_LATER) and "--layers" in done.err
    assert os.listdir(tmp_path) == []
