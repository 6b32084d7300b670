"""A full disk: exit code 17, the old state intact, and no leftovers."""

import os
import resource
import shutil
import subprocess

import numpy as np
import pytest

import st
from checkpoints import CODECS, write_folder
from run_wisp import DISK_FULL, refused, wisp


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk],
                             capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def states(tmp_path):
    """Two checkpoints of 3 MB that differ everywhere, the deltas between them by codec."""
    rng = np.random.default_rng(51)
    old = {n: ("BF16", (750_000,), rng.bytes(1_500_000)) for n in ("v", "w")}
    new = {n: (d, s, bytes(x ^ 0xFF for x in data)) for n, (d, s, data) in old.items()}
    a, b = st.save(tmp_path / "a", old), st.save(tmp_path / "b", new)
    for codec in CODECS:
        wisp("diff", a, b, "-o", tmp_path / f"{codec}.delta", "--codec", codec)
    return a, b, old


@pytest.mark.parametrize("codec", CODECS)
def test_diff_on_a_full_disk_leaves_nothing_behind(small_disk, states, tmp_path, codec):
    a, b, _ = states
    out = small_disk / "delta"
    refused(DISK_FULL, "diff", a, b, "-o", out, "--codec", codec, names=[small_disk],
            within=tmp_path)


@pytest.mark.parametrize("codec", CODECS)
def test_apply_on_a_full_disk_leaves_nothing_behind(small_disk, states, tmp_path, codec):
    a, _, _ = states
    refused(DISK_FULL, "apply", a, tmp_path / f"{codec}.delta", "-o", small_disk / "out",
            names=[small_disk / "out", "free room"], within=tmp_path)


def test_merge_on_a_full_disk_leaves_nothing_behind(small_disk, states, tmp_path):
    a, _, _ = states
    refused(DISK_FULL, "merge", tmp_path / "compact.delta", "--base", a, "-o", small_disk / "m",
            names=[small_disk], within=tmp_path)


def test_apply_of_a_folder_on_a_full_disk_leaves_nothing_behind(small_disk, states, tmp_path):
    folder = write_folder(tmp_path / "folder", states[2])
    refused(DISK_FULL, "apply", folder, tmp_path / "compact.delta", "-o", small_disk / "out",
            names=[small_disk], within=tmp_path)


def test_other_files_of_a_folder_that_do_not_fit_leave_nothing_behind(small_disk, tmp_path):
    old, new = ({"w": ("U8", (4,), data)} for data in (b"abcd", b"abcD"))
    folder = write_folder(tmp_path / "folder", old, shards=1)
    (folder / "tokenizer.bin").write_bytes(os.urandom(2_000_000))
    wisp("diff", folder, st.save(tmp_path / "new", new), "-o", tmp_path / "delta")
    refused(DISK_FULL, "apply", folder, tmp_path / "delta", "-o", small_disk / "out",
            names=["tokenizer.bin"], within=tmp_path)


@pytest.mark.parametrize("extra", [[], ["--quick"]])
def test_in_place_without_room_for_the_journal_changes_nothing(small_disk, tmp_path, extra):
    rng = np.random.default_rng(52)
    old = {"w": ("BF16", (300_000,), rng.bytes(600_000))}
    new = {"w": ("BF16", (300_000,), bytes(x ^ 0xFF for x in old["w"][2]))}
    a, b = st.save(tmp_path / "a", old), st.save(tmp_path / "b", new)
    wisp("diff", a, b, "-o", tmp_path / "delta")
    base = shutil.copyfile(a, small_disk / "base")
    refused(DISK_FULL, "apply", base, tmp_path / "delta", "--in-place", *extra,
            names=[small_disk], within=tmp_path)
    assert base.read_bytes() == a.read_bytes()


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_file_size_limit_counts_as_a_full_disk(states, tmp_path):
    """`ulimit -f` sends a signal that would end the process and leave its temporary file."""
    a, b, _ = states
    for arguments in (["diff", a, b, "-o", tmp_path / "d"],
                      ["apply", a, tmp_path / "compact.delta", "-o", tmp_path / "out"],
                      ["apply", a, tmp_path / "compact.delta", "--in-place"]):
        refused(DISK_FULL, *arguments, within=tmp_path, preexec_fn=limit_file_size)
