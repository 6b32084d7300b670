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
    """Newest last, each with its file in the folder, or with the deltas that ranks decode."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moves: list[Move] = []
        self._sizes: list[int] = []  # of each, when it came: others may remove files of scratch

    def all(self) -> tuple[Move, ...]:
        """As readers are told of them."""
        return tuple(self._moves)

    def add(self, move: Move) -> None:
        """The newest."""
        self._moves.append(move)
        self._sizes.append(sum(_size_of(path) for path in self._files(move)))

    def forget(self) -> None:
        """They lead nowhere any more."""
        while self._moves:
            self._drop_oldest()

    def trim(self, state_bytes: int | None, ranks: RankTable) -> None:
        """Lets go of what nobody needs, or of what would be too much.

        state_bytes: where the feed keeps the state, a rank for which moves are gone reads it whole.
        """
        if state_bytes is None:
            self._trim_relayed(ranks)
            return
        allowed = max(_BYTES, state_bytes // 2)
        while len(self._moves) > 1 and (len(self._moves) > _MOST or sum(self._sizes) > allowed):
            self._drop_oldest()

    def _trim_relayed(self, ranks: RankTable) -> None:
        """What all ranks serve already is of no use; what they have staged they can extend."""
        while len(self._moves) > 1:
            later = {move.state for move in self._moves}
            full = len(self._moves) > _MOST or sum(self._sizes[:-1]) > _RELAYED_BYTES
            if not full and not ranks.all_past(later, served=True):
                return
            self._drop_oldest()

    def _files(self, move: Move) -> list[Path]:
        return [Path(delta) for delta in move.deltas] or [self._folder / move.file]

    def _drop_oldest(self) -> None:
        del self._sizes[0]
        for path in self._files(self._moves.pop(0)):
            path.unlink(missing_ok=True)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
