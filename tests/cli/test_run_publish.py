"""init, publish, log and status: the trainer's side of a run."""

import json

import pytest

import runs
import st
from run_wisp import DENIED, ERROR, LOCKED, NO_RUN, PATIENCE, USAGE, WRONG_BASE, answer, refused, run, start, wisp


@pytest.fixture
def trainer(tmp_path):
    made = runs.Trainer(tmp_path)
    made.init("--no-probe")
    return made


def test_init_starts_a_run_that_has_nothing_yet(tmp_path):
    told = answer("init", tmp_path / "run")
    assert told["verb"] == "init" and told["mode"] == "exclusive" and told["run"]
    assert answer("log", tmp_path / "run")["commits"] == []
    status = answer("status", tmp_path / "run")
    assert status["head"] is None and status["run"] == told["run"]
    assert "nothing was published" in wisp("status", tmp_path / "run").out
    assert "nothing was published" in wisp("log", tmp_path / "run").out
    assert not list(tmp_path.glob("run/.wisp-doctor*"))


def test_second_init_is_refused_and_names_the_run(trainer, tmp_path):
    refused(LOCKED, "init", trainer.url, names=[trainer.url, "already"], within=trainer.url)


def test_single_writer_is_declared_and_shown(tmp_path):
    assert answer("init", tmp_path / "run", "--single-writer")["mode"] == "single-writer"
    assert answer("status", tmp_path / "run")["mode"] == "single-writer"


@pytest.mark.parametrize("url", ["ftp://host/run", "file://host/run", "file:///a%zz", "s3:///x", "",
                                 "s3:/bucket/run", "S3:bucket", "hf:/buckets/a/b", "http://host/run"])
@pytest.mark.parametrize("verb", ["init", "log", "status"])
def test_addresses_that_are_none_are_refused(verb, url, tmp_path):
    refused((ERROR, USAGE), verb, url, cwd=tmp_path, within=tmp_path)


def test_file_addresses_and_plain_paths_are_one_run(trainer):
    trainer.steps(1)
    assert answer("status", f"file://{trainer.url}")["run"] == answer("status", trainer.url)["run"]


def test_publishing_counts_steps_and_reports_every_field(trainer):
    first, second = trainer.steps(2)
    assert first["kind"] == "anchor" and first["anchored"] and first["step"] == 0
    assert second["kind"] == "delta" and second["step"] == 1 and second["seq"] > first["seq"]
    assert 0 < second["changed_elements"] < second["total_elements"]
    assert 0 < second["delta_bytes"] <= second["uploaded_bytes"] < second["checkpoint_bytes"]
    assert second["state"] == answer("verify", trainer.states[1])["state"]
    assert {"epoch", "anchored", "rewound", "anchor_bytes", "reused_bytes", "ratio", "diff_seconds",
            "upload_seconds", "commit_seconds", "baseline_seconds"} <= set(second)


def test_publish_prints_one_line_for_people(trainer):
    for words in (["step 0", "anchor"], ["step 1", "delta", "smaller", "diff", "commit"]):
        done = wisp(*trainer.call())
        assert len(done.out.splitlines()) == 1 and done.err == ""
        assert all(word in done.out for word in words), done.out
    assert wisp(*trainer.call("-q")).out == ""


def test_same_checkpoint_as_the_same_step_is_present_already(trainer):
    told = trainer.publish("--step", 5)
    again = trainer.publish("--step", 5, checkpoint=trainer.states[-1])
    assert again["kind"] == "present" and again["seq"] == told["seq"]
    assert "already" in wisp(*trainer.call("--step", 5, checkpoint=trainer.states[-1])).out


def test_older_step_is_a_rewind_with_an_epoch_and_an_anchor_of_its_own(trainer):
    before = [trainer.publish("--step", step) for step in (10, 20)][-1]
    refused(ERROR, *trainer.call("--step", 15), names=["step 20", "--rewind"], within=trainer.url)
    told = trainer.publish("--step", 15, "--rewind")
    assert told["rewound"] and told["anchored"] and told["epoch"] > before["epoch"]
    assert any(c["rewind_from"] == 20 for c in answer("log", trainer.url)["commits"])
    assert "back from step 20" in wisp("log", trainer.url).out


