"""`wisp status`: the verdict for people, for machines and as an exit code; and what goes to stderr as JSON."""

import json
import os
import re
import time

import pytest

import runs
from run_wisp import PATIENCE, USAGE, answer, refused, run, start, wisp


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init("--no-probe")
    return made


def check(*arguments):
    done = run("status", *arguments, "--check")
    assert len(done.out.splitlines()) == 1 and done.err == "", done
    return done.code, done.out.strip()


def test_a_run_without_steps_is_a_warning_and_one_with_a_step_is_well(trainer):
    assert check(trainer.url) == (1, "WISP WARNING - nothing was published yet")
    trainer.steps(2)
    code, line = check(trainer.url)
    assert code == 0
    assert re.fullmatch(r"WISP OK - step 1, [\d.]+ s ago; no replica follows \| step=1 age=[\d.]+s lag=0 replicas=0", line)


def test_text_and_json_say_the_same_line(trainer):
    trainer.steps(1)
    told = answer("status", trainer.url)["verdict"]
    assert told["severity"] == "ok" and told["concerns"] == []
    shown = wisp("status", trainer.url).out.splitlines()[1]
    assert re.fullmatch(r"verdict   green: step 0, [\d.]+ s ago; no replica follows", shown)


def test_limits_of_ones_own_are_critical(trainer, tmp_path):
    trainer.steps(1)
    runs.pull(trainer.url, tmp_path / "replica", "--id", "gpu-1")
    assert check(trainer.url, "--max-age", "1h")[0] == 0
    code, line = check(trainer.url, "--max-age", "1ms")
    assert code == 2 and "CRITICAL - no step for" in line
    refused(USAGE, "status", trainer.url, "--check", "--max-age", "10")


def test_a_silent_replica_is_critical(trainer, tmp_path):
    trainer.steps(1)
    process = start("follow", trainer.url, "--into", tmp_path / "replica", "--id", "gpu-1", "--json")
    process.stdout.readline()
    heartbeat = trainer.url / "replicas/gpu-1"
    deadline = time.monotonic() + PATIENCE
    while not heartbeat.exists() and time.monotonic() < deadline:
        assert process.poll() is None
    assert check(trainer.url)[0] == 0
    process.kill()
    process.communicate()
    then = heartbeat.stat().st_mtime - 600
    os.utime(heartbeat, (then, then))
    code, line = check(trainer.url)
    assert code == 2 and "replica 'gpu-1' silent for 10 min" in line


def test_a_broken_chain_is_critical_and_the_status_is_shown_all_the_same(trainer):
    trainer.steps(4)
    sorted((trainer.url / "commits").iterdir())[2].unlink()
    code, line = check(trainer.url)
    assert code == 2 and "the chain of commits is broken" in line
    assert "verdict   red: the chain of commits is broken" in wisp("status", trainer.url).out


def test_what_cannot_be_read_is_critical_and_what_does_not_answer_unknown(trainer, tmp_path):
    code, line = check(tmp_path / "nothing")
    assert code == 2 and line.startswith("WISP CRITICAL - ")
    done = run("status", "s3://weights/run", "--check", env={
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "x"})
    assert done.code == 3 and done.out.startswith("WISP UNKNOWN - "), done


def test_sizes_that_were_not_counted_are_null(trainer):
    trainer.steps(1)
    done = run("status", trainer.url, "--check", "--json")
    assert done.code == 0 and done.json["stored_bytes"] is None
    assert answer("status", trainer.url)["stored_bytes"] > 0


@pytest.mark.parametrize("how", ["option", "environment"])
def test_stderr_as_json_lines(tmp_path, how):
    more = ["--log-format", "json"] if how == "option" else []
    env = {"WISP_LOG_FORMAT": "json"} if how == "environment" else {}
    done = run("pull", tmp_path / "nothing", "--into", tmp_path / "replica", *more, env=env)
    (line,) = [json.loads(line) for line in done.err.splitlines()]
    assert line["level"] == "error" and line["verb"] == "pull" and line["error"] == "no_run"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert str(tmp_path) in line["message"]
    refused(USAGE, "pull", tmp_path / "run", "--into", tmp_path / "x", "--log-format", "xml")
