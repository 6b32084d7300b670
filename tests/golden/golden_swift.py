"""Swift blocks byte by byte: good ones that wisp itself never writes, and one for each rule that can be broken."""
import struct

import numpy as np

from golden_craft import compact, CORRUPT, directory_of, number, ref, sparse_block, UNSUPPORTED, Writer
from golden_states import EXAMPLE_NEW, EXAMPLE_OLD, NEW, OLD, tensor

# The states of good files that are written once more, by `wisp diff --codec swift`.
AGAIN = ("example", "all_dtypes", "bf16_rl", "block_raw", "block_split", "block_split_f32", "many_tensors", "empty_delta",
         "nan_zero_infinity", "tiny_tensors", "f64_wide_exponents", "long_steps", "far_positions", "gap_u32", "block_steps")


def swift_states(made):
    return {f"swift_{name}": (*made[name][:2], ["--codec", "swift", *(["--step", "7"] if name == "example" else [])]) for name in AGAIN}


# ---- A small encoder of section 12 ------------------------------------------------------------------------
def put_gap(writer, k, gap, s, z):
    slices = ref.quotient_slices(z)
    q, escape = gap >> s, len(slices) - 1
    while q >= escape:
        writer.put(k % 2, 12, *slices[escape])
        q -= escape
    writer.put(k % 2, 12, *slices[q])


class Steps:
    """The adaptive bits of a block."""
    def __init__(self):
        self.first, self.longer, self.second = ([ref.Adaptive() for _ in range(319)] for _ in range(3))

    def put_bit(self, writer, k, model, bit):
        writer.put(k % 2, 16, *((0, model.one) if bit else (model.one, 65536)))
        model.learn(bit)

    def put(self, writer, j, x, length):
        e = length.bit_length() - 1
        for i in range(e + 1):
            self.put_bit(writer, j, self.longer[x + i] if i else self.first[x], i < e)
        if e > 0:
            self.put_bit(writer, j, self.second[x + e], bool(length >> (e - 1) & 1))
            self.plain(writer, j, length % (1 << (e - 1)), e - 1)

    @staticmethod
    def plain(writer, k, value, count):
        while count > 0:
            bits = min(count, 16)
            writer.put(k % 2, bits, value % (1 << bits), value % (1 << bits) + 1)
            value, count = value >> bits, count - bits


def swift_header(count, s, z, p, low, signs):
    return b"\4" + number(count) + bytes([s, z]) + number(p) + low + signs


