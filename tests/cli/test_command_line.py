"""The manners of the command line: help, JSON, silence, and the choice of kernel."""

import json
import subprocess

import pytest

import st
from checkpoints import CODECS
from run_wisp import BINARY, ERROR, USAGE, WRONG_BASE, answer, refused, run, wisp

VERBS = ("diff", "apply", "merge", "inspect", "verify", "init", "publish", "follow", "pull", "log",
         "status", "dashboard", "report", "compact", "retain", "scrub", "export", "key", "doctor",
         "completion")


def calls(chain, tmp_path):
    """One successful call of every verb that works on files."""
    return {
        "diff": ["diff", chain.states[0], chain.states[1], "-o", tmp_path / "d"],
        "apply": ["apply", chain.states[0], chain.deltas[0], "-o", tmp_path / "out"],
        "in_place": ["apply", chain.states[3], chain.deltas[2], "--in-place"],
        "merge": ["merge", *chain.deltas, "--base", chain.states[0], "-o", tmp_path / "m"],
        "inspect": ["inspect", chain.deltas[0]],
        "verify": ["verify", chain.deltas[0], chain.states[0]],
    }


CALLS = ("diff", "apply", "in_place", "merge", "inspect", "verify")


def test_help_lists_every_verb_and_the_exit_codes():
    text = wisp("--help").out
    assert "Examples:" in text and all(verb in text for verb in VERBS)
    for code in ("10 no such run", "13 damaged", "14 wrong base", "15 history", "16 store",
                 "17 disk full", "18 format too new"):
        assert code in text
    assert wisp("--version").out.startswith("wisp ")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb_ends_with_examples(verb):
    text = wisp(verb, "--help").out
    assert "Examples:\n  " in text and f"wisp {verb}" in text.split("Examples:")[1]


