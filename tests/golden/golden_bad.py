"""A file for each rule that can be broken, sealed again so that it is the deep check that fails."""
import json
import struct
import zlib

import numpy as np

from golden_craft import (
    compact, CORRUPT, directory_of, entries, INVALID, nibbles, pack, put_bit, put_step, ref, save, seal_anywhere,
    sealed, sparse_block, sparse_header, split_block, split_file, steps_block, UNSUPPORTED, Writer, WRONG_BASE,
)
from golden_states import EXAMPLE_NEW, EXAMPLE_OLD, NEW, OLD, pair, tensor, TRL, VALUES


# ---- Bad files --------------------------------------------------------------------------------------------
def bad_container():
    """From a foreign plain patch, which has no seal: the container's rule is all that is broken."""
    tensors = pair([5, 40])
    data, h = b"".join(t[2] for t in tensors.values()), entries(tensors)
    i, v = h["w.indices"], h["w.values"]
    text = json.dumps(h, separators=(",", ":")).encode()
    duplicate = "A reader MUST reject: duplicate keys at any level"
    rules = {"duplicate": duplicate, "field": duplicate,
             "type": "fields other than these three, values of another"}
    manifest_rule = 'The header maps names to `{"dtype", "shape", "data_offsets": [begin, end]}` and MAY hold `__metadata__`, an object of strings.'
    numbers, json_type = "numbers that are not plain digits (no sign, fraction or exponent) or not below 2^64", rules["type"]
    size, header_rule = "`u64`, at most 100,000,000", "JSON object, first byte `{`, MAY end in white space"
    length = "a tensor whose length is not what dtype and shape say"
    ends = "a file longer or shorter than its tensors"
    order = "tensors that (in the order of their offsets) overlap or"

    def entry(**changes):
        return pack({"w.indices": i | changes, "w.values": v}, data)

    def swap(a, b):
        assert text.count(a) == 1, a
        return pack(text.replace(a, b), data)

    return {
        "file_of_seven_bytes": (ends, struct.pack("<Q", 2)[:7]),
        "header_length_above_limit": (size, struct.pack("<Q", 100_000_001) + text + data),
        "header_length_past_the_end": (ends, struct.pack("<Q", len(text) + len(data) + 1) + text + data),
        "header_length_huge": (size, b"\xff" * 8 + text + data),
        "header_begins_with_white_space": (header_rule, pack(b" " + text, data)),
        "header_is_an_array": (header_rule, pack(b"[" + text + b"]", data)),
        "header_is_not_json": (header_rule, pack(text[:-1] + b",", data)),
        "header_goes_on_after_the_object": (header_rule, pack(text + b"{}", data)),
        "header_ends_in_zero_bytes": (header_rule, pack(text + b"\0\0", data)),
        "header_is_not_utf8": (header_rule, pack(text.replace(b"w.values", b"\xff.values").replace(b"w.ind", b"\xff.ind"), data)),
        "header_with_lone_surrogate": (header_rule, pack(text.replace(b'"w.', b'"\\ud800.'), data)),
        "header_empty": (header_rule, pack(b"", data)),
        "duplicate_tensor": (rules["duplicate"], pack(text[:-1] + b',"w.values":' + json.dumps(v).encode() + b"}", data)),
        "duplicate_tensor_by_escape": (rules["duplicate"], pack(text[:-1] + b',"\\u0077.values":' + json.dumps(v).encode() + b"}", data)),
        "duplicate_field": (rules["duplicate"], swap(b'"dtype":"I32"', b'"dtype":"I32","dtype":"I32"')),
        "duplicate_metadata": (rules["duplicate"], pack(b'{"__metadata__":{},"__metadata__":{},' + text[1:], data)),
        "duplicate_metadata_key": (rules["duplicate"], pack(b'{"__metadata__":{"a":"1","a":"1"},' + text[1:], data)),
        "field_unknown": (rules["field"], entry(note="x")),
        "field_missing_dtype": (manifest_rule, swap(b'"dtype":"I32",', b"")),
        "field_missing_shape": (manifest_rule, swap(b'"dtype":"I32","shape":[2],', b'"dtype":"I32",')),
        "field_missing_offsets": (manifest_rule, swap(b',"data_offsets":[0,8]', b"")),
        "type_metadata_not_object": (manifest_rule, pack({"__metadata__": ["a"], **h}, data)),
        "type_metadata_null": (manifest_rule, pack({"__metadata__": None, **h}, data)),
        "type_metadata_value_number": (manifest_rule, pack({"__metadata__": {"a": 1}, **h}, data)),
        "type_metadata_value_object": (manifest_rule, pack({"__metadata__": {"a": {}}, **h}, data)),
        "type_tensor_not_object": (json_type, pack({**h, "x.indices": 3}, data)),
        "type_dtype_number": (json_type, entry(dtype=32)),
        "type_shape_number": (json_type, entry(shape=2)),
        "type_shape_of_strings": (json_type, entry(shape=["2"])),
        "type_shape_of_booleans": (json_type, entry(shape=[True, 2])),
        "type_offsets_of_one": (manifest_rule, entry(data_offsets=[8])),
        "type_offsets_of_three": (manifest_rule, entry(data_offsets=[0, 8, 8])),
        "type_offsets_null": (json_type, entry(data_offsets=[None, 8])),
        "number_negative": (numbers, entry(shape=[-2, -1])),
        "number_with_fraction": (numbers, entry(shape=[2.5])),
        "number_beyond_u64": (numbers, entry(shape=[0, 2**64])),
        "number_with_leading_zero": (header_rule, swap(b"[2],\"data_offsets\":[0,8]", b"[02],\"data_offsets\":[0,8]")),
        "dtype_unknown": ("an unknown dtype", entry(dtype="I33")),
        "dtype_in_lower_case": ("an unknown dtype", entry(dtype="i32")),
        "shape_product_too_large": ("a shape whose product in bits, taken from the left, exceeds 2^64 - 1 on the way", entry(shape=[2**32, 2**32])),
        "shape_product_bits_too_large": ("a shape whose product in bits, taken from the left, exceeds 2^64 - 1 on the way", entry(shape=[2**59])),
        "shape_not_whole_bytes": ("does not fill whole bytes", entry(dtype="F4", shape=[15])),
        "offsets_overlap": (order, pack({"w.indices": i, "w.values": v | {"data_offsets": [6, 10]}}, data[:10])),
        "offsets_leave_a_hole": (order, pack({"w.indices": i, "w.values": v | {"data_offsets": [10, 14]}}, data + b"\0\0")),
        "offsets_hole_at_start": (order, pack({"w.indices": i | {"data_offsets": [2, 10]}, "w.values": v | {"data_offsets": [10, 14]}}, data + b"\0\0")),
        "offsets_backwards": (length, entry(shape=[0], data_offsets=[8, 0])),
        "length_not_of_shape": (length, pack({"w.indices": i | {"shape": [3]}, "w.values": v}, data)),
        "length_not_of_dtype": (length, entry(dtype="I16")),
        "file_longer_than_tensors": (ends, pack(h, data + b"\0")),
        "file_shorter_than_tensors": (ends, pack(h, data[:-1])),
        "limit_name": ("| name | 4096 bytes |", save(pair([5, 40], name="w" * 4095), TRL)),
        "limit_rank": ("| rank | 64 |", pack({"w.indices": i | {"shape": [2] + [1] * 64}, "w.values": v}, data)),
    }


