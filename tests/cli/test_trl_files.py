"""The sparse files of TRL, #5417 (plain) and #5932 (gap): written as TRL does, read from anyone."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

import st
from run_wisp import answer, wisp

TRL_KEYS = {"format", "version", "sparse", "model_version", "num_changed_params",
            "total_changed_elements", "total_elements", "sparsity"}
WISP_KEYS = {"wisp_seal", "wisp_base_digest", "wisp_result_digest", "wisp_touched_digest",
             "wisp_schema_digest"}


def tensor(bits):
    return ("BF16", (bits.size,), bits.astype(np.uint16).tobytes())


def bits_of(entry):
    return np.frombuffer(entry[2], np.uint16)


def write_states(folder, changes, sizes):
    """Two checkpoints of bf16 tensors; `changes` lists the positions that differ, by tensor."""
    rng = np.random.default_rng(11)
    old = {n: rng.integers(0, 2**16, size).astype(np.uint16) for n, size in sizes.items()}
    new = {n: bits.copy() for n, bits in old.items()}
    for name, positions in changes.items():
        new[name][positions] ^= np.uint16(0x11)
    return (st.save(folder / "old.safetensors", {n: tensor(b) for n, b in old.items()}),
            st.save(folder / "new.safetensors", {n: tensor(b) for n, b in new.items()}), new)


def gaps(positions):
    return np.diff(np.concatenate([[-1], positions])) - 1


def int32(values):
    return ("I32", (len(values),), np.array(values, np.int32).tobytes())


SIZES = {"b.weight": 2000, "a.weight": 1000, "c.weight": 500}
CHANGES = {"a.weight": [0, 1, 7, 999], "b.weight": [3, 1500]}


def test_plain_is_the_file_of_5417(tmp_path):
    old, new, bits = write_states(tmp_path, CHANGES, SIZES)
    delta = tmp_path / "delta"
    wisp("diff", old, new, "-o", delta, "--codec", "plain", "--step", 42)
    tensors, metadata = st.load(delta)
    assert set(tensors) == {f"{n}.{part}" for n in CHANGES for part in ("indices", "values")}
    for name, positions in CHANGES.items():
        assert tensors[f"{name}.indices"] == int32(positions)
        assert tensors[f"{name}.values"] == tensor(bits[name][positions])
    assert set(metadata) == TRL_KEYS | {"changed_params"} | WISP_KEYS
    own = {k: v for k, v in metadata.items() if k not in WISP_KEYS}
    assert own == {
        "format": "sparse_weight_patch", "version": "1", "sparse": "True", "model_version": "42",
        "num_changed_params": "2", "total_changed_elements": "6", "total_elements": "3500",
        "sparsity": str(1.0 - 6 / 3500), "changed_params": json.dumps(["a.weight", "b.weight"]),
    }


def test_plain_lays_its_data_out_as_the_stock_writer_does(tmp_path):
    old, new, _ = write_states(tmp_path, CHANGES, SIZES)
    delta = tmp_path / "delta"
    wisp("diff", old, new, "-o", delta, "--codec", "plain")
    kinds = {"I32": np.int32, "BF16": ml_dtypes.bfloat16}
    stock = safetensors.numpy.save({n: np.frombuffer(data, kinds[dtype])
                                    for n, (dtype, _, data) in st.load(delta)[0].items()})
    ours, theirs = st.split(delta.read_bytes()), st.split(stock)
    assert ours[1] == theirs[1]
    ours[0].pop("__metadata__")
    assert ours[0] == theirs[0]


def test_gap_is_the_file_of_5932(tmp_path):
    old, new, bits = write_states(tmp_path, CHANGES, SIZES)
    delta = tmp_path / "delta"
    wisp("diff", old, new, "-o", delta, "--codec", "gap", "--step", 3)
    tensors, metadata = st.load(delta)
    assert set(tensors) == {f"{n}.{part}" for n in CHANGES for part in ("idx", "val")}
    for name, positions in CHANGES.items():
        coded = gaps(positions).astype(np.uint16)
        assert tensors[f"{name}.idx"] == ("U16", (coded.size,), coded.tobytes())
        assert tensors[f"{name}.val"] == tensor(bits[name][positions])
    assert set(metadata) == TRL_KEYS | {"encoding"} | WISP_KEYS
    assert metadata["encoding"] == "gap_delta" and metadata["model_version"] == "3"


@pytest.mark.parametrize("gap,dtype", [(65535, "U16"), (65536, "U32")])
def test_gap_widens_the_whole_tensor_when_one_gap_needs_it(tmp_path, gap, dtype):
    positions = [0, gap + 1, gap + 2]
    old, new, bits = write_states(tmp_path, {"w": positions}, {"w": 70_000})
    delta = tmp_path / "delta"
    wisp("diff", old, new, "-o", delta, "--codec", "gap")
    tensors, _ = st.load(delta)
    kind = {"U16": np.uint16, "U32": np.uint32}[dtype]
    assert tensors["w.idx"] == (dtype, (3,), gaps(positions).astype(kind).tobytes())
    wisp("apply", old, delta, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == new.read_bytes()


@pytest.mark.parametrize("codec", ["plain", "gap"])
def test_sparsity_reads_as_a_python_float(tmp_path, codec):
    for count in (0, 1, 3, 1000):
        old, new, _ = write_states(tmp_path, {"w": list(range(count))}, {"w": 1000})
        wisp("diff", old, new, "-o", tmp_path / "delta", "--codec", codec)
        with safe_open(tmp_path / "delta", "numpy") as stock:
            assert stock.metadata()["sparsity"] == str(1.0 - count / 1000)


def trl_metadata(**extra):
    return {"format": "sparse_weight_patch", "version": "1", "sparse": "True",
            "model_version": "7", "num_changed_params": "1", "total_changed_elements": "3",
            "total_elements": "1000", "sparsity": "0.997", **extra}


def foreign_files(bits, positions):
    """The same change as the many hands of TRL have written it, by description."""
    values = tensor(bits[positions])
    coded = gaps(positions)
    raw = {"w.idx": int32(positions), "w.val": values}
    return {
        "5417": ({"w.indices": int32(positions), "w.values": values},
                 trl_metadata(changed_params='["w"]')),
        "5417 values first": ({"w.values": values, "w.indices": int32(positions)},
                              trl_metadata(changed_params='["w"]')),
        "5417 without metadata": ({"w.indices": int32(positions), "w.values": values}, None),
        "5932 raw": (raw, trl_metadata(encoding="raw")),
        "5932 raw without metadata": (raw, None),
        "5932 gaps of 16 bits": (
            {"w.idx": ("U16", (3,), coded.astype(np.uint16).tobytes()), "w.val": values},
            trl_metadata(encoding="gap_delta")),
        "5932 gaps of 32 bits": (
            {"w.idx": ("U32", (3,), coded.astype(np.uint32).tobytes()), "w.val": values},
            trl_metadata(encoding="gap_delta")),
        "wide indices": (
            {"w.indices": ("I64", (3,), np.array(positions, np.int64).tobytes()),
             "w.values": values}, trl_metadata()),
    }


KINDS = list(foreign_files(np.zeros(1000, np.uint16), [0, 1, 2]))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_files_written_by_trl_are_applied_and_called_not_proven(tmp_path, kind, in_place):
    positions = [0, 500, 999]
    old, new, bits = write_states(tmp_path, {"w": positions}, {"w": 1000, "other": 10})
    delta = st.save(tmp_path / "delta", *foreign_files(bits["w"], positions)[kind])
    out = old if in_place else tmp_path / "out"
    target = ["--in-place"] if in_place else ["-o", out]
    told = wisp("apply", old, delta, *target)
    assert "not proven" in told.out
    assert out.read_bytes() == new.read_bytes()
    again = answer("apply", old, delta, "-o", tmp_path / "again")
    assert not again["base_proven"] and not again["result_proven"]


@pytest.mark.parametrize("kind", KINDS)
def test_files_written_by_trl_are_inspected_and_verified_as_unsealed(tmp_path, kind):
    positions = [0, 500, 999]
    old, new, bits = write_states(tmp_path, {"w": positions}, {"w": 1000, "other": 10})
    delta = st.save(tmp_path / "delta", *foreign_files(bits["w"], positions)[kind])
    seen = answer("inspect", delta)
    assert seen["kind"] == "delta" and not seen["sealed"]
    assert seen["changed_elements"] == 3
    assert seen["codec"] == ("gap" if "gaps" in kind else "plain")
    proof = answer("verify", delta, "--base", old)
    assert proof["decoded"] and not proof["base_matches"] and not proof["result_matches"]
    assert proof["state"] == answer("verify", new)["state"]


def test_foreign_entries_that_change_nothing_are_not_counted(tmp_path):
    """TRL compares floats, so it lists every NaN as changed."""
    old = st.save(tmp_path / "old", {"w": tensor(np.array([0x7FC1, 5, 6]))})
    delta = st.save(tmp_path / "delta", {"w.indices": int32([0, 2]),
                                         "w.values": tensor(np.array([0x7FC1, 9]))})
    done = answer("apply", old, delta, "-o", tmp_path / "out")
    assert done["changed_elements"] == 1
    assert bits_of(st.load(tmp_path / "out")[0]["w"]).tolist() == [0x7FC1, 5, 9]


def test_foreign_and_own_deltas_apply_in_one_chain(tmp_path):
    old, new, bits = write_states(tmp_path, {"w": [1, 2, 3]}, {"w": 1000})
    foreign = st.save(tmp_path / "foreign", {"w.indices": int32([1, 2, 3]),
                                             "w.values": tensor(bits["w"][[1, 2, 3]])})
    after = bits["w"].copy()
    after[900] ^= np.uint16(1)
    last = st.save(tmp_path / "last", {"w": tensor(after)})
    wisp("diff", new, last, "-o", tmp_path / "own")
    done = answer("apply", old, foreign, tmp_path / "own", "-o", tmp_path / "out")
    assert done["deltas_applied"] == 2 and done["result_proven"]
    assert (tmp_path / "out").read_bytes() == last.read_bytes()


def test_trl_anchor_counts_as_a_checkpoint(tmp_path):
    bits = np.arange(10)
    anchor = st.save(tmp_path / "anchor", {"w": tensor(bits)}, trl_metadata(sparse="False"))
    new = st.save(tmp_path / "new", {"w": tensor(bits + 1)})
    assert answer("inspect", anchor)["kind"] == "checkpoint"
    done = answer("diff", anchor, new, "-o", tmp_path / "delta")
    assert done["step"] == 0, "a step is only what --step says"


def test_empty_gap_delta_is_still_called_gap(tmp_path):
    old, new, _ = write_states(tmp_path, {}, {"w": 100})
    wisp("diff", old, new, "-o", tmp_path / "delta", "--codec", "gap")
    assert answer("inspect", tmp_path / "delta")["codec"] == "gap"
