"""A slow link: a publish takes its time, and one that is killed half-way leaves nothing to see."""

import time

import pytest

import proxies
from session import Session

RATE = 600  # kilobytes a second


@pytest.fixture
def session(tmp_path, bucket):
    made = Session(tmp_path, bucket, seed=81, layers=8, width=192).init()
    made.publish(0)
    made.scramble(1)
    return made


@pytest.fixture
def link(server):
    with proxies.SlowLink(server.port) as started:
        started.rate(RATE)
        yield started


def test_slow_publish_arrives(session, link, tmp_path):
    begun = time.monotonic()
    told = session.publish(1, place=session.place.via(link.endpoint))
    assert told["uploaded_bytes"] > 1_000_000
    assert time.monotonic() - begun > 0.5 * told["uploaded_bytes"] / (1000 * RATE)
    session.follows(tmp_path / "replica", 1)


def test_publish_killed_half_way_leaves_nothing_to_see(session, link, tmp_path):
    keys, log = session.place.keys(), session.log()
    process = session.begin(*session.call(1), place=session.place.via(link.endpoint))
    time.sleep(1)  # somewhere in the middle of what takes longer; any instant will do
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert session.place.keys() == keys and session.log() == log
    session.follows(tmp_path / "replica", 0)
    link.rate(None)
    assert session.publish(1, place=session.place.via(link.endpoint))["kind"] == "delta"
    session.follows(tmp_path / "replica", 1)
    session.is_sound()
