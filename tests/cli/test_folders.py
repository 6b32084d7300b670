"""Hugging Face folders of shards: wherever a checkpoint is taken, such a folder is meant."""

import os
import shutil

import numpy as np
import pytest

import st
from checkpoints import (folder_tensors, model, read_index, trained, write_folder, write_index)
from run_wisp import DAMAGED, ERROR, answer, refused, snapshot, wisp


@pytest.fixture
def states():
    rng = np.random.default_rng(21)
    old = model(rng)
    return old, trained(rng, old)


@pytest.fixture
def folders(tmp_path, states):
    old = write_folder(tmp_path / "old", states[0])
    new = write_folder(tmp_path / "new", states[1])
    wisp("diff", old, new, "-o", tmp_path / "delta")
    return old, new, tmp_path / "delta"


def test_apply_rebuilds_a_folder_with_its_other_files(folders, tmp_path):
    old, new, delta = folders
    before = snapshot(old)
    done = answer("apply", old, delta, "-o", tmp_path / "out")
    assert done["result_proven"]
    assert snapshot(tmp_path / "out") == snapshot(new)
    assert (tmp_path / "out/tokenizer/vocab.txt").read_text() == "a\nb\n"
    assert snapshot(old) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["delta", "new", "old", "out"]


def test_apply_in_place_rebuilds_a_folder_and_leaves_no_journal(folders):
    old, new, delta = folders
    inodes = {p.name: p.stat().st_ino for p in old.iterdir()}
    answer("apply", old, delta, "--in-place")
    assert snapshot(old) == snapshot(new)
    assert {p.name: p.stat().st_ino for p in old.iterdir()} == inodes


def test_folder_and_single_file_of_the_same_tensors_are_one_state(folders, states, tmp_path):
    old, new, delta = folders
    single = st.save(tmp_path / "single.safetensors", states[0])
    assert answer("verify", old)["state"] == answer("verify", single)["state"]
    wisp("apply", single, delta, "-o", tmp_path / "out")
    assert st.load(tmp_path / "out")[0] == states[1]
    assert answer("verify", tmp_path / "out")["state"] == answer("verify", new)["state"]


def test_diff_between_folder_and_file_equals_diff_between_files(folders, states, tmp_path):
    old, _, delta = folders
    new = st.save(tmp_path / "new.safetensors", states[1])
    wisp("diff", old, new, "-o", tmp_path / "mixed")
    assert (tmp_path / "mixed").read_bytes() == delta.read_bytes()


