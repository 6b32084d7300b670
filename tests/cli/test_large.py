"""Files over 4 GiB, tensors over 2^32 elements, and memory that does not grow with the model."""

import shutil
import subprocess

import numpy as np
import pytest

import st
from checkpoints import bf16_weights, nudged
from run_wisp import UNSUPPORTED, answer, is_sanitized, refused, start, wisp

pytestmark = pytest.mark.slow

ELEMENTS = 2**32 + 10
MEGABYTE = 1_000_000


def write_sparse(path, changes):
    """A U8 tensor of holes and a small one behind it; `changes` are single bytes by position."""
    file = st.pack({
        "huge": {"dtype": "U8", "shape": [ELEMENTS], "data_offsets": [0, ELEMENTS]},
        "tail": {"dtype": "U8", "shape": [6], "data_offsets": [ELEMENTS, ELEMENTS + 6]}})
    with open(path, "wb") as out:
        out.write(file)
        out.truncate(len(file) + ELEMENTS + 6)
        for position, byte in changes.items():
            out.seek(len(file) + position)
            out.write(bytes([byte]))
    return path


ENDS = {0: 1, ELEMENTS - 1: 2, ELEMENTS + 5: 3}


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    folder = tmp_path_factory.mktemp("huge")
    yield write_sparse(folder / "old", {}), write_sparse(folder / "new", ENDS)
    shutil.rmtree(folder)


@pytest.mark.parametrize("codec", ["compact", "plain"])
def test_changes_at_both_ends_of_a_huge_tensor_survive(huge, tmp_path, codec):
    old, new = huge
    delta = tmp_path / "delta"
    told = answer("diff", old, new, "-o", delta, "--codec", codec)
    assert told["changed_elements"] == 3 and told["total_elements"] == ELEMENTS + 6
    assert delta.stat().st_size < 8192
    proof = answer("verify", delta, "--base", old)
    assert proof["base_matches"] and proof["result_matches"]
    if codec == "plain":
        tensors, _ = st.load(delta)
        indices = np.array([0, ELEMENTS - 1], np.int64).tobytes()
        assert tensors["huge.indices"] == ("I64", (2,), indices)
        assert tensors["tail.indices"][0] == "I32"
    base = tmp_path / "base"
    subprocess.run(["cp", "--sparse=always", old, base], check=True)
    wisp("apply", base, delta, "--in-place", "--quick")
    assert answer("verify", base)["state"] == told["result_digest"]
    with open(base, "rb") as file:
        start_of_data = base.stat().st_size - ELEMENTS - 6
        for position, byte in ENDS.items():
            file.seek(start_of_data + position)
            assert file.read(1) == bytes([byte])


def test_gap_that_no_code_can_hold_is_refused(huge, tmp_path):
    old, new = huge
    refused(UNSUPPORTED, "diff", old, new, "-o", tmp_path / "d", "--codec", "gap",
            names=["huge", "--codec compact"], within=tmp_path)


def anonymous_peak(*arguments):
    """Runs wisp and watches its anonymous memory, in bytes."""
    process = start(*arguments)
    peak = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                for line in status:
                    if line.startswith("RssAnon:"):
                        peak = max(peak, int(line.split()[1]) * 1024)
        except (FileNotFoundError, ProcessLookupError):
            break
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert peak > 0, "never seen alive"
    return peak


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """512 MB of which half a percent moved, and 64 MB that changed everywhere."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(71)
    bits = bf16_weights(rng, 2**25)
    after = {"sparse": (8, nudged(rng, bits, 0.005)), "dense": (1, bits ^ np.uint16(0x1234))}
    for change, (tensors, new) in after.items():
        for side, state in (("old", bits), ("new", new)):
            data = state.tobytes()
            st.save(folder / f"{change}_{side}",
                    {f"t{i}": ("BF16", (state.size,), data) for i in range(tensors)})
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(is_sanitized(), reason="a sanitizer needs memory of its own")
@pytest.mark.parametrize("change", ["sparse", "dense"])
@pytest.mark.parametrize("codec", ["compact", "plain", "gap"])
def test_every_verb_stays_under_300_megabytes(pairs, tmp_path, codec, change):
    old, new = pairs / f"{change}_old", pairs / f"{change}_new"
    delta, base, out = tmp_path / "delta", tmp_path / "base", tmp_path / "out"
    shutil.copyfile(old, base)
    peaks = {
        "diff": anonymous_peak("diff", old, new, "-o", delta, "--codec", codec),
        "apply": anonymous_peak("apply", old, delta, "-o", out),
        "in place": anonymous_peak("apply", base, delta, "--in-place"),
        "verify": anonymous_peak("verify", delta, "--base", old),
        "merge": anonymous_peak("merge", delta, "--base", old, "-o", tmp_path / "merged",
                                "--codec", codec),
    }
    for result in (out, base):
        assert subprocess.run(["cmp", new, result], check=False).returncode == 0
    assert max(peaks.values()) < 300 * MEGABYTE, peaks
