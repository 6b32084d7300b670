"""diff, apply, inspect, verify and merge from Python, on paths and on arrays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import bits
from safetensors.numpy import load_file, save_file

import wisp


def model(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "embed": random.standard_normal((64, 32), np.float32),
        "layer.0": random.standard_normal(5000).astype(np.float16),
        "mask": random.integers(0, 2, 77).astype(np.bool_),
        "scale": np.array(3.5),
        "empty": np.zeros((0, 3), np.int16),
    }


def stepped(old: dict[str, np.ndarray], seed: int = 1) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    new = {name: array.copy() for name, array in old.items()}
    new["embed"].reshape(-1)[random.integers(0, 2048, 20)] = random.standard_normal(20)
    new["embed"][0, 0] = np.nan
    new["layer.0"][random.integers(0, 5000, 50)] *= 2
    new["scale"][...] = -0.0
    return new


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all((bits(a[name]) == bits(b[name])).all() for name in a)


@pytest.mark.parametrize("codec", ["compact", "swift", "plain", "gap"])
def test_a_diff_of_dicts_applies_in_place(codec):
    old, new = model(), stepped(model())
    delta = wisp.diff(old, new, codec=codec, step=7)
    assert delta.facts.step == 7 and delta.facts.changed_elements > 60
    report = wisp.apply(old, delta)
    assert same(old, new) and report.result == wisp.digest(new)
    again = wisp.apply(old, delta) if codec == "compact" else None
    assert again is None or (again.deltas_skipped == 1 and same(old, new))


def test_paths_and_dicts_mean_the_same(tmp_path):
    old, new = model(), stepped(model())
    save_file(old, tmp_path / "old.safetensors")
    save_file(new, tmp_path / "new.safetensors")
    delta = wisp.diff(tmp_path / "old.safetensors", new, tmp_path / "d.safetensors")
    seen = wisp.verify(delta, tmp_path / "old.safetensors")
    assert seen.decoded and seen.state == wisp.digest(new)
    wisp.apply(tmp_path / "old.safetensors", delta, tmp_path / "out.safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), new)
    wisp.apply(str(tmp_path / "old.safetensors"), [delta.path])
    assert same(load_file(tmp_path / "old.safetensors"), new)
    assert wisp.digest(tmp_path / "new.safetensors") == wisp.digest(new)


def test_deltas_can_be_merged_inspected_and_saved(tmp_path):
    first = model()
    second, third = stepped(first, 1), stepped(stepped(first, 1), 2)
    save_file(first, tmp_path / "first.safetensors")
    deltas = [wisp.diff(first, second, step=1), wisp.diff(second, third, step=2)]
    merged = wisp.merge(tmp_path / "first.safetensors", deltas, tmp_path / "m.safetensors")
    wisp.apply(first, merged)
    assert same(first, third)
    report = wisp.inspect(merged)
    assert report.step == 2 and {t.name for t in report.tensors} == {"embed", "layer.0", "scale"}
    saved = deltas[0].save(tmp_path / "kept.safetensors")
    assert saved.read_bytes() == bytes(deltas[0])
    assert "delta" in repr(report) and "<table>" in merged._repr_html_()


def test_a_temporary_delta_is_removed_with_its_object():
    delta = wisp.diff(model(), stepped(model()))
    path = delta.path
    assert path.exists()
    del delta
    assert not path.exists()


def test_a_wrong_base_is_refused_and_nothing_is_touched():
    delta = wisp.diff(model(), stepped(model()))
    other = model()
    other["layer.0"][4999] += 1
    before = {name: array.copy() for name, array in other.items()}
    with pytest.raises(wisp.WrongBaseError, match="was made from state"):
        wisp.apply(other, delta)
    assert same(other, before)


def test_a_damaged_delta_is_refused_and_nothing_is_touched(tmp_path):
    old = model()
    path = wisp.diff(old, stepped(old)).save(tmp_path / "d.safetensors")
    damaged = bytearray(path.read_bytes())
    damaged[-5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(wisp.CorruptError):
        wisp.apply(old, path)
    assert same(old, model())


def test_models_that_differ_are_refused():
    other = model()
    other["embed"] = other["embed"].astype(np.float64)
    with pytest.raises(wisp.InvalidError, match="embed"):
        wisp.diff(model(), other)
    with pytest.raises(wisp.InvalidError, match="codec 'zip'"):
        wisp.diff(model(), model(), codec="zip")
    with pytest.raises(wisp.InvalidError, match="`out`"):
        wisp.apply(model(), wisp.diff(model(), stepped(model())), out="x")
    with pytest.raises(wisp.NotFoundError):
        wisp.digest("/no/such/checkpoint.safetensors")


def test_other_threads_run_while_the_library_works():
    big = {"w": np.zeros(64 << 20, np.uint8)}
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks
    for _ in range(3):
        wisp.digest(big, threads=1)
    during = ticks - before
    done.set()
    counter.join()
    assert during > 0


def test_ctrl_c_ends_long_work_with_a_keyboard_interrupt(tmp_path):
    # A shell starts what it puts into the background, these tests too, with SIGINT ignored.
    code = """
import numpy as np, os, signal, sys, wisp
signal.signal(signal.SIGINT, signal.default_int_handler)
big = {"w": np.zeros(256 << 20, np.uint8)}
try:
    print("ready", flush=True)
    while True:
        wisp.digest(big, threads=1)
except KeyboardInterrupt:
    print(wisp.digest({"w": np.zeros(3)}), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 0 and out.strip() == wisp.digest({"w": np.zeros(3)})
