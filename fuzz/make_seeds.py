#!/usr/bin/env python3
"""Writes the seeds of fuzz_swift_block and fuzz_tiles anew, after a change of the format or of what those read.

    build/venv/bin/python fuzz/make_seeds.py

Blocks come from the golden files. A name that begins with bad_ says that what it holds is refused; fuzz_replay holds
every seed against its name.
"""
import json
import struct
import sys
import zlib
from pathlib import Path

import numpy as np

CORPUS = Path(__file__).resolve().parent / "corpus"
sys.path.insert(0, str(CORPUS.parent.parent / "tests/golden"))
from golden_craft import HERE, ref, split_file  # noqa: E402
from golden_slices import tile_of  # noqa: E402
from golden_states import tensor  # noqa: E402
from golden_swift import swift_block  # noqa: E402

RAW, HEADED, LISTED = range(3)                              # what the first byte says in fuzz_swift_block
MOST_GIVEN = 255                                            # bytes of an old block
# Golden files that are bad although their blocks are sound.
SOUND = ("block_in_compact", "changed_not_what_blocks_hold", "other_values", "signs_other")


def u16(*numbers):
    return struct.pack(f"<{len(numbers)}H", *numbers)


def over(form, dtype, old, elements=None):
    """The first bytes of a seed of fuzz_swift_block; `old` may be the beginning of the old block."""
    code, width = ref.DTYPES[dtype][0], ref.DTYPES[dtype][2]
    elements = len(old) // width if elements is None else elements
    return bytes([form]) + u16(code, elements - 1) + bytes([len(old)]) + old


def golden_blocks(file, base):
    """(dtype, old block, coded block) of those of kind 4 whose old blocks are short."""
    _, tensors = split_file(file.read_bytes())
    _, old = split_file(base.read_bytes())
    coded, at = tensors["wisp.blocks"][2], 0
    for name, dtype, _, _, blocks in ref.read_directory(zlib.decompress(tensors["wisp.directory"][2]), len(coded)):
        width = ref.DTYPES[dtype][2]
        for elements, _, size, _ in blocks:
            block, at = coded[at:at + size], at + size
            before = old[name][2][elements.start * width:elements.stop * width]
            if block[:1] == b"\4" and len(before) <= MOST_GIVEN:
                yield dtype, before, block


def golden_seeds():
    manifest = json.loads((HERE / "manifest.json").read_text())
    for part in ("good", "bad"):
        for path, entry in manifest[part].items():
            name = Path(path).stem
            if not name.startswith("swift_") or name.removeprefix("swift_") in SOUND:
                continue
            seen = {}
            for dtype, old, block in golden_blocks(HERE / path, HERE / entry["base"]):
                seen.setdefault(dtype, over(RAW, dtype, old) + block[1:])
            for dtype, seed in seen.items():
                yield ("bad_" if part == "bad" else "") + name.removeprefix("swift_") + (f"_{dtype.lower()}" if len(seen) > 1 else ""), seed


def made_seeds(draw):
    """Far steps, and bytes that all change."""
    for name, dtype, count, share in (("bytes_dense", "U8", 64, 1), ("f64_far_steps", "F64", 24, 0.5), ("u32_extremes", "U32", 60, 0.3)):
        width = ref.DTYPES[dtype][2]
        old = draw.integers(0, 2**(8 * width), count, dtype=ref.WORD[width][1:])
        new = np.where(draw.random(count) < share, ~old, old)
        yield name, over(RAW, dtype, old.tobytes()) + swift_block(dtype, old.tobytes(), new.tobytes(), 1, 100)[1:]


def headed_seeds(draw):
    """Sound headers before streams that nobody wrote."""
    for i, single_from in enumerate((0, 256, 1, 127, 126, 200)):
        shape = u16(19 + i, 3 * i, 40 + 30 * i, single_from)
        packed = b"".join(bytes([9]) + draw.bytes(9) for _ in range(2))
        yield f"bad_headed_{i}", over(HEADED, ("F32", "BF16")[i % 2], draw.bytes(200), 1000) + shape + packed + draw.bytes(16 + 120)


def listed(changes):
    """(gap, down, bits of a length above one or none)"""
    return b"".join(bytes([gap, 128 * down + (2 * ((64 - bits) % 64) + 1 if bits else 0)]) + (struct.pack("<Q", 2**64 - 1 - 7**gap) if bits else b"")
                    for gap, down, bits in changes)


