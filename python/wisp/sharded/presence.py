"""Which ranks take part in a round: waiting for them, and remembering those that did not come."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..errors import UnavailableError
from .key_store import KeyStore

#: What a rank that was missed before, and not heard of since, gets to give a sign of life.
_GRACE_SECONDS = 5.0


class RankPresence:
    """What one rank knows of the others. Its two threads may ask at the same time."""

    def __init__(self, keys: KeyStore) -> None:
        self._keys = keys
        self._silent: set[int] = set()

    def silent(self) -> set[int]:
        """Those that were waited for in vain, and have not come back."""
        return set(self._silent)

    def note_silent(self, ranks: Iterable[int]) -> None:
        """They were waited for in vain."""
        self._silent = self._silent | set(ranks)

    def wait(
        self, number: int, keys: dict[int, str], deadline: float, unless: str | None = None
    ) -> list[int]:
        """Waits for a key of each rank; those whose keys are missing at the deadline.

        Nobody is waited for twice: a rank that was missed before has to show that it takes part in
        this round, which takes it no time if it lives.
        """
        doubted = self._silent & keys.keys()
        if doubted:
            grace = min(deadline, time.monotonic() + _GRACE_SECONDS)
            begun = {f"{number}/begun/{rank}": rank for rank in doubted}
            gone = {begun[key] for key in self._keys.wait(begun, grace, unless=unless)}
            self._silent = self._silent - (doubted - gone)
            if gone:
                return sorted(gone)
        missing = set(self._keys.wait(keys.values(), deadline, unless=unless))
        return [rank for rank, key in keys.items() if key in missing]

    def overdue(self, ranks: Iterable[int], step: int, timeout: float) -> UnavailableError:
        """What is said of ranks that did not deliver, and noted for the next time."""
        late = set(ranks)
        since = (
            "and was not heard of since an earlier one"
            if late <= self._silent
            else f"within {timeout:g} s"
        )
        self.note_silent(late)
        names = ", ".join(str(rank) for rank in sorted(late))
        return UnavailableError(f"rank {names} did not deliver step {step} {since}")
