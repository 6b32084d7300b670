"""follow --vllm: servers brought to each new step of a run, without weights in the process."""

import json
import re
import socket
import sys

import pytest

import run_wisp
import runs
from run_wisp import DENIED, ERROR, NO_RUN, PATIENCE, UNSUPPORTED, USAGE, refused, run
from test_run_follow import Following
from test_run_metrics import address_of, one, scrape

sys.path.insert(0, str(run_wisp.ROOT / "tests/python"))
from engine_servers import ScriptedVllm  # noqa: E402

TRY_AGAIN = 5
DOCUMENT = "engines-driving.md"


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init("--no-probe")
    return made


@pytest.fixture
def two():
    with ScriptedVllm() as one_server, ScriptedVllm() as other:
        yield one_server, other


def servers_of(two):
    return [part for server in two for part in ("--vllm", server.url)]


def drive_once(url, *more, **options):
    done = run("follow", url, "--once", "--json", *more, **options)
    *events, summary = [json.loads(line) for line in done.out.splitlines()]
    return done, events, summary


def test_once_brings_all_servers_to_the_newest_step(trainer, two):
    trainer.steps(3)
    done, events, summary = drive_once(trainer.url, *servers_of(two))
    assert done.code == 0, done
    assert [s.served for s in two] == [2, 2]
    assert [e["event"] for e in events] == ["published", "served", "served"]
    assert events[0]["step"] == 2
    for event in events[1:]:
        assert event["moved"] and event["initialized"] and event["pause_seconds"] == 0.004
        assert event["phases"] == {"staged": 0.5, "applied": 0.003}
    assert summary["ok"] and summary["step"] == 2 and summary["moves"] == 2
    assert [s["served"] for s in summary["servers"]] == [2, 2]
    for server in two:
        assert server.acts == ["/wisp/init", "/wisp/update"]
        assert server.run == str(trainer.url)
    assert run("follow", trainer.url, "--once", "--vllm", two[0].url).out \
        == f"step 2: {two[0].url} serves it already\n"


def test_each_new_step_is_driven_and_the_signal_ends_it(trainer, two, tmp_path):
    trainer.steps(1)
    log = tmp_path / "log.jsonl"
    with Following("follow", trainer.url, *servers_of(two), "--poll", "20ms", "--log", log,
                   "--metrics", ":0") as driving:
        url = address_of(driving.process)
        for step in (0, 1, 2):
            if step:
                trainer.steps(1)
            for _ in two:
                told = driving.until(lambda e: e["event"] == "served")
                assert told["served"] == step
        driving.until(lambda e: e["event"] == "waiting")
        samples, _ = scrape(url)
        assert one(samples, "wisp_run_step") == 2
        assert one(samples, "wisp_server_step", two[0].url) == 2
        assert one(samples, "wisp_server_up", two[1].url, 'engine="vllm"') == 1
        assert one(samples, "wisp_server_pause_seconds_count", two[0].url) == 3
        summary, err = driving.end()
    assert summary["stopped"] and summary["moves"] == 6 and driving.process.returncode == 130
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["event"] for line in lines} == {"published", "served", "waiting"}
    assert all(line["run"] == str(trainer.url) and line["time"] for line in lines)


