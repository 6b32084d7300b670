"""Metrics for Prometheus, and the log of JSON lines."""

import json
import re
import urllib.request

import pytest

import checkpoints
import runs
import slow_s3
from run_wisp import ERROR, PATIENCE, refused, start, wisp
from test_run_follow import Following


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init("--no-probe")
    return made


def address_of(process):
    """Where a process says that its metrics are."""
    line = process.stderr.readline().decode()
    found = re.search(r"metrics at (http://127\.0\.0\.1:\d+/metrics)", line)
    assert found, line
    return found[1]


def scrape(address):
    """Every sample by name, and the text as it came."""
    with urllib.request.urlopen(address, timeout=PATIENCE) as reply:
        text = reply.read().decode()
    samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, value = line.rsplit(" ", 1)
            samples[key] = float(value)
    return samples, text


def one(samples, name, *parts):
    found = [v for k, v in samples.items()
             if re.split(r"[{ ]", k)[0] == name and all(part in k for part in parts)]
    assert len(found) == 1, (name, parts, samples)
    return found[0]


@pytest.mark.parametrize("address", [":0", "127.0.0.1:0", "localhost:0"])
def test_follower_serves_where_it_is_and_how_long_it_took(trainer, tmp_path, address):
    trainer.steps(2)
    with Following("follow", trainer.url, "--into", tmp_path / "replica", "--metrics", address,
                   "--id", "gpu-1", "--poll", "20ms", "-q") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        url = address_of(follower.process)
        samples, text = scrape(url)
        assert one(samples, "wisp_replica_step", 'replica="gpu-1"', f'run="{trainer.url}"') == 1
        assert one(samples, "wisp_joined_total") == 1 and one(samples, "wisp_applied_total") == 0
        assert one(samples, "wisp_fetched_bytes_total") > 0
        assert one(samples, "wisp_replica_lag_steps") == one(samples, "wisp_stale") == 0
        assert one(samples, "wisp_replica_seq") > 0
        assert 0 <= one(samples, "wisp_commit_age_seconds") < 600
        for phase in ("fetch", "verify", "apply"):
            assert one(samples, f"wisp_{phase}_seconds_count") == 1
        assert "# TYPE wisp_fetch_seconds histogram" in text
        trainer.steps(1)
        follower.until(lambda e: e["event"] == "applied")
        follower.until(lambda e: e["event"] == "waiting")
        samples, _ = scrape(url)
        assert one(samples, "wisp_applied_total") == 1
        assert one(samples, "wisp_replica_step") == 2
        follower.end()


def test_stale_run_raises_the_flag(trainer, tmp_path):
    trainer.publish("--expires", "1ms")
    with Following("follow", trainer.url, "--into", tmp_path / "replica", "--metrics", ":0",
                   "--poll", "10ms") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        assert one(scrape(address_of(follower.process))[0], "wisp_stale") == 1


def test_damaged_object_is_counted_by_reason(trainer, tmp_path):
    trainer.steps(1)
    into = ["--into", tmp_path / "replica", "--poll", "10ms", "--metrics", ":0",
            "--no-heartbeat"]
    with Following("follow", trainer.url, *into) as follower:
        follower.until(lambda e: e["event"] == "waiting")
        url = address_of(follower.process)
        hidden = tmp_path / "hidden"
        trainer.url.rename(hidden)  # so that the step can be damaged before it is seen
        trainer.url = hidden
        trainer.publish("--anchor-every", 1)
        (delta,) = (hidden / "deltas").iterdir()
        delta.write_bytes(bytes(len(delta.read_bytes())))
        hidden.rename(tmp_path / "run")
        follower.until(lambda e: e["event"] == "fault" and e["error"] == "corrupt")
        follower.until(lambda e: e["event"] == "waiting")
        samples, _ = scrape(url)
        assert one(samples, "wisp_verify_failures_total", 'reason="corrupt"') >= 1
    assert runs.holds(tmp_path / "replica", trainer.states[-1])


def test_a_run_that_vanished_is_a_fault_and_no_success(trainer, tmp_path):
    trainer.steps(1)
    with Following("follow", trainer.url, "--into", tmp_path / "replica", "--poll", "10ms", "--metrics", ":0",
                   "--no-heartbeat") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        url = address_of(follower.process)
        trainer.url.rename(tmp_path / "away")
        told = follower.until(lambda e: e["event"] == "fault")
        assert told["error"] == "no_run" and told["step"] == 0, told
        before, _ = scrape(url)
        assert one(before, "wisp_faults_total", 'reason="no_run"') >= 1
        follower.until(lambda e: e["event"] == "fault")
        after, _ = scrape(url)
        assert one(after, "wisp_faults_total", 'reason="no_run"') > one(before, "wisp_faults_total", 'reason="no_run"')
        name = "wisp_last_success_timestamp_seconds"
        assert one(after, name) == one(before, name), "nothing was reached since"
        (tmp_path / "away").rename(trainer.url)
        follower.until(lambda e: e["event"] == "waiting")
        assert one(scrape(url)[0], name) > one(after, name)


