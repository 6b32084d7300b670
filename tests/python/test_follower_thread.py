"""A follower in the background: its thread, what it is told to wait for, and how it ends."""

from __future__ import annotations

import threading

import pytest
from test_follower import blank, model, same, start_python

import wisp
from wisp.stores import At, FsspecStore


def test_the_background_thread_follows_until_stopped(bucket, publish):
    target = blank()
    arrived = threading.Event()
    with wisp.Follower(bucket, target, poll=0.01) as follower:
        follower.on_step = lambda event: event.step == 2 and arrived.set()
        follower.start()
        assert follower.status == "following"
        for step in range(3):
            publish(model(step), step)
        assert follower.wait_for(2, timeout=60).step == 2
        assert arrived.wait(60) and same(target, model(2))
        publish(model(3), 3)
        assert follower.sync().step == 3
        assert follower.rollback() == 2 and same(target, model(2))
        follower.start()
        follower.wait_for(3, timeout=60)
        assert follower.verify() and follower.status == "following"
        follower.stop()
        assert follower.status == "idle" and same(target, model(3))
        publish(model(4), 4)
        assert follower.sync().step == 4 and same(target, model(4))


def test_sync_beside_the_background_thread_goes_to_the_newest_step(bucket, publish):
    publish(model(0), 0)
    # Steps that are young when they are taken, with more behind them.
    with wisp.Follower(bucket, blank(), poll=10.0) as follower:
        follower.start().wait_for(0, timeout=60)
        for newest in (4, 8, 12):
            for step in range(newest - 3, newest + 1):
                publish(model(step), step)
            assert follower.sync().step == newest


def test_ctrl_c_in_one_thread_does_not_end_the_following_of_another(bucket, publish):
    publish(model(0), 0)
    code = f"""
import os, signal, numpy as np, threading, wisp
from test_follower import blank
signal.signal(signal.SIGINT, signal.default_int_handler)
follower = wisp.Follower({bucket!r}, blank(), poll=0.01).start()
follower.wait_for(0, timeout=60)
big = {{"w": np.zeros(256 << 20, np.uint8)}}
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    while True:
        wisp.digest(big, threads=1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
follower.wait_for(1, timeout=60)
print(follower.status, flush=True)
follower.close()
"""
    with start_python(code) as child:
        assert child.stdout.readline() == "interrupted\n"
        publish(model(1), 1)
        out, _ = child.communicate("go\n", timeout=60)
    assert (child.returncode, out) == (0, "following\n")


def test_an_error_in_the_background_ends_the_thread_and_is_raised_to_those_who_ask(bucket, publish):
    with wisp.Follower(bucket, blank(), poll=0.01) as follower:

        def fail(event):
            raise ZeroDivisionError

        follower.on_step = fail
        follower.start()
        publish(model(0), 0)
        with pytest.raises(ZeroDivisionError):
            follower.wait_for(0, timeout=60)
        assert follower.status == "failed"
        with pytest.raises(ZeroDivisionError):
            follower.stop()


def test_a_bucket_that_goes_away_is_told_and_comes_back(bucket, publish, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    store = FsspecStore(fsspec.filesystem("file"), str(tmp_path / "bucket"))
    target = blank()
    publish(model(0), 0)
    run = At(store, "run")
    with wisp.Follower(run, target, scratch=tmp_path / "scratch", poll=0.01) as follower:
        follower.sync()
        publish(model(1), 1)
        with monkeypatch.context() as patched:

            def denied(*_):
                raise PermissionError("the key was withdrawn")

            patched.setattr(store, "read", denied)
            with pytest.raises(PermissionError, match="withdrawn"):
                follower.sync()
            follower.start()
            with pytest.raises(PermissionError, match="withdrawn"):
                follower.wait_for(1, timeout=60)
            with pytest.raises(PermissionError):
                follower.stop()
            assert same(target, model(0))
        assert follower.sync().step == 1 and same(target, model(1))


def test_a_process_may_end_while_it_follows(bucket, publish):
    publish(model(0), 0)
    code = f"""
import numpy as np, wisp
from test_follower import blank
follower = wisp.Follower({bucket!r}, blank(), poll=0.01).start()
follower.wait_for(0, timeout=60)
print("done")
"""
    for _ in range(3):
        with start_python(code) as child:
            out, _ = child.communicate(timeout=60)
        assert (child.returncode, out) == (0, "done\n")


def test_waiting_has_an_end(bucket, publish):
    publish(model(0), 0)
    with wisp.Follower(bucket, blank(), poll=0.01) as follower:
        assert follower.wait_for(0, timeout=60).step == 0
        with pytest.raises(TimeoutError, match="step 5 .* the newest is 0"):
            follower.wait_for(5, timeout=0.05)


def test_moves_wait_while_the_target_is_held(bucket, publish):
    target = blank()
    publish(model(0), 0)
    with wisp.Follower(bucket, target, poll=0.01) as follower:
        follower.sync()
        follower.start()
        with follower.hold() as step:
            assert step == 0
            publish(model(1), 1)
            with pytest.raises(wisp.InvalidError, match="wait for itself"):
                follower.sync()
            assert same(target, model(0))
        follower.wait_for(1, timeout=60)
        assert same(target, model(1))


@pytest.mark.parametrize("told", [False, True], ids=["in place", "told"])
def test_what_is_held_is_the_step_that_hold_names(bucket, publish, told):
    target, last = blank(), 12

    def take(changes):
        for change in changes:
            bits = target[change.name].reshape(-1).view(change.bits.dtype)
            bits[slice(None) if change.positions is None else change.positions] = (
                change.bits.reshape(-1)
            )

    publish(model(0), 0)
    states = {0: model(0)}
    with wisp.Follower(bucket, take if told else target, poll=0.001) as follower:
        with follower.hold() as step:
            assert step is None
        follower.sync()
        follower.start()
        for number in range(1, last + 1):
            states[number] = model(number)
            publish(states[number], number)
            with follower.hold() as step:
                assert same(target, states[step])
        follower.wait_for(last, timeout=60)
        assert follower.rollback() == last - 1
        with follower.hold() as step:
            assert step == last - 1 and same(target, states[step])
