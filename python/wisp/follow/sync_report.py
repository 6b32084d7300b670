"""What a follower tells its user: where it stands, and each event on the way."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _native
from ..reports import give_repr, html_table, human_bytes, human_count, human_seconds

__all__ = ["SyncReport"]


@dataclass(frozen=True)
class SyncReport:
    """Where a follower stands, and what it took to get there."""

    step: int | None  #: None: nothing was published yet
    seq: int
    state: str  #: the digest of the weights
    moved: bool
    joined: bool  #: by a whole state, not by deltas alone
    changed_elements: int
    fetched_bytes: int
    lag_steps: int
    expired: bool
    seconds: float
    faults: tuple[str, ...]  #: what went wrong and was worked around
    unproven: bool = False  #: on the word of files without a digest: TRL's, in its own layout

    def _rows(self) -> list[tuple[str, str]]:
        how = "joined" if self.joined else "applied" if self.moved else "already there"
        rows = [("step", str(self.step)), ("how", how)]
        if self.moved:
            rows += [
                ("changed", human_count(self.changed_elements)),
                ("fetched", human_bytes(self.fetched_bytes)),
                ("in", human_seconds(self.seconds)),
            ]
        if self.lag_steps:
            rows.append(("behind", f"{self.lag_steps} steps"))
        if self.expired:
            rows.append(("stale", "the run has fallen silent"))
        if self.unproven:
            rows.append(("unproven", "the files carry no digest"))
        return rows + [("fault", fault) for fault in self.faults]

    def __repr__(self) -> str:
        return f"<SyncReport {', '.join(f'{label} {text}' for label, text in self._rows())}>"

    def _repr_html_(self) -> str:
        return html_table("SyncReport", [], self._rows())


give_repr(
    _native.FollowEvent,
    lambda e: [
        ("", e.kind),
        ("step", str(e.step)),
        ("changed", human_count(e.changed_elements)),
        ("fetched", human_bytes(e.fetched_bytes)),
        *([("fault", e.fault)] if e.fault else []),
    ],
)
