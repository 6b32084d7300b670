"""What becomes of submitted steps when nobody calls close(), and of publishers after a fork.

Each case is a script of its own: it is its end that is looked at.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import wisp

#: A store in a folder whose commits take a while, so that steps are waiting when the script ends.
PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import wisp
from wisp.stores import Store

class SlowStore(Store):
    label = "slow"
    creates_exclusively = True
    pause = 0.05
    refusing = hanging = False

    def put(self, key, data):
        if self.refusing:
            raise PermissionError("the store refuses")
        path = os.path.join(FOLDER, key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + "~", "wb") as file:
            file.write(data)
        os.replace(path + "~", path)

    def create(self, key, data):
        time.sleep(self.pause)
        while self.hanging:
            time.sleep(0.01)
        path = os.path.join(FOLDER, key)
        if os.path.exists(path):
            return open(path, "rb").read() == bytes(data)
        self.put(key, data)
        return True

    def read(self, key, offset, size):
        with open(os.path.join(FOLDER, key), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def head(self, key):
        return os.path.getsize(os.path.join(FOLDER, key)), 0

    def remove(self, key):
        if os.path.exists(os.path.join(FOLDER, key)):
            os.remove(os.path.join(FOLDER, key))

    def list(self, prefix, after, limit):
        found = []
        for top, _, names in os.walk(FOLDER):
            for name in names:
                key = os.path.relpath(os.path.join(top, name), FOLDER)
                if key.startswith(prefix) and key > after and not key.endswith("~"):
                    found.append((key, 1, 0))
        return sorted(found)[:limit]

weights = {"a": np.zeros(1000, "f4")}

def train(publisher, steps=20):
    for step in range(steps):
        weights["a"][step] = step + 1
        publisher.publish(step)
"""


