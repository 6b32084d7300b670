"""What every program here does: tell its story as lines of JSON, and end when it is asked to."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any


def tell(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def ended_by_signals() -> threading.Event:
    """Set by SIGTERM and by Ctrl-C, for the program to end in order."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended
