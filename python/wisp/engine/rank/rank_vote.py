"""How the ranks of an engine agree: on a state that all of them know, or on nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...errors import Error, UnavailableError
from ..feed.feed_messages import RankState, state_key

__all__ = ["Served", "Share", "Vote"]

_DOUBTFUL = 1 << 60  # marks votes of ranks that have yet to agree on coverage: all of them, or none

#: Gives every rank's (number, complaint) to every rank, in the order of ranks; complaint "": none.
Vote = Callable[[int, str], list[tuple[int, str]]]
#: Gives what each rank says to every rank, in the order of ranks.
Share = Callable[[Any], list[Any]]


@dataclass(frozen=True)
class Served:
    """A state of the run, as a rank knows it."""

    feed: int  #: which feed counted
    serial: int
    step: int
    seq: int
    state: str
    times: dict[str, float] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """The same for the same weights under the same step, on whatever host."""
        return state_key(self.step, self.state)

    def as_message(self) -> RankState:
        """As other readers are told of it."""
        return RankState(self.step, self.seq, self.state, self.times)


def number_of(served: Served | None, *, doubtful: bool = False) -> int:
    """The same on all ranks only for the same state under the same step."""
    number = 0 if served is None else int(served.state[:12], 16) ^ served.step
    return number ^ (_DOUBTFUL if doubtful else 0)


def refuse(votes: list[tuple[int, str]], kind: type[Error]) -> None:
    """Raises what any rank complains of, naming it, and that they differ."""
    complaints = [f"rank {i}: {text}" for i, (_, text) in enumerate(votes) if text]
    if complaints:
        raise kind("; ".join(complaints))
    if len({number for number, _ in votes}) > 1:
        raise UnavailableError("the ranks have staged different states; try again")
