#!/usr/bin/env python3
"""A second, independent reader of wisp deltas, written from doc/format.md alone.

Simple over fast: it is there to be read next to the specification, and to hold it to its word. Its parts are numbered
as the specification's. It needs Python 3.10 and numpy, and shares no code with wisp.

    python doc/reference_decoder.py BASE DELTA [-o OUT]     # proves a delta against its base and prints digests
"""
import argparse, hashlib, json, math, re, struct, sys, zlib
from pathlib import Path
import numpy as np

class Error(Exception): kind = ""                       # the word that `wisp --json` has for it
class Invalid(Error): kind = "invalid"                  # not a delta, or one for other tensors
class Corrupt(Error): kind = "corrupt"                  # breaks a MUST
class Unsupported(Error): kind = "unsupported"          # may be good, but needs another reader
class WrongBase(Error): kind = "wrong_base"             # good, but made from another state

def need(condition, what, error=Corrupt):
    if not condition:
        raise error(what)

# ---- 1. Conventions -------------------------------------------------------------------------------------------------
# name: code, bits in the container, bytes of an element as positions count it, (exponent shift, bits), order is float
DTYPES = {
    "BOOL": (0, 8, 1, None, False), "F4": (1, 4, 1, None, False), "F6_E2M3": (2, 6, 1, None, False),
    "F6_E3M2": (3, 6, 1, None, False), "U8": (4, 8, 1, None, False), "I8": (5, 8, 1, None, False),
    "F8_E5M2": (6, 8, 1, (2, 5), True), "F8_E4M3": (7, 8, 1, (3, 4), True), "F8_E8M0": (8, 8, 1, (0, 8), False),
    "F8_E4M3FNUZ": (9, 8, 1, (3, 4), True), "F8_E5M2FNUZ": (10, 8, 1, (2, 5), True),
    "I16": (11, 16, 2, None, False), "U16": (12, 16, 2, None, False), "F16": (13, 16, 2, (10, 5), True),
    "BF16": (14, 16, 2, (7, 8), True), "I32": (15, 32, 4, None, False), "U32": (16, 32, 4, None, False),
    "F32": (17, 32, 4, (23, 8), True), "C64": (18, 64, 8, (23, 8), False), "F64": (19, 64, 8, (52, 11), True),
    "I64": (20, 64, 8, None, False), "U64": (21, 64, 8, None, False)}
BY_CODE, WORD = {row[0]: name for name, row in DTYPES.items()}, {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}

class Bytes:
    """A cursor over bytes that never reads past their end."""
    def __init__(self, data): self.data, self.at = data, 0
    def u8(self): return self.take(1)[0]
    def take(self, count):
        need(count <= len(self.data) - self.at, "ends too early")
        self.at += count
        return self.data[self.at - count:self.at]
    def varint(self):
        value = 0
        for index in range(10):
            byte = self.u8()
            value |= (byte & 127) << (7 * index)
            if byte < 128:
                need(value < 1 << 64 and (byte != 0 or index == 0), "varint is not below 2^64 or not in shortest form")
                return value
        raise Corrupt("varint is longer than ten bytes")

def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)
def byte_length(dtype, shape):
    bits = DTYPES[dtype][1] * math.prod(shape)
    need(bits < 1 << 64 and bits % 8 == 0, "shape is too large, or does not fill whole bytes")
    return bits // 8
def exponents(dtype, bits):
    shift, width = DTYPES[dtype][3] or (0, 0)
    value = (bits.astype(np.uint64) >> np.uint64(shift)).astype(np.int64) & ((1 << width) - 1)
    return np.minimum(np.maximum(value, 896) - 896, 255) if dtype == "F64" else value
def largest_exponent(dtype):
    return min((1 << DTYPES[dtype][3][1]) - 1, 255) if DTYPES[dtype][3] else 0

# ---- 2. Container ---------------------------------------------------------------------------------------------------
def unique(pairs):
    need(len(dict(pairs)) == len(pairs), "a key occurs twice")
    return dict(pairs)
def whole(text):
    need(text.isdigit(), f"{text} is negative or not whole")
    return int(text)
