"""What a publisher tells of each committed step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import _native
from ..reports import give_repr, human_bytes, human_count, human_seconds

__all__ = ["PublishStats"]


@dataclass(frozen=True)
class PublishStats:
    """A committed step: what changed, what it cost, and how long the training waited for it."""

    step: int
    #: Of its commit in the log.
    seq: int
    #: Of the writer: each publisher that takes the run over begins another.
    epoch: int
    #: "delta", "anchor", or "present": the run was at these weights already.
    kind: str
    #: The digest of the weights.
    state: str
    #: Elements that changed, and all there are.
    changed: int
    total: int
    #: What followers fetch for the step: the delta, or the anchor where there is no delta.
    bytes: int
    #: What the weights take in full.
    full_bytes: int
    #: An anchor written besides the delta; 0: none was due.
    anchor_bytes: int
    #: Comparing; then, in the background, uploading, committing and moving the baseline.
    diff_seconds: float
    upload_seconds: float
    commit_seconds: float
    baseline_seconds: float
    #: How long publish() took.
    blocked_seconds: float
    #: Earlier steps that were not uploaded on their own and are in this one.
    folded: int
    #: Why an anchor that was due is not in the bucket; it stays due.
    anchor_failure: str | None = None

    @property
    def sparsity(self) -> float:
        """The share of elements that did not change."""
        return 1 - self.changed / self.total if self.total else 1.0

    @property
    def ratio(self) -> float:
        """How many times smaller than the full weights."""
        return self.full_bytes / self.bytes if self.bytes else float("inf")

    def __str__(self) -> str:
        size = f"{human_bytes(self.bytes)} ({self.ratio:.0f}x smaller)" if self.bytes else "nothing"
        if self.kind == "anchor":
            size = human_bytes(self.bytes)
        anchor = f" + anchor {human_bytes(self.anchor_bytes)}" if self.anchor_bytes else ""
        folded = f", {self.folded} folded" if self.folded else ""
        phases = ", ".join(
            f"{name} {human_seconds(getattr(self, f'{name}_seconds'))}"
            for name in ("blocked", "diff", "upload", "commit", "baseline")
        )
        return (
            f"step {self.step}: {human_count(self.changed)} of {human_count(self.total)} changed "
            f"({100 * (1 - self.sparsity):.3g} %), {size}{anchor}{folded}; {phases}"
        )


STATS_COLUMNS: dict[str, Callable[[PublishStats], str]] = {
    "step": lambda s: str(s.step),
    "kind": lambda s: s.kind,
    "changed": lambda s: f"{100 * (1 - s.sparsity):.3g} %",
    "bytes": lambda s: human_bytes(s.bytes),
    "ratio": lambda s: f"{s.ratio:.0f}x",
    "blocked": lambda s: human_seconds(s.blocked_seconds),
    "diff": lambda s: human_seconds(s.diff_seconds),
    "upload": lambda s: human_seconds(s.upload_seconds),
    "commit": lambda s: human_seconds(s.commit_seconds),
    "baseline": lambda s: human_seconds(s.baseline_seconds),
    "folded": lambda s: str(s.folded or ""),
}


def stats_of(
    report: _native.PublishReport, full_bytes: int, blocked: float, folded: int
) -> PublishStats:
    whole = report.kind == "anchor"
    return PublishStats(
        step=report.step,
        seq=report.seq,
        epoch=report.epoch,
        kind=report.kind,
        state=report.state,
        changed=report.changed_elements,
        total=report.total_elements,
        bytes=report.anchor_bytes if whole else report.delta_bytes,
        full_bytes=full_bytes,
        anchor_bytes=0 if whole else report.anchor_bytes,
        diff_seconds=report.diff_seconds,
        upload_seconds=report.upload_seconds,
        commit_seconds=report.commit_seconds,
        baseline_seconds=report.baseline_seconds,
        blocked_seconds=blocked,
        folded=folded,
        anchor_failure=report.anchor_failure,
    )


give_repr(
    _native.PublishReport,
    lambda r: [
        ("step", str(r.step)),
        ("kind", r.kind),
        ("changed", human_count(r.changed_elements)),
        ("uploaded", human_bytes(r.uploaded_bytes)),
    ],
)
