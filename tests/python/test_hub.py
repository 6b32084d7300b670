"""Buckets of the Hub by its own API: the real client and the real Xet, a Hub on loopback."""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import loopback_hub
import numpy as np
import pytest

# The claims that every store is held to, on this one.
from test_stores import (  # noqa: F401
    test_a_run_can_be_started_in_it,
    test_an_empty_object_is_an_object,
    test_creates_only_where_nothing_is,
    test_gives_back_what_was_put,
    test_lists_in_order_of_bytes_by_prefix_after_and_limit,
    test_what_is_not_there_is_not_found,
)

import wisp
from wisp.hub import HubStore
from wisp.stores import At, location

huggingface_hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("hf_xet")
pytestmark = pytest.mark.skipif(
    loopback_hub.cas_server() is None,
    reason="the Xet test server is not built: make test-all builds it, once",
)

#: Of a free account, in five minutes.
API_CALLS, RESOLVER_CALLS, REPLICAS = 1000, 5000, 16
_numbers = itertools.count()


@pytest.fixture(scope="module")
def started() -> Iterator[loopback_hub.LoopbackHub]:
    with loopback_hub.LoopbackHub() as hub:
        yield hub


@pytest.fixture
def hub(
    started: loopback_hub.LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> loopback_hub.LoopbackHub:
    for name, value in started.environment().items():
        monkeypatch.setenv(name, value)
    return started


@pytest.fixture
def store(hub: loopback_hub.LoopbackHub) -> HubStore:
    made = HubStore(f"acme/weights-{next(_numbers)}")
    made.create_bucket()
    return made


@pytest.fixture
def url(store: HubStore) -> str:
    return f"{store.label}/runs/one"


def weights(seed: int, size: int = 2000) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {"w": generator.standard_normal(size).astype(np.float32)}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(left[n].view(np.uint32), right[n].view(np.uint32)) for n in left)


def test_a_run_with_one_declared_writer_arrives_bit_for_bit(url: str) -> None:
    with pytest.raises(wisp.IncapableError, match="single_writer"):
        wisp.init(url)
    wisp.init(url, single_writer=True)
    model, target = weights(0), weights(1)
    follower = wisp.Follower(url, target)
    with wisp.Publisher(url, model, on_error="raise") as publisher:
        for step in range(3):
            model["w"][step::97] += 1
            publisher.publish(step)
            publisher.flush()
            assert follower.sync().step == step
            assert same(model, target)
    assert wisp.status(url).single_writer


def test_a_second_history_is_noticed(hub: loopback_hub.LoopbackHub, store: HubStore) -> None:
    run = At(store, "run")
    wisp.init(run, single_writer=True)
    model, target = weights(0), weights(1)
    with wisp.Publisher(run, model, on_error="raise") as publisher:
        publisher.publish(0)
    bucket = store.label.removeprefix("hf://buckets/")
    before = copy.deepcopy(hub.buckets[bucket])
    model["w"][::7] += 1
    with wisp.Publisher(run, model, on_error="raise") as publisher:
        publisher.publish(1)
    follower = wisp.Follower(run, target)
    assert follower.sync().step == 1
    # A writer that saw none of this writes into the same slots; the last one wins.
    hub.buckets[bucket] = before
    for step in (1, 2):
        model["w"][step::5] += 1
        with wisp.Publisher(run, model, on_error="raise") as publisher:
            publisher.publish(step)
    held = target["w"].copy()
    with pytest.raises(wisp.ForkedError):
        follower.sync()
    assert np.array_equal(held, target["w"]), "what was good is still served"


class Watched(HubStore):
    """Remembers how large objects came in."""

    largest_put = 0
    files: int = 0

    def put(self, key: str, data: bytes) -> None:
        self.largest_put = max(self.largest_put, len(data))
        super().put(key, data)

    def put_file(self, key: str, path: str) -> None:
        self.files += 1
        super().put_file(key, path)