def test_other_weights_as_the_newest_step_are_refused(trainer):
    trainer.publish("--step", 5)
    refused(ERROR, *trainer.call("--step", 5), names=["step 5", "--rewind"], within=trainer.url)


def other(trainer, **tensors):
    """The newest checkpoint with tensors replaced, added, or (None) left out."""
    kept = {**trainer.tensors, **tensors}
    return st.save(trainer.folder / "other.safetensors",
                   {name: tensor for name, tensor in kept.items() if tensor is not None})


def test_another_schema_is_refused_and_says_what_differs_unless_it_is_meant(trainer, tmp_path):
    trainer.steps(2)
    wider = {name: ("F32", shape, bytes(2 * len(data)))
             for name, (dtype, shape, data) in trainer.tensors.items() if dtype == "BF16"}
    for changed, names in (
            (wider, ["F32 instead of BF16", "embed.weight"]),
            ({"lm_head.weight": ("BF16", (2, 2), bytes(8))}, ["1 tensor is new (lm_head.weight)"]),
            ({"model.norm.weight": None}, ["1 is missing (model.norm.weight)"]),
            ({"embed.weight": ("BF16", (2, 2), bytes(8))}, ["[2, 2] instead of [50, 32]"])):
        refused(ERROR, *trainer.call(checkpoint=other(trainer, **changed)),
                names=[*names, "--allow-schema-change"], within=trainer.url)
    grown = other(trainer, **{"lm_head.weight": ("BF16", (2, 2), bytes(8))})
    assert trainer.publish("--allow-schema-change", checkpoint=grown)["anchored"]
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", grown)


@pytest.mark.parametrize("codec", ["compact", "swift", "plain", "gap"])
def test_a_delta_is_no_checkpoint_to_publish(trainer, tmp_path, codec):
    delta = tmp_path / "delta.safetensors"
    wisp("diff", trainer.train(), trainer.train(), "-o", delta, "--codec", codec)
    refused(ERROR, *trainer.call(checkpoint=delta), names=["is a delta", "wisp apply"],
            within=trainer.url)


def test_anchors_come_as_often_as_asked(trainer):
    told = [trainer.publish("--anchor-every", 2) for _ in range(5)]
    assert [t["anchored"] for t in told] == [True, False, True, False, True]
    assert [a["step"] for a in answer("status", trainer.url)["anchors"]] == [0, 2, 4]


@pytest.mark.parametrize("codec", ["compact", "swift"])
def test_a_run_keeps_the_codec_it_was_started_with(tmp_path, codec):
    trainer = runs.Trainer(tmp_path)
    assert trainer.init("--codec", codec)["codec"] == codec
    for _ in range(5):
        trainer.publish()
    assert answer("status", trainer.url)["codec"] == codec
    wisp("compact", trainer.url)
    written = {path.name: answer("inspect", path)["codec"]
               for path in (trainer.url / "deltas").iterdir()}
    assert any("_from_" in name for name in written) and set(written.values()) == {codec}
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[-1])
    refused(USAGE, "publish", trainer.url, trainer.states[-1], "--codec", "gap",
            names=["wisp init --codec"], within=trainer.url)


def test_swift_is_the_codec_of_a_run_that_does_not_say(trainer, tmp_path):
    assert answer("status", trainer.url)["codec"] == "swift"
    refused(USAGE, "init", tmp_path / "other", "--codec", "gap", names=["compact"])


def test_a_branch_has_the_codec_of_its_origin_unless_told(tmp_path):
    trainer = runs.Trainer(tmp_path)
    trainer.init("--codec", "compact")
    trainer.publish()
    branch = answer("init", tmp_path / "branch", "--branch-of", trainer.url)
    other = answer("init", tmp_path / "other", "--branch-of", trainer.url, "--codec", "swift")
    assert (branch["codec"], other["codec"]) == ("compact", "swift")


def test_parts_of_any_size_make_one_object_again(trainer, tmp_path):
    for _ in range(2):
        trainer.publish("--part-size", 1000)
    assert len(list((trainer.url / "anchors").iterdir())) > 5
    runs.pull(trainer.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[-1])


