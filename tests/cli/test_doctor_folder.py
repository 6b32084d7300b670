"""`wisp doctor` on a folder."""

import os

import run_wisp


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


def test_refuses_an_address_it_does_not_know():
    done = run_wisp.run("doctor", "ftp://host/runs")
    assert done.code == 1
    assert "s3://bucket/prefix" in done.err
