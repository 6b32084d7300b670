"""Reads and writes safetensors files as numpy arrays, bf16 included.

The stock numpy front has no bf16, and the stock writer orders metadata keys at random. Sizes and
excerpts here must come out the same on every machine, so the few bytes of header are made here.

    u64le header length | header JSON, padded with spaces to 8 | tensor bytes, back to back
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

NUMPY_TYPE = {"BF16": "<u2", "U8": "u1", "U16": "<u2", "U32": "<u4", "I32": "<i4"}


class Tensor(NamedTuple):
    """A safetensors dtype tag and its bits; bf16 travels as uint16 because bits are what counts."""

    dtype: str
    bits: np.ndarray


def write_tensors(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Lays wide types first, as the stock writer does, so that every tensor is aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].bits.itemsize, name))
    header: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name in order:
        dtype, bits = tensors[name]
        end = offset + bits.nbytes
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    body = [np.ascontiguousarray(tensors[name].bits).tobytes() for name in order]
    return b"".join([len(head).to_bytes(8, "little"), head, *body])


def parse_tensors(data: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns tensors and metadata; the arrays are read-only views of `data`."""
    head_length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + head_length])
    metadata = header.pop("__metadata__", {})
    body = memoryview(data)[8 + head_length :]
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        bits = np.frombuffer(body[begin:end], dtype=NUMPY_TYPE[entry["dtype"]])
        tensors[name] = Tensor(entry["dtype"], bits.reshape(entry["shape"]))
    return tensors, metadata


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads a whole file."""
    return parse_tensors(path.read_bytes())
