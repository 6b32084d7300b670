"""compact, retain, scrub and export: what keeps a run small and sound."""

import json
import signal

import pytest

import runs
from run_wisp import DAMAGED, DENIED, ERROR, NO_RUN, PATIENCE, USAGE, answer, refused, run, start, wisp


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init("--no-probe")
    return made


def damage(folder):
    """Turns one byte of the largest file."""
    file = max((f for f in folder.iterdir() if f.is_file()), key=lambda f: f.stat().st_size)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    return file


def test_compact_spares_late_joiners_objects(trainer, tmp_path):
    for _ in range(9):
        trainer.publish("--anchor-every", 100)
    told = answer("compact", trainer.url)
    assert told["merged"] > 0 and told["spans_states"] >= 8
    assert told["join_objects_after"] < told["join_objects_before"]
    assert answer("status", trainer.url)["merged_deltas"] > 0
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[-1])
    assert answer("compact", trainer.url)["merged"] == 0
    assert "nothing to merge" in wisp("compact", trainer.url).out


def test_compact_says_what_it_did(trainer, tmp_path):
    for _ in range(5):
        trainer.publish("--anchor-every", 100)
    (tmp_path / "work").mkdir()
    out = wisp("compact", trainer.url, "--work", tmp_path / "work").out
    assert "1 merged delta, " in out and "late joiner" in out
    assert list((tmp_path / "work").iterdir()) == []


def test_watching_compact_goes_on_until_it_is_told_to_end(trainer):
    for _ in range(5):
        trainer.publish("--anchor-every", 100)
    watcher = start("compact", trainer.url, "--watch", "--every", "20ms", "--json")
    try:
        assert json.loads(watcher.stdout.readline())["merged"] > 0
        for _ in range(4):
            trainer.publish("--anchor-every", 100)
        assert json.loads(watcher.stdout.readline())["merged"] > 0
    finally:
        watcher.send_signal(signal.SIGINT)
        watcher.communicate(timeout=PATIENCE)
    assert watcher.returncode == 130


def test_retain_keeps_the_newest_anchors_and_everything_after(trainer, tmp_path):
    for _ in range(7):
        trainer.publish("--anchor-every", 2)
    call = ["retain", trainer.url, "--keep-anchors", 2, "--grace", "0"]
    before = answer("status", trainer.url)
    planned = answer(*call, "--dry-run")
    assert planned["dry_run"] and planned["removed_objects"] == len(planned["removed_keys"]) > 0
    passing = {"head": None, "replicas": None, "verdict": None}  # they tell how long ago
    assert answer("status", trainer.url) | passing == before | passing
    told = answer(*call)
    assert told["floor_moved"] and told["floor_step"] == 4 and told["buried_commits"] > 0
    assert sorted(told["removed_keys"]) == sorted(planned["removed_keys"])
    assert answer("status", trainer.url)["stored_bytes"] < before["stored_bytes"]
    assert "as before" in wisp(*call).out
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[-1])
    refused((ERROR, 15), "export", trainer.url, "--step", 1, "-o", tmp_path / "old")


def test_grace_keeps_what_replicas_may_still_read(trainer):
    for _ in range(5):
        trainer.publish("--anchor-every", 1)
    told = answer("retain", trainer.url, "--keep-anchors", 1)
    assert told["floor_moved"] and told["removed_objects"] == 0 and told["waiting_objects"] > 0
    assert "wait out the grace" in wisp("retain", trainer.url, "--keep-anchors", 1).out


def test_retention_never_takes_what_a_branch_needs(trainer, tmp_path):
    for _ in range(2):
        trainer.publish("--anchor-every", 1)
    wisp("init", tmp_path / "branch", "--branch-of", f"{trainer.url}@0", "--no-probe")
    for _ in range(3):
        trainer.publish("--anchor-every", 1)
    told = answer("retain", trainer.url, "--keep-anchors", 1, "--grace", "0", "--orphan-age", "0")
    assert told["held_by_branches"]
    runs.pull(tmp_path / "branch", tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[0])


def test_scrub_proves_a_sound_run(trainer):
    trainer.steps(3)
    told = answer("scrub", trainer.url)
    assert told["ok"] and told["kind"] == "run" and told["findings"] == []
    assert told["commits"] >= 3 and told["objects"] >= 3 and told["bytes"] > 0
    assert answer("scrub", trainer.url, "--replay")["states_proven"] == 3
    assert "sound" in wisp("scrub", trainer.url).out


