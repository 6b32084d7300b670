"""A replica that sleeps through retention, and one whose weights rot: both mend themselves."""

import json
import signal

import pytest

from run_wisp import run
from session import DAMAGED, kill_after, wait_until

KEEP = ["--keep-anchors", 1, "--grace", "0s", "--orphan-age", "0s"]


def go_far(session, first):
    """Ten steps and an anchor, then everything older is given up."""
    for step in range(first, first + 10):
        session.publish(step, *(["--anchor-every", 1] if step == first + 8 else []))
    for _ in range(2):  # the floor moves first; what lies below goes with the next round
        session.verb("retain", *KEEP)
    return first + 9


def test_replica_that_did_not_run_catches_up(session, tmp_path):
    replica = tmp_path / "replica"
    session.publish(0)
    session.follows(replica, 0)
    last = go_far(session, 1)
    assert len(session.place.keys("deltas/")) < 9, "the way it would have gone is not there"
    session.follows(replica, last)
    session.is_sound()


def test_replica_that_was_stopped_catches_up_by_itself(session, tmp_path):
    replica = tmp_path / "replica"
    session.publish(0)
    follower = session.begin("follow", session.place.url, "--into", replica, "--poll", "10ms",
                             "--json")
    try:
        while json.loads(follower.stdout.readline())["step"] != 0:
            pass
        follower.send_signal(signal.SIGSTOP)
        last = go_far(session, 1)
        follower.send_signal(signal.SIGCONT)
        for line in follower.stdout:
            if json.loads(line)["step"] == last:
                break
        assert follower.poll() is None, follower.stderr.read()
        assert session.holds(replica, last)
    finally:
        kill_after(follower, 0)


@pytest.mark.slow
def test_replica_stopped_in_the_middle_of_a_step_catches_up(session, tmp_path):
    """Stopped with a plan in hand whose objects are gone when it goes on."""
    replica = tmp_path / "replica"
    for step in range(4):
        session.publish(step)
    for number in range(6):
        into = tmp_path / f"replica_{number}"
        process = session.begin("pull", session.place.url, "--into", into, "--json")
        wait_until(lambda: (into / ".wisp").exists() or process.poll() is not None, "it begins")
        process.send_signal(signal.SIGSTOP)
        last = go_far(session, 4 + 10 * number)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, (out, err)
        assert session.holds(into, json.loads(out.splitlines()[-1])["step"])
        session.follows(into, last)
    session.follows(replica, last)


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.97])
def test_rotten_replica_is_named_by_scrub_and_heals_at_the_next_start(session, tmp_path, at):
    replica = tmp_path / "replica"
    session.publish(0)
    session.publish(1)
    session.follows(replica, 1)
    weights = replica / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[int(at * len(data))] ^= 0x10
    weights.write_bytes(data)
    done = run("scrub", replica, "--json")
    assert done.code == DAMAGED, done
    findings = json.loads(done.out)["findings"]
    assert findings and all(f["problem"] and f["cure"] for f in findings), findings
    session.follows(replica, 1)
    assert json.loads(run("scrub", replica, "--json").out)["ok"]


@pytest.mark.parametrize("damage", ["missing", "cut", "zeros"])
def test_replica_without_whole_weights_heals_at_the_next_start(session, tmp_path, damage):
    replica = tmp_path / "replica"
    session.publish(0)
    session.follows(replica, 0)
    weights = replica / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    else:
        size = weights.stat().st_size
        weights.write_bytes(weights.read_bytes()[:size // 2] if damage == "cut" else bytes(size))
    assert run("scrub", replica).code == DAMAGED
    session.publish(1)
    session.follows(replica, 1)


def test_torn_baseline_is_rebuilt(session, tmp_path):
    session.publish(0)
    session.publish(1)
    weights = session.baseline / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    assert session.publish(2)["kind"] == "delta"
    session.follows(tmp_path / "replica", 2)
    session.is_sound()