def packed(numbers, width):
    """The low `width` bits of each, side by side."""
    joined = sum((n % (1 << width)) << (k * width) for k, n in enumerate(numbers))
    return joined.to_bytes((len(numbers) * width + 7) // 8, "little")


def swift_block(dtype, old, new, s, z, p=None, turned=()):
    """`p` is as wisp writes it unless given. Steps of the changes in `turned` go the other way round."""
    old, new = (np.frombuffer(x, ref.WORD[ref.DTYPES[dtype][2]]) for x in (old, new))
    width, is_float, writer, steps = 8 * old.itemsize, ref.DTYPES[dtype][4], Writer(), Steps()
    changed = np.flatnonzero(old != new)
    gaps = (np.diff(changed, prepend=-1) - 1).tolist()
    for k, gap in enumerate(gaps):
        put_gap(writer, k, gap, s, z)
    ups = [(ref.order(int(new[i]), width, is_float) - ref.order(int(old[i]), width, is_float)) % (1 << width) for i in changed.tolist()]
    signs = [int((up >= 1 << (width - 1)) != (k in turned)) for k, up in enumerate(ups)]
    lengths = [(1 << width) - up if down else up for up, down in zip(ups, signs)]
    values = list(zip(ref.exponents(dtype, old[changed]).tolist(), lengths))
    p = max((x + 1 for x, length in values if length > 1), default=0) if p is None else p
    assert all(length == 1 for x, length in values if x >= p)
    for j, (x, length) in enumerate((x, length) for x, length in values if x < p):
        steps.put(writer, j, x, length)
    return swift_header(len(gaps), s, z, p, packed(gaps, s), packed(signs, 1)) + writer.finish()


def swift(old, new, directory, blocks):
    return compact(old, new, directory, blocks, {"codec": "swift"})


def example_file(block, changed=2, new=EXAMPLE_NEW):
    return swift(EXAMPLE_OLD, new, directory_of((0, b"w", 14, [64], changed, [len(block)])), block)


# ---- Good files by hand -----------------------------------------------------------------------------------
def binades(steps):
    """Old and new: weights of either sign whose exponents go 120, 123, 126, 129, 121, …, 129; element i moves by steps[i] in the order."""
    old = np.array([0x8000 * (i // 3 % 2) | (120 + 3 * i % 10) << 7 | 11 * i % 128 for i in range(40)], "<u2")
    new = old.copy()
    for i, step in steps.items():
        new[i] = ref.order((ref.order(int(old[i]), 16, True) + step) % 65536, 16, True)
    return {"w": tensor("BF16", [40], old)}, {"w": tensor("BF16", [40], new)}


# By name: the steps of elements, and how they are written. Exponents of 125 and more step by one.
ONES = {i: 1 - i % 5 % 2 * 2 for i in range(0, 40, 3)}
MIXED = {i: step if (120 + 3 * i % 10) >= 125 else step * (1, 1, 2, 3, 77, 300, 9000)[i % 7] for i, step in ({i: 1 - i // 2 % 2 * 2 for i in range(1, 40, 2)}).items()}
SINGLE_FROM = {
    "single_from_0": (ONES, {"p": 0}), "single_from_1": (ONES, {"p": 1}), "single_from_256": (MIXED, {"p": 256}),
    "single_from_all_exponents": (MIXED, {"p": 130}), "single_from_between": (MIXED, {}), "single_from_above_what_is_needed": (MIXED, {"p": 127}),
    "half_way_down": ({4: -2**15, 20: 2**15 - 1}, {}), "half_way_up": ({4: -2**15, 20: 2**15 - 1}, {"turned": [0]}),
    "the_longer_way_round": (MIXED, {"p": 256, "turned": [1, 3]}),
}


def swift_by_hand(made):
    """name -> (base, old, new, bytes)"""
    out = {f"swift_{name}": ("example", EXAMPLE_OLD, EXAMPLE_NEW, example_file(swift_block("BF16", OLD, NEW, s, z)))
           for name, (s, z) in {"no_low_bits": (0, 8), "most_low_bits": (24, 255), "smallest_chance": (0, 1), "largest_chance": (1, 255)}.items()}
    for name, (steps, more) in SINGLE_FROM.items():
        before, after = binades(steps)
        block = swift_block("BF16", before["w"][2], after["w"][2], 1, 90, **more)
        directory = directory_of((0, b"w", 14, [40], len(steps), [len(block)]))
        out[f"swift_{name}"] = ("swift_binades", before, after, swift(before, after, directory, block))
    old, new, _ = made["dense_steps"]                       # wisp takes steps of a plane here
    block = swift_block("BF16", old["w"][2], new["w"][2], 0, 230)
    changed = int(np.count_nonzero(np.frombuffer(old["w"][2], "<u2") != np.frombuffer(new["w"][2], "<u2")))
    out["swift_dense_steps"] = ("dense_steps", old, new, swift(old, new, directory_of((0, b"w", 14, [8000], changed, [len(block)])), block))
    old, new, _ = made["bf16_rl"]
    name, other = sorted(old)
    rows, blocks = [], b""
    for at in range(0, 12000, 64):                      # blocks of 64 elements, the last one shorter
        before, after = (state[name][2][2 * at:2 * at + 128] for state in (old, new))
        block = b"" if before == after else swift_block("BF16", before, after, 3, 40)
        rows.append(len(block))
        blocks += block
    assert new[other] == old[other]
    changed = int(np.count_nonzero(np.frombuffer(old[name][2], "<u2") != np.frombuffer(new[name][2], "<u2")))
    directory = directory_of((0, name.encode(), 14, old[name][1], changed, rows), log2=6)
    out["swift_many_small_blocks"] = ("bf16_rl", old, new, swift(old, new, directory, blocks))
    return out


# ---- Bad files --------------------------------------------------------------------------------------------
def bad_swift():
    block = swift_block("BF16", OLD, NEW, 3, 40)            # gaps 5 and 34, steps of 1 and -2
    head, states = block[:-16], block[-16:]
    assert head == b"\4\2\3\x28\x80\1" + bytes([5 | 2 << 3, 2])
    even, odd = struct.unpack("<2Q", states)
    count = "| varint | change count C | 1 up to the number of elements |"
    past = "A position that is not below the number of elements MUST be rejected."
    ends = "After the last symbol both states MUST be exactly 2^31 and no word may be left"
    out_of_words = "a stream that runs out of words MUST be rejected"
    stream = "Both states MUST be at least 2^31 and below 2^63."
    long = "If e reaches n, the block MUST be rejected here too."
    kinds = "So MUST kind 4 in a file of codec `compact`, and kind 1 in one of codec `swift`"
    low, chance = "| u8 | low bits s | at most 24 |", "| u8 | chance of zero z | 1 to 255 |"
    zero, zero_too = "unused high bits of the last byte MUST be zero", "here too, unused high bits of the last byte MUST be zero"
    single, signs = "| varint | single from p | 0 to 256", "| ceil(C / 8) | signs | a bit for each change"
    none = "the length is 1 if x ≥ p, and no symbol stands for it"

    def header(c=2, s=3, z=40, p=128, lows=head[6:7], down=head[7:8]):
        return swift_header(c, s, z, p, lows, down)

    def crafted(gaps, s=3, z=40, e=0, p=128, lows=None, down=None, **more):
        """Steps of one, coded unless p is 0; or, without an end, of more than e bits."""
        writer, steps = Writer(), Steps()
        for k, gap in enumerate(gaps):
            put_gap(writer, k, gap, s, z)
        for k in range(len(gaps) if p else 0):
            if e == 0:
                steps.put(writer, k, 127, 1)
            for i in range(e):
                steps.put_bit(writer, k, steps.longer[127 + i] if i else steps.first[127], True)
        lows, down = (packed(gaps, s) if lows is None else lows), (bytes((len(gaps) + 7) // 8) if down is None else down)
        return swift_header(len(gaps), s, z, p, lows, down) + writer.finish(**more)

    y = np.frombuffer(OLD, "<u2").copy()
    y[::3] += 777                                           # far steps need words, so that they can be taken away
    wordy = swift_block("BF16", OLD, y.tobytes(), 1, 100)
    assert len(wordy) > 40
    rows = {
        "kind_sparse": (UNSUPPORTED, kinds, sparse_block("BF16", OLD, NEW, 126, 19, [0, 100, 0])),
        "kind_6": (UNSUPPORTED, "Other kinds MUST be refused as unsupported.", b"\6" + block[1:]),
        "kind_alone": (CORRUPT, count, b"\4"), "header_cut": (CORRUPT, chance, block[:3]),
        "count_0": (CORRUPT, count, header(c=0, lows=b"", down=b"") + struct.pack("<2Q", 1 << 31, 1 << 31)),
        "count_65_of_64": (CORRUPT, count, header(c=65, s=0, lows=b"", down=bytes(9)) + states),
        "count_huge": (CORRUPT, count, header(c=2**64 - 1) + states),
        "count_one_less": (CORRUPT, ends, header(c=1, lows=b"\5", down=b"\0") + states),
        "count_one_more": (CORRUPT, out_of_words, header(c=3, lows=head[6:7] + b"\0") + states),
        "low_bits_25": (CORRUPT, low, header(s=25, lows=bytes(7)) + states),
        "low_bits_cut": (CORRUPT, "| ceil(C · s / 8) | low bits |", header(s=24, lows=bytes(5), down=b"")),
        "low_bits_padding": (CORRUPT, zero, crafted([5, 34], lows=bytes([5 | 2 << 3 | 64]))),
        "chance_0": (CORRUPT, chance, header(z=0) + states),
        "single_from_257": (CORRUPT, single, header(p=257) + states), "single_from_huge": (CORRUPT, single, header(p=2**64 - 1) + states),
        "single_from_cut": (CORRUPT, single, block[:5]), "single_from_missing": (CORRUPT, single, block[:4]),
        "single_from_overlong_varint": (CORRUPT, "in the shortest form: a last byte of zero after the first MUST be rejected", header(p=b"\x80\x81\0") + states),
        "single_from_below_a_length": (CORRUPT, none, header(p=127) + states),
        "single_from_above_what_has_none": (CORRUPT, out_of_words, header(p=128) + crafted([5, 34], p=0)[-16:]),
        "signs_cut": (CORRUPT, signs, header(c=64, s=0, lows=b"", down=bytes(7))), "signs_missing": (CORRUPT, signs, block[:7]),
        "signs_padding": (CORRUPT, zero_too, header(down=b"\6") + states), "signs_padding_highest": (CORRUPT, zero_too, header(down=b"\x82") + states),
        "signs_other": (CORRUPT, "After: the state digest is the result's.", header(down=b"\1") + states),
        "position_64_of_64": (CORRUPT, past, crafted([64])),
        "position_later_64_of_64": (CORRUPT, past, crafted([5, 58])),
        "position_by_low_bits": (CORRUPT, past, crafted([2**24 - 1], s=24)),
        "position_after_escape": (CORRUPT, past, crafted([64], s=0, z=200)),
        "position_after_endless_escapes": (CORRUPT, past, crafted([50_000], s=0, z=1)),
        "position_far_away": (CORRUPT, past, crafted([2**24 * 300], s=24, z=1)),
        "step_too_long": (CORRUPT, long, crafted([5], e=16)), "step_far_too_long": (CORRUPT, long, crafted([5], e=100)),
        "state_too_small": (CORRUPT, stream, head + struct.pack("<2Q", 2**31 - 1, odd)),
        "state_too_large": (CORRUPT, stream, head + struct.pack("<2Q", even, 2**63)),
        "stream_without_states": (CORRUPT, "| u64 | value state |", block[:-1]),
        "stream_with_part_of_a_word": (CORRUPT, "| u32 … | words |", block + b"\0\0"),
        "stream_with_a_word_left": (CORRUPT, ends, block + bytes(4)),
        "end_of_even_state": (CORRUPT, ends, crafted([5, 34], ends=[(1 << 31) + 1, 1 << 31])),
        "end_of_odd_state": (CORRUPT, ends, crafted([5, 34], ends=[1 << 31, (1 << 31) + 1])),
        "raw_too_long": (CORRUPT, "the new bytes of all elements of the block", b"\2" + NEW + b"\0"),
        "other_values": (CORRUPT, "After: the state digest is the result's.", crafted([5, 34])),
    }
    out = {name: (kind, quote, example_file(made)) for name, (kind, quote, made) in rows.items()}
    changed, many = int(np.count_nonzero(y != np.frombuffer(OLD, "<u2"))), {"w": tensor("BF16", [64], y)}
    for name, (quote, made) in {"runs_out_of_words": (out_of_words, wordy[:-4]), "word_twice": (ends, wordy + wordy[-4:])}.items():
        out["stream_" + name] = (CORRUPT, quote, example_file(made, changed, many))
    out["block_in_compact"] = (UNSUPPORTED, kinds, compact(EXAMPLE_OLD, EXAMPLE_NEW, directory_of((0, b"w", 14, [64], 2, [len(block)])), block))
    out["changed_not_what_blocks_hold"] = (CORRUPT, "| varint changed elements |", example_file(block, 3))
    return {f"swift_{name}": row for name, row in out.items()}