def test_other_number_of_shards_gives_the_same_delta(folders, states, tmp_path):
    old, _, delta = folders
    new = write_folder(tmp_path / "five", states[1], shards=5)
    wisp("diff", old, new, "-o", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == delta.read_bytes()


def test_merge_and_verify_take_a_folder_as_base(folders, states, tmp_path):
    old, new, first = folders
    last = write_folder(tmp_path / "last", trained(np.random.default_rng(22), states[1]))
    wisp("diff", new, last, "-o", tmp_path / "second")
    merged = answer("merge", first, tmp_path / "second", "--base", old, "-o", tmp_path / "merged")
    assert merged["result_digest"] == answer("verify", last)["state"]
    proof = answer("verify", tmp_path / "merged", "--base", old)
    assert proof["base_matches"] and proof["result_matches"]


def test_inspect_and_verify_read_a_folder(folders, states):
    seen = answer("inspect", folders[0], "--tensors")
    assert seen["kind"] == "checkpoint" and seen["tensor_count"] == len(states[0])
    assert [t["name"] for t in seen["tensors"]] == sorted(states[0])
    assert answer("verify", folders[0])["kind"] == "checkpoint"


def test_trailing_slash_and_relative_paths_mean_the_same(folders, tmp_path):
    old, new, delta = folders
    wisp("diff", f"{old}/", "new/", "-o", "again", cwd=tmp_path)
    assert (tmp_path / "again").read_bytes() == delta.read_bytes()
    wisp("apply", "old/", "again", "-o", "out/", cwd=tmp_path)
    assert snapshot(tmp_path / "out") == snapshot(new)
    wisp("apply", "old/", "again", "--in-place", cwd=tmp_path)
    assert snapshot(old) == snapshot(new)


def test_folder_without_index_but_one_file_is_a_checkpoint(tmp_path, states):
    for name, tensors in zip(("old", "new"), states):
        (tmp_path / name).mkdir()
        st.save(tmp_path / name / "model.safetensors", tensors)
    (tmp_path / "old/config.json").write_text("{}")
    wisp("diff", tmp_path / "old", tmp_path / "new", "-o", tmp_path / "delta")
    wisp("apply", tmp_path / "old", tmp_path / "delta", "-o", tmp_path / "out")
    assert folder_tensors(tmp_path / "out") == states[1]
    assert (tmp_path / "out/config.json").read_text() == "{}"


@pytest.mark.parametrize("count", [0, 2])
def test_folder_without_index_is_refused_unless_it_holds_one_file(tmp_path, states, count):
    (tmp_path / "model").mkdir()
    for i in range(count):
        st.save(tmp_path / f"model/part{i}.safetensors", {f"t{i}": ("U8", (1,), b"x")})
    refused(ERROR, "verify", tmp_path / "model", names=[tmp_path / "model", f"{count} .safetensors",
                                                        "model.safetensors.index.json"])


def drop_file(folder):
    (folder / "model-00002-of-00002.safetensors").unlink()


def forget_tensor(folder):
    index = read_index(folder)
    del index["weight_map"]["model.norm.weight"]
    write_index(folder, index)


def promise_tensor(folder):
    index = read_index(folder)
    index["weight_map"]["phantom"] = "model-00001-of-00002.safetensors"
    write_index(folder, index)


def misplace_tensor(folder):
    index = read_index(folder)
    index["weight_map"]["embed.weight"] = "model-00002-of-00002.safetensors"
    write_index(folder, index)


def point_to(name):
    def lie(folder):
        index = read_index(folder)
        index["weight_map"]["embed.weight"] = name.replace("FOLDER", str(folder.parent))
        write_index(folder, index)
    return lie


def repeat_key(folder):
    text = (folder / "model.safetensors.index.json").read_text()
    entry = '"embed.weight": "model-00001-of-00002.safetensors"'
    assert entry in text
    write_index(folder, text.replace(entry, f"{entry}, {entry}"))


def write_as(text):
    return lambda folder: write_index(folder, text)


LIES = {
    "missing file": (drop_file, ERROR, "model-00002-of-00002.safetensors"),
    "tensor not listed": (forget_tensor, DAMAGED, "model.norm.weight"),
    "tensor not there": (promise_tensor, DAMAGED, "phantom"),
    "tensor elsewhere": (misplace_tensor, DAMAGED, "embed.weight"),
    "path upwards": (point_to("../x.safetensors"), DAMAGED, "../x.safetensors"),
    "path downwards": (point_to("sub/x.safetensors"), DAMAGED, "sub/x.safetensors"),
    "absolute path": (point_to("FOLDER/x.safetensors"), DAMAGED, "x.safetensors"),
    "hidden file": (point_to(".x.safetensors"), DAMAGED, ".x.safetensors"),
    "other file": (point_to("config.json"), DAMAGED, "config.json"),
    "empty name": (point_to(""), DAMAGED, "index"),
    "duplicate key": (repeat_key, DAMAGED, "embed.weight"),
    "no weight_map": (write_as('{"metadata": {}}'), DAMAGED, "weight_map"),
    "two weight_maps": (write_as('{"weight_map": {}, "weight_map": {}}'), DAMAGED, "weight_map"),
    "empty weight_map": (write_as('{"weight_map": {}}'), (ERROR, DAMAGED), "index"),
    "weight_map a list": (write_as('{"weight_map": ["x"]}'), DAMAGED, "index"),
    "weight_map a string": (write_as('{"weight_map": "x.safetensors"}'), DAMAGED, "index"),
    "not JSON": (write_as("weights"), DAMAGED, "index"),
    "not an object": (write_as("[]"), DAMAGED, "index"),
    "a number": (write_as("3"), DAMAGED, "index"),
    "empty": (write_as(""), DAMAGED, "index"),
    "deep nesting": (write_as('{"x":' * 100_000), DAMAGED, "index"),
}


@pytest.mark.parametrize("lie", LIES)
def test_index_that_lies_is_refused_by_every_verb(folders, tmp_path, lie):
    old, new, delta = folders
    st.save(tmp_path / "x.safetensors", {"embed.weight": ("U8", (1,), b"x")})
    tell, code, word = LIES[lie]
    tell(old)
    for arguments in (["verify", old], ["inspect", old], ["diff", old, new, "-o", tmp_path / "d"],
                      ["apply", old, delta, "-o", tmp_path / "out"],
                      ["apply", old, delta, "--in-place"],
                      ["merge", delta, "--base", old, "-o", tmp_path / "m"]):
        refused(code, *arguments, names=[old, word], within=tmp_path)


def test_same_tensor_in_two_shards_is_refused(folders):
    old = folders[0]
    tensors, _ = st.load(old / "model-00002-of-00002.safetensors")
    tensors["embed.weight"] = ("U8", (1,), b"x")
    st.save(old / "model-00002-of-00002.safetensors", tensors)
    refused(DAMAGED, "verify", old, names=["embed.weight", "model-00002-of-00002"])


def test_output_folder_that_holds_files_is_refused(folders, tmp_path):
    old, _, delta = folders
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious").write_text("x")
    refused(ERROR, "apply", old, delta, "-o", tmp_path / "out", names=["out", "exists"],
            within=tmp_path)


def test_output_folder_that_is_empty_is_filled(folders, tmp_path):
    old, new, delta = folders
    (tmp_path / "out").mkdir()
    wisp("apply", old, delta, "-o", tmp_path / "out")
    assert snapshot(tmp_path / "out") == snapshot(new)


def test_folder_cannot_be_written_over_a_file_nor_a_file_over_a_folder(folders, states, tmp_path):
    old, new, delta = folders
    single = st.save(tmp_path / "single.safetensors", states[0])
    refused(ERROR, "apply", old, delta, "-o", single, names=[single], within=tmp_path)
    refused(ERROR, "apply", single, delta, "-o", new, names=[new], within=tmp_path)
    refused(ERROR, "diff", old, new, "-o", new, names=[new], within=tmp_path)


def test_linked_shards_of_a_cache_folder_are_read(folders, tmp_path):
    """The Hub's cache keeps blobs elsewhere and links to them."""
    old, new, delta = folders
    shutil.move(old, tmp_path / "blobs")
    old.mkdir()
    for item in (tmp_path / "blobs").iterdir():
        os.symlink(item, old / item.name)
    wisp("apply", old, delta, "-o", tmp_path / "out")
    assert folder_tensors(tmp_path / "out") == folder_tensors(new)
    assert (tmp_path / "out/config.json").read_text() == (new / "config.json").read_text()