def listed_seeds(draw):
    ones = [(3 * i % 17, i % 3 == 0, 0) for i in range(37)]
    mixed = [(gap, down, (0, 0, 1, 0, 4, 13)[i % 6]) for i, (gap, down, _) in enumerate(ones)]
    # How far single_from lies above the smallest that will do, the shape of gaps, and which byte is changed by how much.
    rows = {
        "listed_ones": ("BF16", ones, 0, 3, 90, 0, 0), "listed_ones_256": ("BF16", ones, 256, 3, 90, 0, 0),
        "listed_minimum": ("BF16", mixed, 0, 3, 90, 0, 0), "listed_above": ("BF16", mixed, 7, 3, 90, 0, 0),
        "listed_256": ("BF16", mixed, 256, 3, 90, 0, 0), "listed_bytes": ("U8", mixed, 0, 2, 254, 0, 0),
        "listed_f32": ("F32", mixed, 30, 3, 90, 0, 0), "listed_f64": ("F64", mixed, 0, 0, 90, 0, 0),
        "bad_listed_changed": ("BF16", mixed, 0, 3, 90, 30, 0x10),
    }
    for name, (dtype, changes, *choice) in rows.items():
        yield name, over(LISTED, dtype, draw.bytes(240), 600) + struct.pack("<4HB", *choice) + listed(changes)


# ---- Tiles ------------------------------------------------------------------------------------------------
NAME, ROWS, COLUMNS = "w.down_proj", 24, 48
ELEMENTS = ROWS * COLUMNS


def tiles_seed(new, band, strips, held=0, p=None, spoil=lambda index, tile: tile, coded=None, tail=b""):
    """A tensor of zeros that becomes `new`, as fuzz_tiles cuts it; the host holds four elements from `held` on."""
    old, state = (({NAME: tensor("BF16", [ROWS, COLUMNS], x)}) for x in (np.zeros(ELEMENTS, "<u2"), new))
    slices = 4
    seed = u16(held, 3, slices - 1, band - 6, strips.bit_length() - 1)
    for index, (inside, _) in enumerate(ref.cut("BF16", [ROWS, COLUMNS], ELEMENTS, 1 << band, strips, slices, 1 << 20)):
        tile = tile_of(NAME, inside, old, state)
        if tile:
            after = np.asarray(new, "<u2")[inside].tobytes()
            block = coded(after) if coded else swift_block("BF16", bytes(len(after)), after, 2, 60, p=p)
            tile = spoil(index, tile[:16] + block)
        assert len(tile) <= 255
        seed += bytes([len(tile)]) + tile
    return seed + tail


def tile_seeds(draw):
    ones = np.zeros(ELEMENTS, "<u2")
    ones[::23] = 0x8000 * draw.integers(0, 2, len(ones[::23])) + 1  # either sign
    far = np.where(draw.random(ELEMENTS) < 0.04, draw.integers(1, 2**15, ELEMENTS), 0).astype("<u2")
    up = np.minimum(ones, 1)

    def flipped(place):                                     # of the first tile, which the host needs
        return lambda index, tile: tile[:place] + bytes([tile[place] ^ 1]) + tile[place + 1:] if index == 0 else tile

    def padded(index, tile):
        count = tile[17]
        last = 21 + (2 * count + 7) // 8 + count // 8       # of the signs
        return tile[:last] + bytes([tile[last] | 0x80]) + tile[last + 1:] if count % 8 else tile

    return {
        "empty": b"", "bands": tiles_seed(far, 7, 1, held=200), "strips": tiles_seed(far, 7, 2), "more_strips": tiles_seed(ones, 9, 4, held=40),
        "raw": tiles_seed(far, 6, 1, coded=lambda after: b"\2" + after), "words": tiles_seed(far, 6, 4, held=77),
        "single_from_0": tiles_seed(up, 7, 2, p=0), "single_from_256": tiles_seed(far, 7, 1, p=256),
        "single_from_above": tiles_seed(far, 8, 2, p=9), "and_a_directory": tiles_seed(up, 9, 1, tail=bytes([9, 1, 0, 1]) + b"w" + bytes([14, 1, 64, 1])),
        "bad_sums_before": tiles_seed(far, 7, 2, spoil=flipped(0)), "bad_sums_after": tiles_seed(far, 7, 2, spoil=flipped(8)),
        "bad_signs": tiles_seed(far, 7, 2, spoil=padded),
    }


def main():
    draw = np.random.default_rng(12)
    seeds = {"fuzz_swift_block": dict(part for make in (made_seeds, headed_seeds, listed_seeds) for part in make(draw)) | dict(golden_seeds()),
             "fuzz_tiles": tile_seeds(draw)}
    for target, named in seeds.items():
        folder = CORPUS / target
        for path in folder.iterdir():
            if not path.name.removeprefix("bad_").startswith("found"):
                path.unlink()
        for name, seed in named.items():
            (folder / name).write_bytes(seed)
        print(f"{target}: {len(named)}")


if __name__ == "__main__":
    main()
