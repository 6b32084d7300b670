"""Followers of numpy arrays, folders and code: bit for bit, all or nothing, there and back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import bits
from safetensors.numpy import load_file

import wisp


def model(step: int = 0) -> dict[str, np.ndarray]:
    """Step N differs from step N-1 in a few places; the same N gives the same bits."""
    random = np.random.default_rng(1)
    arrays = {
        "a": random.standard_normal((70, 33), np.float32),
        "b": random.standard_normal(9000).astype(np.float16),
        "n": np.arange(10),
        "empty": np.zeros((0, 2), np.float32),
    }
    for past in range(1, step + 1):
        random = np.random.default_rng(past)
        arrays["a"].reshape(-1)[random.integers(0, 70 * 33, 30)] = past
        arrays["b"][random.integers(0, 9000, 40)] *= -1
        arrays["n"][past % 10] = past
    return arrays


def blank() -> dict[str, np.ndarray]:
    return {name: np.zeros_like(array) for name, array in model().items()}


def same(a, b) -> bool:
    return a.keys() == b.keys() and all((bits(a[name]) == bits(b[name])).all() for name in a)


def start_python(code: str) -> subprocess.Popen[str]:
    """Another process that can import this file."""
    folder = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": f"{os.environ['PYTHONPATH']}:{folder}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes)


def test_arrays_follow_in_place_by_anchor_and_deltas(bucket, publish):
    target = blank()
    memory = {name: array.ctypes.data for name, array in target.items()}
    with wisp.Follower(bucket, target) as follower:
        nothing = follower.sync()
        assert nothing.step is None and not nothing.moved and follower.status == "idle"
        publish(model(0), 0)
        joined = follower.sync()
        assert joined.joined and joined.step == 0 and same(target, model(0))
        for step in (1, 2, 3):
            publish(model(step), step)
            report = follower.sync()
            assert report.moved and not report.joined and report.step == follower.step == step
            assert 0 < report.changed_elements <= 71
            assert same(target, model(step)) and report.state == wisp.digest(model(step))
        assert not follower.sync().moved
        assert "step 3" in repr(follower) and "<table>" in follower.sync()._repr_html_()
    assert {name: array.ctypes.data for name, array in target.items()} == memory
    assert follower.status == "closed"
    with pytest.raises(wisp.InvalidError, match="closed"):
        follower.sync()


def test_a_late_follower_takes_many_steps_at_once(bucket, publish):
    for step in range(5):
        publish(model(step), step)
    target = blank()
    with wisp.Follower(bucket, target) as follower:
        assert follower.sync().step == 4 and same(target, model(4))


def test_rollback_goes_back_once_and_stays(bucket, publish):
    target = blank()
    publish(model(0), 0)
    with wisp.Follower(bucket, target) as follower:
        follower.sync()
        with pytest.raises(wisp.NotFoundError, match="no earlier state"):
            follower.rollback()
        for step in (1, 2):
            publish(model(step), step)
            follower.sync()
        assert follower.rollback() == 1
        assert follower.step == 1 and follower.status == "rolled_back" and same(target, model(1))
        with pytest.raises(wisp.NotFoundError):
            follower.rollback()
        assert follower.sync().step == 2 and same(target, model(2))


def test_what_others_wrote_is_noticed_and_mended(bucket, publish):
    target = blank()
    publish(model(0), 0)
    with wisp.Follower(bucket, target) as follower:
        follower.sync()
        assert follower.verify()
        target["b"][:] = 7
        publish(model(1), 1)
        report = follower.sync()
        assert report.joined and report.faults and same(target, model(1))
        target["n"][3] = 99
        assert not follower.verify()
        assert follower.sync().joined and same(target, model(1))


def test_a_folder_follows(bucket, publish, tmp_path):
    publish(model(0), 0)
    folder = tmp_path / "replica"
    with wisp.Follower(bucket, folder) as follower:
        follower.sync()
        publish(model(1), 1)
        follower.sync()
        assert same(load_file(folder / "model.safetensors"), model(1))
        with pytest.raises(wisp.UnsupportedError, match="does not keep"):
            follower.rollback()


class Mirror:
    """Code that keeps its own copy by what it is told."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.told: list[tuple[str, int]] = []
        self.fail: BaseException | None = None

    def __call__(self, changes: wisp.Changes) -> None:
        if self.fail is not None:
            raise self.fail
        self.told.append((changes.kind, changes.step))
        for change in changes:
            if change.positions is None:
                self.arrays[change.name] = change.bits.copy()
            else:
                assert (np.diff(change.positions) > 0).all()
                assert (self.arrays[change.name][change.positions] == change.old_bits).all()
                self.arrays[change.name][change.positions] = change.bits

    def holds(self, arrays) -> bool:
        return all((bits(self.arrays[name]) == bits(arrays[name])).all() for name in arrays)


