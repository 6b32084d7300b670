"""merge, verify and inspect: one delta of several, proofs without writing, and what people read."""

import itertools

import pytest

import st
from checkpoints import CODECS
from run_wisp import DAMAGED, ERROR, ROOT, WRONG_BASE, answer, refused, run, wisp


@pytest.mark.parametrize("codec", CODECS)
def test_merged_delta_leads_where_its_parts_lead(chain, tmp_path, codec):
    merged, out = tmp_path / "merged", tmp_path / "out"
    told = answer("merge", *chain.deltas, "--base", chain.states[0], "-o", merged,
                  "--codec", codec)
    direct = answer("diff", chain.states[0], chain.states[3], "-o", tmp_path / "direct",
                    "--codec", codec, "--step", 3)
    for key in ("base_digest", "result_digest", "changed_elements", "file_bytes", "step"):
        assert told[key] == direct[key], key
    assert merged.read_bytes() == (tmp_path / "direct").read_bytes()
    wisp("apply", chain.states[0], merged, "-o", out)
    assert out.read_bytes() == chain.states[3].read_bytes()


@pytest.mark.parametrize("first,second", list(itertools.product(CODECS, CODECS)))
def test_merge_takes_any_mix_of_codecs(chain, tmp_path, first, second):
    deltas = [tmp_path / "first", tmp_path / "second"]
    wisp("diff", chain.states[0], chain.states[1], "-o", deltas[0], "--codec", first)
    wisp("diff", chain.states[1], chain.states[2], "-o", deltas[1], "--codec", second)
    told = answer("merge", *deltas, "--base", chain.states[0], "-o", tmp_path / "merged")
    assert told["result_digest"] == answer("verify", chain.states[2])["state"]


