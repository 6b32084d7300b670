"""What the ranks of an engine and the feed of their host have said, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.feed.feed_link import FeedState
from ..engine.feed.feed_messages import RankReport, RankState
from ..engine.plan.coverage import told_unused

__all__ = ["Overview", "phases_of"]

#: In the order in which a step passes them; "asked" is when somebody wanted the switch.
PHASES = (
    "published", "visible", "fetched", "verified", "decoded", "staged", "asked", "paused",
    "applied", "resumed",
)  # fmt: skip


def phases_of(times: dict[str, float]) -> dict[str, float]:
    """How long each phase took, in seconds: from the end of the phase before to its own."""
    known = [(name, times[name]) for name in PHASES if name in times]
    return {
        name: round(max(0.0, when - before), 6)
        for (_, before), (name, when) in zip(known, known[1:], strict=False)
    }


@dataclass
class Overview:
    """One look at what the feed told, for the ranks of one engine."""

    feed: FeedState
    engine: str
    expected: int  #: ranks of the engine on this host
    whole: bool = True  #: it has no ranks on other hosts

    @property
    def ranks(self) -> list[RankReport]:
        """Their reports."""
        mine = f"{self.engine}/"
        return [r for label, r in sorted(self.feed.ranks.items()) if label.startswith(mine)]

    @property
    def complete(self) -> bool:
        """Whether all ranks are there."""
        return len(self.ranks) >= self.expected

    @property
    def served(self) -> RankState | None:
        """What all ranks serve. Where engines differ, the oldest of it."""
        return _oldest([rank.served for rank in self.ranks]) if self.complete else None

    @property
    def engines(self) -> dict[str, int | None]:
        """What each engine serves, by its number: data parallel engines switch one by one."""
        found: dict[str, list[RankState | None]] = {}
        for label, rank in sorted(self.feed.ranks.items()):
            owner, _, place = label.rpartition("/")
            if owner == self.engine:
                found.setdefault(place.partition(".")[0], []).append(rank.served)
        oldest = {number: _oldest(states) for number, states in found.items()}
        return {number: state.step if state else None for number, state in oldest.items()}

    def has_staged(self, key: str) -> bool:
        """Whether every rank can switch to, or serves, this state."""
        staged = self.complete and all(rank.can_serve(key) for rank in self.ranks)
        return staged and self.unheld is None

    @property
    def staged(self) -> RankState | None:
        """The newest state that every rank can switch to, or serves."""
        states = [rank.staged for rank in self.ranks]
        fitting = [s for s in states if s is not None and self.has_staged(s.key)]
        return max(fitting, key=lambda state: state.seq, default=None)

    @property
    def failure(self) -> str | None:
        """Why some rank cannot stage, or all of them together cannot switch."""
        return next((rank.failure for rank in self.ranks if rank.failure), None) or self.unheld

    @property
    def unheld(self) -> str | None:
        """That the run has tensors of which no rank holds anything. Ranks on other hosts are not
        heard here; then all ranks find it together, before the first switch writes."""
        ranks = self.ranks
        if not self.whole or not self.complete or len({rank.allowed for rank in ranks}) != 1:
            return None
        names = set(ranks[0].unknown).intersection(*(rank.unknown for rank in ranks))
        return told_unused(sorted(names)) if names else None

    def refusal(self, allowed: str) -> str | None:
        """Why some rank will not follow this run, whatever comes; `allowed`: what it must know."""
        refused = [rank for rank in self.ranks if rank.refused and rank.allowed == allowed]
        if refused:
            return refused[0].failure
        return self.unheld if all(rank.allowed == allowed for rank in self.ranks) else None

    @property
    def uncovered(self) -> dict[str, list[str]]:
        """What has no counterpart in the run or in the model, and was allowed or is ignored."""
        return {
            kind: sorted({name for rank in self.ranks for name in getattr(rank, kind)})
            for kind in ("missing", "unused", "ignored")
        }

    @property
    def draft(self) -> str | None:
        """Whether what a draft model has of its own follows; None: no rank has one."""
        return next((rank.draft for rank in self.ranks if rank.draft), None)

    def is_ahead(self) -> bool:
        """Whether there is something staged that is not served."""
        staged, served = self.staged, self.served
        return staged is not None and (served is None or served.key != staged.key)


def _oldest(states: list[RankState | None]) -> RankState | None:
    """None if some rank serves no state of the run yet."""
    known = [state for state in states if state is not None]
    if len(known) < len(states):
        return None
    return min(known, key=lambda state: state.seq, default=None)