def test_large_objects_go_by_file(hub: loopback_hub.LoopbackHub) -> None:
    store = Watched(f"acme/weights-{next(_numbers)}")
    store.create_bucket()
    wisp.init(store, single_writer=True)
    model, target = weights(2, 5_000_000), weights(3, 5_000_000)
    with wisp.Publisher(store, model, on_error="raise") as publisher:
        publisher.publish(0)
    assert store.files == 1 and store.largest_put < 1 << 20
    anchor = next(key for key, _, _ in store.list("anchors/", "", 9) if "safetensors" in key)
    hub.calls.clear()
    pieces = [store.read(anchor, at, 3_000_000) for at in range(0, 21_000_000, 3_000_000)]
    assert len(b"".join(pieces)) == store.head(anchor)[0]
    assert sum("xet-read-token" in path for _, _, path in hub.calls) == 1, "fetched once"
    wisp.Follower(store, target).sync()
    assert same(model, target)


def test_sixteen_replicas_keep_within_the_free_limits(
    hub: loopback_hub.LoopbackHub, url: str
) -> None:
    wisp.init(url, single_writer=True)
    model, target = weights(4), weights(5)
    follower = wisp.Follower(url, target)
    with wisp.Publisher(url, model, on_error="raise") as publisher:
        for step in range(3):
            model["w"][step::97] += 1
            publisher.publish(step)
            publisher.flush()
            follower.sync()
        hub.calls.clear()
        follower.sync()
        idle = Counter(kind for kind, _, _ in hub.calls)
        model["w"][::31] += 1
        publisher.publish(3)
        publisher.flush()
        hub.calls.clear()
        assert follower.sync().step == 3
        # A look that finds the next step, the step, and one look that finds no further one.
        busy = Counter(kind for kind, _, _ in hub.calls)
    assert idle == {"resolvers": 1} and busy["api"] <= 2 and busy["resolvers"] <= 6
    polls, steps, beats = 300 / location(url).poll, 300 / 20, 300 / 60
    api = busy["api"] * steps + 2 * beats
    resolvers = busy["resolvers"] * steps + idle["resolvers"] * polls
    assert REPLICAS * api < 0.9 * API_CALLS, busy
    assert REPLICAS * resolvers < 0.9 * RESOLVER_CALLS, busy


def test_the_doctor_names_the_way_and_the_better_one(url: str) -> None:
    report = wisp.doctor(url)
    found = {finding.name: finding for finding in report.findings}
    assert report.healthy and not report.exclusive_create
    assert "own API" in found["way"].detail and found["way"].verdict == "warn"
    assert "HF_S3_ENDPOINT" in found["way"].cure, "another Hub than the public one"
    assert "Generate S3 credentials" in found["way"].cure
    assert found["create_racing"].verdict == "skipped"


def test_keys_for_the_gateway_lead_to_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "own API" in location(url).way
    monkeypatch.setenv("HF_S3_ACCESS_KEY_ID", "HFAK")
    monkeypatch.setenv("HF_S3_SECRET_ACCESS_KEY", "x")
    assert "own API" in location(url).way, "the gateway of this Hub is not known"
    monkeypatch.setenv("HF_ENDPOINT", "https://huggingface.co")
    place = location(url)
    assert "S3 gateway at https://s3.hf.co/acme" in place.way and place.creates_exclusively


def test_refusals_have_the_kind_of_their_cure(
    hub: loopback_hub.LoopbackHub, store: HubStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(wisp.NotFoundError, match="hf buckets create"):
        HubStore("acme/nowhere").put("a", b"x")
    hub.fail_next = 418
    with pytest.raises(wisp.InvalidError):
        store.head("a")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong_hush")
    for ask in (lambda: store.read("a", 0, 1), lambda: store.put("a", b"x"), store.now_ms):
        with pytest.raises(wisp.DeniedError, match="HF_TOKEN") as refused:
            ask()
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize("where", ["HF_TOKEN_PATH", "HF_HOME"])
def test_the_token_is_found_where_huggingface_hub_keeps_it(
    hub: loopback_hub.LoopbackHub, store: HubStore, where: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(loopback_hub.TOKEN)
    value = tmp_path if where == "HF_HOME" else tmp_path / "token"
    told = {**os.environ, where: str(value)}
    del told["HF_TOKEN"]
    code = f"import wisp; wisp.init({store.label!r}, single_writer=True)"
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "format.json" in hub.buckets[store.label.removeprefix("hf://buckets/")]


def test_without_the_client_the_ways_to_go_are_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    with pytest.raises(wisp.DeniedError, match="pip install.*HF_S3_ACCESS_KEY_ID"):
        wisp.status(url)
