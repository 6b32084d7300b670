"""Words of tensors in files that a feed and its ranks map: the state's digest is a sum over words.

A word is eight bytes of a tensor; the last one is filled up with zeros. A buffer for some words
of a tensor holds their numbers (int32, filled up to a multiple of eight bytes), then the words.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ...follow.targets import element_width
from ...tensors import TensorEntry
from .feed_files import map_at_once

__all__ = ["buffer_bytes", "index_bytes", "make_buffer", "put_words", "words_in"]


def index_bytes(words: int) -> int:
    """Of the numbers of so many words."""
    return -(-words * 4 // 8) * 8


def buffer_bytes(words: int) -> int:
    """Of the numbers and the words."""
    return index_bytes(words) + words * 8


def words_in(entry: TensorEntry) -> int:
    """How many words a tensor has."""
    _, dtype, shape = entry
    return -(-int(np.prod(shape, dtype=np.int64)) * element_width(dtype) // 8)


def make_buffer(folder: Path, file: str, size: int) -> np.ndarray:
    """A new file of zeros, mapped."""
    with open(folder / file, "xb") as out:
        if size:
            os.posix_fallocate(out.fileno(), 0, size)
    return map_at_once(folder / file)


def put_words(bits: np.ndarray, words: np.ndarray, buffer: np.ndarray) -> None:
    """Words of a tensor; what lies past its end stays as it is in the buffer, zero."""
    per = 8 // bits.itemsize
    elements = (words.astype(np.int64)[:, None] * per + np.arange(per)).reshape(-1)
    inside = elements < bits.size
    buffer.view(bits.dtype)[inside] = bits[elements[inside]]
