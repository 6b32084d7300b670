"""Whether the words of all tensors, from wherever they are, add up to a state's digest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ... import _native
from ...tensors import TensorEntry
from .feed_messages import Verified
from .held_slices import HostSlices
from .kept_tensors import KeptTensors
from .rank_gather import RankGather
from .rank_table import EngineRanks
from .word_buffers import buffer_bytes, index_bytes, words_in

__all__ = ["MemoryProof"]

_AT_ONCE = 32 << 20  # bytes that are looked at, at a time

#: Some words of tensors: (tensor, first word, how many).
_Batch = list[tuple[TensorEntry, int, int]]


class MemoryProof:
    """Reads everything once; parts that several ranks hold count once, and must be the same."""

    def __init__(
        self, ranks: RankGather, schema: Sequence[TensorEntry], kept: KeptTensors, state: str
    ) -> None:
        self._ranks = ranks
        self._schema = schema
        self._kept = kept
        self._state = state
        self._total = np.zeros(2, np.uint64)
        self._differing: dict[str, int] = {}  # words, by the ranks that hold them otherwise

    def prove(self, label: str, groups: list[EngineRanks], slices: HostSlices | None) -> Verified:
        """What the rank of that label is told.

        groups: of the engine that is meant; slices: what this host needs, if not everything.
        """
        if slices is None:
            failed = next((f for b in self._batches() if (f := self._add(b, groups))), None)
        else:
            failed = self._add_slices(slices, groups)
        if failed is not None:
            return Verified(label, self._state, failed)
        found = f"{int(self._total[0]):016x}{int(self._total[1]):016x}"
        is_right = found == self._state if slices is None else slices.is_digest(self._total)
        if is_right and not self._differing:
            return Verified(label, self._state, None)
        names = ", ".join(self._differing or groups[0].labels)
        if self._differing:
            what = "other words than its peers"
        else:
            what = f"state {found}, not {self._state}"
        return Verified(
            label, self._state,
            f"the memory of rank {names} holds {what}: somebody else wrote to it; a whole state is "
            "fetched, and the next update mends it",
            differs=True,
        )  # fmt: skip

    def _batches(self) -> Iterator[_Batch]:
        batch: _Batch = []
        size = 0
        for entry in self._schema:
            words = words_in(entry)
            for first in range(0, words, _AT_ONCE // 8):
                count = min(words - first, _AT_ONCE // 8)
                if size + 8 * count > _AT_ONCE:
                    yield batch
                    batch, size = [], 0
                batch.append((entry, first, count))
                size += 8 * count
        yield batch

    def _add(self, batch: _Batch, groups: list[EngineRanks]) -> str | None:
        buffer = self._ranks.buffer(sum(8 * count for _, _, count in batch))
        buffer[:] = 0
        wanted: dict[EngineRanks, list[tuple[str, int, int, int]]] = {}
        failed = None
        at = 0
        for (name, _, _), first, count in batch:
            group = next((g for g in groups if name in g.covered), None)
            if name in self._kept:
                words = np.arange(first, first + count)
                self._kept.fill(name, words, buffer[at : at + 8 * count])
            elif group is None:
                failed = f"'{name}' is held by no engine of this host"
                break
            else:
                wanted.setdefault(group, []).append((name, first, count, at))
            at += 8 * count
        if failed is None:
            failed = self._ranks.fill_and_compare(self._state, wanted, self._differing)
        if failed is not None:
            return failed
        at = 0
        for entry, first, count in batch:
            self._sum(_native.digest_of_words(entry, first, buffer[at : at + 8 * count]))
            at += 8 * count
        return None

    def _add_slices(self, slices: HostSlices, groups: list[EngineRanks]) -> str | None:
        """All words that this host needs."""
        for name, words in slices.words():
            data = self._ranks.buffer(buffer_bytes(words.size))
            data[:] = 0
            data[: 4 * words.size].view(np.int32)[:] = words
            buffer = data[index_bytes(words.size) :]
            group = next((g for g in groups if name in g.covered), None)
            failed = None
            if name in self._kept:
                self._kept.fill(name, words, buffer)
            elif group is None:
                failed = f"'{name}' is held by no engine of this host"
            else:
                slices.fill(name, words, buffer)
                wanted = {group: [(name, -1, words.size, 0)]}
                failed = self._ranks.fill_and_compare(self._state, wanted, self._differing)
            if failed is not None:
                return failed
            self._sum(slices.digest(name, words, buffer))
        return None

    def _sum(self, part: Sequence[int] | np.ndarray) -> None:
        self._total += np.array(part, np.uint64)
