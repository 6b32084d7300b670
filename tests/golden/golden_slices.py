"""Sliced deltas byte by byte: good ones, cut in every way, and one for each rule that can be broken."""
import hashlib
import struct
import zlib

import numpy as np

from golden_craft import CORRUPT, keys_for, number, ref, sealed
from golden_states import tensor
from golden_swift import swift_block

SHAPES = {"down": [20, 48], "norm": [7], "same": [4], "up": [40, 32]}
# By name: log2 of the elements of a band, strips.
CUTS = {"down": (7, 3), "norm": (6, 1), "up": (8, 1)}


def slice_states():
    """Old and new: four tensors of BF16, one of which stays as it is."""
    draw = np.random.default_rng(17)
    old, new = {}, {}
    for name, shape in SHAPES.items():
        bits = (0x3C00 + draw.integers(0, 0x400, shape)).astype("<u2")
        moved = bits + (draw.random(shape) < 0.06) * draw.integers(1, 4, shape) * (name != "same")
        old[name], new[name] = (tensor("BF16", shape, x.astype("<u2")) for x in (bits, moved))
    new["norm"] = tensor("BF16", SHAPES["norm"], np.frombuffer(old["norm"][2], "<u2") + np.array([0, 1, 0, 0, 0, 0, 2], "<u2"))
    return old, new


OLD_SLICES, NEW_SLICES = slice_states()


