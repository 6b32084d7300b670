"""Deltas that lie, are cut off, damaged or of the future: never a success, never a trace."""

import zlib

import numpy as np
import pytest

import st
from checkpoints import CODECS
from journal import varint
from run_wisp import (DAMAGED, ERROR, UNSUPPORTED, WRONG_BASE, answer, refused, run, snapshot,
                      wisp)


@pytest.fixture(params=CODECS)
def sealed(request, tmp_path):
    """A small pair of checkpoints and the bytes of the delta between them, in every codec."""
    return make_sealed(tmp_path, request.param)


@pytest.fixture
def compact(tmp_path):
    return make_sealed(tmp_path, "compact")


def make_sealed(folder, codec):
    rng = np.random.default_rng(41)
    bits = rng.integers(0, 2**16, 4000).astype(np.uint16)
    after = bits.copy()
    after[rng.choice(4000, 60, replace=False)] += np.uint16(1)
    old = st.save(folder / "old", {"w": ("BF16", (40, 100), bits.tobytes())})
    new = st.save(folder / "new", {"w": ("BF16", (40, 100), after.tobytes())})
    wisp("diff", old, new, "-o", folder / "good", "--codec", codec)
    return old, new, (folder / "good").read_bytes()


def refuse_everywhere(folder, old, file, codes, names=()):
    bad = folder / "bad"
    bad.write_bytes(file)
    for arguments in (["verify", bad], ["verify", bad, "--base", old],
                      ["apply", old, bad, "-o", folder / "out"],
                      ["apply", old, bad, "--in-place"],
                      ["apply", old, bad, "--in-place", "--quick"],
                      ["merge", bad, "--base", old, "-o", folder / "m"]):
        refused(codes, *arguments, names=[bad, *names], within=folder)


def test_delta_cut_anywhere_is_refused(sealed, tmp_path):
    old, _, good = sealed
    bad = tmp_path / "bad"
    for length in sorted({*range(0, len(good), 23), 7, 8, 9, len(good) - 1}):
        bad.write_bytes(good[:length])
        refused(DAMAGED, "apply", old, bad, "-o", tmp_path / "out", names=[bad])
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_one_flipped_bit_anywhere_is_never_a_success(sealed, tmp_path):
    old, _, good = sealed
    bad = tmp_path / "bad"
    before = snapshot(tmp_path)
    rng = np.random.default_rng(42)
    passed = []
    for at in np.unique(np.linspace(0, len(good) - 1, 200).astype(int)):
        file = bytearray(good)
        file[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(file)
        for arguments in (["apply", old, bad, "-o", tmp_path / "out"], ["verify", bad]):
            done = run(*arguments)
            if done.code not in (ERROR, DAMAGED, UNSUPPORTED) or str(bad) not in done.err:
                passed.append((int(at), good[max(0, at - 8):at + 8], arguments[0], done.code))
                (tmp_path / "out").unlink(missing_ok=True)
    bad.unlink()
    assert passed == []
    assert snapshot(tmp_path) == before


def test_damage_to_any_single_key_of_the_metadata_is_noticed(sealed, tmp_path):
    old, _, good = sealed
    for key in st.split(good)[0]["__metadata__"]:
        at = good.index(f'"{key}":'.encode()) + 1
        file = good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1:]
        refuse_everywhere(tmp_path, old, file, (ERROR, DAMAGED, UNSUPPORTED))


@pytest.mark.parametrize("tail", [b"\0", b" ", b"x" * 4096])
def test_bytes_behind_the_end_are_refused(sealed, tmp_path, tail):
    old, _, good = sealed
    refuse_everywhere(tmp_path, old, good + tail, DAMAGED, ["behind the end"])


def test_delta_rewritten_by_another_tool_is_refused(sealed, tmp_path):
    """Its bytes moved, so its seal proves nothing any more."""
    old, _, good = sealed
    header, data = st.split(good)
    header["__metadata__"] = dict(reversed(header["__metadata__"].items()))
    refuse_everywhere(tmp_path, old, st.pack(header, data), DAMAGED, ["seal"])


def set_keys(**values):
    return lambda metadata: metadata.update(values)


