"""Keys: whoever names some believes nobody else."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest
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
        with pytest.raises(wisp.Denied):
            follower.sync()
    assert not blank["w"].any()
    assert wisp.status(run, trust=public).is_signed


def test_an_unsigned_run_is_refused_by_those_who_name_keys(bucket, publish, key):
    publish(ARRAYS, 0)
    target = {"w": np.zeros(100, np.float32)}
    with wisp.Follower(bucket, target, trust=[key.with_suffix(".pub")]) as follower:
        with pytest.raises(wisp.Denied):
            follower.sync()
    assert not target["w"].any()


def test_keys_that_are_none_are_said_so(bucket, tmp_path):
    with pytest.raises(wisp.Error, match="nokey"):
        wisp.status(bucket, trust="nokey")
    with pytest.raises(wisp.Invalid, match="certificate needs the key"):
        wisp.init(str(tmp_path / "other"), certificate=tmp_path / "c")