def tile_of(name, elements, old, new):
    before, after = (np.frombuffer(state[name][2], "<u2") for state in (old, new))
    if (before[elements] == after[elements]).all():
        return b""
    one = before.copy()
    one[elements] = after[elements]
    words = np.unique(np.flatnonzero(one != before) * 2 // 8)
    sums = [next(ref.tensor_sums(name, *old[name][:2], x.tobytes(), words)) for x in (before, one)]
    return struct.pack("<2Q", *sums) + swift_block("BF16", before[elements].tobytes(), after[elements].tobytes(), 2, 60)


def sliced_file(old=OLD_SLICES, new=NEW_SLICES, cuts=CUTS, slices=4, log2=9, keys=None, tile=None, size=None, half=None, row=None,
                blocks_first=False, tail=b"", tiles_of=tile_of):
    """Each of tile, size, half and row may replace what would be written; they are given where it is written."""
    directory, segments, previous = number(log2) + number(len(cuts)), {}, ""
    for name, (band, strips) in cuts.items():
        shape = old[name][1]
        elements = len(old[name][2]) // 2
        tiles = []
        for index, (inside, segment) in enumerate(ref.cut("BF16", shape, elements, 1 << band, strips, slices, 1 << 20)):
            coded = tiles_of(name, inside, old, new)
            if tile:
                coded = tile(name, index, coded)
            tiles.append(coded)
            segments.setdefault(segment, []).append(coded)
        shared = next((i for i, (x, y) in enumerate(zip(previous, name)) if x != y), min(len(previous), len(name)))
        changed = int(np.count_nonzero(np.frombuffer(old[name][2], "<u2") != np.frombuffer(new[name][2], "<u2")))
        directory += number(shared) + number(len(name) - shared) + name[shared:].encode() + number(14) + number(len(shape))
        directory += b"".join(map(number, shape)) + number(changed)
        directory += row(name) if row and row(name) is not None else number(band) + number(strips)
        directory += b"".join(number(size(name, i, len(t)) if size else len(t)) for i, t in enumerate(tiles))
        hashes = [hashlib.sha256(t).digest()[:16] if t else b"" for t in tiles]
        directory += b"".join(half(name, i, h) if half else h for i, h in enumerate(hashes))
        previous = name
    directory += tail
    blocks = b"".join(b"".join(segments[segment]) for segment in sorted(segments))
    packed = zlib.compress(directory, 9)
    tensors = {"wisp.directory": ("U8", [len(packed)], packed), "wisp.blocks": ("U8", [len(blocks)], blocks)}
    if blocks_first:
        tensors = dict(reversed(tensors.items()))
    metadata = keys_for(old, new, directory) | {"codec": "swift", "wisp_slices": str(slices)} | (keys or {})
    return sealed(tensors, metadata)


def slices_by_hand():
    """name -> (base, old, new, bytes)"""
    made = {
        "slices": sliced_file(),
        "slices_one": sliced_file(slices=1),
        "slices_many": sliced_file(slices=64),
        "slices_of_words": sliced_file(cuts={"down": (6, 12), "norm": (6, 1), "up": (6, 8)}),
        "slices_bands_alone": sliced_file(cuts={"down": (9, 1), "norm": (9, 1), "up": (6, 1)}),
        "slices_whole": sliced_file(cuts={"down": (20, 1), "norm": (20, 1), "up": (20, 1)}, log2=20),
    }
    return {name: ("slices", OLD_SLICES, NEW_SLICES, data) for name, data in made.items()}


def bad_slices():
    """name -> (kind, base, quote, bytes)"""
    def at(place, value):
        return lambda name, index, found: value(found) if (name, index) == place else found

    first = ("down", 0)
    bands, strips = "| varint log2 band elements n | 6 to L |", "| varint strips C | at least 1; if above 1,"
    tiles = "| varint tile bytes… | one per tile"
    hashes = "Who reads the file whole MUST hold every tile against its hash"
    keys = "| `wisp_slices` | only of a **sliced** delta: 1 to 64; the codec MUST be `swift` |"
    last_word = {"norm": (6, 1)}
    rows = {
        "directory_last": (CORRUPT, "In a sliced delta the directory MUST be the first of the two", sliced_file(blocks_first=True)),
        "none": (CORRUPT, keys, sliced_file(keys={"wisp_slices": "0"})), "65": (CORRUPT, keys, sliced_file(keys={"wisp_slices": "65"})),
        "no_number": (CORRUPT, keys, sliced_file(keys={"wisp_slices": "many"})),
        "of_compact": (CORRUPT, keys, sliced_file(keys={"codec": "compact"})),
        "other_number": (CORRUPT, hashes, sliced_file(keys={"wisp_slices": "2"})),
        "band_5": (CORRUPT, bands, sliced_file(row=lambda n: number(5) + number(3) if n == "down" else None)),
        "band_above_block": (CORRUPT, bands, sliced_file(row=lambda n: number(10) + number(1) if n == "up" else None)),
        "band_huge": (CORRUPT, bands, sliced_file(row=lambda n: number(2**63) + number(1) if n == "up" else None)),
        "strips_0": (CORRUPT, strips, sliced_file(row=lambda n: number(7) + number(0) if n == "down" else None)),
        "strips_not_even": (CORRUPT, strips, sliced_file(row=lambda n: number(7) + number(5) if n == "down" else None)),
        "strips_inside_words": (CORRUPT, strips, sliced_file(row=lambda n: number(7) + number(24) if n == "down" else None)),
        "strips_of_a_vector": (CORRUPT, strips, sliced_file(row=lambda n: number(6) + number(7) if n == "norm" else None)),
        "strips_huge": (CORRUPT, strips, sliced_file(row=lambda n: number(7) + number(2**63) if n == "down" else None)),
        "tile_of_16_bytes": (CORRUPT, tiles, sliced_file(cuts=last_word, old={"norm": OLD_SLICES["norm"]}, new={"norm": NEW_SLICES["norm"]},
                                                        tile=lambda n, i, t: t[:16])),
        "tile_one_byte_more": (CORRUPT, "MUST add up to the length of `wisp.blocks`", sliced_file(size=at(first, lambda s: s + 1))),
        "tiles_cut": (CORRUPT, "| 16 bytes… | for each tile that has bytes", sliced_file(cuts=last_word, old={"norm": OLD_SLICES["norm"]},
                                                                                          new={"norm": NEW_SLICES["norm"]}, half=lambda n, i, h: h[:15])),
        "hash_other": (CORRUPT, hashes, sliced_file(half=at(first, lambda h: bytes([h[0] ^ 1]) + h[1:]))),
        "bytes_follow": (CORRUPT, "No bytes may follow.", sliced_file(tail=b"\0")),
    }
    out = {name: (kind, "slices", quote, data) for name, (kind, quote, data) in rows.items()}
    for name in ("tile_of_16_bytes", "tiles_cut"):
        out[name] = (out[name][0], "slices_norm", *out[name][2:])
    return {f"slices_{name}": row for name, row in out.items()}