def test_baseline_lies_in_the_cache_and_is_rebuilt_when_lost(trainer, tmp_path):
    run_id = answer("status", trainer.url)["run"]
    for variables in ({"XDG_CACHE_HOME": str(tmp_path / "xdg")},
                      {"HOME": str(tmp_path), "XDG_CACHE_HOME": ""}):
        wisp("publish", trainer.url, trainer.train(), env=variables)
    assert (tmp_path / "xdg/wisp/baselines" / run_id / "model.safetensors").is_file()
    assert (tmp_path / ".cache/wisp/baselines" / run_id / "model.safetensors").is_file()
    refused(ERROR, "publish", trainer.url, trainer.states[0],
            env={"HOME": "", "XDG_CACHE_HOME": ""}, names=["--baseline"])


def test_writer_that_was_overtaken_is_fenced_until_it_takes_the_run_back(trainer, tmp_path):
    trainer.steps(1)
    other = tmp_path / "other.baseline"
    wisp("publish", trainer.url, trainer.train(), "--baseline", other)
    refused(LOCKED, *trainer.call(), names=["taken over", "--take-over"], within=trainer.url)
    told = trainer.publish("--take-over")
    assert told["kind"] == "delta"
    refused(LOCKED, "publish", trainer.url, trainer.states[0], "--baseline", other)


def test_baseline_in_use_is_refused(trainer, tmp_path):
    trainer.steps(1)
    follower = start("follow", trainer.url, "--into", trainer.baseline, "--json")
    try:
        assert follower.stdout.readline()
        refused(LOCKED, *trainer.call(), names=["in use"])
    finally:
        follower.terminate()
        follower.communicate(timeout=PATIENCE)


def test_baseline_of_another_run_is_refused(trainer, tmp_path):
    trainer.steps(1)
    wisp("init", tmp_path / "second")
    refused(WRONG_BASE, "publish", tmp_path / "second", trainer.states[0], "--baseline",
            trainer.baseline, names=["run"])


def test_a_run_without_its_record_and_a_bucket_of_trls_are_called_so(trainer, tmp_path):
    trainer.steps(1)
    (trainer.url / "format.json").unlink()
    refused(NO_RUN, "status", trainer.url, names=["has lost its format.json"])
    (tmp_path / "trl" / "anchors").mkdir(parents=True)
    (tmp_path / "trl" / "anchors" / "step_000001.safetensors").write_bytes(b"")
    refused(NO_RUN, "log", tmp_path / "trl", names=["TRL's layout", "--layout trl"])


def test_publishing_where_there_is_no_run_names_init(tmp_path):
    trainer = runs.Trainer(tmp_path)
    refused(NO_RUN, *trainer.call(), names=["wisp init", trainer.url])
    for verb in ("log", "status"):
        refused(NO_RUN, verb, trainer.url, names=["wisp init"])
    assert refused(NO_RUN, "log", trainer.url, "--json").json["error"] == "no_run"


def test_publishing_what_is_no_checkpoint_writes_nothing(trainer, tmp_path):
    (tmp_path / "junk.safetensors").write_bytes(b"junk")
    refused((ERROR, 13), *trainer.call(checkpoint=tmp_path / "junk.safetensors"),
            within=trainer.url)
    refused(ERROR, *trainer.call(checkpoint=tmp_path / "none.safetensors"),
            names=["none.safetensors"], within=trainer.url)


def test_heartbeat_is_a_commit_without_a_state(trainer):
    trainer.steps(1)
    call = ["publish", trainer.url, "--heartbeat", "--baseline", trainer.baseline]
    assert answer(*call)["kind"] == "heartbeat"
    newest = answer("log", trainer.url, "-n", 1)["commits"]
    assert [c["kind"] for c in newest] == ["heartbeat"] and newest[0]["step"] == 0
    assert "trainer lives" in wisp(*call).out


@pytest.mark.parametrize("more", [
    [], ["a", "--heartbeat"], ["a", "--step", "-1"], ["a", "--anchor-every", "0"],
    ["a", "--anchor-every", "often"], ["a", "--codec", "zip"], ["a", "--part-size", "0"],
    ["a", "--expires", "10"], ["a", "--base-name", "x"], ["a", "--certificate", "c"]])
