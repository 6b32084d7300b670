"""How the ranks of a sharded trainer reach each other: keys in the trainer's c10d store.

No collectives: a rank that died or hangs leaves a key unwritten, and a rank that waits for it can
say whose it is. Waiting is polling, so that the store is never held from the training thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from ..errors import UnavailableError

_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05
#: How many past steps' keys are kept for ranks that come late.
_KEPT_ROUNDS = 16

T = TypeVar("T")


class KeyStore:
    """The keys of one ShardedPublisher, as one rank sees them. Rounds count its publish calls."""

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self._store = store
        self.rank = rank
        self.ranks = ranks
        self._remembered = 0  # the first round whose keys are kept

    def put(self, key: str, value: bytes) -> None:
        """Writes a key; each is written once."""
        self._guard(lambda: self._store.set(key, value))

    def get(self, key: str) -> bytes | None:
        """What a key holds, or None if it was not written."""
        if not self._is_there(key):
            return None
        return bytes(self._guard(lambda: self._store.get(key)))

    def wait(self, keys: Iterable[str], deadline: float, *, unless: str | None = None) -> list[str]:
        """Waits until all keys are there, or `unless` is; the keys missing at the deadline."""
        missing = list(keys)
        pause = _FIRST_PAUSE
        while True:
            missing = [key for key in missing if not self._is_there(key)]
            if not missing or (unless is not None and self.get(unless) is not None):
                return missing
            left = deadline - time.monotonic()
            if left <= 0:
                return missing
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def forget(self, round_number: int) -> None:
        """After the verdict on that round: removes what no rank can be waiting for; rank 0 does."""
        first, self._remembered = (
            self._remembered,
            max(self._remembered, round_number - _KEPT_ROUNDS + 1),
        )
        for old in range(first, self._remembered):
            keys = [f"{old}/{what}" for what in ("call", "base", "verdict")]
            for what in ("begun", "ready", "manifest", "anchor"):
                keys += [f"{old}/{what}/{rank}" for rank in range(self.ranks)]
            for key in keys:
                self._guard(partial(self._store.delete_key, key))

    def _is_there(self, key: str) -> bool:
        return bool(self._guard(lambda: self._store.check([key])))

    def _guard(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except RuntimeError as error:
            raise UnavailableError(
                f"rank {self.rank}: the store that the ranks meet at cannot be reached ({error}); "
                "the rank that holds it, mostly rank 0, is gone"
            ) from error
