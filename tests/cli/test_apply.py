"""apply: chains, their order, wrong bases, and where the result goes."""

import os
import shutil

import numpy as np
import pytest

import st
from checkpoints import CODECS, trained
from run_wisp import ERROR, USAGE, WRONG_BASE, answer, refused, snapshot, wisp


def copy_of(path, name="copy.safetensors"):
    return shutil.copyfile(path, path.parent / name)


def test_apply_rebuilds_the_new_checkpoint_bit_for_bit(chain, tmp_path):
    out = tmp_path / "out"
    wisp("apply", chain.states[0], chain.deltas[0], "-o", out)
    assert out.read_bytes() == chain.states[1].read_bytes()


@pytest.mark.parametrize("in_place", [False, True])
def test_chain_of_deltas_leads_to_the_last_state(chain, tmp_path, in_place):
    base = copy_of(chain.states[0])
    out = base if in_place else tmp_path / "out"
    done = answer("apply", base, *chain.deltas, *(["--in-place"] if in_place else ["-o", out]))
    assert done["deltas_applied"] == 3 and done["deltas_skipped"] == 0
    assert out.read_bytes() == chain.states[3].read_bytes()
    assert done["result_digest"] == answer("verify", chain.states[3])["state"]


@pytest.mark.parametrize("in_place", [False, True])
def test_deltas_the_base_already_contains_are_skipped(chain, tmp_path, in_place):
    base = copy_of(chain.states[2])
    out = base if in_place else tmp_path / "out"
    target = ["--in-place"] if in_place else ["-o", out]
    done = answer("apply", base, *chain.deltas, *target)
    assert done["deltas_applied"] == 1 and done["deltas_skipped"] == 2
    assert out.read_bytes() == chain.states[3].read_bytes()


@pytest.mark.parametrize("in_place", [False, True])
def test_base_past_all_deltas_stays_as_it_is(chain, tmp_path, in_place):
    base = copy_of(chain.states[3])
    out = base if in_place else tmp_path / "out"
    told = wisp("apply", base, *chain.deltas, *(["--in-place"] if in_place else ["-o", out]))
    assert "3 of the deltas were in the base already" in told.out
    assert out.read_bytes() == chain.states[3].read_bytes()


def wrong_orders(chain):
    first, second, third = chain.deltas
    return {"swapped": [second, first], "gap": [first, third], "twice": [first, first],
            "backwards": [third, second, first]}


@pytest.mark.parametrize("order", ["swapped", "gap", "twice", "backwards"])
def test_deltas_in_the_wrong_order_are_refused(chain, tmp_path, order):
    deltas = wrong_orders(chain)[order]
    for target in (["-o", tmp_path / "out"], ["--in-place"], ["--in-place", "--quick"]):
        refused(WRONG_BASE, "apply", chain.states[0], *deltas, *target,
                names=[deltas[1], "oldest first"], within=tmp_path)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("target", ["output", "in_place", "quick_output", "quick_in_place"])
def test_wrong_base_is_refused_before_anything_is_written(chain, tmp_path, codec, target):
    delta = tmp_path / "delta"
    wisp("diff", chain.states[1], chain.states[2], "-o", delta, "--codec", codec)
    wrong = chain.states[0]
    place = ["--in-place"] if "in_place" in target else ["-o", tmp_path / "out"]
    quick = ["--quick"] if "quick" in target else []
    refused(WRONG_BASE, "apply", wrong, delta, *place, *quick, names=[delta], within=tmp_path)


def test_wrong_base_message_names_both_states_and_the_step(chain, tmp_path):
    states = [answer("verify", s)["state"] for s in chain.states]
    refused(WRONG_BASE, "apply", chain.states[0], chain.deltas[1], "-o", tmp_path / "out",
            names=[states[0], states[1], "step 2"], within=tmp_path)


def test_one_flipped_bit_in_the_base_is_noticed(chain, tmp_path):
    """Also where no delta touches it."""
    data = bytearray(chain.states[0].read_bytes())
    data[-1] ^= 1
    base = tmp_path / "flipped.safetensors"
    base.write_bytes(data)
    for target in (["-o", tmp_path / "out"], ["--in-place"]):
        refused(WRONG_BASE, "apply", base, chain.deltas[0], *target, within=tmp_path)