def test_service_manager_hears_that_servers_are_driven(trainer, two, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        with Following("follow", trainer.url, *servers_of(two), "--poll", "20ms",
                       env={"NOTIFY_SOCKET": str(tmp_path / "notify")}) as driving:
            assert manager.recv(4096) == b"STATUS=waiting for the first step\nREADY=1"
            trainer.steps(1)
            assert manager.recv(4096) == b"STATUS=bringing servers to step 0, seq 2"
            # A server that takes its time does not keep the program from waiting for the next step.
            serving = set()
            while len(serving) < len(two):
                line = manager.recv(4096).decode()
                if served := re.match("STATUS=step 0: (http://[^ ,;]*) serves it", line):
                    serving.add(served[1])
                else:
                    assert line.startswith(("STATUS=waiting after step 0", "STATUS=bringing servers to step 0")), line
            driving.end()


def test_dead_server_holds_nobody_and_comes_back(trainer, two):
    trainer.steps(1)
    living, _ = two
    with ScriptedVllm(listening=False) as dead, \
            Following("follow", trainer.url, *servers_of((living, dead)), "--poll", "20ms",
                      "--until-step", "1") as driving:
        first = {}  # of each; one that stays away may be told of again meanwhile
        while len(first) < 2:
            told = driving.until(lambda e: e["event"] in ("served", "fault"))
            first.setdefault(told["server"], told)
        assert first[living.url]["event"] == "served" and first[living.url]["served"] == 0
        assert first[dead.url]["event"] == "fault" and first[dead.url]["error"] == "unavailable"
        trainer.steps(1)
        assert driving.until(lambda e: e["event"] == "served")["served"] == 1
        dead.listen()
        told = driving.until(lambda e: e["event"] == "served" and e["server"] == dead.url)
        assert told["served"] == 1 and told["initialized"]
        assert dead.acts == ["/wisp/init", "/wisp/update"]
        # All are where they should be: it ends by itself.
        driving.process.wait(timeout=PATIENCE)
    assert driving.process.returncode == 0


def test_until_step_goes_no_further(trainer, two):
    trainer.steps(4)
    done, events, summary = drive_once(trainer.url, "--vllm", two[0].url, "--until-step", 1)
    assert done.code == 0 and two[0].served == 1 and summary["step"] == 1


def test_run_without_a_step_is_no_failure(trainer, two):
    done, events, summary = drive_once(trainer.url, "--vllm", two[0].url)
    assert done.code == 0 and events == [] and summary["step"] is None and two[0].acts == []


def test_failure_of_one_server_is_the_exit_code_of_once(trainer, two):
    trainer.steps(1)
    two[1].refusal = (503, "not staged within 300 s")
    done, events, summary = drive_once(trainer.url, *servers_of(two))
    assert done.code == TRY_AGAIN and not summary["ok"]
    assert "not staged within 300 s" in done.err and two[1].url in done.err
    assert two[0].served == 0


def test_key_comes_from_the_environment_and_is_never_shown(trainer, two):
    trainer.steps(1)
    done = run("follow", trainer.url, "--once", "--vllm", two[0].url, env={"WISP_API_KEY": "hush"})
    assert done.code == 0 and two[0].keys == {"Bearer hush"}
    assert "hush" not in done.out + done.err
    assert "hush" not in run("follow", "--help", env={"WISP_API_KEY": "hush"}).out


class Scripted(ScriptedVllm):
    """A server with other answers."""

    def __init__(self, answers):
        self.answers = answers
        super().__init__()

    def answer(self, method, path, body):
        return self.answers.get(path, (404, {"detail": "Not Found"}))


@pytest.mark.parametrize(("answers", "code", "cure"), [
    ({}, ERROR, "check the address and the port"),
    ({"/version": (200, {"version": "0.32.0"})}, UNSUPPORTED, '--weight-transfer-config'),
    ({"/model_info": (200, {"model_path": "m"})}, ERROR, "--sglang"),
    ({"/wisp/status": (401, {"error": "Unauthorized"})}, DENIED, "--api-key"),
], ids=["no engine", "plain vllm", "sglang", "key"])
def test_wrong_servers_end_it_with_the_cure(trainer, answers, code, cure):
    trainer.steps(1)
    with Scripted(answers) as server:
        for more in (["--once"], ["--poll", "20ms"]):
            done = run("follow", trainer.url, "--vllm", server.url, *more)
            assert done.code == code and cure in done.err and server.url in done.err


def test_server_of_another_run_is_left_alone(trainer, two):
    trainer.steps(1)
    two[0].run, two[0].served = "s3://elsewhere/run", 41
    done, _, summary = drive_once(trainer.url, "--vllm", two[0].url)
    assert done.code == 11 and "s3://elsewhere/run" in done.err and two[0].acts == []
    assert summary["servers"][0]["served"] == 41


def test_wrong_usage_names_the_cure(trainer, tmp_path):
    into = ["--into", tmp_path / "replica"]
    server = ["--vllm", "http://127.0.0.1:9"]
    refused(USAGE, "follow", trainer.url, names=["--into FOLDER, or --vllm URL"])
    refused(USAGE, "follow", trainer.url, *into, *server, names=["not both"])
    for option in (["--on-step", "true"], ["--base", "b"], ["--id", "a"], ["--layout", "trl"],
                   ["--no-heartbeat"], ["--max-staleness", "1m"]):
        refused(USAGE, "follow", trainer.url, *server, *option, names=[option[0], "--into"])
    refused(USAGE, "follow", trainer.url, *into, "--requests", "wait", names=["--vllm"])
    refused(USAGE, "follow", trainer.url, *server, "--requests", "later", names=["--requests"])
    for url in ("localhost:8000", "http://", "ftp://host"):
        refused(ERROR, "follow", trainer.url, "--vllm", url, names=["http://host:port"])
    refused(ERROR, "follow", trainer.url, *server, *server, names=["twice"])
    refused(NO_RUN, "follow", tmp_path / "none", *server, names=["wisp init"])
    assert not re.search("--vllm", run("pull", "--help").out)


def test_documented_reload_script_gives_the_engine_whole_copies(trainer, tmp_path):
    text = (run_wisp.ROOT / "doc" / DOCUMENT).read_text()
    (script,) = re.findall(r"```sh\n(#!/bin/sh\n# reload\.sh.*?)```", text, re.S)
    reload = tmp_path / "reload.sh"
    reload.write_text(script)
    reload.chmod(0o755)
    served = tmp_path / "served"
    loads = tmp_path / "loads"
    engine = tmp_path / "engine.sh"  # notes what an engine would load
    engine.write_text(f'#!/bin/sh\necho "$WISP_STEP $(sha256sum < {served}/model.safetensors)" >> {loads}\n')
    engine.chmod(0o755)
    for step in range(3):
        trainer.steps(1)
        run_wisp.wisp("pull", trainer.url, "--into", tmp_path / "policy", "--on-step", reload,
                      env={"SERVED": str(served), "RELOAD": str(engine)})
        kept = [p.name for p in tmp_path.glob("served.step-*")]
        assert kept == [f"served.step-{step}"] and runs.holds(served, trainer.states[step])
    steps = [line.split()[0] for line in loads.read_text().splitlines()]
    assert steps == ["0", "1", "2"] and len(set(loads.read_text().split())) > 4
