"""Processes that are killed, interrupted or race each other never leave a broken checkpoint."""

import os
import shutil
import signal
import subprocess

import numpy as np
import pytest

import journal
import st
from checkpoints import bf16_weights, nudged
from run_wisp import LOCKED, OK, Run, answer, run, start, wisp

ELEMENTS = 24_000_000


class Shuttle:
    """A checkpoint of 48 MB that is sent back and forth between two states, in place."""

    def __init__(self, folder):
        rng = np.random.default_rng(61)
        bits = bf16_weights(rng, ELEMENTS)
        after = nudged(rng, bits, 0.01)
        ends = [st.save(folder / name, {"w": ("BF16", (ELEMENTS,), x.tobytes())})
                for name, x in (("a", bits), ("b", after))]
        self.digests = [answer("verify", p)["state"] for p in ends]
        self.deltas = [folder / "back", folder / "forth"]
        wisp("diff", ends[1], ends[0], "-o", self.deltas[0])
        wisp("diff", ends[0], ends[1], "-o", self.deltas[1])
        changed = np.flatnonzero(bits != after).astype(np.int32)
        self.foreign = []
        for name, x in (("foreign_back", bits), ("foreign_forth", after)):
            tensors = {"w.indices": ("I32", (changed.size,), changed.tobytes()),
                       "w.values": ("BF16", (changed.size,), x[changed].tobytes())}
            self.foreign.append(st.save(folder / name, tensors))
        ends[1].unlink()
        self.base = ends[0]
        self.goal = 0

    def turn(self):
        self.goal = 1 - self.goal
        return self.deltas[self.goal]

    def state(self):
        return answer("verify", self.base)["state"]

    def leftovers(self):
        return journal.path_of(self.base).exists(), journal.unfinished_of(self.base)

    def recover(self, delta, *extra):
        """The next apply, with what it must say given what lies beside the base."""
        complete, unfinished = self.leftovers()
        done = wisp("apply", self.base, delta, "--in-place", "--json", *extra)
        expected = "finished" if complete else "undone" if unfinished else "none"
        assert done.json["recovery"] == expected, done
        assert ("interrupted" in done.err) == (expected != "none"), done
        assert self.state() == self.digests[self.goal]
        assert self.leftovers() == (False, [])
        return expected


@pytest.fixture(scope="module")
def shuttle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shuttle")
    yield Shuttle(folder)
    shutil.rmtree(folder)


def end_after(process, seconds, number=signal.SIGKILL):
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
        process.communicate()


def kill_once(process, seen):
    """Kills the process as soon as something is seen; whether that happened in time."""
    while process.poll() is None:
        if seen():
            process.kill()
            break
    process.communicate()
    return process.returncode == -signal.SIGKILL


def test_apply_killed_at_any_instant_is_made_good_by_the_next(shuttle):
    seconds = answer("apply", shuttle.base, shuttle.turn(), "--in-place")["seconds"]
    rng = np.random.default_rng(62)
    for delay in rng.uniform(0, 1.1 * seconds, 40):
        delta = shuttle.turn()
        end_after(start("apply", shuttle.base, delta, "--in-place"), delay)
        shuttle.recover(delta)


@pytest.mark.parametrize("extra", [[], ["--quick"]])
def test_apply_killed_while_it_writes_is_finished(shuttle, extra):
    for _ in range(200):
        delta = shuttle.turn()
        process = start("apply", shuttle.base, delta, "--in-place", *extra)
        if kill_once(process, journal.path_of(shuttle.base).exists) and shuttle.leftovers()[0]:
            assert shuttle.recover(delta) == "finished"
            return
        shuttle.recover(delta)
    pytest.fail("in 200 rounds no apply was caught while writing")


def test_apply_killed_before_it_writes_is_undone(shuttle):
    for _ in range(200):
        delta = shuttle.turn()
        process = start("apply", shuttle.base, delta, "--in-place")
        killed = kill_once(process, lambda: journal.unfinished_of(shuttle.base))
        if killed and not shuttle.leftovers()[0]:
            assert shuttle.recover(delta) == "undone"
            return
        shuttle.recover(delta)
    pytest.fail("in 200 rounds no apply was caught while writing its journal")


def test_recovery_killed_while_it_writes_is_itself_recovered(shuttle):
    caught = 0
    for _ in range(200):
        delta = shuttle.turn()
        for _ in range(3):
            process = start("apply", shuttle.base, delta, "--in-place")
            caught += kill_once(process, journal.path_of(shuttle.base).exists)
        shuttle.recover(delta)
        if caught >= 3:
            return
    pytest.fail("in 200 rounds no recovery was caught while writing")


@pytest.mark.parametrize("extra", [[], ["--quick"]])
def test_unproven_delta_killed_while_it_writes_is_finished_as_well(shuttle, extra):
    """A delta of others carries no digests, so a quick apply knows of no state to prove."""
    for _ in range(200):
        shuttle.turn()
        delta = shuttle.foreign[shuttle.goal]
        process = start("apply", shuttle.base, delta, "--in-place", *extra)
        if kill_once(process, journal.path_of(shuttle.base).exists) and shuttle.leftovers()[0]:
            try:
                assert shuttle.recover(delta, *extra) == "finished"
            finally:
                journal.path_of(shuttle.base).unlink(missing_ok=True)
                run("apply", shuttle.base, delta, "--in-place")
            return
        shuttle.recover(delta, *extra)
    pytest.fail("in 200 rounds no apply was caught while writing")


def test_two_applies_at_once_never_corrupt(shuttle):
    for _ in range(8):
        delta = shuttle.turn()
        both = [start("apply", shuttle.base, delta, "--in-place") for _ in range(2)]
        ends = []
        for process in both:
            out, err = process.communicate()
            ends.append(Run([], process.returncode, out.decode(), err.decode()))
        assert {e.code for e in ends} <= {OK, LOCKED} and OK in [e.code for e in ends], ends
        for end in ends:
            assert end.code == OK or "another process" in end.err, end
        assert shuttle.state() == shuttle.digests[shuttle.goal]
        assert shuttle.leftovers() == (False, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["diff", "apply"])
def test_interrupted_output_leaves_no_temporary_file(shuttle, tmp_path, verb, number):
    delta = shuttle.turn()
    arguments = {"apply": ["apply", shuttle.base, delta, "-o", tmp_path / "out"],
                 "diff": ["diff", shuttle.base, shuttle.base, "-o", tmp_path / "out"]}[verb]
    shuttle.goal = 1 - shuttle.goal
    for attempt in range(50):
        process = start(*arguments)
        end_after(process, 0.002 * attempt, number)
        assert process.returncode in (OK, 128 + number, -number)
        assert set(os.listdir(tmp_path)) <= {"out"}, "all of it under its name, or nothing"
        (tmp_path / "out").unlink(missing_ok=True)