def test_quick_in_place_proves_only_what_it_touches(tmp_path):
    old = {"w": ("U8", (64,), bytes(64)), "far": ("U8", (64,), bytes(64))}
    new = {**old, "w": ("U8", (64,), bytes(63) + b"\1")}
    a, b = st.save(tmp_path / "a", old), st.save(tmp_path / "b", new)
    wisp("diff", a, b, "-o", tmp_path / "d")
    other = st.save(tmp_path / "other", {**old, "far": ("U8", (64,), b"\7" * 64)})
    refused(WRONG_BASE, "apply", other, tmp_path / "d", "--in-place", within=tmp_path)
    wisp("apply", other, tmp_path / "d", "--in-place", "--quick")
    assert st.load(other)[0] == {**new, "far": ("U8", (64,), b"\7" * 64)}


@pytest.mark.parametrize("extra", [[], ["--quick"]])
def test_in_place_keeps_the_file_and_leaves_no_journal(chain, tmp_path, extra):
    base = copy_of(chain.states[0])
    inode = base.stat().st_ino
    before = set(os.listdir(tmp_path))
    wisp("apply", base, chain.deltas[0], "--in-place", *extra)
    assert base.read_bytes() == chain.states[1].read_bytes()
    assert base.stat().st_ino == inode
    assert set(os.listdir(tmp_path)) == before


def test_in_place_with_a_delta_of_no_changes_touches_nothing(chain, tmp_path):
    wisp("diff", chain.states[0], chain.states[0], "-o", tmp_path / "none")
    stamp = chain.states[0].stat().st_mtime_ns
    before = snapshot(tmp_path)
    done = answer("apply", chain.states[0], tmp_path / "none", "--in-place")
    assert done["changed_elements"] == 0 and done["result_proven"]
    assert chain.states[0].stat().st_mtime_ns == stamp and snapshot(tmp_path) == before


def test_output_onto_the_base_is_refused_and_names_the_way(chain, tmp_path):
    base = chain.states[0]
    os.symlink(base, tmp_path / "link")
    os.link(base, tmp_path / "hard")
    for same in (base, tmp_path / "." / base.name, tmp_path / "link", tmp_path / "hard"):
        refused(ERROR, "apply", base, chain.deltas[0], "-o", same, names=["--in-place"],
                within=tmp_path)


@pytest.mark.parametrize("onto", ["old", "new"])
def test_diff_does_not_overwrite_what_it_reads(pair, tmp_path, onto):
    refused(ERROR, "diff", pair.old, pair.new, "-o", getattr(pair, onto),
            names=[getattr(pair, onto)], within=tmp_path)


def test_merge_does_not_overwrite_its_base(chain, tmp_path):
    refused(ERROR, "merge", *chain.deltas, "--base", chain.states[0], "-o", chain.states[0],
            names=[chain.states[0]], within=tmp_path)


