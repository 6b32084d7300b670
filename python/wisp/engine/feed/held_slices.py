"""What the ranks of a host hold of tensors that its engines spread over several hosts.

Deltas that are sliced bring such a host only the tiles in which some of it lies. A tile is decoded
and proven as one, so what it has besides (where a slice ends inside it) is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ... import _native
from ...follow.targets import UNSIGNED, MovedTensor, element_width
from ...tensors import TensorEntry
from .feed_messages import Part
from .word_buffers import put_words

__all__ = ["HostSlices", "whole_part"]

_AT_ONCE = 4 << 20  # words

Runs = list[tuple[int, int]]
Bits = Callable[[str], np.ndarray]


class HostSlices:
    """Made from a state, `bits` of each tensor by its name; no others than it needs are looked at.

    parts: of the tensors that are not held whole; whole: the names of those that are. What is in
    neither is no concern of this host.
    """

    def __init__(
        self,
        schema: Sequence[TensorEntry],
        slices: int,
        parts: Mapping[str, frozenset[Part]],
        whole: Sequence[str],
        bits: Bits,
    ) -> None:
        self.parts = dict(parts)
        self._entries = {entry[0]: entry for entry in schema}
        self._needed: dict[str, Runs] = {}
        self._edges: dict[str, tuple[np.ndarray, np.ndarray]] = {}  # elements, and their bits
        held: dict[str, list[Part]] = {}
        total = np.zeros(2, np.uint64)
        for name in whole:
            part = whole_part(self._entries[name][2])
            held[name] = [part]
            self._needed[name] = [(0, part[1][0][0])]
        for name, found in self.parts.items():
            held[name] = sorted(found)
            self._needed[name], missing = _native.runs_of_tiles(
                self._entries[name], slices, held[name]
            )
            places = _spread(missing)
            self._edges[name] = (places, bits(name)[places].copy())
        self.native = _native.HeldSlices(held)
        for name, words in self.words():
            values = np.zeros(words.size, np.uint64)
            put_words(bits(name), words, values)
            total += self.digest(name, words, values)
        self._digest = total

    def includes(self, parts: Mapping[str, frozenset[Part]]) -> bool:
        """Whether no more is held than when this was made."""
        return all(
            name in self._needed and (name not in self.parts or found <= self.parts[name])
            for name, found in parts.items()
        )

    @property
    def edge_bytes(self) -> int:
        """What is kept in the memory of the host."""
        return sum(bits.nbytes for _, bits in self._edges.values())

    @property
    def edge_names(self) -> list[str]:
        """The tensors of which some is kept."""
        return [*self._edges]

    def words(self) -> list[tuple[str, np.ndarray]]:
        """All words of all tiles, some of a tensor at a time."""
        found = []
        for name, runs in self._needed.items():
            per = 8 // element_width(self._entries[name][1])
            words = _spread([(first // per, -(-past // per)) for first, past in runs])
            for at in range(0, words.size, _AT_ONCE):
                found.append((name, words[at : at + _AT_ONCE].astype(np.int32)))
        return found

    def digest(self, name: str, words: np.ndarray, values: np.ndarray) -> np.ndarray:
        """What words of a tensor add to the digest."""
        entry = self._entries[name]
        return np.array(_native.digest_of_indexed_words(entry, words, values), np.uint64)

    def is_digest(self, total: np.ndarray) -> bool:
        """Whether these sums are those of the state, of all that this host needs of it."""
        return bool((total == self._digest).all())

    def fill(self, name: str, words: np.ndarray, buffer: np.ndarray) -> None:
        """Puts what is kept of these words, which ascend, into their buffer."""
        if name not in self._edges or not self._edges[name][0].size:
            return
        places, bits = self._edges[name]
        per = 8 // bits.itemsize
        wanted = (words.astype(np.int64)[:, None] * per + np.arange(per)).reshape(-1)
        found = np.searchsorted(places, wanted)
        found[found == places.size] = 0
        here = places[found] == wanted
        buffer.view(bits.dtype)[here] = bits[found[here]]

    def move(self, entries: Sequence[MovedTensor], by: tuple[int, int]) -> None:
        """A step is proven."""
        for name, dtype, _, positions, bits, _ in entries:
            if name not in self._edges:
                continue
            places, kept = self._edges[name]
            changed = np.frombuffer(positions, np.int64)
            at = np.searchsorted(places, changed)
            at[at == places.size] = 0
            here = places[at] == changed if places.size else np.zeros(changed.size, bool)
            kept[at[here]] = np.frombuffer(bits, UNSIGNED[element_width(dtype)])[here]
        self._digest = self._digest + np.array(by, np.uint64)


def whole_part(shape: Sequence[int]) -> Part:
    """All elements of a tensor."""
    return (0, ((int(np.prod(shape, dtype=np.int64)), 1),))


def _spread(runs: Runs) -> np.ndarray:
    """Every number of the runs."""
    if not runs:
        return np.empty(0, np.int64)
    first, past = np.array(runs, np.int64).T
    lengths = past - first
    starts = np.repeat(first - np.concatenate(([0], lengths.cumsum()[:-1])), lengths)
    return starts + np.arange(lengths.sum())