def bad_metadata(good):
    keys, tensors = split_file(good)
    blocks, directory = tensors["wisp.blocks"], tensors["wisp.directory"]
    seal = "MUST be the first key, so that the file's bytes from 8 on are"
    check = "A reader MUST check it before it uses anything but `format`, `version` and `codec`."
    before = "Before it writes: the base's schema digest and state digest are those named"
    two = "There are exactly two tensors, both U8"
    unpack = "MUST unpack to exactly `wisp_directory_bytes` bytes"
    held = "`__metadata__` holds, all as strings, of which all but the informative ones are required (others are ignored):"
    limit = "1,000,000,000 bytes, and 1100 times its packed size"
    plain = zlib.decompress(directory[2])

    def with_keys(**changes):
        return sealed(tensors, {k: v for k, v in (keys | changes).items() if v is not None})

    def with_packed(packed, **changes):
        return sealed({"wisp.blocks": blocks, "wisp.directory": ("U8", [len(packed)], packed)}, keys | changes)

    flipped = bytearray(good)
    flipped[-30] ^= 1
    first_only = {"wisp_seal": "0" * 64} | keys
    late = seal_anywhere(save(tensors, keys | {"wisp_seal": "0" * 64}))
    spaced = b'{"__metadata__": ' + json.dumps(first_only).encode() + b"," + json.dumps(entries(tensors))[1:].encode()
    spaced = seal_anywhere(pack(spaced, b"".join(t[2] for t in tensors.values())))
    out = {
        "seal_not_first_key": (CORRUPT, seal, late),
        "seal_missing": (CORRUPT, seal, save(tensors, keys)),
        "seal_after_white_space": (CORRUPT, seal, spaced),
        "seal_wrong_digit": (CORRUPT, check, good[:ref.SEAL_AT] + (b"1" if good[ref.SEAL_AT:ref.SEAL_AT + 1] != b"1" else b"2") + good[ref.SEAL_AT + 1:]),
        "seal_data_changed": (CORRUPT, check, bytes(flipped)),
        "seal_header_changed": (CORRUPT, check, good.replace(b'"step":"7"', b'"step":"8"')),
        "seal_padding_changed": (CORRUPT, check, (lambda n: good[:7 + n] + b"\n" + good[8 + n:])(struct.unpack_from("<Q", good)[0])),
        "seal_of_63_digits": (CORRUPT, "64 hexadecimal digits, see below", save(tensors, first_only | {"wisp_seal": "0" * 63})),
        "seal_broken_in_newer_version": (UNSUPPORTED, check, save(tensors, first_only | {"version": "2"})),
        "version_2": (UNSUPPORTED, "`1`; anything else MUST be refused as unsupported", with_keys(version="2")),
        "version_01": (UNSUPPORTED, "`1`; anything else MUST be refused as unsupported", with_keys(version="01")),
        "codec_other": (UNSUPPORTED, "`compact`; anything else MUST be refused as unsupported", with_keys(codec="compact2")),
        "digest_of_31_digits": (CORRUPT, "written as 32 lower-case hexadecimal digits", with_keys(wisp_base_digest=keys["wisp_base_digest"][1:])),
        "digest_in_upper_case": (CORRUPT, "written as 32 lower-case hexadecimal digits", with_keys(wisp_result_digest="ABCDEF" + keys["wisp_result_digest"][6:])),
        "digest_of_base_other": (WRONG_BASE, before, with_keys(wisp_base_digest="0" * 32)),
        "digest_of_schema_other": (INVALID, before, with_keys(wisp_schema_digest="0" * 32)),
        "digest_of_touched_other": (WRONG_BASE, "that the touched digest over the base's own values is", with_keys(wisp_touched_digest="0" * 32)),
        "digest_of_result_other": (CORRUPT, "After: the state digest is the result's.", with_keys(wisp_result_digest="0" * 32)),
        "tensors_a_third": (CORRUPT, two, sealed(tensors | {"x": ("U8", [1], b"x")}, keys)),
        "tensors_without_blocks": (CORRUPT, two, sealed({"wisp.directory": directory}, keys)),
        "tensors_without_directory": (CORRUPT, two, sealed({"wisp.blocks": blocks}, keys)),
        "tensors_blocks_not_u8": (CORRUPT, two, sealed({"wisp.blocks": ("I8", *blocks[1:]), "wisp.directory": directory}, keys)),
        "tensors_directory_not_u8": (CORRUPT, two, sealed({"wisp.blocks": blocks, "wisp.directory": ("BOOL", *directory[1:])}, keys)),
        "zlib_claims_one_less": (CORRUPT, unpack, with_keys(wisp_directory_bytes=str(len(plain) - 1))),
        "zlib_claims_one_more": (CORRUPT, unpack, with_keys(wisp_directory_bytes=str(len(plain) + 1))),
        "zlib_claims_not_decimal": (CORRUPT, "decimal size of the directory before packing", with_keys(wisp_directory_bytes="0xa")),
        "zlib_claims_negative": (CORRUPT, "decimal size of the directory before packing", with_keys(wisp_directory_bytes="-10")),
        "zlib_claims_above_limit": (CORRUPT, limit, with_keys(wisp_directory_bytes="1000000001")),
        "zlib_claims_1100_times_its_size": (CORRUPT, limit, with_packed(zlib.compress(bytes(100_000), 9), wisp_directory_bytes="200000")),
        "zlib_bomb": (CORRUPT, unpack, with_packed(zlib.compress(bytes(3_000_000), 9))),
        "zlib_cut": (CORRUPT, unpack, with_packed(directory[2][:-1])),
        "zlib_checksum": (CORRUPT, unpack, with_packed(directory[2][:-1] + bytes([directory[2][-1] ^ 1]))),
        "zlib_bytes_after": (CORRUPT, unpack, with_packed(directory[2] + b"\0")),
        "zlib_is_raw_deflate": (CORRUPT, unpack, with_packed(directory[2][2:-4])),
        "zlib_is_empty": (CORRUPT, unpack, with_packed(b"", wisp_directory_bytes="0")),
    }
    for key in ("version", "codec", "step", *ref.DIGESTS, "wisp_directory_bytes"):
        out["missing_" + key] = (CORRUPT, held, with_keys(**{key: None}))
    out["step_not_decimal"] = (CORRUPT, "| `step` | decimal |", with_keys(step="seven"))
    return out


