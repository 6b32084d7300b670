"""Waiting for a thing, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 120.0


def until(ready: Callable[[], object], patience: float = PATIENCE) -> None:
    """Returns once `ready` says so; AssertionError when it does not for far too long."""
    end = time.monotonic() + patience
    while not ready():
        assert time.monotonic() < end, "what was waited for did not come"
        time.sleep(0.02)