@pytest.mark.parametrize("name", CALLS)
def test_json_is_one_line_per_result_and_nothing_else(chain, tmp_path, name):
    done = wisp(*calls(chain, tmp_path)[name], "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert len(lines) == (2 if name == "verify" else 1)
    for line in lines:
        assert line["ok"] is True and line["verb"] == name.replace("in_place", "apply")
    assert done.err == ""


@pytest.mark.parametrize("name", CALLS)
def test_quiet_prints_nothing(chain, tmp_path, name):
    done = wisp(*calls(chain, tmp_path)[name], "-q")
    assert done.out == "" and done.err == ""


@pytest.mark.parametrize("name", CALLS)
def test_without_a_terminal_there_is_no_progress_bar(chain, tmp_path, name):
    done = wisp(*calls(chain, tmp_path)[name])
    assert done.out and done.err == "" and "\r" not in done.out


def test_error_as_json_names_kind_and_exit_code(chain, tmp_path):
    done = refused(WRONG_BASE, "apply", chain.states[0], chain.deltas[1], "-o", tmp_path / "out",
                   "--json", "-q", within=tmp_path)
    told = done.json
    assert told["ok"] is False and told["error"] == "wrong_base" and told["exit_code"] == 14
    assert told["message"] in done.err


USAGE_ERRORS = {
    "no verb": [], "unknown verb": ["frobnicate"], "unknown option": ["diff", "a", "b", "--fast"],
    "output to nowhere": ["diff", "a", "b", "-o", "-"], "diff of one": ["diff", "a", "-o", "d"],
    "unknown codec": ["diff", "a", "b", "-o", "d", "--codec", "zip"],
    "no threads": ["diff", "a", "b", "-o", "d", "--threads", "0"],
    "negative threads": ["diff", "a", "b", "-o", "d", "--threads", "-1"],
    "step not a number": ["diff", "a", "b", "-o", "d", "--step", "x"],
    "negative step": ["diff", "a", "b", "-o", "d", "--step", "-1"],
    "apply without delta": ["apply", "a", "-o", "b"],
    "merge without base": ["merge", "a", "-o", "b"], "verify of nothing": ["verify"],
    "inspect of nothing": ["inspect"], "unknown shell": ["completion", "tcsh"],
}


@pytest.mark.parametrize("name", USAGE_ERRORS)
def test_wrong_usage_exits_with_2(name, tmp_path):
    refused(USAGE, *USAGE_ERRORS[name], cwd=tmp_path, within=tmp_path)


@pytest.mark.parametrize(("words", "meant"), [
    (["pulbish"], "'publish'"), (["stat"], "'status'"), (["key", "sho"], "'show'"),
    (["publish", "run", "x", "--stpe", "3"], "--step"), (["diff", "a", "b", "--cdec=gap"], "--codec"),
])
def test_a_typo_is_told_with_what_was_probably_meant(words, meant):
    assert f"did you mean {meant}?" in refused(USAGE, *words).err


def test_a_word_like_no_other_is_told_without_a_guess():
    done = refused(USAGE, "frobnicate", names=["there is no verb 'frobnicate'", "wisp --help"])
    assert "did you mean" not in done.err


def test_wrong_usage_is_json_where_json_was_asked_for():
    told = refused(USAGE, "diff", "a", "--json").json
    assert told["verb"] == "diff" and told["ok"] is False
    assert told["error"] == "usage" and told["exit_code"] == USAGE
    assert refused(USAGE, "frobnicate", "--json").json["verb"] is None


def test_help_is_a_verb_too():
    assert wisp("help", "publish").out == wisp("publish", "--help").out
    assert wisp("help").out == wisp("--help").out
    assert wisp("help", "key", "new").out == wisp("key", "new", "--help").out


def test_diff_without_an_output_shows_what_changed_and_exits_like_diff(chain, tmp_path):
    before = sorted(tmp_path.iterdir())
    done = run("diff", chain.states[0], chain.states[1], env={"TMPDIR": str(tmp_path)})
    assert done.code == 1 and "layer 2" in done.out and "changed" in done.out
    told = run("diff", chain.states[0], chain.states[1], "--json")
    written = answer("diff", chain.states[0], chain.states[1], "-o", tmp_path / "d")
    assert told.code == 1 and told.json["same"] is False
    assert told.json["changed_elements"] == written["changed_elements"]
    assert sum(t["changed_elements"] for t in told.json["tensors"]) == written["changed_elements"]
    same = wisp("diff", chain.states[0], chain.states[0])
    assert "no differences" in same.out
    assert run("diff", chain.states[0], tmp_path / "absent").code == 2
    (tmp_path / "d").unlink()
    assert sorted(tmp_path.iterdir()) == before


def test_diff_of_other_tensors_names_them(chain, tmp_path):
    other = st.save(tmp_path / "other", {"w": ("BF16", (2,), bytes(4))})
    done = run("diff", chain.states[0], other)
    assert done.code == 1 and "1 tensor is new (w)" in done.out and "missing" in done.out


OTHER_FORMATS = {
    "pytorch.bin": (b"PK\x03\x04" + bytes(60), ["PyTorch", "save_file"]),
    "old.pt": (b"\x80\x02\x8a\nl\xfc\x9cF" + bytes(60), ["PyTorch", "torch.load"]),
    "model.gguf": (b"GGUF\x03\0\0\0" + bytes(60), ["GGUF", "gguf_file"]),
    "model.safetensors": (b"version https://git-lfs.github.com/spec/v1\n", ["Git LFS", "git lfs pull"]),
    "page.safetensors": (b"<!DOCTYPE html><html></html>", ["web page"]),
}


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_files_of_other_formats_are_called_by_their_name(name, tmp_path):
    data, names = OTHER_FORMATS[name]
    (tmp_path / name).write_bytes(data)
    done = refused(ERROR, "inspect", tmp_path / name, names=names)
    assert "claims" not in done.err
    (tmp_path / "pytorch_model.bin").write_bytes(data)
    (tmp_path / name).unlink()
    refused(ERROR, "verify", tmp_path, names=["PyTorch weights", "save_pretrained"])


def test_what_was_not_looked_at_is_null(chain):
    told = answer("verify", chain.deltas[0])
    assert told["base_matches"] is None and told["result_matches"] is None
    assert answer("verify", chain.states[0])["sealed"] is None


def test_step_is_written_and_counted_on(pair, tmp_path):
    for codec in CODECS:
        delta = tmp_path / codec
        wisp("diff", pair.old, pair.new, "-o", delta, "--codec", codec, "--step", 2**40)
        assert answer("inspect", delta)["step"] == 2**40


def test_file_names_that_look_like_options_or_hold_spaces_work(pair, tmp_path):
    for name in ("a delta (1).safetensors", "-delta.safetensors"):
        wisp("diff", pair.old, pair.new, f"--output={name}", cwd=tmp_path)
        assert wisp("inspect", "--json", "--", name, cwd=tmp_path).json["kind"] == "delta"


def test_verbs_written_over_a_full_standard_output_do_not_claim_success(chain):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BINARY, "verify", chain.deltas[0], "--json"], stdout=full,
                              stderr=subprocess.PIPE, check=False)
    assert done.returncode > 0


