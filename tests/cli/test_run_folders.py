"""Folders as the interface: a folder for each step, read locks, and trainers' folders published."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import checkpoints
import runs
from run_wisp import BINARY, ERROR, LOCKED, PATIENCE, USAGE, answer, environment, refused, run, start, wisp

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden" / "folders"


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init()
    return made


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


def pattern(models):
    return str(models / "step_{step}")


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".wisp")


# -- a folder for each step ------------------------------------------------------------------------


def test_each_pull_makes_a_folder_and_flips_current(trainer, models):
    for step in range(5):
        trainer.publish()
        events, summary = runs.pull(trainer.url, pattern(models), "--mark", "STABLE")
        assert summary["step"] == step and len(events) == 1
        assert os.readlink(models / "current") == f"step_{step}"
        assert runs.holds(models / "current", trainer.states[step])
        assert (models / f"step_{step}" / "STABLE").read_bytes() == b""
    assert names(models) == ["current", "step_2", "step_3", "step_4"], "three stay by default"
    for step in (2, 3, 4):
        assert runs.holds(models / f"step_{step}", trainer.states[step])


def test_keep_says_how_many_stay_and_on_step_is_told_the_folder(trainer, models, tmp_path):
    told = tmp_path / "told"
    for _ in range(4):
        trainer.publish()
        runs.pull(trainer.url, pattern(models), "--keep", 2, "--on-step", f'echo "$WISP_DIR" >> {told}')
    assert names(models) == ["current", "step_2", "step_3"]
    assert told.read_text().split() == [str(models / f"step_{i}") for i in range(4)]


def test_digits_can_be_asked_for(trainer, models):
    trainer.steps(2)
    runs.pull(trainer.url, models / "weight_v{step:06}")
    assert names(models) == ["current", "weight_v000001"]


@pytest.mark.parametrize("arguments, why", [
    (["--into", "models", "--keep", 3], "{step}"),
    (["--into", "models", "--mark", "STABLE"], "{step}"),
    (["--into", "models/step_{step}", "--keep", 1], "--keep"),
    (["--into", "models/{step}_{step}"], "twice"),
    (["--into", "models/step_{step:6}"], "{step:06}"),
])
def test_wrong_usage_is_refused(trainer, tmp_path, arguments, why):
    trainer.publish()
    done = refused(USAGE, "pull", trainer.url, *arguments, names=[why], cwd=tmp_path)
    assert not (tmp_path / "models").exists(), done


@pytest.mark.parametrize("arguments", [
    ["--into", "models/step_{step}", "--mark", "config.json"],
    ["--into", "models/{step}/hf"],
])
def test_what_cannot_work_is_refused(trainer, tmp_path, arguments):
    trainer.publish()
    refused(ERROR, "pull", trainer.url, *arguments, cwd=tmp_path)
    assert not (tmp_path / "models").exists()


def test_folders_of_others_are_refused_and_stay(trainer, models):
    (models / "step_7").mkdir(parents=True)
    (models / "step_7" / "theirs").write_text("x")
    trainer.publish()
    refused(ERROR, "pull", trainer.url, "--into", pattern(models), names=["step_7"], within=models)


def test_one_follower_at_a_time(trainer, models):
    trainer.publish()
    process = following(trainer, models)
    try:
        assert json.loads(process.stdout.readline())["event"] == "joined"
        refused(LOCKED, "pull", trainer.url, "--into", pattern(models), names=["another process"])
    finally:
        process.kill()
        process.communicate()


def following(trainer, models, *more):
    return start("follow", trainer.url, "--into", pattern(models), "--poll", "10ms", "--json", *more)


def test_a_killed_follower_leaves_only_whole_folders(trainer, models):
    """Killed again and again while it makes steps: what is there by name is always whole."""
    digests = {}
    trainer.publish()
    for _ in range(12):
        process = following(trainer, models, "--mark", "STABLE")
        published = trainer.publish()
        digests[published["step"]] = published["state"]
        # At a point that differs each time, by how long the next publish takes.
        process.kill()
        process.communicate()
        for folder in models.glob("step_*"):
            found = answer("verify", folder)["state"]
            assert digests.get(int(folder.name[5:]), found) == found
    runs.pull(trainer.url, pattern(models), "--mark", "STABLE")
    newest = len(trainer.states) - 1
    assert os.readlink(models / "current") == f"step_{newest}"
    assert runs.holds(models / "current", trainer.states[newest])
    assert all((folder / "STABLE").exists() for folder in models.glob("step_*"))
    left = {path.name for path in (models / ".wisp" / "scratch").iterdir()}
    assert not left & {"building", "removing", "incoming", "current"}


# -- reading ---------------------------------------------------------------------------------------


def reader_of(folder, *command):
    return subprocess.run([BINARY, "read", folder, "--", *map(str, command)], env=environment(),
                          capture_output=True, text=True, timeout=PATIENCE)


def test_read_runs_a_command_on_the_resolved_folder(trainer, models):
    trainer.steps(2)
    runs.pull(trainer.url, pattern(models))
    show = "import os, sys; print(sys.argv[1], os.environ['WISP_DIR'], os.environ['WISP_STEP'])"
    for given in (models, models / "current", models / "step_1"):
        done = reader_of(given, sys.executable, "-c", show, "{}")
        assert done.stdout.split() == [str(models / "step_1"), str(models / "step_1"), "1"], done
    assert reader_of(models, "sh", "-c", "exit 7").returncode == 7
    assert reader_of(models, "no-such-command").returncode == 127
    done = reader_of(models, sys.executable, "-c", "import os; os.kill(os.getpid(), 15)")
    assert done.returncode == -signal.SIGTERM, "signals reach the command as they would without"


def test_a_follower_in_place_waits_for_a_reader_and_says_so(trainer, tmp_path):
    trainer.publish()
    runs.pull(trainer.url, tmp_path / "policy")
    go = tmp_path / "go"
    os.mkfifo(go)
    reader = subprocess.Popen(
        [BINARY, "read", tmp_path / "policy", "--", "sh", "-c", f"echo held; cat {go}"],
        env=environment(), stdout=subprocess.PIPE)
    assert reader.stdout.readline() == b"held\n"
    trainer.publish()
    done = run("pull", trainer.url, "--into", tmp_path / "policy", "--reader-wait", "50ms")
    assert done.code == 5 and "wisp read" in done.err, done
    assert runs.holds(tmp_path / "policy", trainer.states[0])
    with start("follow", trainer.url, "--into", tmp_path / "policy", "--reader-wait", "20ms",
               "--poll", "10ms", "--until-step", "1", "--json") as follower:
        fault = next(event for event in map(json.loads, follower.stdout) if event["event"] == "fault")
        assert fault["error"] == "unavailable" and "readers" in fault["message"]
        go.write_text("")
        follower.communicate(timeout=PATIENCE)
    reader.communicate(timeout=PATIENCE)
    assert runs.holds(tmp_path / "policy", trainer.states[1])


def test_a_killed_reader_lets_go(trainer, tmp_path):
    trainer.publish()
    runs.pull(trainer.url, tmp_path / "policy")
    reader = subprocess.Popen(
        [BINARY, "read", tmp_path / "policy", "--", "sh", "-c", "echo held; exec sleep 600"],
        env=environment(), stdout=subprocess.PIPE)
    assert reader.stdout.readline() == b"held\n"
    reader.kill()
    reader.communicate()
    trainer.publish()
    runs.pull(trainer.url, tmp_path / "policy", "--reader-wait", "10s")


def test_read_refuses_what_no_follower_keeps(trainer, tmp_path):
    (tmp_path / "plain").mkdir()
    refused(ERROR, "read", tmp_path / "plain", "--", "true", names=["wisp follow"])
    refused(ERROR, "read", tmp_path / "missing", "--", "true")
    refused(USAGE, "read", tmp_path / "plain")
    trainer.publish()
    runs.pull(trainer.url, tmp_path / "policy")
    (tmp_path / "policy" / ".wisp-journal").write_text("half")
    refused(LOCKED, "read", tmp_path / "policy", "--", "true", names=["interrupted"])


# -- trainers' folders -----------------------------------------------------------------------------


def watch(tmp_path, where, *more):
    done = wisp("publish", tmp_path / "run", "--watch", where, "--once", "--baseline",
                tmp_path / "baseline", "--json", "--poll", "10ms", *more)
    *steps, summary = map(json.loads, done.out.splitlines())
    return steps, summary


@pytest.mark.parametrize("project, where, more", [
    ("prime_rl", "broadcasts", ["--ready", "STABLE"]),
    ("areal", ".", ["--quiet-for", "100ms"]),
    ("trainer", ".", ["--ready", "trainer_state.json"]),
    ("slime", "weight_v{step:06}", ["--quiet-for", "100ms"]),
])
def test_folders_of_other_projects_are_published_in_order(tmp_path, project, where, more):
    wisp("init", tmp_path / "run")
    steps, summary = watch(tmp_path, GOLDEN / project / where, *more)
    assert [step["step"] for step in steps] == [3, 12]
    assert summary["published"] == 2 and summary["failed"] == 0 and summary["step"] == 12
    expected = json.loads((GOLDEN / "expected.json").read_text())
    for step in (3, 12):
        wisp("export", tmp_path / "run", "--step", step, "-o", tmp_path / f"out_{step}")
        found = checkpoints.folder_tensors(tmp_path / f"out_{step}")
        bits = {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in found.items()}
        assert bits == expected[str(step)]
        beside = {path.name for path in (tmp_path / f"out_{step}").iterdir()}
        assert "config.json" in beside
        assert not beside & {"optimizer.pt", "STABLE", "trainer_state.json", "training_args.bin"}
    again, summary = watch(tmp_path, GOLDEN / project / where, *more)
    assert again == [] and summary["published"] == 0 and summary["step"] == 12


def test_steps_are_published_as_they_are_completed(tmp_path):
    wisp("init", tmp_path / "run")
    out = tmp_path / "broadcasts"
    process = start("publish", tmp_path / "run", "--watch", out, "--ready", "STABLE", "--json",
                    "--poll", "10ms", "--until-step", 12, "--baseline", tmp_path / "baseline")
    for step in (3, 12):
        shutil.copytree(GOLDEN / "prime_rl" / "broadcasts" / f"step_{step}", out / f"step_{step}",
                        ignore=shutil.ignore_patterns("STABLE"))
        (out / f"step_{step}" / "STABLE").touch()
        assert json.loads(process.stdout.readline())["step"] == step
    with process:
        assert json.loads(process.stdout.read())["published"] == 2
    assert process.returncode == 0


def test_a_bad_folder_is_told_and_the_next_is_published(tmp_path):
    wisp("init", tmp_path / "run")
    out = tmp_path / "out"
    shutil.copytree(GOLDEN / "areal", out)
    (out / "weight_update_v5").mkdir()
    (out / "weight_update_v5" / "model.safetensors").write_bytes(b"PK\x03\x04nonsense")
    (out / "weight_update_v6").mkdir()
    (out / "weight_update_v6" / "__0_0.distcp").write_bytes(b"PK\x03\x04")
    done = run("publish", tmp_path / "run", "--watch", out, "--once", "--quiet-for", "50ms",
               "--poll", "10ms", "--baseline", tmp_path / "baseline", "--json")
    assert done.code == 1
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert [line.get("event") or line.get("step") for line in lines[:-1]] == [3, "fault", "fault", 12]
    assert lines[-1]["published"] == 2 and lines[-1]["failed"] == 2
    assert "torch.distributed.checkpoint" in done.err and "step 6 is not published" in done.err
    assert "from Python with wisp.folders.publish_distributed" in done.err


def test_an_abandoned_folder_is_passed_over_aloud(tmp_path):
    wisp("init", tmp_path / "run")
    out = tmp_path / "out"
    shutil.copytree(GOLDEN / "prime_rl" / "broadcasts", out)
    (out / "step_3" / "STABLE").unlink()
    done = wisp("publish", tmp_path / "run", "--watch", out, "--ready", "STABLE", "--once",
                "--quiet-for", "50ms", "--poll", "10ms", "--baseline", tmp_path / "baseline")
    assert "step_3 was never completed" in done.err and done.out.startswith("step 12,")


@pytest.mark.parametrize("arguments", [
    [], ["--ready", "STABLE"], ["--watch", "out", "checkpoint"], ["--watch", "out", "--step", "3"],
    ["--watch", "out", "--ready", "a/b"], ["--watch", "out", "--heartbeat"],
    ["--watch", "out", "--layout", "trl"],
])
def test_wrong_usage_of_watch_is_refused(tmp_path, arguments):
    wisp("init", tmp_path / "run")
    refused(USAGE, "publish", tmp_path / "run", *arguments, within=tmp_path)


def test_watching_a_folder_that_is_not_there(tmp_path):
    wisp("init", tmp_path / "run")
    refused(ERROR, "publish", tmp_path / "run", "--watch", tmp_path / "nothing", "--once",
            "--baseline", tmp_path / "baseline", names=["nothing"])
