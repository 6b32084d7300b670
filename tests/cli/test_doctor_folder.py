"""`wisp doctor` on a folder."""

import os
import re

import pytest

import run_wisp
import slow_s3


def test_accepts_a_folder_and_leaves_it_empty(tmp_path):
    done = run_wisp.wisp("doctor", tmp_path)
    assert done.code == 0, done
    assert "create_interleaved" in done.out and "several writers are safe" in done.out
    assert os.listdir(tmp_path) == []


def test_speaks_json(tmp_path):
    report = run_wisp.wisp("doctor", tmp_path.as_uri(), "--quick", "--json").json
    assert report["ok"] and report["exclusive_create"]
    assert report["verdict"].startswith("Fit for runs: ")
    details = {finding["name"]: finding["detail"] for finding in report["findings"]}
    assert "is caught 19 times in 20" in details["create_racing"], "it says how sure it is"
    assert {finding["name"] for finding in report["findings"]} >= {"write", "ranges", "listing"}


def test_catches_a_store_that_looks_first_and_writes_later():
    with slow_s3.SlowS3() as server:
        server.looks_first = True
        done = run_wisp.run("doctor", "s3://bucket/runs", "--json", env=server.environment())
        assert done.code == 16, done
        found = {finding["name"]: finding for finding in done.json["findings"]}
        assert found["create_large"]["verdict"] == "fail", "small objects never show it"
        assert "told that they created the same object" in found["create_large"]["detail"]
        assert found["create_racing"]["detail"] == "conditional writes do not hold, as was found above"
        assert not done.json["exclusive_create"] and "create_large" in done.json["verdict"]
        assert not server.objects, "nothing is left behind"


def test_init_follows_the_verdict(tmp_path):
    with slow_s3.SlowS3() as server:
        server.looks_first = True
        done = run_wisp.run("init", "s3://bucket/run", env=server.environment())
        assert done.code == 16 and "pass --single-writer" in done.err, done
        assert not server.objects, "nothing is left behind, least of all a run"
        run_wisp.wisp("init", "s3://bucket/run", "--single-writer", env=server.environment())
        server.looks_first = False
        run_wisp.wisp("init", "s3://bucket/sound", env=server.environment())


@pytest.mark.slow
def test_a_store_that_gives_no_answer_is_not_convicted():
    with slow_s3.SlowS3() as server:
        server.mute = "create_racing"
        done = run_wisp.run("doctor", "s3://bucket/runs", "--quick", "--json", env=server.environment())
        assert done.code == 5, done
        assert done.json["verdict"].startswith("Could not be decided: ") and done.json["exclusive_create"] is None
        assert not done.json["ok"]
        found = {finding["name"]: finding["verdict"] for finding in done.json["findings"]}
        assert found["create_racing"] == "undecided" and "fail" not in found.values()
        begun = run_wisp.run("init", "s3://bucket/run", env=server.environment())
        assert begun.code == 5 and "could not be decided" in begun.err, begun


def test_says_how_sure_it_is(tmp_path):
    last = run_wisp.wisp("doctor", tmp_path, "--quick").out.splitlines()[-1]
    assert re.search(r"\d+ races tell that: .* once in \d+ is caught 19 times in 20", last), last


def test_refuses_an_address_it_does_not_know():
    done = run_wisp.run("doctor", "ftp://host/runs")
    assert done.code == 1
    assert "s3://bucket/prefix" in done.err