def parse_json(data, number=whole):
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_int=number, parse_float=number,
                           parse_constant=whole)
        json.dumps(value, ensure_ascii=False).encode("utf-8")       # refuses halves of surrogate pairs
        return value
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"not JSON: {error}") from None
def is_strings(value):
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
def is_numbers(value):
    return isinstance(value, list) and all(type(number) is int and number < 1 << 64 for number in value)

class File:
    """A safetensors file: `metadata`, and `tensors` as name -> (dtype, shape, bytes)."""
    def __init__(self, path):
        self.raw = raw = Path(path).read_bytes()
        size = int.from_bytes(raw[:8], "little")
        need(len(raw) >= 8 and size <= min(100_000_000, len(raw) - 8), "header is too long, or cut")
        self.header, self.data = raw[8:8 + size], raw[8 + size:]
        need(self.header[:1] == b"{", "header does not begin with {")
        entries = parse_json(self.header)
        self.metadata = entries.pop("__metadata__", {})
        need(is_strings(self.metadata) and len(entries) <= 1_000_000, "metadata not of strings, or too many tensors")
        spans, self.tensors, self.offsets = [], {}, {}
        for name, entry in entries.items():
            need(isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}, f"{name}: fields")
            dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
            need(isinstance(dtype, str), f"{name}: dtype is not a string")
            need(dtype in DTYPES, f"{name}: unknown dtype", Unsupported)
            need(is_numbers(shape) and is_numbers(offsets) and len(offsets) == 2, f"{name}: not whole numbers")
            need(len(name.encode()) <= 4096 and len(shape) <= 64, f"{name}: name or rank too large")       # section 14
            need(offsets[1] - offsets[0] == byte_length(dtype, shape), f"{name}: not the length of dtype and shape")
            spans.append((*offsets, name))
            self.tensors[name] = (dtype, shape, self.data[offsets[0]:offsets[1]])
            self.offsets[name] = offsets[0]
        end = 0
        for begin, stop, name in sorted(spans):
            need(begin == end, f"{name}: overlap or hole")
            end = stop
        need(end == len(self.data), "file is longer or shorter than its tensors")

def read_checkpoint(path):
    """A checkpoint, a file or a sharded folder: name -> (dtype, shape, bytes)."""
    path, tensors = Path(path), {}
    if not path.is_dir():
        return File(path).tensors
    weight_map = parse_json((path / "model.safetensors.index.json").read_bytes(), number=float).get("weight_map")
    need(is_strings(weight_map), "weight_map is not an object of strings")
    for shard in sorted(set(weight_map.values())):
        need(re.fullmatch(r"[^./\\][^/\\]*\.safetensors", shard), f"not a bare file name: {shard}")
        found = File(path / shard).tensors
        need(set(found) == {name for name, where in weight_map.items() if where == shard}, f"{shard}: other tensors")
        tensors |= found
    return tensors

# ---- 3. State digest ------------------------------------------------------------------------------------------------
def identity(name, dtype, shape):
    text = name.encode()
    return varint(len(text)) + text + varint(DTYPES[dtype][0]) + varint(len(shape)) + b"".join(map(varint, shape))
def tensor_sums(name, dtype, shape, data, only=None):
    """What the tensor adds to a and b; `only`: the numbers of the words to take, without it all."""
    seed = hashlib.sha256(b"wisp tensor 1" + identity(name, dtype, shape)).digest()
    w = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    i = np.arange(len(w), dtype=np.uint64) if only is None else only.astype(np.uint64)
    for at, factor in ((0, 0x9E3779B97F4A7C15), (8, 0xC2B2AE3D27D4EB4F)):
        x = w[i] ^ (i * np.uint64(factor) + np.frombuffer(seed[at:at + 8], "<u8"))      # arrays wrap mod 2^64
        fold = (x & np.uint64(0xFFFFFFFF)) * (x >> np.uint64(32)) + w[i]
        yield int(fold.sum(dtype=np.uint64))
def hex_digest(sums):
    return "".join(f"{sum(column) % 2**64:016x}" for column in zip((0, 0), *sums))
