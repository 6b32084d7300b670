"""The journal of an in-place apply, written from its description in src/delta/journal.hpp."""

import hashlib
import struct

import numpy as np


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def digest_bytes(text):
    """A digest as it is printed, turned into the two words a journal holds."""
    return struct.pack("<QQ", int(text[:16], 16), int(text[16:], 16))


def record(file, offset, width, positions, old_bits, new_bits):
    return (bytes([width]) + varint(file) + struct.pack("<QI", offset, len(positions))
            + np.array(positions, "<u4").tobytes() + old_bits + new_bits)


def journal(base, result, files, records):
    """`files` are (name, size); `base` and `result` are printed digests."""
    body = b"\x01" + varint(len(files))
    for name, size in files:
        body += varint(len(name)) + name.encode() + struct.pack("<Q", size)
    body += b"".join(records) + b"\0"
    digests = digest_bytes(base) + digest_bytes(result)
    return b"WISPJRN1" + digests + body + hashlib.sha256(body + digests).digest()


def path_of(checkpoint):
    if checkpoint.is_dir():
        return checkpoint / ".wisp-journal"
    return checkpoint.parent / f"{checkpoint.name}.wisp-journal"


def unfinished_of(checkpoint):
    """Journals that were being written when their process ended."""
    path = path_of(checkpoint)
    return [p for p in path.parent.iterdir() if p.name.startswith(f".{path.name}.")]