def test_sealing_again_what_was_not_changed_gives_the_same_bytes(sealed):
    assert st.reseal(sealed[2]) == sealed[2]


@pytest.mark.parametrize("change,code,word", [
    (set_keys(version="2"), UNSUPPORTED, "version '2'"),
    (set_keys(version="1.0"), UNSUPPORTED, "upgrade"),
    (set_keys(codec="brotli"), UNSUPPORTED, "codec 'brotli'"),
    (lambda m: m.pop("version"), DAMAGED, "version"),
    (lambda m: m.pop("codec"), DAMAGED, "codec"),
    (lambda m: m.pop("wisp_base_digest"), DAMAGED, "wisp_base_digest"),
    (lambda m: m.pop("wisp_touched_digest"), DAMAGED, "wisp_touched_digest"),
    (lambda m: m.pop("wisp_directory_bytes"), DAMAGED, "wisp_directory_bytes"),
    (set_keys(wisp_result_digest="xyz"), DAMAGED, "wisp_result_digest"),
    (set_keys(wisp_directory_bytes="-1"), DAMAGED, "wisp_directory_bytes"),
    (set_keys(wisp_directory_bytes="99999999999999999999"), DAMAGED, "wisp_directory_bytes"),
    (set_keys(wisp_directory_bytes="999999999"), DAMAGED, "size"),
])
def test_resealed_metadata_that_lies_is_refused(compact, tmp_path, change, code, word):
    old, _, good = compact
    refuse_everywhere(tmp_path, old, st.rewritten(good, change), code, [word])


@pytest.mark.parametrize("codec", ["plain", "gap"])
def test_newer_version_of_the_sparse_patch_is_refused(tmp_path, codec):
    old, _, good = make_sealed(tmp_path, codec)
    refuse_everywhere(tmp_path, old, st.rewritten(good, set_keys(version="2")), UNSUPPORTED,
                      ["version"])


def apply_lies(folder, old, file, codes, places):
    bad = folder / "bad"
    bad.write_bytes(file)
    for target in places:
        refused(codes, "apply", old, bad, *target, names=[bad], within=folder)


def test_resealed_result_digest_that_lies_is_refused(sealed, tmp_path):
    old, _, good = sealed
    file = st.rewritten(good, set_keys(wisp_result_digest="0" * 32))
    apply_lies(tmp_path, old, file, DAMAGED,
               [["-o", tmp_path / "out"], ["--in-place"], ["--in-place", "--quick"]])


@pytest.mark.parametrize("key", ["wisp_base_digest", "wisp_touched_digest"])
def test_resealed_base_digest_that_lies_is_refused(sealed, tmp_path, key):
    old, _, good = sealed
    apply_lies(tmp_path, old, st.rewritten(good, set_keys(**{key: "0" * 32})), WRONG_BASE,
               [["-o", tmp_path / "out"], ["--in-place"]])


def test_resealed_schema_digest_that_lies_is_refused(sealed, tmp_path):
    old, _, good = sealed
    apply_lies(tmp_path, old, st.rewritten(good, set_keys(wisp_schema_digest="0" * 32)), ERROR,
               [["-o", tmp_path / "out"], ["--in-place"], ["--in-place", "--quick"]])


def resealed_blocks(good, change):
    def edit(tensors):
        dtype, shape, data = tensors["wisp.blocks"]
        data = change(bytearray(data))
        tensors["wisp.blocks"] = (dtype, (len(data),), bytes(data))
    return st.rewritten(good, change_tensors=edit)


def test_resealed_damage_in_the_coded_blocks_is_never_a_success(compact, tmp_path):
    """Every byte: the decoder must not trust them, seal or no seal."""
    old, _, good = compact
    bad = tmp_path / "bad"
    for at in range(blocks_size(good)):
        def flip(data, at=at):
            data[at] ^= 1 << (at % 8)
            return data
        bad.write_bytes(resealed_blocks(good, flip))
        refused((DAMAGED, UNSUPPORTED, WRONG_BASE), "apply", old, bad, "-o", tmp_path / "out",
                names=[bad])
    assert not (tmp_path / "out").exists()


