"""Keys: a reader that names some believes no others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from certified_people import People
from conftest import TREE, WISP_BIN

import wisp

ARRAYS = {"w": np.arange(100, dtype=np.float32)}


@pytest.fixture
def key(tmp_path):
    subprocess.run([TREE / WISP_BIN, "key", "new", tmp_path / "k"], check=True, capture_output=True)
    return tmp_path / "k"


def test_a_signed_run_is_followed_with_its_key_and_refused_with_another(tmp_path, publish, key):
    public = key.with_suffix(".pub")
    run = str(tmp_path / "signed")
    wisp.init(run, sign_key=key)
    publish.run = run
    publish(ARRAYS, 0, "--sign-key", str(key))
    target = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(run, target, trust=public) as follower:
        assert follower.sync().step == 0
    assert (target["w"] == ARRAYS["w"]).all()
    stranger = "ed25519:" + "ab" * 32
    blank = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(run, blank, trust=[stranger]) as follower:
        with pytest.raises(wisp.DeniedError):
            follower.sync()
    assert not blank["w"].any()
    assert wisp.status(run, trust=public).is_signed


def test_an_unsigned_run_is_refused_by_those_who_name_keys(bucket, publish, key):
    publish(ARRAYS, 0)
    target = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(bucket, target, trust=[key.with_suffix(".pub")]) as follower:
        with pytest.raises(wisp.DeniedError):
            follower.sync()
    assert not target["w"].any()


def test_keys_that_are_none_are_said_so(bucket, tmp_path):
    with pytest.raises(wisp.Error, match="nokey"):
        wisp.status(bucket, trust="nokey")
    with pytest.raises(wisp.InvalidError, match="certificate needs the key"):
        wisp.init(str(tmp_path / "other"), certificate=tmp_path / "c")


def certify(made, root, subject, serial, lasting="1d"):
    """A certificate of `root` for `subject`, in the file `made`."""
    command = [TREE / WISP_BIN, "key", "certify", "--root", root, "--subject", subject]
    command += ["--serial", str(serial), "--expires", lasting, "--output", made]
    subprocess.run(command, check=True, capture_output=True)
    return made


def test_a_certificate_below_the_least_serial_is_refused(tmp_path, key):
    root = tmp_path / "root"
    subprocess.run([TREE / WISP_BIN, "key", "new", root], check=True, capture_output=True)
    public = root.with_suffix(".pub")
    run = str(tmp_path / "certified")
    certificate = certify(tmp_path / "4.cert", root, key.with_suffix(".pub"), 4)
    how = {"sign_key": key, "certificate": certificate, "trust": public, "on_error": "raise"}
    with wisp.Publisher(run, ARRAYS, **how) as publisher:
        publisher.publish(1)
    with wisp.Follower(run, {"w": np.zeros(100, np.float32)}, trust=public, min_serial=4) as least:
        assert least.sync().step == 1
    target = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(run, target, trust=public, min_serial=5) as follower:
        with pytest.raises(wisp.DeniedError, match="serial"):
            follower.sync()
    assert not target["w"].any()
    assert wisp.status(run, trust=public, min_serial=4).head.step == 1
    for look in (wisp.status, wisp.log):
        with pytest.raises(wisp.DeniedError, match="serial"):
            look(run, trust=public, min_serial=5)
    with pytest.raises(wisp.DeniedError, match="serial"):
        wisp.Publisher(run, ARRAYS, min_serial=5, **how)


FAKETIME = shutil.which("faketime")


def days_later(days, folder, script):
    """Runs `script` in a process whose clock is that many days ahead."""
    story = f"from certified_people import *\npeople = People({str(folder)!r})\n{script}"
    paths = [os.environ["PYTHONPATH"], str(Path(__file__).parent)]
    environment = {"PYTHONPATH": ":".join(paths), "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    done = subprocess.run(
        [FAKETIME, "-f", f"{days:+d}d", sys.executable, "-c", story],
        env=os.environ | environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(FAKETIME is None, reason="needs faketime; tools/setup.sh installs it")
def test_life_of_a_certificate(tmp_path, key):
    """Renewed in time, renewed too late, and a replica that slept through all of it."""
    root, subject = tmp_path / "root", key.with_suffix(".pub")
    subprocess.run([TREE / WISP_BIN, "key", "new", root], check=True, capture_output=True)
    people = People(tmp_path)
    wisp.init(people.run, roots=[people.root])
    certify(tmp_path / "k.cert", root, subject, 1, "30d")
    training = people.train(1, 2)
    next(training)
    assert people.follow("sleeper").step == 1
    # The trainer that runs takes it up.
    certify(tmp_path / "k.cert", root, subject, 2, "60d")
    assert list(training) == [2]
    days_later(40, tmp_path, """
for name in ("sleeper", "newcomer"):
    told = people.follow(name)
    assert told.step == 2 and not told.expired, told
""")
    # Both have ended: nothing is signed any more, and nobody begins.
    days_later(70, tmp_path, """
told = people.follow("sleeper")
assert told.step == 2 and told.expired, told
assert is_refused(lambda: people.follow("late"))
assert is_refused(lambda: list(people.train(3)))
""")
    certify(tmp_path / "k.cert", root, subject, 3, "365d")
    days_later(70, tmp_path, """
assert list(people.train(3)) == [3]
for name in ("sleeper", "late"):
    told = people.follow(name)
    assert told.step == 3 and not told.expired, told
""")


def test_a_pinned_run_is_the_only_one_that_is_taken(tmp_path):
    run, other = str(tmp_path / "run"), str(tmp_path / "other")
    mine = wisp.init(run).run
    for place in (run, other):
        with wisp.Publisher(place, ARRAYS, on_error="raise") as publisher:
            publisher.publish(1)
    with wisp.Follower(run, {"w": np.zeros(100, np.float32)}, run_id=mine) as follower:
        assert follower.sync().step == 1
    with wisp.Publisher(run, ARRAYS, run_id=mine.upper(), on_error="raise") as publisher:
        assert publisher.run == mine
    # Another run at the address, however sound it is.
    target = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(other, target, run_id=mine) as follower:
        with pytest.raises(wisp.ForkedError, match=mine):
            follower.sync()
    assert not target["w"].any()
    for look in (wisp.status, wisp.log, wisp.compact, wisp.retain, wisp.scrub):
        with pytest.raises(wisp.ForkedError, match=mine):
            look(other, run_id=mine)
    with pytest.raises(wisp.ForkedError, match=mine):
        wisp.export(other, tmp_path / "out", run_id=mine)
    with pytest.raises(wisp.ForkedError, match=mine):
        wisp.Publisher(other, ARRAYS, run_id=mine)


def test_a_pinned_run_that_is_not_there_is_not_started(tmp_path):
    with pytest.raises(wisp.NoRunError):
        wisp.Publisher(str(tmp_path / "none"), ARRAYS, run_id="0" * 32)
    assert not (tmp_path / "none").exists()
    with pytest.raises(wisp.InvalidError, match="32 hexadecimal digits"):
        wisp.status(str(tmp_path / "none"), run_id="run")
    with pytest.raises(wisp.InvalidError, match="min_serial"):
        wisp.status(str(tmp_path / "none"), min_serial=-1)
