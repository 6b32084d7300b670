"""A trainer whose key a root certified, and replicas that trust the root: all in one folder.

Named by the tests that move the clock, whose processes import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import wisp


class People:
    """`folder` has the key `k`, its certificate `k.cert` and `root.pub`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.run = str(self.folder / "run")
        self.root = self.folder / "root.pub"

    def train(self, *steps: int) -> Iterator[int]:
        """Publishes them one by one, by one publisher."""
        weights = {"w": np.arange(100, dtype=np.float32)}
        with wisp.Publisher(
            self.run, weights, sign_key=self.folder / "k", certificate=self.folder / "k.cert",
            trust=self.root, scratch=self.folder / "scratch", expires_after=0, on_error="raise",
        ) as publisher:  # fmt: skip
            for step in steps:
                weights["w"][step] = -step
                publisher.publish(step)
                publisher.flush()
                yield step

    def follow(self, name: str) -> wisp.SyncReport:
        """To the newest step, in a folder of its own."""
        with wisp.Follower(self.run, self.folder / name, trust=self.root) as follower:
            return follower.sync()


def is_refused(call: Callable[[], object]) -> bool:
    """Because a certificate has ended."""
    try:
        call()
    except wisp.DeniedError as error:
        return "expired at" in str(error)
    return False
