"""The states that good deltas are made between, and good deltas that wisp itself never writes."""
import json
import struct

import numpy as np

from golden_craft import compact, directory_of, entries, pack, ref, save, sparse_block, split_block, steps_block, varint


# ---- Good states ------------------------------------------------------------------------------------------
def tensor(dtype, shape, data):
    data = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    assert len(data) == ref.byte_length(dtype, list(shape)), (dtype, shape)
    return dtype, list(shape), data


def bf16(values):
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype("<u2")


def nudged(rng, bits, fraction, most=1):
    """Bits with some of them moved by up to `most` either way."""
    bits = bits.copy()
    where = rng.random(len(bits)) < fraction
    steps = rng.integers(1, most + 1, len(bits)) * rng.choice([-1, 1], len(bits))
    bits[where] = (bits.astype(np.int64) + steps).astype(bits.dtype)[where]
    return bits


def example_states():
    old = np.arange(64, dtype="<u2") * 3 + 0x3F80
    new = old.copy()
    new[5] += 1
    new[40] -= 2
    return {"w": tensor("BF16", [64], old)}, {"w": tensor("BF16", [64], new)}


def both(names):
    """{name: (dtype, shape, old, new)} -> the two states."""
    return ({n: tensor(d, s, old) for n, (d, s, old, _) in names.items()},
            {n: tensor(d, s, new) for n, (d, s, _, new) in names.items()})


def states():
    """name -> (old, new, arguments of wisp diff); new ones go last, so that those before keep their random numbers"""
    rng = np.random.default_rng(20260701)
    out = {"example": (*example_states(), ["--step", "7"])}

    made = {}
    for dtype, (_, bits, width, _, _) in ref.DTYPES.items():
        count = 48 * width
        old = rng.integers(0, 2 if dtype == "BOOL" else 256, count).astype(np.uint8)
        new = old.copy()
        for i in rng.choice(count, 5, replace=False):
            new[i] = 1 - old[i] if dtype == "BOOL" else (int(old[i]) + int(rng.integers(1, 255))) % 256
        made["t." + dtype.lower()] = (dtype, [4, count * 8 // bits // 4], old, new)
    out["all_dtypes"] = (*both(made), ["--step", "1"])

    weights = bf16(rng.normal(0, 0.02, 12000))
    rl = nudged(rng, weights, np.where(np.abs(weights & 0x7FFF) < 0x3C00, 0.03, 0.004))
    rl_states = both({"model.layers.0.mlp.down_proj.weight": ("BF16", [100, 120], weights, rl),
                      "model.norm.weight": ("BF16", [500], bf16(np.ones(500)), bf16(np.ones(500)))})
    out["bf16_rl"] = (*rl_states, ["--step", "42"])
    out["plain_i32"] = (*rl_states, ["--codec", "plain", "--step", "42"])
    out["gap_u16"] = (*rl_states, ["--codec", "gap", "--step", "42"])

    old, new = (rng.integers(0, 65536, 2000).astype("<u2") for _ in range(2))
    out["block_raw"] = (*both({"w": ("BF16", [2000], old, new)}), [])
    old, new = (bf16(rng.normal(0, 0.02, 6000)) for _ in range(2))
    out["block_split"] = (*both({"w": ("BF16", [60, 100], old, new)}), [])
    old, new = (rng.normal(0, 1, 3000).astype("<f4") for _ in range(2))
    out["block_split_f32"] = (*both({"w": ("F32", [3000], old, new)}), [])
    old, new = (rng.integers(0, 12, 4000).astype(np.uint8) * 3 for _ in range(2))
    out["block_split_u8"] = (*both({"w": ("U8", [4000], old, new)}), [])

    made = {}
    for layer in range(40):
        for part in ("input_layernorm", "mlp.up_proj", "self_attn.k_proj", "self_attn.q_proj", "größe.層"):
            old = bf16(rng.normal(0, 0.05, 16))
            made[f"model.layers.{layer}.{part}.weight"] = ("BF16", [4, 4], old, nudged(rng, old, 0.1 if layer % 3 else 0))
    out["many_tensors"] = (*both(made), ["--step", "18446744073709551615"])
    out["empty_delta"] = (out["bf16_rl"][0], out["bf16_rl"][0], [])
    out["empty_delta_plain"] = (out["example"][0], out["example"][0], ["--codec", "plain"])
    out["empty_delta_gap"] = (out["example"][0], out["example"][0], ["--codec", "gap"])

    special = np.array([0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7FC1, 0xFFC0, 0xFFFF, 0x7FFF, 0x0001, 0x8001, 0x7F81], "<u2")
    old, new = np.repeat(special, 12), np.tile(special, 12)
    wide = {"F16": np.array([0, 0x8000, 0x7C00, 0xFC00, 0x7E01, 0xFE00, 1], "<u2"),
            "F32": np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 1], "<u4"),
            "F64": np.array([0, 1 << 63, 0x7FF << 52, 0xFFF << 52, (0x7FF8 << 48) + 1, 2**64 - 1, 1], "<u8")}
    made = {"bf16": ("BF16", [144], old, new)}
    made |= {d.lower(): (d, [49], np.repeat(x, 7), np.tile(x, 7)) for d, x in wide.items()}
    made |= {"sparse." + d.lower(): (d, [700], np.tile(x, 100), np.concatenate([np.tile(x, 99), x[::-1]])) for d, x in wide.items()}
    out["nan_zero_infinity"] = (*both(made), [])

    made = {"zero_d": ("F32", [], struct.pack("<f", 1), struct.pack("<f", 2)),
            "zero_d_same": ("I64", [], bytes(8), bytes(8)), "one": ("BF16", [1, 1, 1], b"\x80\x3f", b"\x81\x3f"),
            "one_byte": ("BOOL", [1], b"\0", b"\1"), "empty": ("BF16", [0], b"", b""),
            "empty_wide": ("F4", [3, 0, 5], b"", b""), "\0": ("U8", [1], b"a", b"b")}
    out["tiny_tensors"] = (*both(made), [])

    old = (rng.normal(0, 1, 2000) * 10.0 ** rng.integers(-300, 300, 2000)).astype("<f8").view("<u8")
    out["f64_wide_exponents"] = (*both({"w": ("F64", [2000], old, nudged(rng, old, 0.05, 1 << 30)),
                                        "c": ("C64", [2000], old, nudged(rng, old, 0.02, 1 << 40))}), [])

    old = rng.integers(-1000, 1000, 1500).astype("<i8")
    new = old.copy()
    where = rng.choice(1500, 64, replace=False)
    new[where] = np.array([1 << k for k in range(63)] + [-(1 << 63)], "<i8") * rng.choice([-1, 1], 64) + old[where]
    flips = bf16(rng.normal(0, 1, 1500))
    flipped = np.where(rng.random(1500) < 0.04, flips ^ 0x8000, flips).astype("<u2")
    out["long_steps"] = (*both({"i64": ("I64", [1500], old, new), "flips": ("BF16", [1500], flips, flipped)}), [])

    old = bf16(np.where(np.arange(15000) % 5000 < 200, 0.001, 1.0))
    new = old.copy()
    new[[0, 1, 2, 3, 5, 8, 14990, 14999]] += 1
    out["far_positions"] = (*both({"w": ("BF16", [15000], old, new)}), [])
    old = bf16(rng.normal(0, 0.02, 8000))
    out["dense_steps"] = (*both({"w": ("BF16", [8000], old, nudged(rng, old, 0.9, 2))}), [])

    other = np.random.default_rng(12)
    old, small = bf16(other.normal(0, 0.02, 6000)), other.integers(0, 200, 5000).astype(np.uint8)
    single = other.normal(0, 1, 4200).astype("<f4").view("<u4")
    out["block_steps"] = (*both({"w": ("BF16", [6000], old, nudged(other, old, 0.3, 40)), "u": ("U8", [5000], small, nudged(other, small, 0.1)),
                                 "f": ("F32", [4200], single, nudged(other, single, 0.9, 3000))}), [])

    old = rng.integers(0, 256, 70000).astype(np.uint8) & 3
    new = old.copy()
    new[[0, 65537, 65539, 69999]] += 1
    out["gap_u32"] = (*both({"w": ("U8", [70000], old, new), "x": ("F4", [32], bytes(16), bytes(range(16)))}), ["--codec", "gap"])
    return out