def bad_directory(good):
    _, tensors = split_file(good)
    blocks = tensors["wisp.blocks"][2]
    size = len(blocks)
    ascending, text = "names strictly ascending by bytes", "UTF-8, at most 4096 bytes"
    name_rule = "name = first `shared` bytes of the previous name (of none: 0)"
    shortest, sums = "in the shortest form: a last byte of zero after the first MUST be rejected", "The block bytes of all tensors MUST add up to the length of `wisp.blocks`."
    changed, log2 = "1 up to the element count", "6 to 24; wisp writes 20"
    shape_rule = "varint dtype code, varint rank, varint extent…"
    row = (0, b"w", 14, [64], 2, [size])

    def one(shared=0, name=b"w", code=14, shape=(64,), changes=2, sizes=(size,), **more):
        return directory_of((shared, name, code, list(shape), changes, list(sizes)), **more)

    rows = {
        "log2_5": (CORRUPT, log2, one(log2=5)), "log2_25": (CORRUPT, log2, one(log2=25)),
        "log2_huge": (CORRUPT, log2, one(log2=2**63)),
        "names_descend": (CORRUPT, ascending, directory_of(row, (0, b"a", 14, [64], 2, [0]))),
        "names_twice": (CORRUPT, ascending, directory_of(row, (1, b"", 14, [64], 2, [0]))),
        "name_shares_too_much": (CORRUPT, name_rule, directory_of(row, (2, b"z", 14, [64], 2, [0]))),
        "name_first_shares": (CORRUPT, name_rule, one(shared=1, name=b"")),
        "name_not_utf8": (CORRUPT, text, one(name=b"w\xc3")),
        "name_surrogate": (CORRUPT, text, one(name=b"w\xed\xa0\x80")),
        "name_of_4097_bytes": (CORRUPT, text, one(name=b"w" * 4097)),
        "name_not_in_base": (INVALID, "all tensors of the checkpoint included", one(name=b"v")),
        "dtype_not_of_base": (INVALID, "all tensors of the checkpoint included", one(code=13)),
        "shape_not_of_base": (INVALID, "all tensors of the checkpoint included", one(shape=[8, 8])),
        "dtype_code_22": (UNSUPPORTED, shape_rule, one(code=22)),
        "rank_65": (CORRUPT, "as in section 1; rank at most 64", one(shape=[64] + [1] * 64)),
        "shape_too_large": (CORRUPT, "a shape whose product in bits, taken from the left, exceeds 2^64 - 1 on the way", one(shape=[2**32, 2**33])),
        "shape_not_whole_bytes": (CORRUPT, "does not fill whole bytes", one(code=1, shape=[127])),
        "changed_0": (CORRUPT, changed, one(changes=0)), "changed_65_of_64": (CORRUPT, changed, one(changes=65)),
        "changed_not_what_blocks_hold": (CORRUPT, "| varint changed elements |", one(changes=3)),
        "blocks_one_byte_less": (CORRUPT, sums, one(sizes=[size - 1])),
        "blocks_one_byte_more": (CORRUPT, sums, one(sizes=[size + 1])),
        "blocks_sum_wraps": (CORRUPT, sums, one(sizes=[2**64 - 1, size + 1], shape=[65], log2=6)),
        "blocks_one_too_many": (CORRUPT, "No bytes may follow.", one(sizes=[size, 0])),
        "blocks_one_too_few": (CORRUPT, "one per block of 2^L elements, the last block may be shorter", one(shape=[65], log2=6)),
        "blocks_more_than_bytes": (CORRUPT, "one per block of 2^L elements, the last block may be shorter", one(shape=[2**59])),
        "bytes_follow": (CORRUPT, "No bytes may follow.", one(tail=b"\0")),
        "count_too_small": (CORRUPT, "No bytes may follow.", one(count=0)),
        "count_too_large": (CORRUPT, "| varint tensor count | only tensors that changed |", one(count=2)),
        "count_above_limit": (CORRUPT, "| tensors | 1,000,000 |", one(count=1_000_001)),
        "empty_text": (CORRUPT, "| varint log2 block elements L |", b""),
        "varint_overlong": (CORRUPT, shortest, one(changes=b"\x82\x00")),
        "varint_of_eleven_bytes": (CORRUPT, "At most ten bytes, below 2^64", one(changes=b"\x82" + b"\x80" * 9 + b"\x01")),
        "varint_above_2_64": (CORRUPT, "At most ten bytes, below 2^64", one(changes=b"\x82" + b"\x80" * 8 + b"\x02")),
        "varint_cut": (CORRUPT, "the top bit set on all but the last byte", one(sizes=[bytes([size | 128])])),
    }
    return {name: (kind, quote, compact(EXAMPLE_OLD, EXAMPLE_NEW, text, blocks)) for name, (kind, quote, text) in rows.items()}


