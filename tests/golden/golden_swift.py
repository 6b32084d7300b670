"""Swift blocks byte by byte: good ones that wisp itself never writes, and one for each rule that can be broken."""
import struct

import numpy as np

from golden_craft import compact, CORRUPT, directory_of, number, ref, sparse_block, UNSUPPORTED, Writer
from golden_states import EXAMPLE_NEW, EXAMPLE_OLD, NEW, OLD, tensor

# The states of good files that are written once more, by `wisp diff --codec swift`.
AGAIN = ("example", "all_dtypes", "bf16_rl", "block_raw", "block_split", "block_split_f32", "many_tensors", "empty_delta",
         "nan_zero_infinity", "tiny_tensors", "f64_wide_exponents", "long_steps", "far_positions", "dense_steps", "gap_u32", "block_steps")


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

    def put(self, writer, k, x, step):
        magnitude, e = abs(step), abs(step).bit_length() - 1
        if e == 0:
            one, half = self.first[x].one, (65536 - self.first[x].one) // 2
            writer.put(k % 2, 16, *((one, one + half) if step > 0 else (one + half, 65536)))
            self.first[x].learn(False)
            return
        for i in range(e + 1):
            self.put_bit(writer, k, self.longer[x + i] if i else self.first[x], i < e)
        self.put_bit(writer, k, self.second[x + e], bool(magnitude >> (e - 1) & 1))
        self.plain(writer, k, magnitude % (1 << (e - 1)), e - 1)
        self.plain(writer, k, int(step < 0), 1)

    @staticmethod
    def plain(writer, k, value, count):
        while count > 0:
            bits = min(count, 16)
            writer.put(k % 2, bits, value % (1 << bits), value % (1 << bits) + 1)
            value, count = value >> bits, count - bits


def swift_header(count, s, z, low):
    return b"\4" + number(count) + bytes([s, z]) + low


def low_bits(gaps, s):
    joined = sum((gap % (1 << s)) << (k * s) for k, gap in enumerate(gaps))
    return joined.to_bytes((len(gaps) * s + 7) // 8, "little")


def swift_block(dtype, old, new, s, z):
    old, new = (np.frombuffer(x, ref.WORD[ref.DTYPES[dtype][2]]) for x in (old, new))
    width, is_float, writer, steps = 8 * old.itemsize, ref.DTYPES[dtype][4], Writer(), Steps()
    changed = np.flatnonzero(old != new)
    gaps = (np.diff(changed, prepend=-1) - 1).tolist()
    for k, gap in enumerate(gaps):
        put_gap(writer, k, gap, s, z)
    for k, (i, x) in enumerate(zip(changed.tolist(), ref.exponents(dtype, old[changed]).tolist())):
        step = (ref.order(int(new[i]), width, is_float) - ref.order(int(old[i]), width, is_float)) % (1 << width)
        steps.put(writer, k, x, step - ((step >> (width - 1)) << width))
    return swift_header(len(gaps), s, z, low_bits(gaps, s)) + writer.finish()


def swift(old, new, directory, blocks):
    return compact(old, new, directory, blocks, {"codec": "swift"})


def example_file(block, changed=2, new=EXAMPLE_NEW):
    return swift(EXAMPLE_OLD, new, directory_of((0, b"w", 14, [64], changed, [len(block)])), block)


# ---- Good files by hand -----------------------------------------------------------------------------------
def swift_by_hand(made):
    """name -> (base, old, new, bytes)"""
    out = {f"swift_{name}": ("example", EXAMPLE_OLD, EXAMPLE_NEW, example_file(swift_block("BF16", OLD, NEW, s, z)))
           for name, (s, z) in {"no_low_bits": (0, 8), "most_low_bits": (24, 255), "smallest_chance": (0, 1), "largest_chance": (1, 255)}.items()}
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
    block = swift_block("BF16", OLD, NEW, 3, 40)            # gaps 5 and 34
    head, states = block[:5], block[5:]
    assert len(states) == 16
    even, odd = struct.unpack("<2Q", states)
    count = "| varint | change count C | 1 up to the number of elements |"
    past = "A position that is not below the number of elements MUST be rejected."
    ends = "After the last symbol both states MUST be exactly 2^31 and no word may be left"
    out_of_words = "a stream that runs out of words MUST be rejected"
    stream = "Both states MUST be at least 2^31 and below 2^63."
    long = "If e reaches n, the block MUST be rejected here too."
    kinds = "So MUST kind 4 in a file of codec `compact`, and kind 1 in one of codec `swift`"
    low, chance = "| u8 | low bits s | at most 24 |", "| u8 | chance of zero z | 1 to 255 |"
    zero = "unused high bits of the last byte MUST be zero"

    def crafted(gaps, s=3, z=40, e=0, low=None, **more):
        writer, steps = Writer(), Steps()
        for k, gap in enumerate(gaps):
            put_gap(writer, k, gap, s, z)
        for k in range(len(gaps)):
            if e == 0:
                steps.put(writer, k, 127, 1)
            for i in range(e):
                steps.put_bit(writer, k, steps.longer[127 + i] if i else steps.first[127], True)
        return swift_header(len(gaps), s, z, low_bits(gaps, s) if low is None else low) + writer.finish(**more)

    y = np.frombuffer(OLD, "<u2").copy()
    y[::3] += 777                                           # far steps need words, so that they can be taken away
    wordy = swift_block("BF16", OLD, y.tobytes(), 1, 100)
    assert len(wordy) > 40
    rows = {
        "kind_sparse": (UNSUPPORTED, kinds, sparse_block("BF16", OLD, NEW, 126, 19, [0, 100, 0])),
        "kind_6": (UNSUPPORTED, "Other kinds MUST be refused as unsupported.", b"\6" + block[1:]),
        "kind_alone": (CORRUPT, count, b"\4"), "header_cut": (CORRUPT, chance, block[:3]),
        "count_0": (CORRUPT, count, b"\4\0" + bytes([3, 40]) + struct.pack("<2Q", 1 << 31, 1 << 31)),
        "count_65_of_64": (CORRUPT, count, swift_header(65, 0, 40, b"") + states),
        "count_huge": (CORRUPT, count, swift_header(2**64 - 1, 3, 40, head[4:]) + states),
        "count_one_less": (CORRUPT, ends, swift_header(1, 3, 40, bytes([head[4] & 7])) + states),
        "count_one_more": (CORRUPT, out_of_words, swift_header(3, 3, 40, head[4:] + b"\0") + states),
        "low_bits_25": (CORRUPT, low, swift_header(2, 25, 40, bytes(7)) + states),
        "low_bits_cut": (CORRUPT, "| ceil(C · s / 8) | low bits |", swift_header(2, 24, 40, bytes(5))),
        "low_bits_padding": (CORRUPT, zero, crafted([5, 34], low=bytes([5 | 2 << 3 | 64]))),
        "chance_0": (CORRUPT, chance, swift_header(2, 3, 0, head[4:]) + states),
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