def test_wrong_usage_exits_with_2(more, tmp_path):
    refused(USAGE, "publish", tmp_path / "run", *more, cwd=tmp_path, within=tmp_path)


def test_log_is_newest_first_and_as_long_as_asked(trainer):
    trainer.steps(4)
    commits = answer("log", trainer.url)["commits"]
    assert [c["seq"] for c in commits] == sorted((c["seq"] for c in commits), reverse=True)
    assert [c["step"] for c in answer("log", trainer.url, "-n", 2)["commits"]] == [3, 2]
    assert {"epoch", "kind", "time_ms", "state", "writer", "signer", "hash", "delta_bytes",
            "anchor_bytes", "changed_elements", "total_elements", "rewind_from"} <= set(commits[0])
    lines = wisp("log", trainer.url, "-n", 2).out.splitlines()
    assert len(lines) == 3 and "seq" in lines[0] and lines[1].split()[2] == "3"
    refused(USAGE, "log", trainer.url, "-n", "0")


def test_status_shows_head_anchors_replicas_and_what_joining_costs(trainer, tmp_path):
    trainer.steps(3)
    runs.pull(trainer.url, tmp_path / "replica", "--id", "gpu-7")
    trainer.steps(2)
    status = answer("status", trainer.url)
    assert status["head"]["step"] == 4 and status["signed"] is False and not status["expired"]
    assert status["stored_objects"] > 5 and status["join_bytes"] < status["stored_bytes"]
    assert 5 <= status["join_objects"] < status["stored_objects"]
    (replica,) = status["replicas"]
    assert replica["id"] == "gpu-7" and replica["step"] == 2 and replica["lag_steps"] == 2
    assert replica["status"] == "stopped" and 0 <= replica["age_ms"] < 1000 * PATIENCE
    text = wisp("status", trainer.url).out
    for words in ("unsigned", "step 4", "anchor", "gpu-7", "2 behind", "exclusive"):
        assert words in text, text


def test_a_status_of_another_version_is_shown_as_unknown(trainer, tmp_path):
    trainer.steps(1)
    runs.pull(trainer.url, tmp_path / "replica", "--id", "gpu-7")
    trainer.steps(1)
    told = trainer.url / "replicas/gpu-7"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"status": "warming\x1b[31m"}))
    status = answer("status", trainer.url)
    (replica,) = status["replicas"]
    assert replica["status"] == "unknown" and replica["lag_steps"] == 1
    assert ", 1 behind, unknown, seen " in wisp("status", trainer.url).out
    assert " lag=1 replicas=1" in run("status", trainer.url, "--check").out


def test_expired_run_says_so_and_a_pull_exits_with_5(trainer, tmp_path):
    trainer.publish("--expires", "1ms")
    assert answer("status", trainer.url)["expired"] is True
    assert "EXPIRED" in wisp("status", trainer.url).out
    for _ in range(2):
        refused(5, "pull", trainer.url, "--into", tmp_path / "replica", names=["stale"])
    trainer.publish()
    runs.pull(trainer.url, tmp_path / "replica", "--max-staleness", "1h")


