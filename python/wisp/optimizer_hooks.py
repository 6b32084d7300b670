"""Calls that come after every Nth step of torch optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OptimizerHooks:
    """Counts the steps of the optimizers it is hung on; after each `every` of them it acts."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._steps = 0
        self._hooks: list[Any] = []

    def hang_on(self, optimizer: Any, act: Callable[[], object]) -> None:
        """Joins a torch optimizer, which holds `act` until remove()."""
        self._hooks.append(optimizer.register_step_post_hook(lambda *_: self._count(act)))

    def remove(self) -> None:
        """Lets go of all of them."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _count(self, act: Callable[[], object]) -> None:
        self._steps += 1
        if self._steps % self._every == 0:
            act()
