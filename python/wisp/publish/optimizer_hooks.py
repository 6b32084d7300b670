"""Calls that come after every Nth iteration of a training with one or several torch optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class OptimizerHooks:
    """Counts the iterations of the optimizers it is hung on; after each `every` of them it acts.

    An iteration is over when each optimizer has stepped, or when one is about to step again: some
    are skipped now and then, or step less often than others.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._iterations = 0
        self._optimizers = 0
        self._stepped: set[int] = set()
        self._hooks: list[Any] = []

    def hang_on(self, optimizer: Any, act: Callable[[], object]) -> None:
        """Joins a torch optimizer, or one of accelerate; it holds `act` until remove()."""
        optimizer = _innermost(optimizer)
        number = self._optimizers
        self._optimizers += 1

        def before(*_: Any) -> None:
            if number in self._stepped:
                self._count(act)

        def after(*_: Any) -> None:
            self._stepped.add(number)
            if len(self._stepped) == self._optimizers:
                self._count(act)

        self._hooks.append(optimizer.register_step_pre_hook(before))
        self._hooks.append(optimizer.register_step_post_hook(after))

    @property
    def is_behind(self) -> bool:
        """Whether an optimizer has stepped in an iteration that would be acted upon."""
        return bool(self._stepped) and (self._iterations + 1) % self._every == 0

    def remove(self) -> None:
        """Lets go of all of them."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._stepped.clear()

    def _count(self, act: Callable[[], object]) -> None:
        self._stepped.clear()
        self._iterations += 1
        if self._iterations % self._every == 0:
            act()


def _innermost(optimizer: Any) -> Any:
    """The torch optimizer inside wrappers (accelerate's) that have no hooks of their own."""
    while not hasattr(optimizer, "_optimizer_step_post_hooks") and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