@pytest.mark.parametrize("codec", CODECS)
def test_reference_kernel_writes_the_same_bytes(chain, tmp_path, codec):
    forced = {"WISP_KERNEL": "reference"}
    a, b = chain.states[:2]
    wisp("diff", a, b, "-o", tmp_path / "default", "--codec", codec)
    told = answer("diff", a, b, "-o", tmp_path / "forced", "--codec", codec, env=forced)
    assert told["kernel"].lower() == "reference"
    assert (tmp_path / "default").read_bytes() == (tmp_path / "forced").read_bytes()
    wisp("apply", a, tmp_path / "default", "-o", tmp_path / "out", env=forced)
    assert (tmp_path / "out").read_bytes() == b.read_bytes()
    assert answer("verify", a, env=forced)["state"] == answer("verify", a)["state"]


def test_kernel_in_use_is_named(pair, tmp_path):
    told = answer("diff", pair.old, pair.new, "-o", tmp_path / "d")
    own = told["kernel"]
    again = answer("diff", pair.old, pair.new, "-o", tmp_path / "d", env={"WISP_KERNEL": own})
    assert again["kernel"] == own


@pytest.mark.parametrize("name", CALLS)
def test_unknown_kernel_is_refused_by_every_verb(chain, tmp_path, name):
    refused(USAGE, *calls(chain, tmp_path)[name], env={"WISP_KERNEL": "nonsense"},
            names=["WISP_KERNEL", "nonsense", "reference"], within=tmp_path)


def test_empty_kernel_choice_means_the_default(pair, tmp_path):
    wisp("diff", pair.old, pair.new, "-o", tmp_path / "d", env={"WISP_KERNEL": ""})


def test_missing_files_are_named(chain, tmp_path):
    missing = tmp_path / "missing.safetensors"
    state, delta = chain.states[0], chain.deltas[0]
    for arguments in (["diff", missing, state, "-o", tmp_path / "d"],
                      ["diff", state, missing, "-o", tmp_path / "d"],
                      ["apply", missing, delta, "-o", tmp_path / "o"],
                      ["apply", missing, delta, "--in-place"],
                      ["apply", state, missing, "-o", tmp_path / "o"],
                      ["apply", state, missing, "--in-place"],
                      ["merge", missing, "--base", state, "-o", tmp_path / "m"],
                      ["merge", delta, "--base", missing, "-o", tmp_path / "m"],
                      ["inspect", missing], ["verify", missing],
                      ["verify", delta, "--base", missing]):
        refused(ERROR, *arguments, names=[missing, "No such file"], within=tmp_path)


def test_output_into_a_missing_folder_is_refused(chain, tmp_path):
    out = tmp_path / "no/such/folder/out"
    for arguments in (["diff", chain.states[0], chain.states[1], "-o", out],
                      ["apply", chain.states[0], chain.deltas[0], "-o", out],
                      ["merge", *chain.deltas, "--base", chain.states[0], "-o", out]):
        refused(ERROR, *arguments, names=["no/such/folder"], within=tmp_path)


def test_empty_output_name_is_refused(chain, tmp_path):
    done = run("diff", chain.states[0], chain.states[1], "-o", "", cwd=tmp_path)
    assert done.code in (ERROR, USAGE)
