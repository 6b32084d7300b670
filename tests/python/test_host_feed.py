"""A host's feed and the processes that listen to it: one that stands still holds nobody up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wisp
from wisp.engine.feed.feed_files import FeedSettings, feed_folder
from wisp.engine.feed.feed_link import FeedLink
from wisp.engine.feed.feed_messages import RankReport
from wisp.engine.feed.feed_readers import LARGEST_LAG

TIMEOUT = 60.0
#: A process at the feed. It reports as a rank, and says which step it knows of when it is asked.
READER = """
import sys
from wisp.engine.feed.feed_files import FeedSettings, StateMovedError
from wisp.engine.feed.feed_link import FeedLink
from wisp.engine.feed.feed_messages import RankReport

link = FeedLink(FeedSettings(sys.argv[1], poll=0.1))
link.report("reader", RankReport())
for line in sys.stdin:
    word, step = line.split()
    feed = link.wait(lambda f: f.connected and f.at is not None and f.at.step >= int(step), 60)
    if word == "read":
        try:
            with link.mapped(feed) as state:
                print("reading", state is not None, flush=True)
                sys.stdin.readline()
        except StateMovedError:
            print("moved", flush=True)
            continue
    print("at", feed and feed.at.step, flush=True)
"""


class Reader:
    """READER, and what it says."""

    def __init__(self, run: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, run],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> None:
        """Returns when it stands still."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.go_on()
        self.process.communicate(timeout=TIMEOUT)


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(tmp_path / "run")


@pytest.fixture
def publish(run: str) -> Iterator[Any]:
    weights = {"w": np.zeros(1000, np.float32)}

    def publish(step: int) -> None:
        weights["w"][step] = step
        publisher.publish(step)
        publisher.flush()

    with wisp.Publisher(run, weights, on_error="raise", codec="compact") as publisher:
        yield publish


@pytest.fixture
def link(run: str, publish: Any) -> Iterator[FeedLink]:
    publish(1)
    made = FeedLink(FeedSettings(run, poll=0.1))
    assert sees(made, 1)
    yield made
    made.close()


@pytest.fixture
def reader(run: str, link: FeedLink) -> Iterator[Reader]:
    made = Reader(run)
    made.tell("know 1")
    assert made.hear() == "at 1"
    assert link.wait(lambda b: "reader" in b.ranks, TIMEOUT)
    yield made
    made.close()


def sees(link: FeedLink, step: int) -> bool:
    link.look()
    return link.wait(lambda b: b.at is not None and b.at.step == step, TIMEOUT) is not None


def read(link: FeedLink) -> np.ndarray:
    """The weights, once the feed has written them; without its lock, it may still be about to."""
    while True:
        with link.mapped(link.known) as state:
            if state is not None:
                return state.bits("w").view(np.float32).copy()


def test_a_reader_that_is_stopped_costs_the_others_nothing(
    publish: Any, link: FeedLink, reader: Reader
) -> None:
    reader.stop()
    # Each report goes to all readers: more than a stopped one's socket and queue can hold.
    chunk = 1 << 20
    for number in range(2 * LARGEST_LAG // chunk):
        report = RankReport(failure=f"{number} " + "x" * chunk)
        link.report("filler", report)
        assert link.wait(lambda b, r=report: b.ranks.get("filler") == r, TIMEOUT)
    for step in (2, 3, 4):
        publish(step)
        assert sees(link, step)
    told = link.wait(lambda b: any("was let go" in fault for fault in b.status.faults), TIMEOUT)
    assert told is not None
    (fault,) = [fault for fault in told.status.faults if "was let go" in fault]
    assert f"process {reader.process.pid} (rank reader)" in fault
    assert link.wait(lambda b: "reader" not in b.ranks, TIMEOUT), "a stopped rank is not there"

    reader.go_on()
    reader.tell("know 4")
    assert reader.hear() == "at 4"
    assert link.wait(lambda b: "reader" in b.ranks, TIMEOUT), "it came back by itself"
    publish(5)
    reader.tell("know 5")
    assert reader.hear() == "at 5" and sees(link, 5)


def test_a_reader_that_is_stopped_while_it_reads_the_state_is_not_waited_for(
    publish: Any, link: FeedLink, reader: Reader
) -> None:
    reader.tell("read 1")
    assert reader.hear() == "reading True"
    reader.stop()
    for step in (2, 3):
        publish(step)
        assert sees(link, step)
    # What others read meanwhile is whole.
    assert read(link)[:4].tolist() == [0, 1, 2, 3]
    reader.go_on()
    reader.tell("done 0")
    assert reader.hear() == "moved", "it knows that what it read may be of two states"
    reader.tell("know 3")
    assert reader.hear() == "at 3"


def test_a_reader_that_reads_is_waited_for(publish: Any, link: FeedLink) -> None:
    with link.mapped(link.known) as state:
        assert state is not None
        publish(2)
        link.look()
        # Nothing tells that the feed waits: several polls have to do.
        assert link.wait(lambda b: b.at is not None and b.at.step == 2, 1.0) is None
        assert state.bits("w").view(np.float32)[:3].tolist() == [0, 1, 0]
    assert sees(link, 2)


def test_other_demands_are_other_feeds(run: str, publish: Any) -> None:
    publish(1)
    identity = wisp.status(run).run
    settings = [
        FeedSettings(run),
        FeedSettings(run, min_serial=3),
        FeedSettings(run, run_id=identity),
        FeedSettings(run, trust=["ed25519:" + "ab" * 32]),
    ]
    assert len({feed_folder(s) for s in settings}) == len(settings)
    assert FeedSettings(**json.loads(settings[2].as_json())) == settings[2]


def test_a_feed_of_a_pinned_run_takes_no_other(run: str, publish: Any) -> None:
    publish(1)
    link = FeedLink(FeedSettings(run, poll=0.1, run_id="0" * 32))
    told = link.wait(lambda b: bool(b.status.failure), TIMEOUT)
    assert told is not None and told.at is None and "0" * 32 in str(told.status.failure)
    link.close()
