"""Two trainers on one run: one of them wins each commit, the other learns who did."""

import json
import re
import socket

import pytest

from run_wisp import OK
from session import FENCED, Session, summary_of

ROUNDS = 5


@pytest.fixture
def rivals(tmp_path, place):
    """Two trainers of one model, each with weights of its own."""
    one = Session(tmp_path, place, seed=41, name="one").init()
    other = Session(tmp_path, place, seed=42, name="other")
    return one, other


def race(rivals, step, *more):
    """Both publish the same step at once; what became of each."""
    running = []
    for trainer in rivals:
        if step not in trainer.states:
            trainer.train(step)
        running.append(trainer.begin(*trainer.call(step, *more)))
    ends = []
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode in (OK, FENCED), (process.returncode, err)
        ends.append((process.returncode, out.decode(), err.decode()))
    return ends


def digests(session):
    return {c["seq"]: c["state"] for c in session.log()}


def winners(ends, rivals):
    return [(trainer, summary) for trainer, (code, out, _) in zip(rivals, ends)
            if code == OK for summary in [json.loads(out.splitlines()[-1])]]


def test_one_wins_each_commit_and_the_loser_is_told_by_whom(rivals, tmp_path):
    one, _ = rivals
    told = {}
    losses = 0
    for step in range(ROUNDS):
        ends = race(rivals, step, "--take-over")
        for trainer, summary in winners(ends, rivals):
            assert summary["seq"] not in told, "two writers were told they made one commit"
            told[summary["seq"]] = (trainer, summary)
        for code, _, err in ends:
            if code == FENCED:
                losses += 1
                assert re.search(rf"{re.escape(socket.gethostname())}:\d+", err), err
    logged = digests(one)
    for seq, (_, summary) in told.items():
        assert logged[seq] == summary["state"]
    commits = one.log()
    assert [c["seq"] for c in commits] == list(range(1, len(commits) + 1))
    assert len(one.published()) == len(told)
    epochs = [c["epoch"] for c in commits]
    assert epochs == sorted(epochs)
    one.is_sound()
    newest = told[max(told)]
    replica = tmp_path / "replica"
    assert one.pull(replica)["state"] == newest[1]["state"]
    assert newest[0].holds(replica, newest[1]["step"])


def test_fenced_writer_stays_out_until_it_takes_the_run_back(rivals):
    one, other = rivals
    one.publish(0)
    other.publish(1)
    for _ in range(2):
        done = one.try_publish(1)
        assert done.code == FENCED and "--take-over" in done.err, done
        assert re.search(rf"{re.escape(socket.gethostname())}:\d+", done.err)
    assert one.publish(2, "--take-over")["epoch"] == 3
    assert other.try_publish(3).code == FENCED
    one.is_sound()


def test_two_that_start_an_empty_run_together_share_no_epoch(rivals):
    ends = race(rivals, 0)
    made = {}
    for _, summary in winners(ends, rivals):
        assert summary["seq"] not in made
        made[summary["seq"]] = summary["epoch"]
    assert made, ends
    assert len(set(made.values())) == len(made)
    rivals[0].is_sound()
    # A publisher that lost or was overtaken is out; the owner of the newest epoch goes on.
    after = [trainer.try_publish(7).code for trainer in rivals]
    assert sorted(after) == [OK, FENCED], after
    assert summary_of(rivals[after.index(OK)].try_publish(8))["ok"]
