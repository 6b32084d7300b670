"""Stores written in Python: the claims of the contract, and runs that live in them."""

from __future__ import annotations

import threading

import pytest

import wisp
from wisp.stores import At, FsspecStore, Store

fsspec = pytest.importorskip("fsspec")


class DictStore(Store):
    """The smallest store: a dict under a lock."""

    label = "a dict"
    creates_exclusively = True

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.fail_with: BaseException | None = None

    def _check(self) -> None:
        if self.fail_with is not None:
            raise self.fail_with

    def put(self, key, data):
        self._check()
        with self.lock:
            self.objects[key] = data

    def create(self, key, data):
        self._check()
        with self.lock:
            return self.objects.setdefault(key, data) is data

    def read(self, key, offset, size):
        self._check()
        if key not in self.objects:
            raise wisp.NotFoundError(key)
        return self.objects[key][offset : offset + size]

    def head(self, key):
        return len(self.read(key, 0, 1 << 40)), 0

    def remove(self, key):
        self.objects.pop(key, None)

    def list(self, prefix, after, limit):
        self._check()
        keys = sorted(k for k in self.objects if k.startswith(prefix) and k > after)
        return [(k, len(self.objects[k]), 0) for k in keys[:limit]]


def make_store(kind, tmp_path):
    if kind == "dict":
        return DictStore()
    if kind == "memory":
        fs = fsspec.filesystem("memory", skip_instance_cache=True)
        return FsspecStore(fs, f"memory://{tmp_path.name}")
    return FsspecStore(fsspec.filesystem("file"), str(tmp_path / "root"))


@pytest.fixture(params=["dict", "memory", "local"])
def store(request, tmp_path):
    return make_store(request.param, tmp_path)


def test_gives_back_what_was_put(store):
    store.put("a/b", b"hello")
    store.put("a/b", b"hello!")
    assert store.read("a/b", 0, 100) == b"hello!"
    assert store.read("a/b", 2, 2) == b"ll"
    assert store.read("a/b", 6, 2) == b""
    assert store.head("a/b")[0] == 6


def test_an_empty_object_is_an_object(store):
    store.put("e", b"")
    assert store.head("e")[0] == 0 and store.read("e", 0, 10) == b""


def test_creates_only_where_nothing_is(store):
    assert store.create("c", b"1") is True
    assert store.create("c", b"2") is False
    assert store.read("c", 0, 10) == b"1"


def test_what_is_not_there_is_not_found(store):
    for ask in (store.head, lambda key: store.read(key, 0, 1)):
        with pytest.raises((wisp.NotFoundError, FileNotFoundError)):
            ask("no/such")
    store.remove("no/such")
    store.put("x/y", b"1")
    with pytest.raises((wisp.NotFoundError, FileNotFoundError)):
        store.head("x")
    store.remove("x/y")
    with pytest.raises((wisp.NotFoundError, FileNotFoundError)):
        store.head("x/y")


def names(store, prefix="", after="", limit=100):
    return [key for key, _, _ in store.list(prefix, after, limit)]


def test_lists_in_order_of_bytes_by_prefix_after_and_limit(store):
    keys = ["a-b", "a/1", "a/2", "a/3/x", "a0", "ab", "b/1", "c", "ä"]
    for key in reversed(keys):
        store.put(key, b"x")
    assert names(store) == sorted(keys, key=str.encode)
    assert names(store, "a/") == ["a/1", "a/2", "a/3/x"]
    assert names(store, "a") == ["a-b", "a/1", "a/2", "a/3/x", "a0", "ab"]
    assert names(store, "", "a/2", 2) == ["a/3/x", "a0"]
    assert names(store, "no/such/") == []


def test_one_of_many_creators_wins_where_that_is_promised(store):
    if not store.creates_exclusively:
        pytest.skip("this store does not promise it")
    won: list[int] = []
    racers = [
        threading.Thread(target=lambda n=n: store.create("slot", b"%d" % n) and won.append(n))
        for n in range(8)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(won) == 1 and store.read("slot", 0, 9) == b"%d" % won[0]


def test_a_run_can_be_started_in_it(store):
    run = At(store, "runs/one")
    wisp.init(run, single_writer=not store.creates_exclusively)
    assert wisp.status(run).head is None
    assert list(wisp.log(run)) == []
    with pytest.raises(wisp.ConflictError):
        wisp.init(run, single_writer=not store.creates_exclusively)


def test_a_store_that_cannot_exclude_needs_to_be_told_so():
    store = DictStore()
    store.creates_exclusively = False
    with pytest.raises(wisp.IncapableError):
        wisp.init(store)


def test_the_doctor_examines_stores_written_in_python():
    report = wisp.doctor(DictStore(), quick=True)
    assert report.healthy and report.exclusive_create, report


def test_an_exception_of_the_store_comes_out_as_itself():
    store = DictStore()
    wisp.init(store)
    store.fail_with = ZeroDivisionError("my own bug")
    with pytest.raises(ZeroDivisionError, match="my own bug") as caught:
        wisp.status(store)
    assert caught.value is store.fail_with


def test_exceptions_of_the_system_have_the_kind_of_their_cure():
    store = DictStore()
    wisp.init(store)
    store.fail_with = PermissionError("no")
    with pytest.raises(PermissionError):
        wisp.status(store)


def test_an_object_without_the_interface_is_refused():
    with pytest.raises(wisp.InvalidError, match="int has no put, create"):
        wisp.status(7)
    with pytest.raises(wisp.InvalidError, match="unknown scheme"):
        wisp.status("gopher://bucket")


def test_a_store_that_answers_nonsense_is_found_out():
    store = DictStore()
    wisp.init(store)
    store.list = lambda prefix, after, limit: [("elsewhere", 1, 0)]
    with pytest.raises(wisp.CorruptError, match="out of turn"):
        wisp.status(store)
    store.read = lambda key, offset, size: b"x" * (size + 1)
    with pytest.raises(wisp.CorruptError, match="were asked for"):
        wisp.log(store)
    store.read = lambda key, offset, size: "text"
    with pytest.raises(wisp.InvalidError, match="another type"):
        wisp.log(store)
