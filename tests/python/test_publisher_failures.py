"""A publisher whose bucket is gone, refuses, or is slow: training goes on, and nothing is lost."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from test_publisher import MODES, bits, stored  # noqa: E402

import wisp  # noqa: E402
from wisp.publish.publisher import Publisher  # noqa: E402


def hide(run: Path) -> None:
    run.rename(run.with_name("away"))
    run.write_text("where the bucket was")


def give_back(run: Path) -> None:
    run.unlink()
    run.with_name("away").rename(run)


@pytest.mark.parametrize("mode", MODES)
def test_training_goes_on_while_the_bucket_is_gone(tmp_path, caplog, mode):
    caplog.set_level(logging.INFO, "wisp")
    tensors = {"a": torch.zeros(1000)}
    run = tmp_path / "bucket"
    with Publisher(run, tensors, **MODES[mode]()) as publisher:
        publisher.publish(0)
        publisher.flush()
        hide(run)
        for step in range(1, 4):
            tensors["a"][step] = step
            publisher.publish(step)
        with pytest.raises(wisp.Error):
            publisher.flush()
        assert publisher.failure is not None
        give_back(run)
        tensors["a"][4] = 4
        publisher.publish(4)
        while publisher.failure is not None:
            try:
                publisher.flush()
            except wisp.Error:
                pass
        tensors["a"][1] = 0
        publisher.publish(5)
    assert stored(run, tmp_path) == {"a": bits(tensors["a"])}
    assert publisher.stats[-1].step == 5
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "training goes on" in warnings[0].getMessage()


def test_failures_are_raised_if_asked_for(tmp_path):
    run = tmp_path / "bucket"
    tensors = {"a": torch.zeros(1000)}
    publisher = Publisher(run, tensors, on_error="raise")
    publisher.publish(0)
    publisher.flush()
    hide(run)
    tensors["a"][0] = 1
    publisher.publish(1)
    with pytest.raises(wisp.Error):
        publisher.flush()
    give_back(run)
    publisher.close()
    assert stored(run, tmp_path) == {"a": bits(tensors["a"])}


def test_a_trainer_that_was_replaced_stops(tmp_path):
    tensors = {"a": torch.zeros(10)}
    first = Publisher(tmp_path / "run", tensors)
    first.publish(0)
    first.flush()
    with Publisher(tmp_path / "run", tensors) as second:
        tensors["a"][0] = 1
        first.publish(1)
        with pytest.raises(wisp.FencedError):
            first.flush()
        with pytest.raises(wisp.FencedError):
            first.publish(2)
        with pytest.raises(wisp.FencedError):
            first.close()
        second.publish(3)
    assert stored(tmp_path / "run", tmp_path) == {"a": bits(tensors["a"])}


class GatedStore(wisp.stores.Store):
    """Objects in a dict; commits wait while the gate is closed."""

    label = "gated"
    creates_exclusively = True

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()
        self.denied = False

    def put(self, key, data):
        if self.denied:
            raise PermissionError("wrong credentials")
        self.objects[key] = bytes(data)

    def create(self, key, data):
        self.arrived.set()
        self.gate.wait()
        if self.denied:
            raise PermissionError("wrong credentials")
        return self.objects.setdefault(key, bytes(data)) == bytes(data)

    def read(self, key, offset, size):
        if key not in self.objects:
            raise FileNotFoundError(key)
        return self.objects[key][offset : offset + size]

    def head(self, key):
        return len(self.read(key, 0, 1 << 40)), 0

    def remove(self, key):
        self.objects.pop(key, None)

    def list(self, prefix, after, limit):
        keys = sorted(k for k in self.objects if k.startswith(prefix) and k > after)
        return [(k, len(self.objects[k]), 0) for k in keys[:limit]]


@pytest.mark.parametrize("mode", MODES)
def test_steps_that_wait_are_folded(tmp_path, mode):
    store = GatedStore()
    tensors = {"a": torch.zeros(100)}
    with Publisher(store, tensors, **MODES[mode]()) as publisher:
        publisher.publish(0)
        store.gate.clear()
        store.arrived.clear()
        tensors["a"][1] = 1
        publisher.publish(1)
        store.arrived.wait()
        for step in range(2, 5):
            tensors["a"][step] = step
            tensors["a"][1] = 1 if step < 4 else 0
            publisher.publish(step)
        store.gate.set()
        publisher.flush()
        tensors["a"][7] = 7
        publisher.publish(5)
    assert [(s.step, s.folded) for s in publisher.stats] == [(0, 0), (1, 0), (4, 2), (5, 0)]
    assert publisher.stats[-1].changed == 1
    assert stored(store, tmp_path) == {"a": bits(tensors["a"])}


def test_wrong_credentials_are_named(tmp_path, caplog):
    store = GatedStore()
    store.denied = True
    with pytest.raises((wisp.DeniedError, PermissionError)):
        Publisher(store, {"a": torch.zeros(3)})
    store.denied = False
    tensors = {"a": torch.zeros(3)}
    with Publisher(store, tensors) as publisher:
        publisher.publish(0)
        store.denied = True
        tensors["a"][0] = 1
        publisher.publish(1)
        with pytest.raises((wisp.DeniedError, PermissionError), match="wrong credentials"):
            publisher.flush()
        store.denied = False
    assert stored(store, tmp_path) == {"a": bits(tensors["a"])}