def test_merge_of_one_delta_is_that_delta(chain, tmp_path):
    wisp("merge", chain.deltas[0], "--base", chain.states[0], "-o", tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == chain.deltas[0].read_bytes()


def test_merge_of_a_change_and_its_reverse_changes_nothing(chain, tmp_path):
    wisp("diff", chain.states[1], chain.states[0], "-o", tmp_path / "back")
    told = answer("merge", chain.deltas[0], tmp_path / "back", "--base", chain.states[0],
                  "-o", tmp_path / "merged")
    assert told["changed_elements"] == 0 and told["base_digest"] == told["result_digest"]


def test_merge_refuses_a_gap_and_a_wrong_base(chain, tmp_path):
    refused(WRONG_BASE, "merge", chain.deltas[0], chain.deltas[2], "--base", chain.states[0],
            "-o", tmp_path / "m", names=[chain.deltas[0], chain.deltas[2]], within=tmp_path)
    refused(WRONG_BASE, "merge", *chain.deltas, "--base", chain.states[1], "-o", tmp_path / "m",
            names=[chain.deltas[0]], within=tmp_path)


def test_verify_tells_the_state_of_a_checkpoint(chain):
    told = answer("diff", chain.states[0], chain.states[1], "-o", chain.deltas[0])
    assert answer("verify", chain.states[0])["state"] == told["base_digest"]
    assert answer("verify", chain.states[1])["state"] == told["result_digest"]
    assert told["base_digest"] in wisp("verify", chain.states[0]).out


def test_state_depends_on_names_dtypes_shapes_and_every_bit(tmp_path):
    data = bytes(range(16))
    variants = [
        {"w": ("U8", (16,), data)}, {"v": ("U8", (16,), data)}, {"w": ("I8", (16,), data)},
        {"w": ("U8", (4, 4), data)}, {"w": ("U8", (16,), data[:-1] + b"\0")},
        {"w": ("U8", (16,), data[8:] + data[:8])}, {"w": ("U8", (16,), bytes(16))},
        {"w": ("U8", (17,), bytes(17))},
    ]
    states = [answer("verify", st.save(tmp_path / str(i), t))["state"]
              for i, t in enumerate(variants)]
    assert len(set(states)) == len(states)


@pytest.mark.parametrize("codec", CODECS)
def test_verify_with_base_proves_the_delta_without_writing(chain, tmp_path, codec):
    delta = tmp_path / "delta"
    wisp("diff", chain.states[0], chain.states[1], "-o", delta, "--codec", codec)
    alone = answer("verify", delta)
    assert alone["sealed"] and not alone["decoded"] and alone["codec"] == codec
    before = chain.states[0].read_bytes()
    proof = answer("verify", delta, "--base", chain.states[0])
    assert proof["decoded"] and proof["base_matches"] and proof["result_matches"]
    assert proof["state"] == answer("verify", chain.states[1])["state"]
    assert chain.states[0].read_bytes() == before
    refused(WRONG_BASE, "verify", delta, "--base", chain.states[2], names=[delta])


def test_verify_of_several_files_reports_each_and_fails_if_one_does(chain, tmp_path):
    bad = tmp_path / "bad"
    bad.write_bytes(chain.deltas[1].read_bytes()[:-1])
    done = run("verify", chain.deltas[0], bad, chain.states[0], tmp_path / "missing")
    assert done.code == DAMAGED
    assert f"ok  {chain.deltas[0]}" in done.out and f"ok  {chain.states[0]}" in done.out
    assert str(bad) in done.err and "missing" in done.err
    lines = run("verify", chain.deltas[0], bad, "--json").out.splitlines()
    assert len(lines) == 2


def test_inspect_tells_people_what_a_delta_is(chain):
    seen = wisp("inspect", chain.deltas[0], "--tensors").out
    told = answer("inspect", chain.deltas[0])
    for text in ("compact delta", "step 1", "bits per change", "layer 0", "layer 2", "■",
                 told["base_digest"], told["result_digest"], told["schema_digest"],
                 "model.layers.1.q_proj.weight  BF16 [64, 64]"):
        assert text in seen, text
    assert "model.layers.1.q_proj.weight" not in wisp("inspect", chain.deltas[0]).out


def test_inspect_tells_people_what_a_checkpoint_is(chain):
    seen = wisp("inspect", chain.states[0], "--tensors").out
    assert "checkpoint, 9 tensors" in seen and "nothing  BF16 [0, 4]" in seen


def test_inspect_tells_how_the_blocks_of_a_tensor_are_stored():
    mixed = ROOT / "tests/golden/good/many_small_blocks.safetensors"
    (tensor,) = answer("inspect", mixed, "--tensors")["tensors"]
    told = {"raw": 1, "sparse": 85, "split": 2, "unchanged": 63}
    assert list(tensor["blocks"].items()) == list(told.items())
    assert ", 1 raw, 85 sparse, 2 split, 63 unchanged  " in wisp("inspect", mixed, "--tensors").out


@pytest.mark.parametrize("codec", CODECS)
def test_inspect_json_agrees_with_diff(pair, tmp_path, codec):
    delta = tmp_path / "delta"
    told = answer("diff", pair.old, pair.new, "-o", delta, "--codec", codec, "--step", 9)
    seen = answer("inspect", delta, "--tensors")
    for key in ("codec", "step", "total_elements", "changed_elements", "payload_bytes",
                "file_bytes", "base_digest", "result_digest"):
        assert seen[key] == told[key], key
    assert seen["sealed"] and seen["file_bytes"] == delta.stat().st_size
    assert len(seen["tensors"]) == seen["tensor_count"] == told["changed_tensors"]
    assert sum(t["changed_elements"] for t in seen["tensors"]) == told["changed_elements"]
    assert sum(t["stored_bytes"] for t in seen["tensors"]) == told["payload_bytes"]
    assert seen["metadata"]["wisp_base_digest"] == told["base_digest"]
    if codec in ("compact", "swift"):
        old = st.load(pair.old)[0]
        assert all(t["shape"] == list(old[t["name"]][1]) for t in seen["tensors"])


def test_layers_are_listed_in_the_order_of_their_numbers(tmp_path):
    names = [f"model.layers.{i}.w" for i in (0, 2, 10, 11)] + ["head"]
    a = st.save(tmp_path / "a", {n: ("U8", (8,), bytes(8)) for n in names})
    b = st.save(tmp_path / "b", {n: ("U8", (8,), bytes(7) + b"\1") for n in names})
    wisp("diff", a, b, "-o", tmp_path / "d")
    seen = wisp("inspect", tmp_path / "d").out
    places = [seen.index(text) for text in ("head", "layer 0", "layer 2", "layer 10", "layer 11")]
    assert places == sorted(places)


@pytest.mark.parametrize("number", ["9" * 19, "9" * 400])
def test_layer_numbers_of_any_length_are_shown(tmp_path, number):
    names = [f"model.layers.{n}.w" for n in ("0", number)]
    a = st.save(tmp_path / "a", {n: ("U8", (1,), b"a") for n in names})
    b = st.save(tmp_path / "b", {n: ("U8", (1,), b"b") for n in names})
    wisp("diff", a, b, "-o", tmp_path / "d")
    assert "layer 999" in wisp("inspect", tmp_path / "d").out


def test_control_characters_in_names_never_reach_the_terminal(tmp_path):
    name = "evil\x1b[31m\x07\u009b31m"
    a = st.save(tmp_path / "a", {name: ("U8", (1,), b"a")})
    b = st.save(tmp_path / "b", {name: ("U8", (1,), b"b")})
    wisp("diff", a, b, "-o", tmp_path / "d")
    other = st.save(tmp_path / "c", {name: ("I8", (1,), b"b")})
    texts = [wisp("inspect", tmp_path / f, "--tensors").out for f in ("a", "d")]
    texts.append(refused(ERROR, "diff", a, other, "-o", tmp_path / "e").err)
    for text in texts:
        assert "evil" in text
        assert not any(c in text for c in "\x1b\x07\u009b")


def test_a_delta_is_not_taken_for_a_checkpoint_nor_the_reverse(chain, tmp_path):
    refused(ERROR, "apply", chain.states[0], chain.states[1], "-o", tmp_path / "out",
            names=[chain.states[1], "is a checkpoint"], within=tmp_path)
    refused(ERROR, "apply", chain.deltas[0], chain.deltas[0], "-o", tmp_path / "out",
            names=[chain.deltas[0]], within=tmp_path)
    refused(ERROR, "diff", chain.deltas[0], chain.deltas[1], "-o", tmp_path / "out",
            names=[chain.deltas[0]], within=tmp_path)