def run_script(tmp_path: Path, script: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "bucket"
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", f"FOLDER = {str(folder)!r}\n{PROLOGUE}{script}"],
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def newest(tmp_path: Path) -> int:
    return wisp.status(str(tmp_path / "bucket")).head.step


ENDS = {
    "the script ends": ("", 0),
    "an exception": ("raise ValueError('oh')", 1),
    "sys.exit": ("sys.exit(3)", 3),
    "a handler of SIGTERM": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))\nos.kill(os.getpid(), signal.SIGTERM)",
        4,
    ),
    "del": ("del publisher", 0),
    "a cycle that is collected": (
        "publisher.me = publisher\ndel publisher\nimport gc\ngc.collect()",
        0,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_submitted_is_committed_at_exit(tmp_path, end):
    code, exit_code = ENDS[end]
    script = f"publisher = wisp.Publisher(SlowStore(), weights)\ntrain(publisher)\n{code}"
    done = run_script(tmp_path, script)
    assert done.returncode == exit_code, done.stderr
    assert newest(tmp_path) == 19
    assert "wisp:" not in done.stderr


def test_what_cannot_be_committed_at_exit_is_named_on_stderr(tmp_path):
    script = """
store = SlowStore()
publisher = wisp.Publisher(store, weights, exit_timeout=1.0)
train(publisher, 3)
publisher.flush()
store.refusing = True
weights["a"][7] = 7
publisher.publish(3)
"""
    done = run_script(tmp_path, script)
    assert done.returncode == 0
    assert newest(tmp_path) == 2
    assert "wisp: slow: step 3 is not committed: " in done.stderr
    assert "the store refuses" in done.stderr


def test_a_store_that_hangs_does_not_hold_up_the_exit(tmp_path):
    script = """
store = SlowStore()
publisher = wisp.Publisher(store, weights, exit_timeout=0.5)
train(publisher, 1)
store.hanging = True
weights["a"][7] = 7
publisher.publish(1)
"""
    done = run_script(tmp_path, script)
    assert newest(tmp_path) == 0
    assert "step 1 is not committed" in done.stderr


def test_the_first_state_that_failed_is_raised_by_flush_and_close(tmp_path):
    script = """
store = SlowStore()
publisher = wisp.Publisher(store, weights, on_error="warn")
store.refusing = True
publisher.publish(5)
for call in (publisher.flush, publisher.flush):
    try:
        call()
    except Exception as error:
        print("raised", type(error).__name__, error, *getattr(error, "__notes__", []))
publisher._on_error = "raise"
try:
    publisher.close()
except Exception as error:
    print("closing", type(error).__name__, error, *getattr(error, "__notes__", []))
"""
    done = run_script(tmp_path, script)
    # The store's own exception, each time it is asked for.
    told = "PermissionError the store refuses step 5 of slow is not committed"
    assert done.stdout.splitlines() == [f"raised {told}", f"raised {told}", f"closing {told}"], done


def test_a_tensor_that_cannot_be_published_is_named_by_flush(tmp_path):
    weights = {"a": np.zeros(3, "f4")}
    publisher = wisp.Publisher(tmp_path / "run", weights)
    publisher.publish(0)
    weights["a"] = "letters"
    with pytest.raises(wisp.InvalidError):
        publisher.publish(1)
    for _ in range(2):
        with pytest.raises(wisp.Error, match="step 1 is not committed"):
            publisher.flush()
    weights["a"] = np.ones(3, "f4")
    publisher.publish(2)
    publisher.flush()
    publisher.close()
    assert wisp.status(tmp_path / "run").head.step == 2


def test_two_publishers_on_one_scratch_folder_are_refused(tmp_path):
    weights = {"a": np.zeros(3, "f4")}
    scratch = tmp_path / "scratch"
    with wisp.Publisher(tmp_path / "run", weights, scratch=scratch) as publisher:
        with pytest.raises(wisp.ConflictError, match="scratch folder"):
            wisp.Publisher(tmp_path / "run", weights, scratch=scratch)
        with pytest.raises(wisp.ConflictError, match="scratch folder"):
            wisp.Follower(tmp_path / "run", dict(weights), scratch=scratch)
        publisher.publish(0)
    wisp.Publisher(tmp_path / "run", weights, scratch=scratch).close()


FORKED = """
store = SlowStore()
publisher = wisp.Publisher(store, weights)
train(publisher, 2)
publisher.flush()
store.pause = 0.5
weights["a"][5] = 5
publisher.publish(2)  # under way while the child lives
follower = wisp.Follower(FOLDER, {"a": np.zeros(1000, "f4")}, poll=0.01)
follower.start()

def refused(call):
    try:
        call()
    except wisp.InvalidError as error:
        assert "belongs to process" in str(error), error
        return
    os._exit(9)

def in_child():
    global publisher, follower
    refused(publisher.publish)
    refused(publisher.flush)
    refused(publisher.close)
    refused(lambda: publisher.stats)
    refused(follower.sync)
    refused(follower.close)
    with follower:
        pass
    with publisher:
        pass
"""

CHILDREN = {
    "it exits": "sys.exit(7)",
    "it raises": "raise SystemExit(7)",
    "its copies are collected": "del publisher, follower\n        import gc; gc.collect()\n        sys.exit(7)",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_a_forked_child_has_nothing_of_its_parents_publisher(tmp_path, child):
    script = FORKED + f"""
def main():
    global publisher, follower
    pid = os.fork()
    if pid == 0:
        in_child()
        {CHILDREN[child]}
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
main()
publisher.flush()
follower.wait_for(2, timeout=30)
weights["a"][6] = 6
publisher.publish(3)
"""
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert newest(tmp_path) == 3


def test_workers_of_multiprocessing_end(tmp_path):
    script = FORKED + """
import multiprocessing

context = multiprocessing.get_context("fork")
workers = [context.Process(target=in_child) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join(30)
    assert worker.exitcode == 0, worker.exitcode
weights["a"][6] = 6
publisher.publish(3)
"""
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert newest(tmp_path) == 3


def test_a_killed_process_lets_go_of_its_scratch_folder(tmp_path):
    scratch = str(tmp_path / "scratch")
    script = f"""
publisher = wisp.Publisher(FOLDER, weights, scratch={scratch!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_script(tmp_path, script).returncode == -9
    weights = {"a": np.zeros(1000, "f4")}
    with wisp.Publisher(tmp_path / "bucket", weights, scratch=scratch) as publisher:
        publisher.publish(0)


def test_a_last_heartbeat_that_fails_does_not_end_the_process(tmp_path):
    # As at the end of the interpreter: nothing can be imported any more, not even wisp.errors.
    script = """
store = SlowStore()
with wisp.Publisher(store, weights) as publisher:
    publisher.publish()
follower = wisp.Follower(store, {"a": np.ones(1000, "f4")}, replica_id="r")
follower.sync()
store.refusing = True
del sys.modules["wisp.errors"]
finders, sys.meta_path = sys.meta_path, None
del follower
sys.meta_path = finders
print("goes on")
"""
    done = run_script(tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "goes on\n"), done.stderr