def test_credentials_that_expire_are_a_fault_until_they_are_renewed_and_no_wrong_bytes(tmp_path):
    states = checkpoints.write_chain(tmp_path, steps=2).states
    publish = ["--baseline", tmp_path / "baseline"]
    with slow_s3.SlowS3() as server:
        env = server.environment()
        wisp("init", "s3://bucket/run", "--no-probe", env=env)
        wisp("publish", "s3://bucket/run", states[0], *publish, env=env)
        with Following("follow", "s3://bucket/run", "--into", tmp_path / "replica", "--poll", "10ms", "--metrics", ":0",
                       env=env) as follower:
            follower.until(lambda e: e["event"] == "waiting")
            url = address_of(follower.process)
            server.denies = True
            assert follower.until(lambda e: e["event"] == "fault")["error"] == "denied"
            samples, _ = scrape(url)
            assert one(samples, "wisp_faults_total", 'reason="denied"') >= 1
            assert one(samples, "wisp_verify_failures_total", 'reason="denied"') == 0
            server.denies = False
            wisp("publish", "s3://bucket/run", states[1], *publish, env=env)
            assert follower.until(lambda e: e["event"] == "applied")["step"] == 1
            assert runs.holds(tmp_path / "replica", states[1])


def test_a_commit_of_a_stranger_counts_as_wrong_bytes(tmp_path):
    states = checkpoints.write_chain(tmp_path, steps=2).states
    for name in ("trainer", "stranger"):
        wisp("key", "new", tmp_path / f"{name}.key")
    url = tmp_path / "run"
    publish = ["--baseline", tmp_path / "baseline", "--sign-key"]
    wisp("init", url, "--no-probe", "--sign-key", tmp_path / "trainer.key")
    wisp("publish", url, states[0], *publish, tmp_path / "trainer.key")
    # Another run's commit, well signed by a key that this run has never heard of.
    wisp("init", tmp_path / "other", "--no-probe", "--sign-key", tmp_path / "stranger.key")
    for state in states[:2]:
        wisp("publish", tmp_path / "other", state, "--baseline", tmp_path / "b", "--sign-key", tmp_path / "stranger.key")
    commits = sorted(path.name for path in (url / "commits").iterdir())
    foreign = sorted(path.name for path in (tmp_path / "other/commits").iterdir())
    assert len(foreign) == len(commits) + 1
    with Following("follow", url, "--into", tmp_path / "replica", "--poll", "10ms", "--metrics", ":0") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        address = address_of(follower.process)
        (url / "commits" / foreign[-1]).write_bytes((tmp_path / "other/commits" / foreign[-1]).read_bytes())
        reason = follower.until(lambda e: e["event"] == "fault")["error"]
        assert one(scrape(address)[0], "wisp_verify_failures_total", f'reason="{reason}"') == 1


def test_publisher_serves_metrics_while_it_works(trainer):
    done = wisp(*trainer.call("--metrics", "127.0.0.1:0"))
    assert "metrics at http://127.0.0.1:" in done.err


@pytest.mark.parametrize("address", ["9400", ":x", ":70000", "host.example:1", ":1,2", ":9400s", ":"])
def test_addresses_that_are_none_are_refused(trainer, tmp_path, address):
    refused(ERROR, "pull", trainer.url, "--into", tmp_path / "replica", "--metrics", address,
            names=["metrics", ":9400"])
    assert not (tmp_path / "replica").exists()


def test_port_in_use_is_named(trainer, tmp_path):
    with Following("follow", trainer.url, "--into", tmp_path / "a", "--metrics",
                   "127.0.0.1:0") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        port = address_of(follower.process).split(":")[2].split("/")[0]
        refused(ERROR, "pull", trainer.url, "--into", tmp_path / "b", "--metrics",
                f"127.0.0.1:{port}", names=[port, "another port"])


def test_log_gets_one_line_per_event_and_is_appended_to(trainer, tmp_path):
    log = tmp_path / "events.jsonl"
    for _ in range(2):
        trainer.steps(1)
        wisp("pull", trainer.url, "--into", tmp_path / "replica", "--log", log, "--id", "gpu-1")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["joined", "applied"]
    assert [line["step"] for line in lines] == [0, 1]
    for line in lines:
        assert line["replica"] == "gpu-1" and line["run"] == str(trainer.url)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert {"epoch", "seq", "state", "fetch_seconds"} <= set(line)


def test_log_that_cannot_be_written_is_refused_before_anything_else(trainer, tmp_path):
    refused(ERROR, "pull", trainer.url, "--into", tmp_path / "replica", "--log",
            tmp_path / "no/such/folder/log", names=["no/such/folder"], within=tmp_path)


def test_full_log_does_not_stop_the_replica(trainer, tmp_path):
    trainer.steps(1)
    process = start("pull", trainer.url, "--into", tmp_path / "replica", "--log", "/dev/full")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and b"going on without it" in err
    assert runs.holds(tmp_path / "replica", trainer.states[0])
