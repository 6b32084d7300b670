"""How a feed asks the ranks of its host for words of a state."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from .feed_messages import Gather
from .rank_table import EngineRanks, RankTable
from .word_buffers import make_buffer

__all__ = ["RankGather", "Wanted"]

_SMALL = 1 << 20  # bytes that are kept whatever is needed of them

#: Of each engine: (tensor, first word or -1 where the buffer names them, how many, where in it)
Wanted = Mapping[EngineRanks, list[tuple[str, int, int, int]]]


class RankGather:
    """One question at a time. `tell` says something to all ranks; `go_on` may raise."""

    def __init__(
        self,
        folder: Path,
        ranks: RankTable,
        tell: Callable[[Gather], None],
        go_on: Callable[[], None],
    ) -> None:
        self.asked: list[str] = []  #: the ranks, by their labels
        self.silent: set[str] = set()  #: those that let the others wait
        self.file = ""  #: where ranks find the words
        self._buffer: np.ndarray = np.empty(0, np.uint8)
        self._is_answered = False  # by all that were asked
        self._is_clean = True  # nobody has failed to
        self._folder = folder
        self._ranks = ranks
        self._tell = tell
        self._go_on = go_on

    def buffer(self, size: int) -> np.ndarray:
        """Memory for a question, in `file`. What is in it is of the one before.

        The kernel takes longer to hand out memory than ranks to fill it, so it is kept. Somebody
        who was not waited for may still write to it: then there is another one.
        """
        if not self._is_answered or not size <= self._buffer.size <= 4 * size + _SMALL:
            self.close()
            self.file = f"gather-{time.time_ns()}"
            self._buffer = make_buffer(self._folder, self.file, size + size // 4)
        self._is_answered, self._is_clean = False, True
        return self._buffer[:size]

    def close(self) -> None:
        """Nothing of it is left."""
        (self._folder / (self.file or "gather-")).unlink(missing_ok=True)
        self.file, self._buffer = "", np.empty(0, np.uint8)

    def fill(
        self,
        state: str,
        wanted: Wanted,
        patience: float | None = None,
        *,
        only_compare: bool = False,
    ) -> str | None:
        """Waits until the ranks have put their words into the buffer; else why they have not."""
        number = time.time_ns()
        self.asked = [label for group in wanted for label in group.labels]
        for group, tensors in wanted.items():
            self._tell(Gather(number, state, self.file, group.labels, tuple(tensors), only_compare))
        failed = self._ranks.wait_answers(number, self.asked, self._go_on, patience, self.silent)
        self._is_clean = self._is_clean and failed is None
        self._is_answered = self._is_clean
        return failed

    def fill_and_compare(self, state: str, wanted: Wanted, differing: dict[str, int]) -> str | None:
        """As fill(); counts words that ranks hold otherwise than their peers, by their labels."""
        failed = self.fill(state, wanted) or self.fill(state, wanted, only_compare=True)
        for label, count in self._ranks.differing(self.asked).items():
            differing[label] = differing.get(label, 0) + count
        return failed
