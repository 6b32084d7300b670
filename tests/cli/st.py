"""A safetensors writer and reader of our own: every dtype, and files no library would write."""

import hashlib
import json
import struct

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}

SEAL_LEAD = b'{"__metadata__":{"wisp_seal":"'
SEAL_AT = 8 + len(SEAL_LEAD)
SEAL_DIGITS = 64


def byte_count(dtype, shape):
    bits = BITS[dtype]
    for extent in shape:
        bits *= extent
    assert bits % 8 == 0, (dtype, shape)
    return bits // 8


def header_of(tensors, metadata=None):
    """The header as a dict, tensors laid out in the order given."""
    header = {"__metadata__": metadata} if metadata is not None else {}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    return header


def pack(header, data=b""):
    """A file of any header, true or not: a dict, or the very bytes of it."""
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def dump(tensors, metadata=None):
    for name, (dtype, shape, data) in tensors.items():
        assert len(data) == byte_count(dtype, shape), name
    return pack(header_of(tensors, metadata), b"".join(data for _, _, data in tensors.values()))


def save(path, tensors, metadata=None):
    path.write_bytes(dump(tensors, metadata))
    return path


def split(file):
    """Header as a dict, and the data."""
    size = struct.unpack("<Q", file[:8])[0]
    return json.loads(file[8:8 + size]), file[8 + size:]


def load(path):
    """Tensors as the writer takes them, and the metadata."""
    header, data = split(path.read_bytes())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, metadata


def same_tensors(x, y):
    """Whether two checkpoint files hold the same tensors, bit for bit, in whatever order."""
    return load(x)[0] == load(y)[0]


def seal_of(file):
    """doc/format.md section 5: over the header, its seal as zeros, and the hash of the data."""
    end = 8 + struct.unpack("<Q", file[:8])[0]
    zeros = b"0" * SEAL_DIGITS
    text = hashlib.sha256(
        b"wisp seal 1" + file[:SEAL_AT] + zeros + file[SEAL_AT + SEAL_DIGITS:end]
        + hashlib.sha256(file[end:]).digest())
    return text.hexdigest().encode()


def reseal(file):
    """The same file with a seal that holds, as if the writer had meant these bytes."""
    assert file[8:SEAL_AT] == SEAL_LEAD
    return file[:SEAL_AT] + seal_of(file) + file[SEAL_AT + SEAL_DIGITS:]


def rewritten(file, change_metadata=None, change_tensors=None):
    """A delta taken apart, changed and sealed again."""
    header, data = split(file)
    metadata = header.pop("__metadata__")
    tensors = {
        name: (entry["dtype"], tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }
    if change_metadata:
        change_metadata(metadata)
    if change_tensors:
        change_tensors(tensors)
    return reseal(dump(tensors, metadata))
