"""kill -9 at any instant: a restarted process goes on, and no state is seen that nobody published.

WISP_KILL_ROUNDS sets how often each is killed.
"""

import json
import os

import pytest

import proxies
import st
from session import Session, instants, kill_after, timed, wait_until

ROUNDS = int(os.environ.get("WISP_KILL_ROUNDS", 12))
SEEDS = {"folder": 11, "bucket": 12}


@pytest.fixture
def large(tmp_path, place):
    """A megabyte of weights: long enough a run to be hit anywhere."""
    return Session(tmp_path, place, seed=5, layers=4, width=256).init()


def test_publisher_killed_at_any_instant_goes_on(large, tmp_path, request):
    seed = SEEDS[request.node.callspec.params["place"]]
    replica = tmp_path / "replica"
    large.publish(0)
    large.follows(replica, 0)
    _, takes = timed(lambda: large.publish(1))
    step, killed, committed = 1, 0, 0
    for number, instant in enumerate(instants(seed, ROUNDS)):
        step += 1
        large.train(step)
        killed += kill_after(large.begin(*large.call(step)), instant * takes)
        there = [c for c in large.published() if c["step"] == step]
        assert len(there) <= 1
        committed += len(there)
        if number % 3 == 2:
            # The trainer may also have gone on meanwhile.
            if there:
                large.follows(replica, step)
            step += 1
        told, took = timed(lambda: large.publish(step))
        takes = took if told["kind"] != "present" else takes
        assert (told["kind"] == "present") == bool(there and number % 3 != 2), told
        large.follows(replica, step)
    assert killed, f"none of {ROUNDS} was hit; {committed} had committed"
    steps = [c["step"] for c in large.published()]
    assert steps == sorted(set(steps)), "no step twice"
    assert {c["epoch"] for c in large.log()} == {1}, "one writer, however often it died"
    large.is_sound()


def test_follower_killed_at_any_instant_goes_on(large, tmp_path, request):
    seed = 100 + SEEDS[request.node.callspec.params["place"]]
    replica = tmp_path / "replica"
    step = 0
    large.publish(step)
    _, takes = timed(lambda: large.follows(replica, 0))
    killed, moved = 0, 0
    for number, instant in enumerate(instants(seed, ROUNDS)):
        # One step is one delta; several are planned; now and then a replica begins anew.
        for _ in range(1 + number % 3):
            step += 1
            large.publish(step)
        if number % 8 == 7:
            replica = tmp_path / f"replica_{number}"
        follower = large.begin("follow", large.place.url, "--into", replica, "--poll", "10ms",
                               "--json")
        if number % 4 == 0:
            wait_for_event(follower)
            step += 1
            large.publish(step)
        killed += kill_after(follower, instant * takes)
        # What it comes back with, before it goes on, is a state of the trainer.
        told = large.pull(replica, "--until-step", 0)
        assert large.holds(replica, told["step"]), (number, told)
        moved += told["step"] == step
        _, takes = timed(lambda: large.follows(replica, step))
    assert killed == ROUNDS, f"a follower does not end by itself; {moved} were there when killed"


def wait_for_event(process):
    return json.loads(process.stdout.readline())


def test_between_steps_the_folder_opens_as_a_checkpoint(session, tmp_path):
    """A reader that looks only between steps, as the follower's own words tell them."""
    replica = tmp_path / "replica"
    session.publish(0)
    follower = session.begin("follow", session.place.url, "--into", replica, "--poll", "5ms",
                             "--json")
    try:
        for step in range(1, 9):
            session.publish(step)
            while wait_for_event(follower)["step"] != step:
                pass
            assert session.holds(replica, step)
            assert st.same_tensors(replica / "model.safetensors", session.states[step])
    finally:
        follower.kill()
        follower.communicate()


def big_delta(session):
    """Two steps that have nothing in common: a delta of more than a megabyte."""
    session.publish(0)
    session.scramble(1)


def killed_at_the_commit(session, server):
    """A publisher that has uploaded everything and dies before its commit arrives."""
    with proxies.RuledProxy(server.port) as proxy:
        proxy.rule = lambda method, path: (
            "drop" if method == "PUT" and "/commits/" in path else "pass")
        process = session.begin(*session.call(1), place=session.place.via(proxy.endpoint))
        assert proxy.held.wait(60)
        process.kill()
        process.communicate()


def test_what_was_uploaded_before_the_kill_is_not_sent_again(tmp_path, bucket, server):
    session = Session(tmp_path, bucket, seed=6, layers=8, width=192).init()
    big_delta(session)
    before = session.log()
    killed_at_the_commit(session, server)
    assert session.log() == before
    assert len(bucket.keys("deltas/")) == 1
    told = session.publish(1)
    assert told["delta_bytes"] > 1_000_000
    assert told["reused_bytes"] == told["delta_bytes"], told
    assert told["uploaded_bytes"] == told["anchor_bytes"], "an anchor at most, and no delta"
    assert len(bucket.keys("deltas/")) == 1
    session.follows(tmp_path / "replica", 1)


def test_what_lay_in_a_folder_before_the_kill_is_not_written_again(tmp_path, folder):
    session = Session(tmp_path, folder, seed=7, layers=8, width=192).init()
    big_delta(session)
    for _ in range(20):
        before = session.log()
        process = session.begin(*session.call(1))
        wait_until(lambda: folder.keys("deltas/") or process.poll() is not None, "it uploads")
        process.kill()
        process.communicate()
        if session.log() == before:
            break
        session.publish(0)  # its commit was quicker than the kill: back, and again
        for key in folder.keys("deltas/"):
            (folder.objects / key).unlink()
    else:
        pytest.skip("the commit followed the upload too quickly to be killed in between")
    told = session.publish(1)
    assert told["reused_bytes"] == told["delta_bytes"] > 1_000_000, told
    session.follows(tmp_path / "replica", 1)
