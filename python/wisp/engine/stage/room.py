"""Memory for what is staged, used again and again.

The kernel takes longer to hand out memory than ranks to fill it, most of all on virtual machines
that give what is freed back to their host.
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np

__all__ = ["Room"]

_LARGEST = 256 << 20  # bytes of what is kept: a burst of steps or a whole state takes far more
#: What no array lies in any more: what one step was decoded into, and what it was staged in.
_spare: deque[np.ndarray] = deque(maxlen=2)


class Room:
    """One piece of memory for many arrays, which keep it; what is in them may be anything."""

    def __init__(self, size: int) -> None:
        self._bytes = _lend(size)
        self._at = 0

    def take(self, count: int, kind: np.dtype) -> np.ndarray:
        """The next array. All of them must fit, each from a multiple of eight bytes on."""
        self._at += -self._at % 8
        first, self._at = self._at, self._at + count * kind.itemsize
        return self._bytes[first : self._at].view(kind)


def _lend(size: int) -> np.ndarray:
    if size == 0:
        return np.empty(0, np.uint8)
    memory = None
    for _ in range(len(_spare)):
        try:
            found = _spare.popleft()
        except IndexError:
            break  # another thread took it
        if memory is None and size <= found.size <= 2 * size:
            memory = found
        else:
            _spare.append(found)
    if memory is None:
        memory = np.empty(size + size // 8, np.uint8)
    # By way of a memoryview, arrays that are cut from `lent` refer to it and not to `memory`: so it
    # goes when the last of them does, and not before.
    lent = np.frombuffer(memory.data, np.uint8)
    if memory.size <= _LARGEST:
        weakref.finalize(lent, _spare.append, memory).atexit = False
    return lent
