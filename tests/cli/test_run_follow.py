"""follow and pull: a folder that moves from one published step to the next."""

import json
import os
import shutil
import signal
import socket
import time

import pytest

import checkpoints
import runs
import slow_s3
from run_wisp import ERROR, LOCKED, NO_RUN, PATIENCE, USAGE, WRONG_BASE, answer, refused, run, start, wisp


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init()
    return made


class Following:
    """A follower as a process of its own; its events as they come."""

    def __init__(self, *arguments, **options):
        self.process = start(*arguments, "--json", **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def until(self, test):
        for line in self.process.stdout:
            told = json.loads(line)
            if test(told):
                return told
        raise AssertionError(self.process.stderr.read().decode())

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return json.loads(out.decode().splitlines()[-1]), err.decode()


def test_pull_makes_a_folder_that_is_the_newest_checkpoint(trainer, tmp_path):
    trainer.steps(3)
    events, summary = runs.pull(trainer.url, tmp_path / "replica")
    assert [e["event"] for e in events] == ["joined"]
    assert events[0]["step"] == 2 and events[0]["lag_steps"] == 0 and events[0]["fetched_bytes"] > 0
    assert summary["step"] == 2 and summary["joined"] == 1 and summary["has_state"]
    assert summary["state"] == answer("verify", trainer.states[-1])["state"]
    assert runs.holds(tmp_path / "replica", trainer.states[-1])


def test_pull_again_moves_by_deltas_or_not_at_all(trainer, tmp_path):
    trainer.steps(2)
    runs.pull(trainer.url, tmp_path / "replica")
    events, summary = runs.pull(trainer.url, tmp_path / "replica")
    assert events == [] and summary["applied"] == summary["joined"] == 0
    trainer.steps(1)
    events, _ = runs.pull(trainer.url, tmp_path / "replica")
    assert [e["event"] for e in events] == ["applied"] and events[0]["deltas_applied"] == 1
    assert {"seq", "epoch", "state", "changed_elements", "commit_age_ms", "fetch_seconds",
            "verify_seconds", "apply_seconds", "fetched_objects", "head_seq"} <= set(events[0])
    assert runs.holds(tmp_path / "replica", trainer.states[-1])


def test_sharded_folder_arrives_with_its_configuration(trainer, tmp_path):
    source = checkpoints.write_folder(tmp_path / "hf", trainer.tensors)
    trainer.publish(checkpoint=source)
    runs.pull(trainer.url, tmp_path / "replica")
    for name in ("config.json", "model.safetensors.index.json"):
        assert (tmp_path / "replica" / name).read_bytes() == (source / name).read_bytes()
    assert checkpoints.folder_tensors(tmp_path / "replica") == checkpoints.folder_tensors(source)
    assert answer("verify", tmp_path / "replica")["state"] == answer("verify", source)["state"]


def test_people_get_one_line_per_move(trainer, tmp_path):
    trainer.steps(1)
    call = ["pull", trainer.url, "--into", tmp_path / "replica"]
    done = wisp(*call)
    assert len(done.out.splitlines()) == 1 and done.err == ""
    for word in ("step 0", "joined", "fetch", "verify", "apply", "current"):
        assert word in done.out
    assert "nothing new" in wisp(*call).out
    assert wisp(*call, "-q").out == ""


def test_pull_of_a_run_without_steps_is_no_error(trainer, tmp_path):
    events, summary = runs.pull(trainer.url, tmp_path / "replica")
    assert events == [] and summary["has_state"] is False
    assert "nothing was published" in wisp("pull", trainer.url, "--into", tmp_path / "r").out


def test_run_that_is_not_there_is_exit_10_and_makes_no_folder(tmp_path):
    for verb in ("follow", "pull"):
        refused(NO_RUN, verb, tmp_path / "none", "--into", tmp_path / "replica",
                names=["none", "wisp init"], within=tmp_path)


def test_follow_until_a_step_ends_there(trainer, tmp_path):
    trainer.steps(4)
    wisp("follow", trainer.url, "--into", tmp_path / "replica", "--until-step", 2)
    assert runs.holds(tmp_path / "replica", trainer.states[2])
    _, summary = runs.pull(trainer.url, tmp_path / "early", "--until-step", 1)
    assert summary["step"] == 1 and summary["reached_until"]


def test_until_a_step_that_was_never_published_ends_before_it(trainer, tmp_path):
    for step in (10, 20, 30):
        trainer.publish("--step", step)
    for into in ("a", "a"):
        wisp("follow", trainer.url, "--into", tmp_path / into, "--until-step", 25)
    assert runs.holds(tmp_path / "a", trainer.states[1])
    wisp("follow", trainer.url, "--into", tmp_path / "b", "--until-step", 10)
    wisp("follow", trainer.url, "--into", tmp_path / "b", "--until-step", 15)
    assert runs.holds(tmp_path / "b", trainer.states[0])


def test_follow_meets_steps_as_they_come_and_ends_cleanly(trainer, tmp_path):
    replica = tmp_path / "replica"
    with Following("follow", trainer.url, "--into", replica, "--poll", "20ms") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        for step in range(3):
            trainer.steps(1)
            follower.until(lambda e, step=step: e["step"] == step and e["event"] != "waiting")
            assert runs.holds(replica, trainer.states[step])
        summary, err = follower.end()
    assert follower.process.returncode == 130 and err == ""
    assert summary["stopped"] and summary["ok"] and summary["step"] == 2
    assert summary["joined"] + summary["applied"] == 3
    assert answer("status", trainer.url)["replicas"][0]["status"] == "stopped"


def test_terminated_follower_exits_with_143(trainer, tmp_path):
    trainer.steps(1)
    with Following("follow", trainer.url, "--into", tmp_path / "replica") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        follower.end(signal.SIGTERM)
    assert follower.process.returncode == 143


def test_service_manager_hears_once_that_the_newest_step_is_in_place(trainer, tmp_path):
    """As systemd does with Type=notify. A run without steps is no reason to keep a machine from starting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        heard = []

        def hear(*lines):
            while not heard or heard[-1] != list(lines):
                heard.append(manager.recv(4096).decode().splitlines())

        def follow(folder):
            return Following("follow", trainer.url, "--into", tmp_path / folder, "--poll", "10ms",
                             env={"NOTIFY_SOCKET": str(tmp_path / "notify")})

        with follow("early") as follower:
            hear("STATUS=waiting for the first step", "READY=1")
            trainer.steps(1)
            hear("STATUS=step 0, seq 2")
            trainer.steps(1)
            hear("STATUS=step 1, seq 3")
            follower.end()
        assert sum("READY=1" in lines for lines in heard) == 1
        with follow("late"):
            hear("STATUS=step 1, seq 3", "READY=1")
            assert runs.holds(tmp_path / "late", trainer.states[1])
        with follow("late"):
            heard.clear()
            hear("STATUS=step 1, seq 3", "READY=1")


def test_service_manager_hears_of_faults_and_of_their_end(tmp_path):
    (state,) = checkpoints.write_chain(tmp_path, steps=1).states[:1]
    with slow_s3.SlowS3() as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        env = server.environment()
        wisp("init", "s3://bucket/run", "--no-probe", env=env)
        wisp("publish", "s3://bucket/run", state, "--baseline", tmp_path / "baseline", env=env)
        with Following("follow", "s3://bucket/run", "--into", tmp_path / "replica", "--poll", "10ms",
                       env={**env, "NOTIFY_SOCKET": str(tmp_path / "notify")}):
            hear = iter(lambda: manager.recv(4096).decode(), None)
            assert next(hear) == "STATUS=step 0, seq 2\nREADY=1"
            server.denies = True
            fault = next(line for line in hear if line != "STATUS=step 0, seq 2")
            assert fault.startswith("STATUS=step 0, seq 2; ") and "\n" not in fault, fault
            server.denies = False
            assert next(line for line in hear if ";" not in line) == "STATUS=step 0, seq 2"


@pytest.mark.slow
def test_a_bucket_that_does_not_answer_keeps_no_machine_from_starting(tmp_path):
    with slow_s3.SlowS3() as server, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        env = server.environment()
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        server.silent = True
        done = run("follow", "s3://bucket/run", "--into", tmp_path / "replica",
                   env={**env, "NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert done.code == 5, done
        assert manager.recv(4096).decode().endswith("\nREADY=1")


def test_rewound_run_takes_its_replicas_along(trainer, tmp_path):
    for step in (10, 20):
        trainer.publish("--step", step)
    runs.pull(trainer.url, tmp_path / "replica")
    trainer.publish("--step", 11, "--rewind")
    events, _ = runs.pull(trainer.url, tmp_path / "replica")
    assert events[-1]["step"] == 11 and runs.holds(tmp_path / "replica", trainer.states[-1])


def test_command_sees_every_move_in_its_environment(trainer, tmp_path):
    trainer.steps(1)
    told = tmp_path / "told"
    command = f'echo "$WISP_STEP $WISP_SEQ $WISP_EPOCH $WISP_DIGEST $WISP_DIR" >> {told}; echo out'
    into = ["--into", "replica", "--on-step", command]
    done = wisp("pull", trainer.url, *into, "--json", cwd=tmp_path)
    assert all(json.loads(line) for line in done.out.splitlines()) and done.err == "out\n"
    trainer.steps(1)
    assert "out\n" in wisp("pull", trainer.url, *into, cwd=tmp_path).out
    wisp("pull", trainer.url, *into, cwd=tmp_path)
    lines = [line.split(" ", 4) for line in told.read_text().splitlines()]
    assert [line[0] for line in lines] == ["0", "1"]
    assert [line[3] for line in lines] == [answer("verify", s)["state"] for s in trainer.states]
    assert {line[4] for line in lines} == {str(tmp_path / "replica")}


def test_command_may_be_interrupted_although_wisp_blocks_signals(trainer, tmp_path):
    trainer.steps(1)
    told = tmp_path / "told"
    wisp("pull", trainer.url, "--into", tmp_path / "replica", "--on-step",
         f"grep SigBlk /proc/self/status > {told}")
    blocked = int(told.read_text().split()[1], 16)
    assert blocked & (1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1) == 0


def test_second_signal_ends_the_process_at_once(trainer, tmp_path):
    trainer.steps(1)
    ready, gate = tmp_path / "ready", tmp_path / "gate"
    os.mkfifo(ready)
    os.mkfifo(gate)
    with Following("follow", trainer.url, "--into", tmp_path / "replica", "--on-step",
                   f"echo > {ready}; cat {gate}") as follower:
        ready.read_text()
        # The command, which wisp waits for, goes on.
        follower.process.send_signal(signal.SIGINT)
        follower.process.send_signal(signal.SIGTERM)
        assert follower.process.wait(timeout=PATIENCE) in (-signal.SIGINT, -signal.SIGTERM)
        gate.write_text("")


def test_failing_command_is_told_counted_and_the_exit_code_but_the_step_is_in_place(
        trainer, tmp_path):
    trainer.steps(1)
    done = refused(ERROR, "pull", trainer.url, "--into", tmp_path / "replica", "--json",
                   "--on-step", "exit 7", names=["--on-step exited with 7"])
    assert json.loads(done.out.splitlines()[-1])["failed_commands"] == 1
    assert runs.holds(tmp_path / "replica", trainer.states[-1])


@pytest.mark.parametrize("inside", [".", "replica", "deltas"])
def test_a_replica_has_no_place_in_the_folder_of_its_run(trainer, inside):
    trainer.steps(1)
    refused(ERROR, "pull", trainer.url, "--into", trainer.url / inside,
            names=["belongs to the run", "--into"], within=trainer.url)


def test_folder_in_use_is_exit_11(trainer, tmp_path):
    trainer.steps(1)
    with Following("follow", trainer.url, "--into", tmp_path / "replica") as follower:
        follower.until(lambda e: e["event"] == "waiting")
        refused(LOCKED, "pull", trainer.url, "--into", tmp_path / "replica", names=["in use"])


def test_folder_of_another_run_is_exit_14(trainer, tmp_path):
    trainer.steps(1)
    other = runs.Trainer(tmp_path, "other")
    other.init()
    other.steps(1)
    runs.pull(trainer.url, tmp_path / "replica")
    refused(WRONG_BASE, "pull", other.url, "--into", tmp_path / "replica",
            names=["another folder"], within=tmp_path / "replica")


def test_folder_with_somebody_elses_checkpoint_is_left_alone(trainer, tmp_path):
    trainer.steps(1)
    (tmp_path / "mine").mkdir()
    shutil.copy(trainer.states[0], tmp_path / "mine" / "model.safetensors")
    refused(ERROR, "pull", trainer.url, "--into", tmp_path / "mine", within=tmp_path / "mine")


def test_bucket_that_was_set_back_is_refused_unless_accepted(trainer, tmp_path):
    trainer.steps(2)
    shutil.copytree(trainer.url, tmp_path / "copy")
    trainer.steps(2)
    runs.pull(trainer.url, tmp_path / "replica")
    shutil.rmtree(trainer.url)
    shutil.copytree(tmp_path / "copy", trainer.url)
    refused(WRONG_BASE, "pull", trainer.url, "--into", tmp_path / "replica",
            names=["--accept-rewind"])
    runs.pull(trainer.url, tmp_path / "replica", "--accept-rewind")
    assert runs.holds(tmp_path / "replica", trainer.states[1])


def test_base_at_hand_spares_the_anchor(trainer, tmp_path):
    trainer.steps(2)
    _, fetched = runs.pull(trainer.url, tmp_path / "a")
    _, spared = runs.pull(trainer.url, tmp_path / "b", "--base", trainer.states[0])
    assert spared["fetched_bytes"] < fetched["fetched_bytes"]
    assert runs.holds(tmp_path / "b", trainer.states[1])


def test_anchor_on_a_public_base_needs_the_base(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init()
    base = trainer.train()
    trainer.publish("--base", base, "--base-name", "org/model")
    assert answer("status", trainer.url)["anchors"][0]["base_name"] == "org/model"
    refused((ERROR, 15), "pull", trainer.url, "--into", tmp_path / "a", names=["org/model", "base"])
    runs.pull(trainer.url, tmp_path / "b", "--base", base)
    assert runs.holds(tmp_path / "b", trainer.states[-1])


def test_heartbeats_can_be_left_out(trainer, tmp_path):
    trainer.steps(1)
    runs.pull(trainer.url, tmp_path / "replica", "--no-heartbeat")
    assert answer("status", trainer.url)["replicas"] == []
    runs.pull(trainer.url, tmp_path / "replica")
    (line,) = answer("status", trainer.url)["replicas"]
    assert "replica-" in line["id"]


def test_silence_of_the_trainer_makes_a_replica_stale(trainer, tmp_path):
    trainer.steps(1)
    time.sleep(0.01)  # the age of a commit is what is tested
    refused(5, "pull", trainer.url, "--into", tmp_path / "replica", "--max-staleness", "1ms",
            names=["stale"])
    refused(5, "pull", trainer.url, "--into", tmp_path / "replica", "--max-staleness", "1ms")
    _, summary = runs.pull(trainer.url, tmp_path / "replica", "--max-staleness", "1h")
    assert summary["stale"] is False


@pytest.mark.parametrize("more", [
    [], ["--into", "x", "--id", "a/b"], ["--into", "x", "--id", ".."], ["--into", "x", "--id", ""],
    ["--into", "x", "--poll", "5"], ["--into", "x", "--poll", "0s"], ["--into", "x", "--until-step", "-3"],
    ["--into", "x", "--id", "a", "--no-heartbeat"], ["--into", "x", "--min-serial", "-1"]])
def test_wrong_usage_exits_with_2(more, tmp_path):
    refused(USAGE, "follow", tmp_path / "run", *more, cwd=tmp_path, within=tmp_path)


def test_pull_has_no_once_and_no_poll(tmp_path):
    for option in (["--once"], ["--poll", "1s"]):
        refused(USAGE, "pull", tmp_path / "run", "--into", "x", *option, cwd=tmp_path)
    assert run("follow", tmp_path / "none", "--into", tmp_path / "x", "--once").code == NO_RUN
