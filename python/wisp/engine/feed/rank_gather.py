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
        self._folder = folder
        self._ranks = ranks
        self._tell = tell
        self._go_on = go_on

    def buffer(self, file: str, size: int) -> np.ndarray:
        """A new file that ranks find."""
        return make_buffer(self._folder, file, size)

    def remove(self, file: str) -> None:
        """It has served."""
        (self._folder / file).unlink(missing_ok=True)

    def fill(
        self,
        state: str,
        file: str,
        wanted: Wanted,
        patience: float | None = None,
        *,
        only_compare: bool = False,
    ) -> str | None:
        """Waits until the ranks have put their words into the file; else why they have not."""
        number = time.time_ns()
        self.asked = [label for group in wanted for label in group.labels]
        for group, tensors in wanted.items():
            self._tell(Gather(number, state, file, group.labels, tuple(tensors), only_compare))
        return self._ranks.wait_answers(number, self.asked, self._go_on, patience, self.silent)

    def fill_and_compare(
        self, state: str, file: str, wanted: Wanted, differing: dict[str, int]
    ) -> str | None:
        """As fill(); counts words that ranks hold otherwise than their peers, by their labels."""
        failed = self.fill(state, file, wanted) or self.fill(state, file, wanted, only_compare=True)
        for label, count in self._ranks.differing(self.asked).items():
            differing[label] = differing.get(label, 0) + count
        return failed
