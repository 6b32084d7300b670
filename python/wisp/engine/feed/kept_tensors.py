"""Tensors that no engine of a host can give back bit for bit, in the host's shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...follow.targets import UNSIGNED, MovedTensor, element_width
from ...tensors import TensorEntry
from .feed_files import MappedState, WriterTurn, state_layout
from .whole_state import WholeState
from .word_buffers import put_words

__all__ = ["KeptTensors"]


class KeptTensors:
    """A state of some tensors of the run, which follows each move."""

    def __init__(self, folder: Path, turn: WriterTurn) -> None:
        self.file = ""  #: where ranks find them
        self.names: tuple[str, ...] = ()
        self.size = 0
        self._folder = folder
        self._turn = turn
        self._state: MappedState | None = None

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def clear(self) -> None:
        """None are kept any more."""
        if self.file:
            (self._folder / self.file).unlink(missing_ok=True)
        self.file, self.names, self.size, self._state = "", (), 0, None

    def keep(self, schema: Sequence[TensorEntry], source: WholeState) -> None:
        """These instead of those that were kept before."""
        self.clear()
        if not schema:
            return
        self._turn.take()
        head, _, self.size = state_layout(schema)
        file = f"kept-{time.time_ns()}.safetensors"
        with open(self._folder / file, "xb") as out:
            os.posix_fallocate(out.fileno(), 0, self.size)
            out.write(head)
        self._state = MappedState(self._folder, file, schema)
        for name, _, _ in schema:
            self._state.bits(name)[:] = source.bits(name)
        self.file, self.names = file, tuple(entry[0] for entry in schema)

    def move(self, entries: Sequence[MovedTensor]) -> None:
        """A step is proven."""
        if self._state is None:
            return
        self._turn.take()
        for name, dtype, _, positions, bits, _ in entries:
            if name in self.names:
                kind = UNSIGNED[element_width(dtype)]
                places = np.frombuffer(positions, np.int64)
                self._state.bits(name)[places] = np.frombuffer(bits, kind)

    def fill(self, name: str, words: np.ndarray, buffer: np.ndarray) -> None:
        """Puts words of a tensor into their buffer."""
        assert self._state is not None
        put_words(self._state.bits(name), words, buffer)
