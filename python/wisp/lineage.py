"""Which commit of a run is a step, in the history that its newest commit continues."""

from __future__ import annotations

from typing import Any

from . import _native
from .runs import log
from .stores import RunAddress

__all__ = ["commit_of"]

_STATES = ("delta", "anchor", "branch")  # kinds of commits that say what a step holds
_AT_FIRST = 32


def commit_of(run: RunAddress, step: int | None, **trusted: Any) -> _native.CommitSummary | None:
    """The newest commit that says what `step` holds; of the newest step if None.

    None: the step is not there yet, was given up when the run was set back to a step before it, or
    lies further back than the log reaches. `trusted` are those of wisp.log.
    """
    count = _AT_FIRST
    while True:
        lines = log(run, count, **trusted)
        for line in lines:
            if line.kind not in _STATES or (step is not None and line.step > step):
                continue
            return line if step in (None, line.step) else None
        if len(lines) < count:
            return None
        count *= 4