def state_digest(state):
    return hex_digest(tensor_sums(name, *tensor) for name, tensor in state.items())
def touched_digest(old, new):
    """`old` as a state, `new` as name -> bytes."""
    def words(name, dtype, data):
        x, y = (np.frombuffer(bits, WORD[DTYPES[dtype][2]]) for bits in (data, new[name]))
        return np.unique(np.flatnonzero(x != y) * x.itemsize // 8)
    return hex_digest(tensor_sums(name, *tensor, words(name, tensor[0], tensor[2])) for name, tensor in old.items())

# ---- 4. Schema digest -----------------------------------------------------------------------------------------------
def schema_digest(state):
    identities = b"".join(identity(name, *state[name][:2]) for name in sorted(state, key=str.encode))
    return hashlib.sha256(b"wisp schema 1" + varint(len(state)) + identities).hexdigest()[:32]

# ---- 5. Delta file --------------------------------------------------------------------------------------------------
SEAL_LEAD, SEAL_AT = b'{"__metadata__":{"wisp_seal":"', 38
DIGESTS = ("wisp_base_digest", "wisp_result_digest", "wisp_touched_digest", "wisp_schema_digest")
def seal_of(raw):
    data_at = 8 + struct.unpack_from("<Q", raw)[0]
    head = raw[:SEAL_AT] + b"0" * 64 + raw[SEAL_AT + 64:data_at]
    return hashlib.sha256(b"wisp seal 1" + head + hashlib.sha256(raw[data_at:]).digest()).hexdigest()
def decimal(metadata, key):
    text = metadata.get(key, "")
    need(re.fullmatch("[0-9]+", text) and int(text) < 1 << 64, f"{key} is missing or not decimal")
    return int(text)
def read_delta(path, base):
    """Applies a delta to `base`, name -> (dtype, shape, bytes), and returns name -> new bytes for all its tensors."""
    metadata = (file := File(path)).metadata
    blocks = metadata.get("format") == "wisp_delta"
    sealed = blocks or any(key.startswith("wisp_") for key in metadata)
    if blocks:
        for key, values in (("version", ("1",)), ("codec", ("compact", "swift"))):
            need(metadata.get(key) in values, f"unknown {key}", Unsupported if key in metadata else Corrupt)
    if sealed:                                                                  # before anything else is used
        need(file.header.startswith(SEAL_LEAD), "the seal is not the first key")
        need(metadata["wisp_seal"] == seal_of(file.raw), "the seal does not fit")
        decimal(metadata, "step" if blocks else "model_version")
    opened = open_blocks(file) if blocks else open_trl(file)
    if sealed:                                                                  # What a reader proves. Before it writes
        for key in DIGESTS:
            need(re.fullmatch("[0-9a-f]{32}", metadata.get(key, "")), f"{key} is missing or not 32 digits")
        need(schema_digest(base) == metadata["wisp_schema_digest"], "base has other tensors", Invalid)
        need(state_digest(base) == metadata["wisp_base_digest"], "base has another state", WrongBase)
    changed = apply_blocks(*opened, base, metadata["codec"]) if blocks else apply_trl(opened, base)
    new = {name: tensor[2] for name, tensor in base.items()} | changed
    if sealed:                                                                  # and after
        need(touched_digest(base, new) == metadata["wisp_touched_digest"], "other values were touched", WrongBase)
        result = {name: (*tensor[:2], new[name]) for name, tensor in base.items()}
        need(state_digest(result) == metadata["wisp_result_digest"], "result is another state")
    return new

def open_blocks(file):
    both = {name: tensor[0] for name, tensor in file.tensors.items()}
    need(both == {"wisp.blocks": "U8", "wisp.directory": "U8"}, "not exactly the two tensors, both U8")
    blocks, packed = (file.tensors[name][2] for name in ("wisp.blocks", "wisp.directory"))
    size, slices = decimal(file.metadata, "wisp_directory_bytes"), 0
    if "wisp_slices" in file.metadata:
        slices = decimal(file.metadata, "wisp_slices")
        need(1 <= slices <= 64 and file.metadata["codec"] == "swift", "not 1 to 64 slices of the codec swift")
        need(file.offsets["wisp.directory"] == 0, "sliced, and the directory does not come first")
    need(size <= min(1_000_000_000, 1100 * len(packed)), "directory is too large")                         # section 14
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(packed, size + 1)
        need(len(text) == size and stream.eof and not stream.unused_data, "directory does not unpack to its size")
        return read_directory(text, len(blocks), slices), blocks
    except (zlib.error, UnicodeDecodeError) as error:
        raise Corrupt(f"directory: {error}") from None

# ---- 6. Directory ---------------------------------------------------------------------------------------------------
def read_directory(text, block_bytes, slices=0):
    """[(name, dtype, shape, changed elements, [(elements, segment, bytes, hash) of each block or tile])]"""
    at, tensors, previous = Bytes(text), [], b""
    log2, count = at.varint(), at.varint()
    need(6 <= log2 <= 24 and count <= 1_000_000, "log2 block elements is not 6 to 24, or too many tensors")
    for number in range(count):
        shared, added = at.varint(), at.varint()
        need(shared <= len(previous) and shared + added <= 4096, "name shares too much, or is too long")
        name = previous[:shared] + at.take(added)
        need(number == 0 or previous < name, "names do not ascend")
        previous, name = name, name.decode("utf-8")
        code, rank = at.varint(), at.varint()
        need(code in BY_CODE, "unknown dtype code", Unsupported)
        need(rank <= 64, "rank is above 64")
        dtype, shape = BY_CODE[code], [at.varint() for _ in range(rank)]
        elements, changed = byte_length(dtype, shape) // DTYPES[dtype][2], at.varint()
        need(1 <= changed <= elements <= len(text) << log2, "changed elements is not 1 to the element count, or cut")
        band, strips = (at.varint(), at.varint()) if slices else (log2, 1)
        need(6 <= band <= log2, "log2 band elements is not 6 to that of a block")
        tiles = list(cut(dtype, shape, elements, 1 << band, strips, slices, len(text)))
        sizes = [at.varint() for _ in tiles]
        need(not slices or all(size == 0 or size > 16 for size in sizes), "a tile without its sums")
        hashes = [at.take(16) if slices and size else b"" for size in sizes]
        tensors.append((name, dtype, shape, changed, [(*tile, *rest) for tile, *rest in zip(tiles, sizes, hashes)]))
    need(at.at == len(text), "bytes follow the directory")
    need(sum(tile[2] for row in tensors for tile in row[4]) == block_bytes, "block bytes do not add up to wisp.blocks")
    return tensors
def cut(dtype, shape, elements, band, strips, slices, most):
    """The tiles of a tensor by bands and strips: (its elements, its segment)."""
    if strips == 1:
        count = -(-elements // band)
        need(count <= most, "more tiles than the directory has bytes")
        for number in range(count):
            elsewhere = 1 + number * slices // count if slices and count > 1 else 0
            yield slice(number * band, min((number + 1) * band, elements)), elsewhere
        return
    columns, bits, width = (shape or [1])[-1], *DTYPES[dtype][1:3]
    need(len(shape) >= 2 and strips and bits >= 8 and columns % strips == 0 and columns // strips * width % 8 == 0,
         "strips that are not whole words")
    need(-(-elements // band) * strips <= most, "more tiles than the directory has bytes")
    for begin in range(0, elements, band):
        inside = np.arange(begin, min(begin + band, elements))
        for strip in range(strips):
            yield inside[inside % columns // (columns // strips) == strip], 1 + strip * slices // strips

def apply_blocks(directory, blocks, base, codec):
    new, at, coded = {}, Bytes(blocks), {}
    for segment in sorted({tile[1] for row in directory for tile in row[4]}):       # as the bytes lie in wisp.blocks
        for name, *_, tiles in directory:
            coded |= {(name, i): at.take(tile[2]) for i, tile in enumerate(tiles) if tile[1] == segment}
    for name, dtype, shape, changed, tiles in directory:
        need(name in base and base[name][:2] == (dtype, shape), f"{name}: not a tensor of the base", Invalid)
        old = np.frombuffer(base[name][2], WORD[DTYPES[dtype][2]])
        out = old.copy()
        for i, (elements, *_, half) in enumerate(tiles):
            block = coded[name, i]
            if half:
                need(hashlib.sha256(block).digest()[:16] == half, f"{name}: tile {i} is not what its hash says")
                block, sums = block[16:], struct.unpack_from("<2Q", block)
            out[elements] = read_block(dtype, old[elements], block, codec)
            if half:
                one = old.copy()
                one[elements] = out[elements]
                words = np.unique(np.flatnonzero(one != old) * old.itemsize // 8)
                found = [next(tensor_sums(name, dtype, shape, x.tobytes(), words)) for x in (old, one)]
                need(found[0] == sums[0], f"{name}: tile {i} finds other values", WrongBase)
                need(found[1] == sums[1], f"{name}: tile {i} leads to other values")
        need(np.count_nonzero(out != old) == changed, f"{name}: another number of elements changed")
        new[name] = out.tobytes()
    return new

# ---- 7. Blocks ------------------------------------------------------------------------------------------------------
def read_block(dtype, old, block, codec):
    if not block:
        return old
    kind, body = block[0], block[1:]
    need(kind in (2, 3, 4 if codec == "swift" else 1, 5), f"block of kind {kind}", Unsupported)
    if kind == 2:
        need(len(body) == old.nbytes, "raw block is not as long as its elements")
        return np.frombuffer(body, old.dtype)
    return {1: read_sparse, 3: read_split, 4: read_swift, 5: read_steps}[kind](dtype, old, body)
def weight(code):
    return code if code < 8 else (8 + code % 8) << (code // 8 - 1)
def read_codes(at, top):
    codes, half = [at.u8()], []                     # half: the high nibble of a byte begun
    def nibble():
        if not half:
            half.extend(divmod(at.u8(), 16))
        return half.pop()
    for _ in range(top):
        n = nibble()
        codes.append(max(codes[-1] - 8, 0) + n - 7 if n < 15 else nibble() * 16 + nibble())
        need(0 <= codes[-1] <= 103, "weight code is not 0 to 103")
    need(codes[0] <= 103 and half in ([], [0]), "weight code is not 0 to 103, or unused nibble is not zero")
    return codes
def read_sparse(dtype, old, body):
    at = Bytes(body)
    count, top, low, h = at.varint(), at.u8(), at.u8(), at.u8()
    need(1 <= count <= len(old), "change count is not 1 to the number of elements")
    need(top <= 15 and low + top <= largest_exponent(dtype), "too many classes, or beyond the largest exponent")
    need(3 <= h <= 24, "hazard shift is not 3 to 24")
    codes = read_codes(at, top)
    classes = np.minimum(np.maximum(exponents(dtype, old), low) - low, top)
    ends = np.cumsum(np.array([weight(code) for code in codes])[classes])               # S(i) + weight(i)
    stream = Rans(body[at.at:], 2)
    models = [([Adaptive() for _ in range(24)], [Adaptive() for _ in range(24)]) for _ in codes]
    new, origin, width, is_float = old.copy(), 0, 8 * old.itemsize, DTYPES[dtype][4]
    for _ in range(count):
        i, origin = read_position(stream, ends, origin, h)
        longer, second = models[classes[i]]
        step = read_step(stream, lambda k: longer[min(k, 23)], lambda k: second[min(k, 23)], width)
        new[i] = order((order(int(old[i]), width, is_float) + step) % (1 << width), width, is_float)
    stream.finish()
    return new

# ---- 8. rANS stream -------------------------------------------------------------------------------------------------
POSITION, VALUE = 0, 1
class Rans:
    def __init__(self, data, states, low=31, word=32):
        size, self.low, self.word = word // 8, 1 << low, word                       # a state is two words long
        need(len(data) >= 2 * size * states and len(data) % size == 0, "stream is not of whole states and words")
        self.state = np.frombuffer(data, f"<u{2 * size}", states).tolist()
        self.words = np.frombuffer(data, f"<u{size}")[2 * states:].tolist()[::-1]   # next one last
        need(all(self.low <= state < self.low << word for state in self.state), "state out of range")
    def slot(self, which, bits): return self.state[which] % (1 << bits)
    def take(self, which, bits, start, stop):
        state = (stop - start) * (self.state[which] >> bits) + self.slot(which, bits) - start
        if state < self.low:
            need(self.words, "stream runs out of words")
            state = (state << self.word) + self.words.pop()
        self.state[which] = state
    def plain(self, count, which):
        value = 0
        for done in range(0, count, 16):
            bits = min(count - done, 16)
            slot = self.slot(which, bits)
            self.take(which, bits, slot, slot + 1)
            value |= slot << done
        return value
    def finish(self):
        need(all(state == self.low for state in self.state) and not self.words, "does not end as it began, no word left")

# ---- 9. Positions ---------------------------------------------------------------------------------------------------
T = list(map(int, """0 126167990 237510851 335770580 422484487 499009241 566542100 626139639 678734282 725148892
    766109641 802257375 834157639 862309523 887153473 909078182 928426670 945501651 960570268 973868277
    985603728 995960227 1005099806 1013165455 1020283366 1026564901 1032108335 1037000399 1041317630
    1045127574 1048489837 1051457023 1054075556""".split()))
def F(d, h):
    j, r = d >> (h - 3), d % (1 << (h - 3))
    return T[32] if d == 4 << h else T[j] + ((r * (T[j + 1] - T[j])) >> (h - 3))
def read_position(stream, ends, origin, h):
    """The next position, and the origin after it."""
    while (slot := stream.slot(POSITION, 30)) >= T[32]:
        stream.take(POSITION, 30, T[32], 1 << 30)
        origin += 4 << h
    d, above = 0, 4 << h                            # F(d) <= slot < F(above)
    while above - d > 1:
        middle = (d + above) // 2
        d, above = (middle, above) if F(middle, h) <= slot else (d, middle)
    i = int(np.searchsorted(ends, origin + d, side="right"))
    need(i < len(ends), "position past the end")
    start, stop = int(ends[i - 1]) if i else 0, int(ends[i])
    stream.take(POSITION, 30, F(max(start - origin, 0), h), F(min(stop - origin, 4 << h), h))
    return i, stop

# ---- 10. Values -----------------------------------------------------------------------------------------------------
def order(bits, width, is_float):                   # its own inverse
    sign = 1 << (width - 1)
    return bits ^ (sign - 1) if is_float and bits & sign else bits

class Adaptive:
    def __init__(self): self.one, self.seen = 32768, 0
    def learn(self, bit):
        rate = 131072 // (2 * self.seen + 3)
        self.one += ((65536 - self.one) * rate) >> 16 if bit else -((self.one * rate) >> 16)
        self.one = min(max(self.one, 16), 65520) & ~1
        self.seen = min(self.seen + 1, 254)
    def read(self, stream, which):
        bit = stream.slot(which, 16) < self.one
        stream.take(which, 16, *((0, self.one) if bit else (self.one, 65536)))
        self.learn(bit)
        return bit
def read_length(stream, longer, second, width, which):
    """`longer` and `second` give the adaptive bit of a number."""
    e = 0
    while longer(e).read(stream, which):
        need((e := e + 1) < width, "step is longer than an element")
    return ((2 + second(e).read(stream, which)) << (e - 1)) + stream.plain(e - 1, which) if e else 1
def read_step(stream, longer, second, width):
    slot, one = stream.slot(VALUE, 16), longer(0).one
    if slot >= one:
        middle = one + (65536 - one) // 2
        stream.take(VALUE, 16, *((one, middle) if slot < middle else (middle, 65536)))
        longer(0).learn(False)
        return 1 if slot < middle else -1
    magnitude = read_length(stream, longer, second, width, VALUE)
    return -magnitude if stream.plain(1, VALUE) else magnitude

# ---- 11. Blocks of every element: split and steps -------------------------------------------------------------------
def read_table(at):
    """For each slot (token, start, stop)."""
    slices, size = [], at.u8()
    need(size <= 32, "more than 32 presence bytes")
    presence = at.take(size)
    for token in (v for v in range(8 * size) if presence[v // 8] >> (v % 8) & 1):
        start, frequency = len(slices), at.varint()
        need(1 <= frequency <= 4096 - start, "frequencies are not 1 to 4096, together 4096")
        slices += [(token, start, start + frequency)] * frequency
    need(len(slices) == 4096, "frequencies are not together 4096")
    return slices
def read_tokens(at, tables):
    """`tables` has that of each element."""
    stream, tokens = Rans(at.take(at.varint()), 32, 16, 16), []
    for i, slices in enumerate(tables):
        token, start, stop = slices[stream.slot(i % 32, 12)]
        stream.take(i % 32, 12, start, stop)
        tokens.append(token)
    stream.finish()
    return tokens
def read_split(_, old, body):
    at, width, new = Bytes(body), old.itemsize, []
    tokens = read_tokens(at, [read_table(at)] * len(old))
    low = at.take((width - 1) * len(old))
    need(at.at == len(body), "bytes follow a split block")
    for i, token in enumerate(tokens):
        rotated = int.from_bytes(low[(width - 1) * i:(width - 1) * (i + 1)] + bytes([token]), "little")
        new.append(rotated >> 1 | (rotated & 1) << (8 * width - 1))
    return np.array(new, dtype=old.dtype)
def read_steps(dtype, old, body):
    at, n, is_float, new = Bytes(body), 8 * old.itemsize, DTYPES[dtype][4], []
    need(n <= 32, "steps of elements of more than four bytes")
    top, low = at.u8(), at.u8()
    need(top <= 7 and low + top <= largest_exponent(dtype), "too many classes, or beyond the largest exponent")
    tables = [read_table(at) for _ in range(top + 1)]
    need(all(slices[-1][0] < 16 + 4 * (n - 4) for slices in tables), "a token is longer than an element")
    classes = np.minimum(np.maximum(exponents(dtype, old), low) - low, top)
    tokens = read_tokens(at, [tables[c] for c in classes])
    size, used = len(body) - at.at, 0
    behind = int.from_bytes(at.take(size), "little")
    for before, t in zip(old.tolist(), tokens):
        e = 0 if t < 16 else (t - 16) // 4 + 2
        z = t if t < 16 else ((4 + t % 4) << e) + (behind >> used) % (1 << e)
        used += e
        new.append(order((order(before, n, is_float) + (-(z + 1) // 2 if z % 2 else z // 2)) % (1 << n), n, is_float))
    need(size == (used + 7) // 8 and behind >> used == 0, "bits are missing or follow, or unused ones are not zero")
    return np.array(new, dtype=old.dtype)

# ---- 12. Swift blocks -----------------------------------------------------------------------------------------------
def quotient_slices(z):
    """(start, stop) of the symbols 0, 1, … and, last, of the escape."""
    slices, left = [], 4096
    while len(slices) < 32 and (f := left * z // 256):
        slices.append((4096 - left, 4096 - left + f))
        left -= f
    return slices + [(4096 - left, 4096)]
def read_swift(dtype, old, body):
    at, width, is_float = Bytes(body), 8 * old.itemsize, DTYPES[dtype][4]
    count, s, z, p = at.varint(), at.u8(), at.u8(), at.varint()
    need(1 <= count <= len(old), "change count is not 1 to the number of elements")
    need(s <= 24 and z >= 1, "low bits are more than 24, or chance of zero is not 1 to 255")
    need(p <= 256, "single from is not 0 to 256")
    low, signs = (int.from_bytes(at.take((count * bits + 7) // 8), "little") for bits in (s, 1))
    need(low >> (count * s) == 0 and signs >> count == 0, "unused high bits are not zero")
    stream, slices, positions = Rans(body[at.at:], 2), quotient_slices(z), []
    escape = len(slices) - 1
    for k in range(count):                          # positions, without a look at old
        q, symbol = 0, escape
        while symbol == escape:
            slot = stream.slot(k % 2, 12)
            symbol = next(n for n, (start, stop) in enumerate(slices) if start <= slot < stop)
            stream.take(k % 2, 12, *slices[symbol])
            q += symbol
            need(q << s < len(old), "position past the end")
        gap = (q << s) + (low >> (k * s)) % (1 << s)
        positions.append((positions[-1] if positions else -1) + 1 + gap)
        need(positions[-1] < len(old), "position past the end")
    first, longer, second = ([Adaptive() for _ in range(319)] for _ in range(3))
    new, j, binades = old.copy(), 0, exponents(dtype, old[positions]).tolist()
    for k, (i, x) in enumerate(zip(positions, binades)):                        # values, with a look at those alone
        length = 1
        if x < p:
            bits = (lambda n: longer[x + n] if n else first[x]), (lambda n: second[x + n])
            length, j = read_length(stream, *bits, width, j % 2), j + 1
        step = -length if signs >> k & 1 else length
        new[i] = order((order(int(old[i]), width, is_float) + step) % (1 << width), width, is_float)
    stream.finish()
    return new

# ---- 13. TRL's files ------------------------------------------------------------------------------------------------
def open_trl(file):
    """name -> (positions, dtype of the values, bytes of the values)"""
    metadata, names, pairs = file.metadata, set(file.tensors), {}
    gap_names = any(name.endswith((".idx", ".val")) for name in names)
    first, last = (".idx", ".val") if gap_names else (".indices", ".values")
    ours = all(name.endswith((first, last)) for name in names)
    need(metadata.get("format") == "sparse_weight_patch" or names and ours, "not a delta", Invalid)
    need(ours, "a tensor belongs to no pair")
    version, encoding = metadata.get("version", "1"), metadata.get("encoding")
    need(version == "1" and encoding in (None, "gap_delta", "raw"), "unknown version or encoding", Unsupported)
    for stem in sorted({name[:name.rindex(".")] for name in names}):
        need({stem + first, stem + last} <= names, f"{stem}: one of the pair is missing")
        (code, shape, data), (dtype, value_shape, values) = file.tensors[stem + first], file.tensors[stem + last]
        need(len(shape) == 1 and shape == value_shape, f"{stem}: not flat and of one length")
        is_gap = gap_names and (encoding == "gap_delta" or encoding is None and code != "I32")
        allowed = ("U16", "U32") if is_gap else ("I32",) if gap_names else ("I32", "I64")
        need(code in allowed, f"{stem}: positions of another dtype", Unsupported)
        positions = [-1]
        for number in np.frombuffer(data, f"<{code[0].lower()}{DTYPES[code][2]}").tolist():
            positions.append(positions[-1] + 1 + number if is_gap else number)
            need(positions[-1] > positions[-2], f"{stem}: positions are negative or do not increase")
        pairs[stem] = (positions[1:], dtype, values)
    return pairs

def apply_trl(pairs, base):
    new = {}
    for name, (positions, dtype, values) in pairs.items():
        need(name in base, f"{name}: not a tensor of the base", Invalid)
        own = "U8" if DTYPES[base[name][0]][1] < 8 else base[name][0]
        need(dtype == own, f"{name}: values of another dtype", Invalid)
        out = np.frombuffer(base[name][2], WORD[DTYPES[dtype][2]]).copy()
        need(not positions or positions[-1] < len(out), f"{name}: position past the end")
        out[positions] = np.frombuffer(values, out.dtype)
        new[name] = out.tobytes()
    return new

# ---- Command line ---------------------------------------------------------------------------------------------------
def write_checkpoint(path, state):
    header, data = {}, b""
    for name, (dtype, shape, content) in state.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
def main():
    parser = argparse.ArgumentParser(description="Reads a wisp delta by doc/format.md alone.")
    parser.add_argument("base"), parser.add_argument("delta"), parser.add_argument("-o", "--output")
    options = parser.parse_args()
    try:
        base = read_checkpoint(options.base)
        new = read_delta(options.delta, base)
    except Error as error:
        sys.exit(f"{error.kind}: {error}")
    result = {name: (*tensor[:2], new[name]) for name, tensor in base.items()}
    print("schema ", schema_digest(base), "\nbase   ", state_digest(base))
    print("touched", touched_digest(base, new), "\nresult ", state_digest(result))
    if options.output:
        write_checkpoint(options.output, result)

if __name__ == "__main__":
    main()
