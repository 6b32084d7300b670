"""Files and coded blocks made byte by byte: what the golden files are put together from."""
import hashlib
import json
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "doc"))
import reference_decoder as ref  # noqa: E402
from reference_decoder import varint  # noqa: E402

CORRUPT, UNSUPPORTED, WRONG_BASE, INVALID = "corrupt", "unsupported", "wrong_base", "invalid"


# ---- Files ------------------------------------------------------------------------------------------------
def entries(tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def pack(header, data):
    """A file of any header, true or not: a dict, or the very bytes of it."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def save(tensors, metadata=None):
    header = ({} if metadata is None else {"__metadata__": metadata}) | entries(tensors)
    return pack(header, b"".join(tensor[2] for tensor in tensors.values()))


def reseal(raw):
    return raw[:ref.SEAL_AT] + ref.seal_of(raw).encode() + raw[ref.SEAL_AT + 64:]


def seal_anywhere(raw):
    """A seal that would fit, in the place of 64 zeros, were it where it belongs."""
    data_at = 8 + struct.unpack_from("<Q", raw)[0]
    seal = hashlib.sha256(b"wisp seal 1" + raw[:data_at] + hashlib.sha256(raw[data_at:]).digest()).hexdigest()
    return raw.replace(b"0" * 64, seal.encode(), 1)


def sealed(tensors, metadata):
    return reseal(save(tensors, {"wisp_seal": "0" * 64} | metadata))


def split_file(raw):
    """Metadata without the seal, and the tensors."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(raw)
        opened = ref.File(file.name)
    metadata = dict(opened.metadata)
    metadata.pop("wisp_seal", None)
    return metadata, dict(opened.tensors)


def keys_for(old, new, directory, step=1):
    total = sum(len(tensor[2]) // ref.DTYPES[tensor[0]][2] for tensor in old.values())
    return {"format": "wisp_delta", "version": "1", "codec": "compact", "step": str(step),
            "total_elements": str(total), "changed_elements": "0", "sparsity": "0.5",
            "wisp_base_digest": ref.state_digest(old), "wisp_result_digest": ref.state_digest(new),
            "wisp_touched_digest": ref.touched_digest(old, {name: t[2] for name, t in new.items()}),
            "wisp_schema_digest": ref.schema_digest(old), "wisp_directory_bytes": str(len(directory))}


def directory_of(*tensors, log2=20, count=None, tail=b""):
    """tensors: (shared, added name, dtype code, shape, changed, [block bytes]), numbers or ready bytes."""
    out = number(log2) + number(len(tensors) if count is None else count)
    for shared, added, code, shape, changed, sizes in tensors:
        out += number(shared) + number(len(added)) + added + number(code) + number(len(shape))
        out += b"".join(map(number, [*shape, changed, *sizes]))
    return out + tail


def number(value):
    return value if isinstance(value, bytes) else varint(value)


def compact(old, new, directory, blocks, changes=None, packed=None):
    packed = zlib.compress(directory, 9) if packed is None else packed
    keys = keys_for(old, new, directory) | (changes or {})
    keys = {key: value for key, value in keys.items() if value is not None}
    return sealed({"wisp.blocks": ("U8", [len(blocks)], blocks), "wisp.directory": ("U8", [len(packed)], packed)}, keys)


# ---- A small encoder, of the same sections ---------------------------------------------------------------
class Writer:
    """rANS symbols in the order of reading; written backwards."""
    def __init__(self):
        self.symbols = []

    def put(self, which, bits, start, stop):
        self.symbols.append((which, bits, start, stop))

    def plain(self, value, count):
        while count > 0:
            bits = min(count, 16)
            self.put(ref.VALUE, bits, value % (1 << bits), value % (1 << bits) + 1)
            value, count = value >> bits, count - bits

    def finish(self, states=2, ends=None, low=31, word=32):
        state, words = list(ends or [1 << low] * states), []
        for which, bits, start, stop in reversed(self.symbols):
            frequency = stop - start
            if state[which] >= frequency << (low + word - bits):
                words.append(state[which] % (1 << word))
                state[which] >>= word
            state[which] = (state[which] // frequency << bits) + state[which] % frequency + start
        return struct.pack(f"<{states}{'Q' if word == 32 else 'I'}{len(words)}{'I' if word == 32 else 'H'}", *state, *reversed(words))


def put_bit(writer, model, bit):
    writer.put(ref.VALUE, 16, *((0, model.one) if bit else (model.one, 65536)))
    model.learn(bit)


def put_step(writer, longer, second, step):
    magnitude, e = abs(step), abs(step).bit_length() - 1
    if e == 0:
        one, half = longer[0].one, (65536 - longer[0].one) // 2
        writer.put(ref.VALUE, 16, *((one, one + half) if step > 0 else (one + half, 65536)))
        longer[0].learn(False)
        return
    for k in range(e):
        put_bit(writer, longer[min(k, 23)], True)
    put_bit(writer, longer[min(e, 23)], False)
    put_bit(writer, second[min(e, 23)], bool(magnitude >> (e - 1) & 1))
    writer.plain(magnitude % (1 << (e - 1)), e - 1)
    writer.plain(int(step < 0), 1)


def nibbles(codes):
    """The first code, and the others by escape or difference."""
    out = []
    for before, code in zip(codes, codes[1:]):
        n = code - max(before - 8, 0) + 7
        out += [n] if 0 <= n < 15 else [15, code >> 4, code & 15]
    out += [0] * (len(out) % 2)
    return bytes([codes[0]]) + bytes(a | b << 4 for a, b in zip(out[::2], out[1::2]))


def sparse_header(count, top, low, shift, codes):
    return b"\1" + number(count) + bytes([top, low, shift]) + (codes if isinstance(codes, bytes) else nibbles(codes))


def sparse_block(dtype, old, new, low, shift, codes, spoil=lambda writer, longer: None):
    old, new = (np.frombuffer(x, ref.WORD[ref.DTYPES[dtype][2]]) for x in (old, new))
    width, is_float = 8 * old.itemsize, ref.DTYPES[dtype][4]
    classes = np.minimum(np.maximum(ref.exponents(dtype, old), low) - low, len(codes) - 1)
    ends = [0, *np.cumsum([ref.weight(codes[c]) for c in classes]).tolist()]
    longer, second = ([[ref.Adaptive() for _ in range(24)] for _ in codes] for _ in range(2))
    writer, origin = Writer(), 0
    changed = np.flatnonzero(old != new).tolist()
    for i in changed:
        while ends[i] - origin >= 4 << shift:
            writer.put(ref.POSITION, 30, ref.T[32], 1 << 30)
            origin += 4 << shift
        writer.put(ref.POSITION, 30, ref.F(max(ends[i] - origin, 0), shift), ref.F(min(ends[i + 1] - origin, 4 << shift), shift))
        origin = ends[i + 1]
        step = (ref.order(int(new[i]), width, is_float) - ref.order(int(old[i]), width, is_float)) % (1 << width)
        step -= (step >> (width - 1)) << width
        put_step(writer, longer[classes[i]], second[classes[i]], step)
    spoil(writer, longer)
    return sparse_header(len(changed), len(codes) - 1, low, shift, codes) + writer.finish()


def frequencies_of(tokens):
    values = sorted(set(tokens)) or [0]
    frequency = {v: 1 + tokens.count(v) * (4096 - len(values)) // max(len(tokens), 1) for v in values}
    frequency[values[-1]] += 4096 - sum(frequency.values())
    return frequency


def table_bytes(frequency):
    presence = bytes(sum(1 << b for b in range(8) if 8 * a + b in frequency) for a in range(max(frequency) // 8 + 1))
    return bytes([len(presence)]) + presence + b"".join(number(frequency[v]) for v in sorted(frequency))


def token_stream(tokens, tables):
    """`tables`: the frequencies of each token's class."""
    writer = Writer()
    for i, (v, frequency) in enumerate(zip(tokens, tables)):
        start = sum(f for w, f in frequency.items() if w < v)
        writer.put(i % 32, 12, start, start + frequency[v])
    return writer.finish(32, low=16, word=16)


def split_block(new, width, spoil=None):
    """Parts of a split block, joined unless told otherwise: presence, frequencies, size, stream, low bytes."""
    bits = np.frombuffer(new, ref.WORD[width]).tolist()
    turned = [(x << 1 | x >> (8 * width - 1)) % (1 << 8 * width) for x in bits]
    high = [x >> (8 * width - 8) for x in turned]
    frequency = frequencies_of(high)
    parts = {"length": None, "presence": bytes(sum(1 << b for b in range(8) if 8 * a + b in frequency) for a in range(32)),
             "frequencies": list(frequency.values()), "size": None, "stream": token_stream(high, [frequency] * len(high)),
             "low": b"".join(x.to_bytes(width, "little")[:-1] for x in turned)}
    if spoil:
        spoil(parts)
    size = len(parts["stream"]) if parts["size"] is None else parts["size"]
    length = len(parts["presence"]) if parts["length"] is None else parts["length"]
    return (b"\3" + bytes([length]) + parts["presence"] + b"".join(map(number, parts["frequencies"]))
            + number(size) + parts["stream"] + parts["low"])


def steps_block(dtype, old, new, low, top, spoil=None):
    """Parts of a steps block: head, tables, stream, behind."""
    old, new = (np.frombuffer(x, ref.WORD[ref.DTYPES[dtype][2]]) for x in (old, new))
    n, is_float = 8 * old.itemsize, ref.DTYPES[dtype][4]
    classes = np.minimum(np.maximum(ref.exponents(dtype, old), low) - low, top).tolist()
    tokens, behind, used = [], 0, 0
    for x, y in zip(old.tolist(), new.tolist()):
        s = (ref.order(y, n, is_float) - ref.order(x, n, is_float)) % (1 << n)
        z = 2 * s if s < 1 << (n - 1) else 2 * ((1 << n) - s) - 1
        e = max(z.bit_length() - 3, 0) if z >= 16 else 0
        tokens.append(z if z < 16 else 16 + 4 * (e - 2) + (z >> e) % 4)
        behind |= (z % (1 << e)) << used
        used += e
    tables = [frequencies_of([t for t, c in zip(tokens, classes) if c == k]) for k in range(top + 1)]
    parts = {"head": bytes([top, low]), "tables": b"".join(map(table_bytes, tables)),
             "stream": token_stream(tokens, [tables[c] for c in classes]), "behind": behind.to_bytes((used + 7) // 8, "little")}
    if spoil:
        spoil(parts)
    return b"\5" + parts["head"] + parts["tables"] + number(len(parts["stream"])) + parts["stream"] + parts["behind"]
