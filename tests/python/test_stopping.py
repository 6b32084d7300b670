"""stop(), close() and the end of the process do not wait for a store, whatever it does."""

from __future__ import annotations

import socket
import threading
import time
import warnings
from contextlib import contextmanager

import pytest
from test_follower import blank, model, same, start_python

import wisp
from wisp import _native
from wisp.stores import At, FsspecStore
from wisp.follow.targets import SharedTarget
from wisp.tensors import host_entries

#: What is promised is a second; the rest is for machines with too much to do.
PROMPT = 3.0


@contextmanager
def promptly():
    started = time.monotonic()
    yield
    assert time.monotonic() - started < PROMPT


class StubbornServer:
    """Listens, and answers nothing; or, given an answer, always that one."""

    def __init__(self, answer: bytes = b"") -> None:
        self.asked = threading.Event()
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: socket.socket) -> None:
        try:
            while connection.recv(65536):
                if self._answer:
                    connection.sendall(self._answer)
                self.asked.set()
        except OSError:
            pass

    def close(self) -> None:
        for one in [self._listener, *self._open]:
            one.close()


BUSY = b"HTTP/1.1 503 Slow Down\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(params=[b"", BUSY], ids=["hangs", "busy"])
def stubborn(request, monkeypatch):
    server = StubbornServer(request.param)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    yield server
    server.close()


def test_stop_and_close_do_not_wait_for_a_store_that_is_reached_by_http(stubborn):
    follower = wisp.Follower("s3://bucket/run", blank(), replica_id="r", poll=0.01).start()
    assert stubborn.asked.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with promptly():
            follower.stop()
        assert follower.status == "idle"
        with promptly():
            follower.close()


def test_close_ends_the_sync_of_another_thread(stubborn):
    follower = wisp.Follower("s3://bucket/run", blank())
    raised = []

    def sync() -> None:
        try:
            follower.sync()
        except wisp.UnavailableError as error:
            raised.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    assert stubborn.asked.wait(60)
    with promptly():
        follower.close()
        thread.join()
    assert len(raised) == 1 and follower.status == "closed"


class BlockingStore(FsspecStore):
    """Files of this machine; once it is told to, readers wait."""

    def __init__(self, folder) -> None:
        fsspec = pytest.importorskip("fsspec")
        super().__init__(fsspec.filesystem("file"), str(folder))
        self.blocks = False
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def read(self, key, offset, count):
        if self.blocks:
            self.asked.set()
            self.let_go.wait()
        return super().read(key, offset, count)


@pytest.fixture
def blocked(bucket, publish, tmp_path):
    """A follower at step 0 whose thread is held by its store, with step 1 ahead; and that store."""
    publish(model(0), 0)
    store = BlockingStore(tmp_path / "bucket")
    target = blank()
    follower = wisp.Follower(At(store, "run"), target, replica_id="r", poll=0.01)
    follower.sync()
    publish(model(1), 1)
    store.blocks = True
    before = set(threading.enumerate())
    follower.start()
    (thread,) = set(threading.enumerate()) - before
    assert store.asked.wait(60)
    yield follower, store, target, thread
    store.let_go.set()
    thread.join()


def test_a_thread_left_behind_in_a_python_store_changes_nothing_any_more(blocked):
    follower, store, target, thread = blocked
    with pytest.warns(RuntimeWarning, match="left behind"), promptly():
        follower.stop()
    with pytest.raises(wisp.UnavailableError, match="still holds a thread"):
        follower.sync()
    store.blocks = False
    store.let_go.set()
    thread.join()
    # It came back with all it needs for step 1.
    assert same(target, model(0)) and follower.step == 0
    assert follower.sync().step == 1 and same(target, model(1))
    follower.close()


def test_close_leaves_a_thread_behind_too(blocked):
    follower, store, target, thread = blocked
    with pytest.warns(RuntimeWarning, match="left behind"), promptly():
        follower.close()
    assert follower.status == "closed"
    store.let_go.set()
    thread.join()
    assert same(target, model(0))


def test_stopping_while_the_target_is_held(bucket, publish):
    publish(model(0), 0)
    target = blank()
    with wisp.Follower(bucket, target, poll=0.01) as follower:
        follower.start().wait_for(0, timeout=60)
        with follower.hold() as held:
            publish(model(1), 1)
            with promptly():
                follower.stop()
            assert held == 0 and same(target, model(0))
        assert follower.sync().step == 1 and same(target, model(1))


@pytest.mark.parametrize("seconds", ["600", "2.5"], ids=["for ever", "wakes while it ends"])
def test_a_process_ends_although_its_store_does_not_return(bucket, publish, tmp_path, seconds):
    publish(model(0), 0)
    code = f"""
import time, warnings, wisp
from test_follower import blank
from test_stopping import BlockingStore
from wisp.stores import At

class Late:
    def __del__(self):
        if {seconds} < 600: time.sleep(4)

late = Late()
store = BlockingStore({str(tmp_path / "bucket")!r})
store.let_go.wait = lambda: time.sleep({seconds})
follower = wisp.Follower(At(store, "run"), blank(), poll=0.01)
follower.sync()
store.blocks = True
follower.start()
store.asked.wait()
print("ends", flush=True)
"""
    with start_python(code) as child:
        out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "ends\n")


class LostLock(SharedTarget):
    """Memory whose readers cannot be kept away any more, from the second state on."""

    def __init__(self, arrays) -> None:
        self.arrays = arrays
        self.entered = 0

    def memory(self, schema):
        return _native.HostWeights(host_entries(self.arrays.items(), writable=True), True)

    def enter(self):
        self.entered += 1
        if self.entered > 1:
            raise RuntimeError("the lock is lost")

    def adopt(self, step, seq, state):
        pass

    def move(self, entries, step, seq, state):
        pass


def test_shared_memory_is_not_written_to_without_its_lock(bucket, publish):
    publish(model(0), 0)
    target = LostLock(blank())
    with wisp.Follower(bucket, target) as follower:
        follower.sync()
        assert same(target.arrays, model(0))
        publish(model(1), 1)
        with pytest.raises(RuntimeError, match="the lock is lost"):
            follower.sync()
        assert same(target.arrays, model(0)) and follower.step == 0


def test_ctrl_c_ends_a_call_that_waits_for_its_store(stubborn):
    code = """
import wisp
try:
    wisp.log("s3://bucket/run")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with start_python(code) as child:
        assert stubborn.asked.wait(60)
        child.send_signal(2)
        with promptly():
            out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (0, "interrupted\n")
