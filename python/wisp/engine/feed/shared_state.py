"""A run's newest state as the feed of a host keeps it: whole, in a file that readers map."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import numpy as np

from ... import _native
from ...follow.targets import SharedTarget, element_width
from ...tensors import TensorEntry
from .feed_files import WriterTurn, check_told, state_layout, write_move

__all__ = ["SharedState"]


class SharedState(SharedTarget):
    """The replica, in a file that readers map."""

    def __init__(self, folder: Path, turn: WriterTurn | None = None) -> None:
        self.relay = False
        self.whole = self.whole_state = ""
        self.whole_parts = self.coming = None
        self.kept: tuple[str, ...] = ()
        self.schema: tuple[TensorEntry, ...] = ()
        self.file = ""
        self.serial = 0
        self.size = 0
        self.adopted = False
        self.moved: tuple[tuple[str, int], ...] | None = None
        self.proven_by: tuple[str, ...] = ()  #: what this memory held, and no rank's
        self.handed: tuple[str, ...] = ()  #: it is decoded here
        self._folder = folder
        self.turn = turn or WriterTurn(folder)
        self._weights: _native.HostWeights | None = None

    def memory(self, schema: list[TensorEntry]) -> _native.HostWeights:
        self.turn.take()
        if self._weights is not None and tuple(schema) == self.schema:
            return self._weights
        head, starts, self.size = state_layout(schema)
        file = f"state-{time.time_ns()}.safetensors"
        with open(self._folder / file, "xb") as out:
            os.posix_fallocate(out.fileno(), 0, self.size)  # no room: now, not as a dead process
            out.write(head)
        memory = np.memmap(self._folder / file, np.uint8, "r+", shape=(self.size,))
        entries = [
            (name, dtype, shape, memory[start : start + _size(dtype, shape)])
            for (name, dtype, shape), start in zip(schema, starts, strict=True)
        ]
        self._weights = _native.HostWeights(entries, True)
        if self.file:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / self.file).unlink()
        self.schema, self.file = tuple(schema), file
        return self._weights

    def enter(self) -> None:
        self.turn.take()

    def adopt(self, step: int, seq: int, state: str) -> None:
        self.adopted = True

    def move(self, move: _native.ToldMove, step: int, seq: int, state: str) -> None:
        check_told(self.moved)
        self.moved = write_move(self._folder, f"move-{self.serial + 1}", move)

    def release(self, whole: bool) -> None:
        """Readers may look again. A write that was begun and not told of leaves no state."""
        self.adopted, self.moved = False, None
        self.turn.give(self.serial if whole else 0)


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * element_width(dtype)
