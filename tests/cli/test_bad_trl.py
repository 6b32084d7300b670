"""Sparse patches of others that must not be believed: positions, counts, names."""

import numpy as np
import pytest

import st
from run_wisp import DAMAGED, ERROR, UNSUPPORTED, answer, refused


def positions(values, kind=np.int32):
    names = {np.int32: "I32", np.int64: "I64", np.uint16: "U16", np.uint32: "U32",
             np.uint8: "U8", np.float32: "F32"}
    return (names[kind], (len(values),), np.array(values, kind).tobytes())


def values(count, dtype="BF16"):
    return (dtype, (count,), b"\1" * st.byte_count(dtype, (count,)))


def indexed(listed, count=None, kind=np.int32):
    return {"w.indices": positions(listed, kind),
            "w.values": values(len(listed) if count is None else count)}


def gapped(listed, kind=np.uint16):
    return {"w.idx": positions(listed, kind), "w.val": values(len(listed))}


BAD = {
    "duplicate": (DAMAGED, indexed([1, 5, 5])),
    "decreasing": (DAMAGED, indexed([1, 7, 5])),
    "negative": (DAMAGED, indexed([-1, 5])),
    "negative later": (DAMAGED, indexed([5, -1])),
    "smallest int32": (DAMAGED, indexed([-2**31])),
    "negative int64": (DAMAGED, indexed([-1, 3], kind=np.int64)),
    "duplicate int64": (DAMAGED, indexed([3, 3], kind=np.int64)),
    "past the end": (DAMAGED, indexed([5, 1000])),
    "far past the end": (DAMAGED, indexed([5, 2**31 - 1])),
    "int64 past the end": (DAMAGED, indexed([5, 2**62], kind=np.int64)),
    "gap past the end": (DAMAGED, gapped([998, 1])),
    "wide gap past the end": (DAMAGED, gapped([2**32 - 1], np.uint32)),
    "gaps that add up past the end": (DAMAGED, gapped([400, 400, 400])),
    "more positions than values": (DAMAGED, indexed([1, 2, 3], 2)),
    "more values than positions": (DAMAGED, indexed([1, 2, 3], 4)),
    "positions alone": (DAMAGED, {"w.indices": positions([1])}),
    "values alone": (DAMAGED, {"w.values": values(1)}),
    "two sets of positions": (DAMAGED, {**indexed([1]), "w.idx": positions([1])}),
    "not flat": (DAMAGED, {"w.indices": positions([1, 2]),
                           "w.values": ("BF16", (2, 1), b"\1\1\1\1")}),
    "float positions": (UNSUPPORTED, indexed([1, 2], kind=np.float32)),
    "byte positions": (UNSUPPORTED, gapped([1, 2], np.uint8)),
    "unknown tensor": (ERROR, {"v.indices": positions([1]), "v.values": values(1)}),
    "other dtype": (ERROR, {"w.indices": positions([1]), "w.values": values(1, "F16")}),
    "other width": (ERROR, {"w.indices": positions([1]), "w.values": values(1, "F32")}),
    "bytes for bf16": (ERROR, {"w.indices": positions([1]), "w.values": values(1, "U8")}),
}


def metadata(**extra):
    return {"format": "sparse_weight_patch", "version": "1", "sparse": "True",
            "model_version": "1", **extra}


@pytest.fixture
def base(tmp_path):
    return st.save(tmp_path / "base", {"w": ("BF16", (1000,), bytes(2000)),
                                       "other": ("U8", (3,), b"abc")})


def refuse(folder, base, code, tensors, keys, names=()):
    bad = st.save(folder / "bad", tensors, keys)
    for target in (["-o", folder / "out"], ["--in-place"], ["--in-place", "--quick"]):
        refused(code, "apply", base, bad, *target, names=[bad, *names], within=folder)
    refused(code, "verify", bad, "--base", base, names=[bad], within=folder)
    refused(code, "merge", bad, "--base", base, "-o", folder / "m", names=[bad], within=folder)


@pytest.mark.parametrize("with_metadata", [True, False])
@pytest.mark.parametrize("name", BAD)
def test_patch_that_lies_is_refused(base, tmp_path, name, with_metadata):
    code, tensors = BAD[name]
    if not with_metadata and name == "two sets of positions":
        pytest.skip("without metadata mixed names are a checkpoint, not a patch")
    tensor = "v" if name == "unknown tensor" else "w"
    refuse(tmp_path, base, code, tensors, metadata() if with_metadata else None, [tensor])


def test_good_entries_before_a_bad_one_are_not_applied(base, tmp_path):
    tensors = {"other.indices": positions([0]), "other.values": ("U8", (1,), b"z"),
               **indexed([1, 1000])}
    refuse(tmp_path, base, DAMAGED, tensors, metadata(), ["1000"])


def test_tensor_that_is_neither_positions_nor_values_is_refused(base, tmp_path):
    refuse(tmp_path, base, DAMAGED, {**indexed([1]), "w": values(1000)}, metadata(), ["w"])


def test_encoding_that_needs_a_gpu_is_refused_by_name(base, tmp_path):
    refuse(tmp_path, base, UNSUPPORTED, gapped([1]), metadata(encoding="nvcomp_cascaded"),
           ["nvcomp_cascaded", "gap_delta"])


def test_unknown_version_of_the_patch_is_refused(base, tmp_path):
    refuse(tmp_path, base, UNSUPPORTED, indexed([1]), metadata(version="2"), ["version"])


def test_patch_of_no_changes_applies_and_changes_nothing(base, tmp_path):
    for name, tensors in {"none": {}, "hollow": indexed([])}.items():
        delta = st.save(tmp_path / name, tensors, metadata())
        done = answer("apply", base, delta, "-o", tmp_path / "out")
        assert done["changed_elements"] == 0
        assert (tmp_path / "out").read_bytes() == base.read_bytes()


def test_last_element_can_be_changed(base, tmp_path):
    for name, tensors in {"raw": indexed([999]), "gap": gapped([999])}.items():
        delta = st.save(tmp_path / name, tensors, metadata())
        done = answer("apply", base, delta, "-o", tmp_path / "out")
        assert done["changed_elements"] == 1
        assert st.load(tmp_path / "out")[0]["w"][2] == bytes(1998) + b"\1\1"
