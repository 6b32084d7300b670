"""The steps of one rank that are on their way, and the thread that sees them through.

One is being coded and uploaded, and one waits: the trainer never does. A newer step takes the
waiting one's place. Which one that is, rank 0 decides for all, by what its own thread has begun.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass
class Round:
    """One publish call on its way."""

    number: int
    step: int
    call: str | None  #: what the step stands on; None until that is known
    deadline: float
    started: float
    kept: list[list[np.ndarray]] | None = None  #: the weights of a step that waits
    blocked: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether nobody works on it yet, the step before being on its way."""
        return self.call is None

    def key(self, what: str, rank: int | None = None) -> str:
        return f"{self.number}/{what}" if rank is None else f"{self.number}/{what}/{rank}"


class StepQueue:
    """Calls `finish` for one round after the other, on a thread of its own."""

    def __init__(self, finish: Callable[[Round], None]) -> None:
        self._finish = finish
        self._changed = threading.Condition()
        self._waiting: list[Round] = []
        self._working = False

    def busy(self) -> bool:
        """Whether a round is on its way."""
        with self._changed:
            return self._working

    def put(self, round_: Round) -> None:
        """Takes its turn after those that are there."""
        with self._changed:
            self._waiting.append(round_)
            if self._working:
                return
            # A daemon: how long the end of the interpreter waits for it is for finish_at_exit()
            # to say.
            worker = threading.Thread(target=self._work, daemon=True)
            worker.start()
            self._working = True

    def take_back(self) -> Round | None:
        """The newest round, unless the thread has begun it."""
        with self._changed:
            return self._waiting.pop() if self._waiting else None

    def drop(self, over: Callable[[Round], bool]) -> None:
        """Lets go of rounds that nobody wants any more, and that were not begun."""
        with self._changed:
            self._waiting = [round_ for round_ in self._waiting if not over(round_)]

    def join(self, seconds: float | None = None) -> bool:
        """Waits until all is done; False: the time was not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._working, seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._working = False
                    self._changed.notify_all()
                    return
                round_ = self._waiting.pop(0)
            self._finish(round_)