def test_branch_starts_at_a_step_without_copying(trainer, tmp_path):
    trainer.steps(3)
    branch = runs.Trainer(tmp_path, "branch", seed=8)
    told = branch.init("--branch-of", f"{trainer.url}@1")
    assert told["branch_step"] == 1 and told["shared_bytes"] > 0
    assert not (branch.url / "anchors").exists()
    runs.pull(branch.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", trainer.states[1])
    branch.tensors, branch.states = trainer.tensors, [None]
    assert branch.publish()["step"] == 2
    runs.pull(branch.url, tmp_path / "replica")
    assert runs.holds(tmp_path / "replica", branch.states[-1])
    assert len(answer("status", trainer.url)["branches"]) == 1
    newest = answer("init", tmp_path / "newest", "--branch-of", trainer.url)
    assert newest["branch_step"] == 2


def test_branch_of_nothing_is_refused(trainer, tmp_path):
    refused(NO_RUN, "init", tmp_path / "b", "--branch-of", tmp_path / "none", names=["none"])
    refused(NO_RUN, "init", tmp_path / "c", "--branch-of", trainer.url, names=["no state"])
    for name in ("b", "c"):
        refused(NO_RUN, "log", tmp_path / name)


@pytest.fixture
def keys(tmp_path):
    for name in ("root", "trainer", "stranger"):
        wisp("key", "new", tmp_path / f"{name}.key")
    wisp("key", "certify", "--root", tmp_path / "root.key", "--subject",
         tmp_path / "trainer.key.pub", "--expires", "1d", "--serial", 3, "-o",
         tmp_path / "trainer.cert")
    return tmp_path


def test_signed_run_is_followed_by_those_who_trust_the_key(keys):
    trainer = runs.Trainer(keys, "signed")
    assert trainer.init("--sign-key", keys / "trainer.key")["signed"]
    for _ in range(2):
        trainer.publish("--sign-key", keys / "trainer.key")
    runs.pull(trainer.url, keys / "replica", "--trust", keys / "trainer.key.pub")
    assert runs.holds(keys / "replica", trainer.states[-1])
    refused(DENIED, "pull", trainer.url, "--into", keys / "other", "--trust",
            keys / "stranger.key.pub")
    status = answer("status", trainer.url, "--trust", keys / "trainer.key.pub")
    assert status["signed"] and "signed by" in wisp("status", trainer.url).out
    runs.pull(trainer.url, keys / "both", "--trust", keys / "stranger.key.pub", "--trust",
              keys / "trainer.key.pub")


def test_certified_key_is_trusted_through_its_root(keys):
    trainer = runs.Trainer(keys, "signed")
    trainer.init("--root", keys / "root.key.pub")
    trainer.publish("--sign-key", keys / "trainer.key", "--certificate", keys / "trainer.cert")
    runs.pull(trainer.url, keys / "replica", "--trust", keys / "root.key.pub")
    refused(DENIED, "pull", trainer.url, "--into", keys / "late", "--trust",
            keys / "root.key.pub", "--min-serial", 4)


def test_run_is_signed_from_its_start_or_never(trainer, keys):
    sign = ["--sign-key", keys / "trainer.key"]
    refused(ERROR, *trainer.call(*sign), names=["without keys", "wisp init --sign-key"])
    signed = runs.Trainer(keys, "signed")
    refused(ERROR, "init", signed.url, *sign, "--certificate", keys / "trainer.cert",
            names=["--root"])
    signed.init(*sign)
    refused(DENIED, *signed.call(), names=["--sign-key"])
    refused(DENIED, *signed.call("--sign-key", keys / "stranger.key"), names=["trusted"])
    assert signed.publish(*sign)["kind"] == "anchor"
    run_id = answer("status", signed.url)["run"]
    assert "(unchecked: pass --trust or --run)" in wisp("status", signed.url).out
    for named in (["--trust", keys / "trainer.key.pub"], ["--run", run_id]):
        assert "unchecked" not in wisp("status", signed.url, *named).out


def test_pinned_run_is_not_taken_for_another(trainer, tmp_path):
    trainer.steps(1)
    run = answer("status", trainer.url)["run"]
    runs.pull(trainer.url, tmp_path / "replica", "--run", run)
    for verb in (["pull", trainer.url, "--into", tmp_path / "other"], ["log", trainer.url]):
        refused(14, *verb, "--run", "0" * 32, names=[run])


def test_unsigned_run_is_refused_where_keys_are_named(trainer, keys):
    trainer.steps(1)
    for verb in (["pull", trainer.url, "--into", keys / "replica"], ["log", trainer.url],
                 ["status", trainer.url]):
        refused(DENIED, *verb, "--trust", keys / "trainer.key.pub")


def test_what_is_no_key_is_refused(trainer, keys):
    (keys / "junk").write_text("hunter2\n")
    (keys / "junk").chmod(0o600)
    done = refused(ERROR, *trainer.call("--sign-key", keys / "junk"), names=["junk"])
    assert "hunter2" not in done.err
    refused(ERROR, "log", trainer.url, "--trust", keys / "junk", names=["junk"])