# ---- Good files by hand ------------------------------------------------------------------------------------
TRL = {"format": "sparse_weight_patch", "version": "1", "sparse": "True", "model_version": "3"}
EXAMPLE_OLD, EXAMPLE_NEW = example_states()
OLD, NEW = EXAMPLE_OLD["w"][2], EXAMPLE_NEW["w"][2]
VALUES = NEW[10:12] + NEW[80:82]


def pair(positions, dtype="I32", first="indices", last="values", values=VALUES, name="w"):
    data = np.array(positions, {"I": "<i", "U": "<u", "F": "<f"}[dtype[0]] + str(int(dtype[1:]) // 8)).tobytes()
    return {f"{name}.{first}": (dtype, [len(positions)], data), f"{name}.{last}": ("BF16", [len(values) // 2], values)}


def by_hand(made):
    """name -> (base file, old, new, bytes)"""
    out, e = {}, ("example", EXAMPLE_OLD, EXAMPLE_NEW)
    out["foreign_plain"] = (*e, save(pair([5, 40]), TRL | {"changed_params": '["w"]'}))
    out["foreign_plain_i64"] = (*e, save(pair([5, 40], "I64"), TRL))
    out["foreign_gap_u16"] = (*e, save(pair([5, 34], "U16", "idx", "val"), TRL | {"encoding": "gap_delta"}))
    out["foreign_gap_u32"] = (*e, save(pair([5, 34], "U32", "idx", "val"), TRL | {"encoding": "gap_delta"}))
    out["foreign_idx_raw_i32"] = (*e, save(pair([5, 40], "I32", "idx", "val"), TRL | {"encoding": "raw"}))
    out["foreign_no_metadata_plain"] = (*e, save(pair([5, 40])))
    out["foreign_no_metadata_gap"] = (*e, save(pair([5, 34], "U16", "idx", "val")))
    out["foreign_no_metadata_idx_raw"] = (*e, save(pair([5, 40], "I32", "idx", "val")))
    header = json.dumps(dict(reversed(entries(pair([5, 40])).items())), indent=1).encode() + b" \n\t\r  "
    out["foreign_header_in_other_order_and_white_space"] = (*e, pack(header, b"".join(t[2] for t in pair([5, 40]).values())))
    out["foreign_hollow_pair"] = ("example", EXAMPLE_OLD, EXAMPLE_OLD, save(pair([], values=b""), TRL))

    old, new, _ = made["bf16_rl"]
    name = "model.layers.0.mlp.down_proj.weight"
    a, b = bytearray(old[name][2][:128 * 150 + 6]), bytearray(new[name][2][:128 * 150 + 6])
    rng = np.random.default_rng(7)
    b[256:384], b[640:768], b[-6:] = rng.bytes(128), bf16(rng.normal(0, 0.02, 64)).tobytes(), bytes(6)
    blocks = []
    for at in range(0, len(a), 128):
        x, y = bytes(a[at:at + 128]), bytes(b[at:at + 128])
        blocks.append(b"" if x == y else b"\2" + y if at == 256 else split_block(y, 2) if at in (640, len(a) - 6)
                      else sparse_block("BF16", x, y, 110, 9, [60, 50, 64, 30, 0x40, 33, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60]))
    shape, changed = [len(a) // 2], int(np.count_nonzero(np.frombuffer(a, "<u2") != np.frombuffer(b, "<u2")))
    small_old, small_new = {"w": tensor("BF16", shape, bytes(a))}, {"w": tensor("BF16", shape, bytes(b))}
    directory = directory_of((0, b"w", 14, shape, changed, [len(x) for x in blocks]), log2=6)
    out["many_small_blocks"] = ("many_small_blocks", small_old, small_new, compact(small_old, small_new, directory, b"".join(blocks)))

    x = np.arange(64, dtype="<u2") * 3 + 0x3F80
    y = x.copy()
    y[[2, 41, 63]] += np.array([1, 600, 3], "<u2")
    far = {"w": tensor("BF16", [64], y)}
    block = sparse_block("BF16", x.tobytes(), y.tobytes(), 126, 3, [0, 103, 40])
    directory = directory_of((0, b"w", 14, [64], 3, [len(block)]))
    out["thousands_of_escapes"] = ("example", EXAMPLE_OLD, far, compact(EXAMPLE_OLD, far, directory, block, {"extra": "ignored"}))

    escapes = sparse_block("BF16", OLD, y.tobytes(), 126, 24, [1, 1, 1])
    directory = directory_of((0, b"w", 14, [64], 3, [len(escapes)]))
    out["smallest_weights_largest_shift"] = ("example", EXAMPLE_OLD, far, compact(EXAMPLE_OLD, far, directory, escapes))
    one = b"\3\x10" + bytes(15) + b"\x80" + varint(4096) + varint(128) + struct.pack("<32I", *[1 << 16] * 32) + bytes(range(64))
    turned = b"".join(struct.pack("<H", (0x7F00 | i) >> 1 | (i & 1) << 15) for i in range(64))
    same = {"w": tensor("BF16", [64], turned)}
    changed = int(np.count_nonzero(np.frombuffer(turned, "<u2") != np.frombuffer(OLD, "<u2")))
    directory = directory_of((0, b"w", 14, [64], changed, [len(one)]))
    out["split_of_one_value"] = ("example", EXAMPLE_OLD, same, compact(EXAMPLE_OLD, same, directory, one))

    rng = np.random.default_rng(11)
    for dtype, (low, top) in {"BF16": (120, 7), "F32": (123, 3), "U8": (0, 0), "I16": (0, 0), "F8_E4M3": (8, 7)}.items():
        width = ref.DTYPES[dtype][2]
        x = rng.integers(0, 1 << 8 * width, 500).astype(ref.WORD[width]) if dtype != "BF16" else bf16(rng.normal(0, 0.5, 500))
        y = nudged(rng, x, 0.6, 3)
        y[:40] = rng.integers(0, 1 << 8 * width, 40)        # steps of every length
        old, new = {"w": tensor(dtype, [500], x)}, {"w": tensor(dtype, [500], y)}
        block = steps_block(dtype, x.tobytes(), y.tobytes(), low, top)
        directory = directory_of((0, b"w", ref.DTYPES[dtype][0], [500], int(np.count_nonzero(x != y)), [len(block)]))
        out[f"steps_{dtype.lower()}"] = (f"steps_{dtype.lower()}", old, new, compact(old, new, directory, block))
    return out
