"""What the demo shows: a table that is drawn anew on a terminal, lines elsewhere."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Sequence

from wisp.reports import human_bytes as size

__all__ = ["Screen", "curve", "mean", "median", "size", "span"]

BARS = "▁▂▃▄▅▆▇█"


def span(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def median(values: Sequence[float]) -> float:
    return statistics.median_high(values) if values else 0.0


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def curve(values: Sequence[float], width: int = 48) -> str:
    """A line of bars, each the mean of what it stands for."""
    if not values:
        return ""
    width = min(width, len(values))
    means = [
        mean(values[i * len(values) // width : (i + 1) * len(values) // width])
        for i in range(width)
    ]
    low, high = min(means), max(means)
    return "".join(
        BARS[int((value - low) / (high - low or 1) * (len(BARS) - 1))] for value in means
    )


class Screen:
    """`news` stays; `draw` replaces what it drew before, or tells it in brief now and then."""

    def __init__(self, every: float = 15.0) -> None:
        self.live = sys.stdout.isatty()
        self.every = every
        self.drawn = 0
        self.last = float("-inf")

    def news(self, text: str) -> None:
        self.erase()
        print(text, flush=True)

    def draw(self, lines: list[str], brief: str) -> None:
        if self.live:
            self.erase()
            width = shutil.get_terminal_size().columns  # what wraps would be more lines than drawn
            print("\n".join(line[: width - 1] for line in lines), flush=True)
            self.drawn = len(lines)
        elif time.monotonic() - self.last >= self.every:
            self.last = time.monotonic()
            print(brief, flush=True)

    def erase(self) -> None:
        if self.drawn:
            print(f"\033[{self.drawn}A\033[J", end="")
            self.drawn = 0
