"""wisp.engine: servers told which step to serve."""

from __future__ import annotations

import queue
import subprocess
import sys

import pytest
from engine_servers import ScriptedVllm

import wisp
from wisp.engine import Driver

RUN = "s3://bucket/run"


@pytest.fixture
def two():
    with ScriptedVllm() as one, ScriptedVllm() as other:
        yield one, other


def test_update_brings_all_servers_to_the_step(two):
    with Driver(RUN, [s.url for s in two], watch=0) as driver:
        reports = driver.update(3)
        assert [r.url for r in reports] == [s.url for s in two]
        for report in reports:
            assert report.ok and report.moved and report.initialized and report.error == ""
            assert report.served == 3 and report.pause_seconds == 0.004
            assert report.phases == {"staged": 0.5, "applied": 0.003}
            assert report.engine == "vllm" and "step 3" in repr(report)
        assert [s.acts for s in two] == [["/wisp/init", "/wisp/update"]] * 2
        assert [r.served for r in driver.status()] == [3, 3]
        assert not any(r.moved for r in driver.update(3))
        assert two[0].url in repr(driver.latest())


def test_dead_server_is_reported_and_comes_back_by_itself(two):
    living, dying = two
    told = queue.Queue()
    with Driver(RUN, [s.url for s in two], watch=0.02, on_report=told.put) as driver:
        assert all(r.ok for r in driver.update(1))
        dying.close()
        with ScriptedVllm(dying.port, listening=False) as back:
            first, second = driver.update(2)
            assert first.ok and not second.ok
            assert second.error_kind == "unavailable" and second.url in second.error
            back.listen()
            while not (report := told.get(timeout=600)).ok or report.url != back.url \
                    or report.target != 2:
                pass
            assert report.initialized and back.served == 2
            assert back.acts == ["/wisp/init", "/wisp/update"]


def test_refusal_keeps_its_cause(two):
    two[0].refusal = (409, "step 4 is corrupt")
    with Driver(RUN, [two[0].url], watch=0) as driver:
        (report,) = driver.update(4)
    assert not report.ok and report.error_kind == "conflict" and "step 4 is corrupt" in report.error


def test_what_a_server_forbids_is_told_with_its_own_cure(two):
    two[0].forbids = "start it with WISP_RUN"
    with Driver(RUN, [two[0].url], watch=0) as driver:
        (report,) = driver.update(1)
    assert report.error_kind == "denied" and "start it with WISP_RUN" in report.error


def test_servers_are_told_what_to_demand(two):
    with Driver(RUN, [two[0].url], watch=0) as driver:
        assert driver.update(1)[0].ok
    assert two[0].info == {"run": RUN, "trust": [], "mode": "push"}
    key = "ed25519:" + "ab" * 32
    with Driver(
        RUN, [two[1].url], watch=0, trust=key, min_serial=3, run_id="AB" * 16
    ) as driver:
        assert driver.update(1)[0].ok
    told = {"run": RUN, "trust": [key], "mode": "push", "min_serial": 3, "run_id": "ab" * 16}
    assert two[1].info == told


def test_key_is_sent_and_comes_from_the_environment(two, monkeypatch):
    monkeypatch.setenv("WISP_API_KEY", "hush")
    with Driver(RUN, [two[0].url], watch=0) as driver:
        assert driver.update(1)[0].ok
    with Driver(RUN, [two[1].url], watch=0, api_key="mine") as driver:
        assert driver.update(1)[0].ok
    assert two[0].keys == {"Bearer hush"} and two[1].keys == {"Bearer mine"}


def test_wrong_calls_raise(two):
    for wrong in (["localhost:8000"], [], [two[0].url, two[0].url]):
        with pytest.raises(wisp.InvalidError):
            Driver(RUN, wrong)
    with pytest.raises(wisp.InvalidError):
        Driver(RUN, [two[0].url], mode="later")
    driver = Driver(RUN, [two[0].url])
    driver.close()
    with pytest.raises(wisp.InvalidError):
        driver.update(1)


def test_interpreter_ends_with_a_driver_that_was_left_open(two):
    code = f"""
from wisp.engine import Driver
driver = Driver({RUN!r}, ["{two[0].url}", "http://127.0.0.1:9"], watch=0.01, on_report=print)
driver.update(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
