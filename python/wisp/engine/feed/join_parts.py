"""What the ranks of a host will hold of a state that is about to be fetched.

An engine that spans hosts holds a part of it on each. Before a whole state is fetched the ranks are
told its tensors, make their plans for them, and say what they hold: no more has to come.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ... import _native
from ...tensors import TensorEntry
from .feed_messages import Coming, Part
from .held_slices import whole_part
from .rank_table import RankTable

__all__ = ["JoinParts", "StateParts", "has_parts"]

_log = logging.getLogger("wisp.feed")
_PATIENCE = 600.0  # seconds in which ranks make their plans, which reads the served folder once


@dataclass(frozen=True)
class StateParts:
    """What is fetched of a state, and no more."""

    parts: dict[str, frozenset[Part]]  #: of tensors that are held in part
    whole: tuple[str, ...]  #: those that are needed whole
    kept: tuple[str, ...]  #: and of these, those that no rank gives back

    def listed(self, schema: Sequence[TensorEntry]) -> dict[str, tuple[Part, ...]]:
        """All of it as parts, by name."""
        shapes = {name: shape for name, _, shape in schema}
        found = {name: (whole_part(shapes[name]),) for name in self.whole}
        return found | {name: tuple(sorted(parts)) for name, parts in self.parts.items()}


class JoinParts:
    """Asks the ranks in `ranks`; `tell` says something to all of them, `go_on` may raise."""

    def __init__(
        self, ranks: RankTable, tell: Callable[[Coming], None], go_on: Callable[[], None]
    ) -> None:
        self.coming: Coming | None = None  #: what ranks that come later are to be told, too
        self._ranks = ranks
        self._tell = tell
        self._go_on = go_on

    def ask(
        self, schema: tuple[TensorEntry, ...], patience: float = _PATIENCE
    ) -> StateParts | None:
        """None: all of it is needed, or not all ranks could say what they need."""
        coming = self.coming = Coming(time.time_ns(), schema)
        self._tell(coming)
        try:
            failed = self._ranks.wait_holds(coming.number, self._go_on, _PATIENCE)
        finally:
            self.coming = None
        if failed is not None:
            _log.warning("%s, so that a whole state is fetched", failed)
            return None
        return parts_of_host(self._ranks, schema)


def parts_of_host(ranks: RankTable, schema: Sequence[TensorEntry]) -> StateParts | None:
    """What the ranks need of a state of these tensors; None: all."""
    names = {entry[0] for entry in schema}
    covered = ranks.covered(schema)
    kept = ranks.needed_whole() & names
    if names <= covered | kept:
        return None
    whole = covered | kept
    parts = {name: p for name, p in ranks.parts().items() if name in names - whole}
    return StateParts(parts, tuple(sorted(whole)), tuple(sorted(kept)))


def native(parts: StateParts, schema: Sequence[TensorEntry]) -> _native.HeldSlices:
    """As the library takes it."""
    return _native.HeldSlices({n: list(p) for n, p in parts.listed(schema).items()})


def has_parts(
    held: Mapping[str, Sequence[Part]] | None,
    wanted: Mapping[str, Sequence[Part]],
    schema: Sequence[TensorEntry],
) -> bool:
    """Whether these parts are among those that are held; None: everything is."""
    if held is None:
        return True
    shapes = {name: shape for name, _, shape in schema}
    return all(
        whole_part(shapes[name]) in held.get(name, ()) or set(parts) <= set(held.get(name, ()))
        for name, parts in wanted.items()
    )
