"""The moves that a feed keeps for ranks that are a few steps behind."""

from __future__ import annotations

from pathlib import Path

from .feed_messages import Move
from .rank_table import RankTable

__all__ = ["MoveBacklog"]

_MOST = 64
_BYTES = 64 << 20  # or half of the state, if that is more
_RELAYED_BYTES = 32 << 20  # the same where the ranks have the state, beside the newest


class MoveBacklog:
    """Newest last, each with its file in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moves: list[Move] = []

    def all(self) -> tuple[Move, ...]:
        """As readers are told of them."""
        return tuple(self._moves)

    def add(self, move: Move) -> None:
        """The newest."""
        self._moves.append(move)

    def forget(self) -> None:
        """They lead nowhere any more."""
        for move in self._moves:
            (self._folder / move.file).unlink(missing_ok=True)
        self._moves.clear()

    def trim(self, state_bytes: int) -> None:
        """Where the feed keeps the state: a rank for which moves are gone reads it whole."""
        allowed = max(_BYTES, state_bytes // 2)
        while len(self._moves) > 1 and (len(self._moves) > _MOST or self._size() > allowed):
            self._drop_oldest()

    def trim_relayed(self, ranks: RankTable) -> None:
        """What all ranks serve already is of no use; what they have staged they can extend."""
        while len(self._moves) > 1:
            later = {move.state for move in self._moves}
            size = self._size() - self._size_of(self._moves[-1])
            full = len(self._moves) > _MOST or size > _RELAYED_BYTES
            if not full and not ranks.all_past(later, served=True):
                return
            self._drop_oldest()

    def _size(self) -> int:
        return sum(self._size_of(move) for move in self._moves)

    def _size_of(self, move: Move) -> int:
        return (self._folder / move.file).stat().st_size

    def _drop_oldest(self) -> None:
        (self._folder / self._moves.pop(0).file).unlink()