def bad_blocks(good):
    block = split_file(good)[1]["wisp.blocks"][2]
    states, codes = block[-16:], block[5:9]
    pos, val = struct.unpack("<2Q", states)
    stream = "Both states MUST be at least 2^31 and below 2^63."
    ends = "After the last symbol both states MUST be exactly 2^31 and no word may be left"
    out_of_words = "a stream that runs out of words MUST be rejected"
    count = "| varint | change count C | 1 up to the number of elements |"
    top, low = "number of classes - 1, at most 15", "low + top at most the largest exponent of the dtype"
    code, nibble = "A code outside 0 … 103 MUST be rejected.", "a last unused high nibble MUST be zero"
    kinds, shift = "Other kinds MUST be refused as unsupported.", "| u8 | hazard shift h | 3 to 24 |"
    nothing = "If there is none, the block MUST be rejected."
    whole = "| u32 … | words |"
    assert block[:9] == sparse_header(2, 2, 126, 19, codes)

    def header(c=2, t=2, lo=126, h=19, w=codes, rest=states):
        return sparse_header(c, t, lo, h, w) + rest

    def crafted(fill, c=1, h=19, w=codes, ends=None, low=126, top=2):
        writer = Writer()
        fill(writer)
        return header(c, top, low, h, w, writer.finish(ends=ends))

    def far(escapes, distance):
        def fill(writer):
            for _ in range(escapes):
                writer.put(ref.POSITION, 30, ref.T[32], 1 << 30)
            writer.put(ref.POSITION, 30, ref.F(distance, 19), ref.F(distance, 19) + 1)
            put_step(writer, *fresh(), 1)
        return fill

    def fresh():
        return [ref.Adaptive() for _ in range(24)], [ref.Adaptive() for _ in range(24)]

    def steps(e):
        def fill(writer):
            writer.put(ref.POSITION, 30, 0, ref.F(24576, 19))
            longer, second = fresh()
            for k in range(e):
                put_bit(writer, longer[min(k, 23)], True)
            if e < 16:
                put_bit(writer, longer[e], False)
                put_bit(writer, second[e], True)
                writer.plain(0, e - 1)
                writer.plain(0, 1)
        return fill

    # five changes of five bits each need words, so that they can be taken away
    y = np.frombuffer(OLD, "<u2").copy()
    y[1:43:3] += 777
    many = {"w": tensor("BF16", [64], y)}
    wordy = sparse_block("BF16", OLD, y.tobytes(), 126, 12, [0, 100, 0])
    assert len(wordy) > 9 + 16 + 8
    rows = {
        "kind_0": (UNSUPPORTED, kinds, b"\0" + block[1:]), "kind_4": (UNSUPPORTED, kinds, b"\4" + block[1:]),
        "kind_255": (UNSUPPORTED, kinds, b"\xff"),
        "raw_too_short": (CORRUPT, "the new bytes of all elements of the block", b"\2" + NEW[:-1]),
        "raw_too_long": (CORRUPT, "the new bytes of all elements of the block", b"\2" + NEW + b"\0"),
        "raw_of_other_values": (CORRUPT, "After: the state digest is the result's.", b"\2" + NEW[:10] + b"\x91" + NEW[11:]),
        "count_0": (CORRUPT, count, header(c=0, rest=struct.pack("<2Q", 1 << 31, 1 << 31))),
        "count_65_of_64": (CORRUPT, count, header(c=65)), "count_huge": (CORRUPT, count, header(c=2**64 - 1)),
        "count_one_less": (CORRUPT, ends, header(c=1)), "count_one_more": (CORRUPT, out_of_words, header(c=3)),
        "count_overlong_varint": (CORRUPT, "in the shortest form: a last byte of zero after the first MUST be rejected", header(c=b"\x82\0")),
        "classes_17": (CORRUPT, top, header(t=16, w=bytes([100]) + b"\xff" * 16)),
        "classes_beyond_exponents": (CORRUPT, low, header(t=15, lo=241, w=nibbles([100] * 16))),
        "shift_2": (CORRUPT, shift, header(h=2)), "shift_25": (CORRUPT, shift, header(h=25)), "shift_255": (CORRUPT, shift, header(h=255)),
        "weight_first_104": (CORRUPT, code, header(w=b"\x68" + codes[1:])),
        "weight_escaped_104": (CORRUPT, code, header(w=b"\0" + b"\x6f\xf8\0")),
        "weight_below_0": (CORRUPT, code, header(w=b"\0\x66")),
        "weight_escaped_255": (CORRUPT, code, header(t=1, lo=127, w=b"\x67\xff\x0f")),
        "weight_nibble_not_zero": (CORRUPT, nibble, header(t=1, w=b"\x00\x6f\x14")),
        "weights_cut": (CORRUPT, "| nibbles | other weight codes |", block[:7]),
        "weights_all_zero": (CORRUPT, nothing, header(w=b"\0\x77")),
        "header_cut": (CORRUPT, "Header of a sparse block:", block[:3]),
        "kind_alone": (CORRUPT, "Header of a sparse block:", b"\1"),
        "position_state_too_small": (CORRUPT, stream, header(rest=struct.pack("<2Q", 2**31 - 1, val))),
        "position_state_too_large": (CORRUPT, stream, header(rest=struct.pack("<2Q", 2**63, val))),
        "value_state_too_small": (CORRUPT, stream, header(rest=struct.pack("<2Q", pos, 0))),
        "value_state_too_large": (CORRUPT, stream, header(rest=struct.pack("<2Q", pos, 2**63))),
        "stream_without_states": (CORRUPT, "| u64 | value state |", block[:-1]),
        "stream_with_part_of_a_word": (CORRUPT, whole, block + b"\0\0"),
        "stream_with_a_word_left": (CORRUPT, ends, block + bytes(4)),
        "end_of_position_state": (CORRUPT, ends, crafted(far(0, 5 * 24576), ends=[(1 << 31) + 1, 1 << 31])),
        "end_of_value_state": (CORRUPT, ends, crafted(steps(4), ends=[1 << 31, (1 << 31) + 1])),
        "position_past_the_end": (CORRUPT, nothing, crafted(far(0, 43 * 24576))),
        "position_past_the_end_after_escape": (CORRUPT, nothing, crafted(far(1, 0))),
        "position_after_endless_escapes": (CORRUPT, nothing, crafted(far(40, 0))),
        "position_after_the_last": (CORRUPT, nothing, crafted(lambda writer: (far(0, 42 * 24576)(writer), far(0, 0)(writer)), c=2)),
        "step_too_long": (CORRUPT, "If e reaches n, the block MUST be rejected.", crafted(steps(16))),
        "step_far_too_long": (CORRUPT, "If e reaches n, the block MUST be rejected.", crafted(steps(200))),
    }
    out = {}
    for name, (kind, quote, made) in rows.items():
        sizes = [len(made)]
        out["block_" + name] = (kind, quote, compact(EXAMPLE_OLD, EXAMPLE_NEW, directory_of((0, b"w", 14, [64], 2, sizes)), made))
    idle = {"raw_that_changes_nothing": ("Raw, split and steps blocks hold every element; those equal to the old ones did not change.", b"\2" + OLD),
            "zero_bytes_that_change_nothing": ("A block of zero bytes changes nothing.", b"")}
    for name, (quote, made) in idle.items():                # though the directory says that 2 elements changed
        out["block_" + name] = (CORRUPT, quote, compact(EXAMPLE_OLD, EXAMPLE_OLD, directory_of((0, b"w", 14, [64], 2, [len(made)])), made))
    changed = int(np.count_nonzero(y != np.frombuffer(OLD, "<u2")))
    for name, (quote, made) in {"runs_out_of_words": (out_of_words, wordy[:-4]), "word_twice": (ends, wordy + wordy[-4:]),
                                "word_changed": (ends, wordy[:-3] + bytes([wordy[-3] ^ 16]) + wordy[-2:])}.items():
        out["block_stream_" + name] = (CORRUPT, quote, compact(EXAMPLE_OLD, many, directory_of((0, b"w", 14, [64], changed, [len(made)])), made))
    return out


