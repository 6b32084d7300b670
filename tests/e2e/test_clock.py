"""A clock that is an hour off: the store's own time is taken, and nothing else changes."""

import shutil

import pytest

import run_wisp
from run_wisp import OK, run
from session import Session, summary_of

FAKETIME = shutil.which("faketime")


@pytest.fixture
def session(tmp_path, bucket):
    if FAKETIME is None:
        pytest.skip("faketime is not installed; run tools/setup.sh test")
    if run_wisp.is_sanitized():
        pytest.skip("a sanitizer and faketime both want to be loaded first")
    return Session(tmp_path, bucket, seed=61).init()


def at(hours, session, *arguments):
    """A verb of a process that believes it is that many hours later."""
    environment = {**session.place.environment, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    done = run("-f", f"{hours:+d}h", run_wisp.BINARY, *arguments, binary=FAKETIME,
               env=environment)
    assert done.code == OK, done
    return summary_of(done)


@pytest.mark.parametrize("hours", [-1, 1])
def test_trainer_and_replica_work_with_a_clock_that_is_off(session, tmp_path, hours):
    into = ["pull", session.place.url, "--into", tmp_path / "replica", "--json"]
    session.train(0)
    assert at(hours, session, *session.call(0))["kind"] == "anchor"
    at(-hours, session, *into)
    assert session.holds(tmp_path / "replica", 0)
    session.train(1)
    at(hours, session, *session.call(1))
    session.publish(2)
    at(hours, session, *into)
    assert session.holds(tmp_path / "replica", 2)
    session.is_sound()


def test_retention_counts_by_the_store_s_clock(session, tmp_path):
    """A machine an hour ahead must not take what is young for old."""
    for step in range(6):
        session.publish(step, "--anchor-every", 2)
    keys = session.place.keys()
    told = at(1, session, "retain", session.place.url, "--keep-anchors", 1, "--grace", "30m",
              "--orphan-age", "30m", "--json")
    assert told["removed_objects"] == 0, told
    assert set(keys) <= set(session.place.keys())
    session.follows(tmp_path / "replica", 5)