def test_code_is_told_proven_positions_and_bits(bucket, publish):
    mirror = Mirror()
    publish(model(0), 0)
    with wisp.Follower(bucket, mirror) as follower:
        follower.sync()
        assert mirror.holds(model(0))
        publish(model(1), 1)
        follower.sync()
        assert mirror.holds(model(1))
        follower.rollback()
        assert mirror.holds(model(0))
        follower.sync()
    assert mirror.told == [("joined", 0), ("applied", 1), ("rolled_back", 0), ("applied", 1)]


def test_what_the_target_raises_comes_out_and_the_step_is_not_taken(bucket, publish):
    mirror = Mirror()
    publish(model(0), 0)
    with wisp.Follower(bucket, mirror) as follower:
        follower.sync()
        publish(model(1), 1)
        mirror.fail = RuntimeError("no room on the device")
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no room") as caught:
                follower.sync()
            assert caught.value is mirror.fail and follower.step == 0
        mirror.fail = None
        assert follower.sync().step == 1 and mirror.holds(model(1))


def test_on_step_is_called_after_each_move_and_may_raise(bucket, publish):
    seen = []
    target = blank()
    publish(model(0), 0)
    with wisp.Follower(bucket, target, on_step=lambda event: seen.append(event.step)) as follower:
        follower.sync()
        publish(model(1), 1)
        follower.sync()
        assert seen == [0, 1]

        def fail(event):
            raise KeyError("hook")

        follower.on_step = fail
        publish(model(2), 2)
        with pytest.raises(KeyError, match="hook"):
            follower.sync()
        # The step itself was taken in full.
        follower.on_step = None
        assert same(target, model(2)) and follower.sync().step == 2


def test_a_target_that_is_not_the_model_is_refused_and_left_alone(bucket, publish):
    publish(model(0), 0)
    target = blank()
    target["a"] = np.zeros((33, 70), np.float32)
    target["b"] = np.zeros(9000, np.float32)
    target["more"] = np.zeros(3)
    del target["n"]
    with wisp.Follower(bucket, target) as follower, pytest.raises(wisp.InvalidError) as caught:
        follower.sync()
    text = str(caught.value)
    assert "'a' is F32 [70, 33] in the run, F32 [33, 70] in the target" in text
    assert "'b' is F16 [9000] in the run, F32 [9000] in the target" in text
    assert "'n' (I64 [10]) is in the run" in text and "'more' (F64 [3]) is in the target" in text
    assert not any(array.any() for array in target.values())
    extra = blank() | {"more": np.ones(3)}
    with wisp.Follower(bucket, extra, strict=False) as follower:
        assert follower.sync().step == 0 and extra["more"].all()


def test_a_run_that_is_not_there_is_said_so(tmp_path):
    with wisp.Follower(str(tmp_path / "nowhere"), blank()) as follower:
        with pytest.raises(wisp.NoRunError):
            follower.sync()


def test_a_read_only_target_is_refused():
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(wisp.InvalidError, match="'w'.*read-only"):
        wisp.Follower("/tmp/x", {"w": frozen})


def test_status_and_log_show_the_run(bucket, publish):
    publish(model(0), 0)
    publish(model(1), 1)
    with wisp.Follower(bucket, blank(), replica_id="east-1") as follower:
        follower.sync()
        status = wisp.status(bucket)
        assert status.head.step == 1 and status.replicas[0].id == "east-1"
        assert "step 1" in repr(status) and "east-1" in status._repr_html_()
        log = wisp.log(bucket)
        assert [line.step for line in log][:2] == [1, 0]
        assert "delta" in repr(log).splitlines()[1] and "<td>" in log._repr_html_()


def test_any_step_can_be_exported(bucket, publish, tmp_path):
    for step in range(3):
        publish(model(step), step)
    assert wisp.export(bucket, tmp_path / "one", step=1).step == 1
    assert same(load_file(tmp_path / "one" / "model.safetensors"), model(1))
    assert wisp.compact(bucket).merged >= 0
    assert not wisp.scrub(bucket, replay=True).findings
    assert wisp.retain(bucket, dry_run=True).removed_objects == 0


def test_a_branch_shares_the_objects(bucket, publish, tmp_path):
    publish(model(0), 0)
    branch = str(tmp_path / "bucket" / "branch")
    report = wisp.init(branch, branch_of=bucket)
    assert report.branch_step == 0 and report.shared_bytes > 0
    target = blank()
    with wisp.Follower(branch, target) as follower:
        follower.sync()
    assert same(target, model(0))
