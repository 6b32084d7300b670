"""Files that break the rules of safetensors: a clear refusal, and nothing written."""

import json
import os
import shutil
import struct

import pytest

import st
from run_wisp import BINARY, DAMAGED, DENIED, ERROR, UNSUPPORTED, answer, refused, wisp

U8 = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def entry(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def header(text):
    """A file with this very header, and four bytes of data."""
    return st.pack(text.encode() if isinstance(text, str) else text, b"abcd")


def field(name, value):
    """A one-tensor file whose field has this JSON text as its value."""
    parts = {"dtype": '"U8"', "shape": "[4]", "data_offsets": "[0,4]", name: value}
    body = ",".join(f'"{k}":{v}' for k, v in parts.items())
    return header('{"w":{' + body + "}}")


def with_length(length):
    return struct.pack("<Q", length) + b"{}"


def tensors(*entries, data=b"abcd"):
    return st.pack({f"t{i}": e for i, e in enumerate(entries)}, data)


BAD = {
    "empty file": b"",
    "seven bytes": b"\x02" + bytes(6),
    "length alone": struct.pack("<Q", 2),
    "length of 2^63": with_length(2**63),
    "length of 2^64-1": with_length(2**64 - 1),
    "length over 100 MB": with_length(100_000_001),
    "length past the end": with_length(3),
    "length zero": struct.pack("<Q", 0) + b"{}",
    "header not JSON": header("weights!"),
    "header cut off": header('{"w":{"dtype":"U8"'),
    "header an array": header("[]"),
    "header with a second value": header("{} {}"),
    "header with leading space": header(" {}"),
    "header not UTF-8": header(b'{"\xff\xfe":' + json.dumps(U8).encode() + b"}"),
    "header with zeros behind": header(b'{"w":' + json.dumps(U8).encode() + b"}\0\0"),
    "deep objects": header('{"w":' * 200_000),
    "deep arrays": header('{"w":{"shape":' + "[" * 200_000),
    "deep arrays in metadata": header('{"__metadata__":{"x":' + "[" * 200_000),
    "tensor twice": header('{"w":%s,"w":%s}' % (json.dumps(U8), json.dumps(U8))),
    "metadata twice": header('{"__metadata__":{},"__metadata__":{},"w":%s}' % json.dumps(U8)),
    "metadata key twice": header('{"__metadata__":{"a":"1","a":"2"},"w":%s}' % json.dumps(U8)),
    "metadata not text": header('{"__metadata__":{"a":1},"w":%s}' % json.dumps(U8)),
    "metadata nested": header('{"__metadata__":{"a":{}},"w":%s}' % json.dumps(U8)),
    "metadata a string": header('{"__metadata__":"a","w":%s}' % json.dumps(U8)),
    "metadata null": header('{"__metadata__":null,"w":%s}' % json.dumps(U8)),
    "field twice": field("shape", '[4],"shape":[4]'),
    "field unknown": field("stride", "[1]"),
    "field missing": header('{"w":{"dtype":"U8","shape":[4]}}'),
    "tensor not an object": header('{"w":[0,4]}'),
    "tensor null": header('{"w":null}'),
    "name empty": st.pack({"": U8}, b"abcd"),
    "name too long": st.pack({"n" * 100_000: U8}, b"abcd"),
    "shape negative": field("shape", "[-4]"),
    "shape fractional": field("shape", "[4.0]"),
    "shape with exponent": field("shape", "[4e0]"),
    "shape beyond 64 bits": field("shape", "[18446744073709551620]"),
    "shape text": field("shape", '["4"]'),
    "shape null": field("shape", "null"),
    "shape nested": field("shape", "[[4]]"),
    "shape of many dimensions": field("shape", "[4" + ",1" * 5000 + "]"),
    "shape overflows": field("shape", "[4294967296,4294967296,4294967296]"),
    "shape overflows to its length": field("shape", "[4611686018427387905,4]"),
    "bits overflow": field("shape", "[2305843009213693953]"),
    "dtype a number": field("dtype", "8"),
    "dtype a list": field("dtype", '["U8"]'),
    "offsets negative": field("data_offsets", "[-1,4]"),
    "offsets fractional": field("data_offsets", "[0,4.5]"),
    "offsets huge": field("data_offsets", "[0,18446744073709551615]"),
    "offsets beyond 64 bits": field("data_offsets", "[0,99999999999999999999999]"),
    "offsets of one": field("data_offsets", "[0]"),
    "offsets of three": field("data_offsets", "[0,4,4]"),
    "offsets of none": field("data_offsets", "[]"),
    "offsets reversed": field("data_offsets", "[4,0]"),
    "offsets text": field("data_offsets", '"0,4"'),
    "offsets true": field("data_offsets", "[false,4]"),
    "length other than the shape": field("shape", "[3]"),
    "shape larger than the data": field("shape", "[5]"),
    "overlap": tensors(entry(shape=(3,), offsets=(0, 3)), entry(shape=(2,), offsets=(2, 4))),
    "same bytes twice": tensors(entry(), entry()),
    "hole at the start": tensors(entry(shape=(3,), offsets=(1, 4))),
    "hole between": tensors(entry(shape=(1,), offsets=(0, 1)), entry(shape=(1,), offsets=(3, 4))),
    "hole at the end": tensors(entry(shape=(3,), offsets=(0, 3))),
    "empty tensor past the end": tensors(entry(), entry(shape=(0,), offsets=(9, 9))),
    "data missing": tensors(entry(), data=b"abc"),
    "data behind the end": tensors(entry(), data=b"abcd\0"),
    "half a byte": tensors(entry("F4", (7,), (0, 4))),
    "packed shape of another length": tensors(entry("F6_E2M3", (8,), (0, 4))),
}


@pytest.mark.parametrize("name", BAD)
def test_broken_safetensors_is_refused_by_every_verb(pair, tmp_path, name):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(BAD[name])
    wisp("diff", pair.old, pair.new, "-o", tmp_path / "delta")
    for arguments in (["verify", bad], ["inspect", bad, "--tensors"],
                      ["diff", bad, pair.new, "-o", tmp_path / "d"],
                      ["diff", pair.old, bad, "-o", tmp_path / "d"],
                      ["apply", bad, tmp_path / "delta", "-o", tmp_path / "out"],
                      ["apply", bad, tmp_path / "delta", "--in-place"],
                      ["apply", pair.old, bad, "-o", tmp_path / "out"],
                      ["apply", pair.old, bad, "--in-place"],
                      ["merge", bad, "--base", pair.old, "-o", tmp_path / "m"]):
        refused(DAMAGED, *arguments, names=[bad], within=tmp_path)


@pytest.mark.parametrize("name,word", [
    ("length over 100 MB", "100000001"), ("tensor twice", "duplicate key 'w'"),
    ("overlap", "overlap"), ("hole between", "hole"), ("data missing", "truncated"),
    ("data behind the end", "behind the end"), ("shape overflows", "overflows"),
    ("length other than the shape", "needs 3 bytes, but 4"), ("header not JSON", "'{'"),
    ("shape negative", "negative"), ("half a byte", "whole byte"),
])
def test_refusal_says_what_is_wrong(tmp_path, name, word):
    (tmp_path / "bad").write_bytes(BAD[name])
    refused(DAMAGED, "verify", tmp_path / "bad", names=["bad", word])


@pytest.mark.parametrize("dtype", ["F128", "bf16", "", "BF16 ", "F8_E4M3FN"])
def test_unknown_dtype_asks_for_an_upgrade(pair, tmp_path, dtype):
    (tmp_path / "bad").write_bytes(tensors(entry(dtype)))
    for arguments in (["verify", tmp_path / "bad"], ["inspect", tmp_path / "bad"],
                      ["diff", pair.old, tmp_path / "bad", "-o", tmp_path / "d"]):
        refused(UNSUPPORTED, *arguments, names=["bad", "t0", f"'{dtype}'", "upgrade"],
                within=tmp_path)


def test_checkpoint_cut_anywhere_is_refused(tmp_path):
    whole = st.dump({"a": ("BF16", (8,), bytes(16)), "b": ("F32", (2, 2), bytes(16))}, {"k": "v"})
    cut = tmp_path / "cut"
    for length in range(len(whole)):
        cut.write_bytes(whole[:length])
        refused(DAMAGED, "verify", cut, names=[cut])
    cut.write_bytes(whole)
    wisp("verify", cut)


def test_tensors_listed_in_another_order_than_their_data_are_read(tmp_path):
    """Only the data must be without holes; JSON objects have no order."""
    file = st.pack({"late": entry(shape=(1,), offsets=(3, 4)),
                    "early": entry(shape=(3,), offsets=(0, 3)),
                    "none": entry(shape=(0,), offsets=(3, 3))}, b"abcd")
    (tmp_path / "a").write_bytes(file)
    same = {"early": ("U8", (3,), b"abc"), "none": ("U8", (0,), b""), "late": ("U8", (1,), b"d")}
    st.save(tmp_path / "b", same)
    assert answer("verify", tmp_path / "a")["state"] == answer("verify", tmp_path / "b")["state"]


def test_header_without_padding_is_read(tmp_path):
    text = json.dumps({"w": U8}, indent=1).encode()
    (tmp_path / "a").write_bytes(st.pack(text, b"abcd"))
    wisp("verify", tmp_path / "a")
    (tmp_path / "b").write_bytes(st.pack(text + b" \n\t", b"abcd"))
    wisp("verify", tmp_path / "b")


def test_large_shape_of_no_elements_takes_no_memory(tmp_path):
    (tmp_path / "a").write_bytes(
        st.pack({"w": entry("F32", (0, 2**40, 2**20), (0, 0))}))
    assert answer("verify", tmp_path / "a")["kind"] == "checkpoint"


def test_things_that_are_not_files_are_refused(pair, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").mkdir()
    wisp("diff", pair.old, pair.new, "-o", tmp_path / "delta")
    for thing in (tmp_path / "empty", "/dev/null", "/dev/zero"):
        refused(ERROR, "verify", thing, names=[thing])
        refused(ERROR, "apply", thing, tmp_path / "delta", "-o", tmp_path / "out", names=[thing])
        refused(ERROR, "apply", pair.old, thing, "-o", tmp_path / "out", names=[thing])
    refused(ERROR, "verify", tmp_path / "fifo", names=["fifo"])
    refused(ERROR, "diff", pair.old, pair.new, "-o", tmp_path / "empty", names=["empty"])


@pytest.fixture
def stranger(tmp_path):
    """Options that run wisp as a user without rights, where the tests themselves have all."""
    if os.geteuid() != 0:
        yield {}
        return
    closed = [f for f in (tmp_path, *tmp_path.parents) if not f.stat().st_mode & 0o001]
    modes = [folder.stat().st_mode for folder in closed]
    for folder, mode in zip(closed, modes):
        folder.chmod(mode | 0o011)
    binary = shutil.copy(BINARY, tmp_path / "wisp")
    yield {"user": 65534, "group": 65534, "extra_groups": [], "binary": binary}
    for folder, mode in zip(closed, modes):
        folder.chmod(mode)


def test_unreadable_file_is_refused(pair, tmp_path, stranger):
    pair.old.chmod(0o000)
    refused(DENIED, "verify", pair.old, names=[pair.old, "Permission denied"], **stranger)
    pair.old.chmod(0o644)


def test_unwritable_folder_is_refused(pair, tmp_path, stranger):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    refused(DENIED, "diff", pair.old, pair.new, "-o", locked / "d", names=["locked"],
            within=tmp_path, **stranger)
    locked.chmod(0o755)


def test_in_place_on_a_read_only_base_leaves_nothing_behind(pair, tmp_path, stranger):
    wisp("diff", pair.old, pair.new, "-o", tmp_path / "delta")
    tmp_path.chmod(0o777)
    pair.old.chmod(0o444)
    refused(DENIED, "apply", pair.old, tmp_path / "delta", "--in-place", names=[pair.old],
            within=tmp_path, **stranger)