def bad_integer_classes():
    """An I64 tensor has one class; two are beyond its exponent field, which it does not have."""
    old, new = {"n": tensor("I64", [64], bytes(512))}, {"n": tensor("I64", [64], bytes([1]) + bytes(511))}
    block = sparse_header(1, 1, 0, 10, [64, 64]) + sparse_block("I64", old["n"][2], new["n"][2], 0, 10, [64])[6:]
    return old, compact(old, new, directory_of((0, b"n", 20, [64], 1, [len(block)])), block)


def bad_split():
    frequencies, states = "each 1 to 4096, together exactly 4096", "| 32 × u32 | states | each at least 2^16 |"
    ends = "After the last symbol all states MUST be exactly 2^16 and no word may be left; tokens that run out of words MUST be rejected."
    low, size = "the other bytes of each rotated element, little-endian", "| varint | stream bytes | of states and words together |"
    presence = "bit (v mod 8) of byte floor(v / 8) is set if token v occurs"
    target = np.frombuffer(NEW, "<u2").copy()
    target[::2] ^= 0x8000
    new = {"w": tensor("BF16", [64], target)}
    changed = int(np.count_nonzero(target != np.frombuffer(OLD, "<u2")))

    def word(parts, at, value):
        parts["stream"] = parts["stream"][:4 * at] + struct.pack("<I", value) + parts["stream"][4 * at + 4:]

    def shift(parts, by):
        parts["frequencies"][-1] += by

    rows = {
        "frequencies_sum_4095": (frequencies, lambda p: shift(p, -1)), "frequencies_sum_4097": (frequencies, lambda p: shift(p, 1)),
        "frequency_0": (frequencies, lambda p: p.update(frequencies=[0, 4096])),
        "frequency_4097": (frequencies, lambda p: p.update(frequencies=[4097, 2**64 - 1])),
        "frequencies_wrap": (frequencies, lambda p: p.update(frequencies=[2**64 - 4096, 8192])),
        "no_value_present": (presence, lambda p: p.update(presence=bytes(32), frequencies=[])),
        "one_value_more_present": (presence, lambda p: p.update(presence=b"\1" + p["presence"][1:])),
        "stream_bytes_past_the_end": (size, lambda p: p.update(size=5000)),
        "stream_bytes_huge": (size, lambda p: p.update(size=2**64 - 1)),
        "stream_bytes_without_states": (size, lambda p: p.update(size=124)),
        "presence_bytes_33": ("| u8 | presence bytes P | at most 32 |", lambda p: p.update(presence=p["presence"] + b"\0")),
        "stream_bytes_not_whole_words": ("| u16 … | words | |", lambda p: p.update(stream=p["stream"] + b"\0")),
        "stream_with_a_word_left": (ends, lambda p: p.update(stream=p["stream"] + bytes(2))),
        "stream_runs_out_of_words": (ends, lambda p: [word(p, k, 1 << 16) for k in range(32)]),
        "state_too_small": (states, lambda p: word(p, 3, 2**16 - 1)),
        "state_ends_elsewhere": (ends, lambda p: word(p, 2, struct.unpack_from("<I", p["stream"], 8)[0] ^ (1 << 30))),
        "low_bytes_short": (low, lambda p: p.update(low=p["low"][:-1])), "low_bytes_long": (low, lambda p: p.update(low=p["low"] + b"\0")),
    }
    out = {}
    for name, (quote, spoil) in rows.items():
        block = split_block(new["w"][2], 2, spoil)
        out["split_" + name] = (CORRUPT, quote, compact(EXAMPLE_OLD, new, directory_of((0, b"w", 14, [64], changed, [len(block)])), block))
    table = b"\3\x20" + bytes(20)
    out["split_presence_cut"] = (CORRUPT, presence, compact(EXAMPLE_OLD, new, directory_of((0, b"w", 14, [64], changed, [22])), table))
    return out