def test_scrub_finds_damage_and_exits_with_13(trainer):
    trainer.steps(2)
    damaged = damage(trainer.url / "deltas")
    done = refused(DAMAGED, "scrub", trainer.url, names=[damaged.name])
    assert "1 findings" in done.out or "1 finding" in done.out
    told = run("scrub", trainer.url, "--json").json
    assert told["ok"] is False and damaged.name in told["findings"][0]["what"]
    assert told["findings"][0]["cure"]


def test_scrub_proves_a_replica_and_a_pull_mends_it(trainer, tmp_path):
    trainer.steps(2)
    runs.pull(trainer.url, tmp_path / "replica")
    told = answer("scrub", tmp_path / "replica")
    assert told["kind"] == "replica" and told["states_proven"] == 1
    damage(tmp_path / "replica")
    refused(DAMAGED, "scrub", tmp_path / "replica")
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[-1])
    assert answer("scrub", tmp_path / "replica")["ok"]


def test_export_writes_any_retained_step(trainer, tmp_path):
    trainer.steps(4)
    for step in (0, 2, 3):
        told = answer("export", trainer.url, "--step", step, "-o", tmp_path / f"out{step}")
        assert told["step"] == step and runs.holds(tmp_path / f"out{step}", trainer.states[step])
        assert told["state"] == answer("verify", tmp_path / f"out{step}")["state"]
        assert not (tmp_path / f"out{step}" / ".wisp").exists()
    assert "step 3" in wisp("export", trainer.url, "-o", tmp_path / "newest").out
    assert runs.holds(tmp_path / "newest", trainer.states[3])


def test_export_refuses_steps_and_folders_it_cannot_write(trainer, tmp_path):
    trainer.steps(2)
    refused((ERROR, 15), "export", trainer.url, "--step", 1 << 40, "-o", tmp_path / "out",
            names=["step"])
    assert not (tmp_path / "out").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    refused((ERROR, 11), "export", trainer.url, "-o", tmp_path / "there", within=tmp_path / "there")


def test_maintenance_of_a_signed_run_needs_trust_and_a_key(tmp_path):
    trainer = runs.Trainer(tmp_path, "signed")
    for name in ("trainer", "stranger"):
        wisp("key", "new", tmp_path / f"{name}.key")
    sign = ["--sign-key", tmp_path / "trainer.key"]
    trust = ["--trust", tmp_path / "trainer.key.pub"]
    trainer.init(*sign)
    for _ in range(6):
        trainer.publish("--anchor-every", 3, *sign)
    head = answer("status", trainer.url)["head"]["seq"]
    for verb in (["compact"], ["retain", "--keep-anchors", 1, "--grace", "0"]):
        refused(DENIED, verb[0], trainer.url, *verb[1:], names=["--sign-key"])
    assert answer("status", trainer.url)["head"]["seq"] == head
    assert answer("compact", trainer.url, *sign, *trust)["merged"] > 0
    answer("retain", trainer.url, "--keep-anchors", 1, "--grace", "0", *sign, *trust)
    assert answer("scrub", trainer.url, "--replay", *trust)["ok"]
    answer("export", trainer.url, "-o", tmp_path / "out", *trust)
    runs.pull(trainer.url, tmp_path / "replica", *trust)
    for verb in (["compact"], ["retain"], ["export", "-o", tmp_path / "no"]):
        refused(DENIED, verb[0], trainer.url, *verb[1:], "--trust", tmp_path / "stranger.key.pub")


def test_maintenance_where_there_is_no_run_is_exit_10(tmp_path):
    for verb in (["compact"], ["retain"], ["scrub"], ["export", "-o", tmp_path / "out"]):
        refused(NO_RUN, verb[0], tmp_path / "none", *verb[1:], names=["none"], within=tmp_path)


@pytest.mark.parametrize("arguments", [
    ["compact"], ["compact", "r", "--every", "1s"], ["compact", "r", "--every", "1"], ["retain"],
    ["retain", "r", "--keep-anchors", "0"], ["retain", "r", "--grace", "1"], ["scrub"],
    ["export", "r"], ["export", "r", "-o", "x", "--step", "-1"], ["scrub", "r", "--sign-key", "k"]])
def test_wrong_usage_exits_with_2(arguments, tmp_path):
    refused(USAGE, *arguments, cwd=tmp_path, within=tmp_path)