def test_existing_output_file_is_replaced(chain, tmp_path):
    (tmp_path / "out").write_text("an older result")
    wisp("apply", chain.states[0], chain.deltas[0], "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == chain.states[1].read_bytes()


def test_failed_apply_leaves_an_existing_output_alone(chain, tmp_path):
    (tmp_path / "out").write_text("an older result")
    refused(WRONG_BASE, "apply", chain.states[3], chain.deltas[0], chain.deltas[1], "-o",
            tmp_path / "out", within=tmp_path)
    assert (tmp_path / "out").read_text() == "an older result"


def test_output_has_the_permissions_of_any_new_file(chain, tmp_path):
    wisp("apply", chain.states[0], chain.deltas[0], "-o", tmp_path / "out", umask=0o027)
    wisp("diff", chain.states[0], chain.states[1], "-o", tmp_path / "d", umask=0o027)
    assert [(tmp_path / n).stat().st_mode & 0o777 for n in ("out", "d")] == [0o640, 0o640]


@pytest.mark.parametrize("target", [[], ["-o", "out", "--in-place"]])
def test_both_or_neither_of_output_and_in_place_is_a_usage_error(chain, tmp_path, target):
    refused(USAGE, "apply", chain.states[0], chain.deltas[0], *target, cwd=tmp_path,
            within=tmp_path)


def test_apply_in_place_takes_what_another_codec_wrote(chain, tmp_path):
    deltas = []
    there_and_back = [*range(len(chain.states)), *reversed(range(len(chain.states) - 1))]
    for codec, old, new in zip(CODECS, there_and_back, there_and_back[1:]):
        deltas.append(tmp_path / f"{codec}.delta")
        wisp("diff", chain.states[old], chain.states[new], "-o", deltas[-1], "--codec", codec)
    base = copy_of(chain.states[0])
    done = answer("apply", base, *deltas, "--in-place")
    assert done["deltas_applied"] == len(CODECS) and done["result_proven"]
    assert base.read_bytes() == chain.states[there_and_back[len(CODECS)]].read_bytes()


def test_there_and_back_again_ends_where_it_began(chain, tmp_path):
    a, b = chain.states[:2]
    wisp("diff", b, a, "-o", tmp_path / "back")
    done = answer("apply", a, chain.deltas[0], tmp_path / "back", "-o", tmp_path / "out")
    assert done["deltas_applied"] == 2
    assert (tmp_path / "out").read_bytes() == a.read_bytes()


def with_other_tensors(tensors, change):
    tensors = dict(tensors)
    if change == "missing":
        del tensors["model.norm.weight"]
    elif change == "extra":
        tensors["surplus"] = ("U8", (1,), b"x")
    elif change == "dtype":
        dtype, shape, data = tensors["embed.weight"]
        tensors["embed.weight"] = ("F16", shape, data)
    elif change == "shape":
        dtype, (rows, columns), data = tensors["embed.weight"]
        tensors["embed.weight"] = (dtype, (columns, rows), data)
    elif change == "longer":
        tensors["model.norm.weight"] = ("F32", (65,), bytes(260))
    return tensors


NAMES = {"missing": "model.norm.weight", "extra": "surplus", "dtype": "embed.weight",
         "shape": "embed.weight", "longer": "model.norm.weight"}


@pytest.mark.parametrize("change", NAMES)
def test_diff_refuses_checkpoints_of_other_tensors(pair, tmp_path, change):
    other = st.save(tmp_path / "other", with_other_tensors(st.load(pair.new)[0], change))
    for sides in ([pair.old, other], [other, pair.old]):
        refused(ERROR, "diff", *sides, "-o", tmp_path / "d", names=[*sides, NAMES[change]],
                within=tmp_path)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("change", NAMES)
def test_apply_refuses_a_base_of_other_tensors(pair, tmp_path, change, codec):
    delta = tmp_path / "delta"
    wisp("diff", pair.old, pair.new, "-o", delta, "--codec", codec)
    other = st.save(tmp_path / "other", with_other_tensors(st.load(pair.old)[0], change))
    for target in (["-o", tmp_path / "out"], ["--in-place"], ["--in-place", "--quick"]):
        refused(ERROR, "apply", other, delta, *target, names=[delta, "tensor"], within=tmp_path)


def test_result_does_not_depend_on_the_number_of_threads(tmp_path):
    rng = np.random.default_rng(31)
    count = 5 * 2**20 + 3
    old = {"w": ("BF16", (count,), rng.integers(0, 2**16, count).astype(np.uint16).tobytes())}
    a = st.save(tmp_path / "a", old)
    b = st.save(tmp_path / "b", trained(rng, old, 0.002))
    for codec in CODECS:
        deltas = []
        for threads in (1, 2, 7):
            deltas.append(tmp_path / f"d{threads}")
            wisp("diff", a, b, "-o", deltas[-1], "--codec", codec, "--threads", threads)
        assert len({d.read_bytes() for d in deltas}) == 1
        wisp("apply", a, deltas[0], "-o", tmp_path / "out", "--threads", 3)
        assert (tmp_path / "out").read_bytes() == b.read_bytes()