def bad_steps():
    target = np.frombuffer(NEW, "<u2").copy()
    target[::2] += np.arange(32, dtype="<u2") * 9
    new = {"w": tensor("BF16", [64], target)}
    changed = int(np.count_nonzero(target != np.frombuffer(OLD, "<u2")))
    top, low = "| u8 | top | number of classes - 1, at most 7 |", "low + top at most the dtype's largest exponent"
    behind = "unused high bits of the last byte MUST be zero, and no bytes may follow"
    rows = {
        "classes_9": (top, lambda p: p.update(head=bytes([8, 126]), tables=p["tables"] + b"\1\1\x80\x20" * 6)),
        "classes_beyond_exponents": (low, lambda p: p.update(head=bytes([2, 254]))),
        "table_missing": ("a table for each class, ascending", lambda p: p.update(head=bytes([3, 126]))),
        "token_too_long": ("A table in which a token of 16 + 4 (n - 4) or more is present MUST be rejected.",
                           lambda p: p.update(tables=b"".join([b"\x09" + bytes(8) + b"\1\x80\x20"] * 3))),
        "stream_with_a_word_left": ("and no word may be left; tokens that run out of words MUST be rejected.", lambda p: p.update(stream=p["stream"] + bytes(2))),
        "bits_short": (behind, lambda p: p.update(behind=p["behind"][:-1])), "bits_long": (behind, lambda p: p.update(behind=p["behind"] + b"\0")),
        "bits_missing": (behind, lambda p: p.update(behind=b"")),
        "bits_not_zero": (behind, lambda p: p.update(behind=p["behind"][:-1] + bytes([p["behind"][-1] | 128]))),
        "header_cut": (top, lambda p: p.update(head=b"", tables=b"", stream=b"", behind=b"")),
    }
    out = {}
    for name, (quote, spoil) in rows.items():
        block = steps_block("BF16", OLD, target.tobytes(), 126, 2, spoil)
        out["steps_" + name] = (CORRUPT, quote, compact(EXAMPLE_OLD, new, directory_of((0, b"w", 14, [64], changed, [len(block)])), block))
    return out