def test_a_block_of_an_unknown_kind_is_shown_as_such_and_refused(compact, tmp_path):
    old, _, good = compact
    bad = tmp_path / "bad"
    bad.write_bytes(resealed_blocks(good, lambda data: b"\x09" + data[1:]))
    assert answer("inspect", bad, "--tensors")["tensors"][0]["blocks"] == {"unknown": 1}
    assert ", 1 unknown  " in wisp("inspect", bad, "--tensors").out
    refused(UNSUPPORTED, "apply", old, bad, "-o", tmp_path / "out", names=[bad], within=tmp_path)


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: b""])
def test_resealed_blocks_of_another_length_are_refused(compact, tmp_path, change):
    old, _, good = compact
    refuse_everywhere(tmp_path, old, resealed_blocks(good, change), DAMAGED)


def directory(block_bytes, log2=20, count=1, name=b"w", dtype=14, shape=(40, 100), changed=60,
              shared=0, tail=b""):
    plain = varint(log2) + varint(count)
    plain += varint(shared) + varint(len(name)) + name + varint(dtype) + varint(len(shape))
    return plain + b"".join(map(varint, (*shape, changed, block_bytes))) + tail


def with_directory(good, plain, claimed=None, packed=None):
    packed = zlib.compress(plain) if packed is None else packed

    def edit(tensors):
        tensors["wisp.directory"] = ("U8", (len(packed),), packed)
    return st.rewritten(good, set_keys(wisp_directory_bytes=str(claimed or len(plain))), edit)


def blocks_size(good):
    return st.split(good)[0]["wisp.blocks"]["shape"][0]


def test_directory_as_the_format_describes_it_is_taken(compact, tmp_path):
    old, new, good = compact
    (tmp_path / "own").write_bytes(with_directory(good, directory(blocks_size(good))))
    wisp("apply", old, tmp_path / "own", "-o", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == new.read_bytes()


@pytest.mark.parametrize("code,lie", [
    (UNSUPPORTED, {"dtype": 99}), (DAMAGED, {"log2": 63}), (DAMAGED, {"log2": 0}),
    (DAMAGED, {"count": 2}), (DAMAGED, {"count": 2**60}), (DAMAGED, {"changed": 4001}),
    (DAMAGED, {"changed": 0}), (DAMAGED, {"shape": (2**63, 2**63)}), (DAMAGED, {"shape": (2**60,)}),
    (DAMAGED, {"shape": (1,) * 1000}), (DAMAGED, {"shared": 5}), (DAMAGED, {"name": b"\xff"}),
    (DAMAGED, {"name": b"n" * 5000}), (DAMAGED, {"tail": b"\0"}), (DAMAGED, {"more": 1}),
    (DAMAGED, {"more": 2**63}),
])
def test_resealed_directory_that_lies_is_refused(compact, tmp_path, code, lie):
    old, _, good = compact
    size = blocks_size(good) + lie.pop("more", 0)
    refuse_everywhere(tmp_path, old, with_directory(good, directory(size, **lie)), code)


def test_resealed_directory_that_is_no_zlib_stream_is_refused(compact, tmp_path):
    old, _, good = compact
    plain = directory(blocks_size(good))
    packed = zlib.compress(plain)
    for other in (b"", b"garbage", packed[:-1], packed + b"\0"):
        refuse_everywhere(tmp_path, old, with_directory(good, plain, packed=other), DAMAGED)
    bomb = zlib.compress(bytes(50_000_000), 9)
    refuse_everywhere(tmp_path, old, with_directory(good, plain, packed=bomb), DAMAGED)


@pytest.mark.parametrize("lie", [{"name": b"v"}, {"dtype": 13}, {"shape": (100, 40)}])
def test_resealed_directory_of_other_tensors_is_refused(compact, tmp_path, lie):
    old, _, good = compact
    apply_lies(tmp_path, old, with_directory(good, directory(blocks_size(good), **lie)), ERROR,
               [["-o", tmp_path / "out"], ["--in-place"], ["--in-place", "--quick"]])


def test_changed_count_that_the_blocks_do_not_hold_is_refused(compact, tmp_path):
    old, _, good = compact
    file = with_directory(good, directory(blocks_size(good), changed=59))
    apply_lies(tmp_path, old, file, DAMAGED, [["-o", tmp_path / "out"], ["--in-place"]])