def bad_wide_steps():
    """Of an I64 tensor, whose elements are too wide for steps."""
    old, new = {"n": tensor("I64", [64], bytes(512))}, {"n": tensor("I64", [64], bytes([1]) + bytes(511))}
    block = steps_block("I32", bytes(256), bytes([1]) + bytes(255), 0, 0)
    return compact(old, new, directory_of((0, b"n", 20, [64], 1, [len(block)])), block)


def bad_trl(good_plain):
    positions, pairs = "Positions MUST increase strictly, not be negative, and lie inside the tensor", "tensors of a pair MUST be there, flat and of one length"
    encoding, values = "MUST be refused as unsupported; without `encoding` the dtype decides", "| values | new elements, in the tensor's dtype (packed dtypes as U8) |"
    width = "U16, or U32 for the whole tensor if a gap exceeds 65535"
    gap = TRL | {"encoding": "gap_delta"}
    keys, tensors = split_file(good_plain)
    good, idx = pair([5, 40]), pair([5, 34], "U16", "idx", "val")
    flipped = bytearray(good_plain)
    flipped[-1] ^= 1
    flat = "flat and of one length"
    wide = {"w.indices": ("I32", [2, 1], good["w.indices"][2]), "w.values": ("BF16", [2, 1], VALUES)}
    return {
        "encoding_other": (UNSUPPORTED, encoding, save(idx, TRL | {"encoding": "nvcomp_cascaded"})),
        "version_2": (UNSUPPORTED, "`format=sparse_weight_patch`, `version=1`", save(good, TRL | {"version": "2"})),
        "position_negative": (CORRUPT, positions, save(pair([-1, 40]), TRL)),
        "position_negative_later": (CORRUPT, positions, save(pair([5, -2]), TRL)),
        "position_twice": (CORRUPT, positions, save(pair([5, 5]), TRL)),
        "position_decreases": (CORRUPT, positions, save(pair([40, 5]), TRL)),
        "position_past_the_end": (CORRUPT, positions, save(pair([5, 64]), TRL)),
        "position_i64_past_the_end": (CORRUPT, positions, save(pair([5, 2**63 - 1], "I64"), TRL)),
        "position_i64_negative": (CORRUPT, positions, save(pair([-2**63, 40], "I64"), TRL)),
        "position_raw_decreases": (CORRUPT, positions, save(pair([40, 5], "I32", "idx", "val"), TRL | {"encoding": "raw"})),
        "position_by_gap_past_the_end": (CORRUPT, positions, save(pair([5, 58], "U16", "idx", "val"), gap)),
        "position_by_gap_wraps_32_bits": (CORRUPT, positions, save(pair([5, 2**32 - 1], "U32", "idx", "val"), gap)),
        "positions_of_floats": (UNSUPPORTED, width, save(pair([5, 40], "F32"), TRL)),
        "positions_of_bytes": (UNSUPPORTED, width, save(pair([5, 34], "U8", "idx", "val"), gap)),
        "pair_without_values": (CORRUPT, pairs, save({"w.indices": good["w.indices"]}, TRL)),
        "pair_without_positions": (CORRUPT, pairs, save({"w.values": good["w.values"]}, TRL)),
        "pair_mixed": (CORRUPT, pairs, save({"w.idx": idx["w.idx"], "w.values": good["w.values"]}, TRL)),
        "pair_of_two_lengths": (CORRUPT, flat, save(pair([5, 40], values=NEW[:2]), TRL)),
        "pair_of_more_values": (CORRUPT, flat, save(pair([5, 40], values=NEW[:6]), TRL)),
        "pair_not_flat": (CORRUPT, flat, save(wide, TRL)),
        "pair_without_metadata_past_the_end": (CORRUPT, positions, save(pair([5, 64]))),
        "name_of_no_pair": (CORRUPT, pairs, save(good | {"w": ("U8", [1], b"x")}, TRL)),
        "name_not_in_base": (INVALID, values, save(pair([5, 40], name="v"), TRL)),
        "values_of_another_dtype": (INVALID, values, save({"w.indices": good["w.indices"], "w.values": ("F16", [2], VALUES)}, TRL)),
        "values_of_bytes": (INVALID, values, save({"w.indices": good["w.indices"], "w.values": ("U8", [2], VALUES[:2])}, TRL)),
        "seal_does_not_fit": (CORRUPT, "wisp adds `wisp_seal` (first key, as in section 5) and the four digests; a file with any `wisp_` key MUST have them all.", bytes(flipped)),
        "seal_not_first_key": (CORRUPT, "wisp adds `wisp_seal` (first key, as in section 5) and the four digests; a file with any `wisp_` key MUST have them all.", seal_anywhere(save(tensors, keys | {"wisp_seal": "0" * 64}))),
        "seal_lost": (CORRUPT, "wisp adds `wisp_seal` (first key, as in section 5) and the four digests; a file with any `wisp_` key MUST have them all.", save(tensors, keys)),
        "digest_missing": (CORRUPT, "wisp adds `wisp_seal` (first key, as in section 5) and the four digests; a file with any `wisp_` key MUST have them all.",
                           sealed(tensors, {key: value for key, value in keys.items() if key != "wisp_touched_digest"})),
        "digest_of_result_other": (CORRUPT, "After: the state digest is the result's.", sealed(tensors, keys | {"wisp_result_digest": "0" * 32})),
        "digest_of_base_other": (WRONG_BASE, "Before it writes: the base's schema digest and state digest are those named", sealed(tensors, keys | {"wisp_base_digest": "0" * 32})),
    }


def all_bad(good):
    """name -> (kind, base, quote, bytes)"""
    out = {"container_" + name: (UNSUPPORTED if quote == "an unknown dtype" else CORRUPT, "example", quote, raw)
           for name, (quote, raw) in bad_container().items()}
    for prefix, rows in {"metadata_": bad_metadata(good["example"]), "directory_": bad_directory(good["example"]),
                         "": bad_blocks(good["example"]) | bad_split() | bad_steps()}.items():
        out |= {prefix + name: (kind, "example", quote, raw) for name, (kind, quote, raw) in rows.items()}
    for name, (kind, quote, raw) in bad_trl(good["plain_i32"]).items():
        base = "bf16_rl" if name.startswith(("seal", "digest")) else "example"
        out["trl_" + name] = (kind, base, quote, raw)
    return out
