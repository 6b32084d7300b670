"""A rank's answer to its feed: words of a state, out of the engine's own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ... import _native
from ..feed.feed_files import inside, map_at_once
from ..feed.feed_messages import Gather, Part
from ..feed.word_buffers import index_bytes
from ..plan.load_plan import LoadPlan, Piece, Target
from ..stage.stage import Stage

__all__ = ["WordGather", "opaque_of", "parts_of"]

_INTEGERS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def parts_of(plan: LoadPlan) -> dict[str, tuple[Part, ...]]:
    """What a rank can give back bit for bit, of each tensor of the checkpoint."""
    found: dict[str, tuple[Part, ...]] = {}
    for name, pieces in plan.pieces.items():
        if all(plan.is_copy(name, piece) for piece in pieces):
            found[name] = tuple(
                (piece.source_offset, tuple((size, stride) for size, stride, _ in piece.dims))
                for piece in pieces
            )
    return found


def opaque_of(plan: LoadPlan) -> tuple[str, ...]:
    """The tensors of which it cannot."""
    return tuple(sorted({*plan.opaque, *(plan.pieces.keys() - parts_of(plan).keys())}))


class WordGather:
    """Answers questions of a feed out of `folder`. One at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = ""
        self._data = np.empty(0, np.uint8)

    def fill(self, plan: LoadPlan, stage: Stage | None, asked: Gather) -> int:
        """Puts what this rank holds of the words into the file, or compares it with what is there.

        stage: what leads from memory to the state that is asked for; None: it is in memory.
        How many words differ, if it was to compare; those that it holds twice count twice.
        """
        differing = 0
        data = self._map(asked.file)
        jobs: list[object] = []
        for name, first, count, at in asked.tensors:
            if first < 0:
                words = data[at : at + 4 * count].view(np.int32)
                at += index_bytes(count)
            else:
                words = np.arange(first, first + count, dtype=np.int32)
            buffer = data[at : at + 8 * count]
            held: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
            for piece in plan.pieces.get(name, ()):
                part = (piece.source_offset, tuple(dim[:2] for dim in piece.dims))
                if asked.only_compare:
                    mine = buffer.copy()
                    _native.fill_words(_fill_piece(plan, stage, piece, words, mine))
                    differing += int(np.count_nonzero(mine.view(np.int64) != buffer.view(np.int64)))
                elif part not in held:  # tied weights may be in two places
                    jobs += _fill_piece(plan, stage, piece, words, buffer)
                    held.add(part)
        _native.fill_words(jobs)
        return differing

    def _map(self, file: str) -> np.ndarray:
        """A feed asks with the same file again and again, as long as it is large enough."""
        if file != self._file:
            self._file, self._data = file, map_at_once(inside(self._folder, file))
        return self._data


def _fill_piece(
    plan: LoadPlan, stage: Stage | None, piece: Piece, indices: np.ndarray, buffer: np.ndarray
) -> list[object]:
    """Does it, or says what is left to do, for _native.fill_words."""
    target = plan.targets[piece.target]
    per = 8 // target.width
    staged = stage if stage is not None and stage.changes(piece.target) else None
    is_plain = target.layout is None and target.flat.device.type == "cpu"
    if is_plain and (staged is None or not staged.has_rows(piece.target)):
        over = staged.staged(piece.target) if staged is not None else None
        changes = (None, None) if over is None else (over.offsets.numpy(), over.new.numpy())
        return [(piece.native, target.flat.numpy(), target.width, indices, buffer, *changes)]
    words = torch.from_numpy(indices).to(torch.int64)
    whole = _in_words(piece, per)
    lanes = torch.arange(per)
    if whole is None:
        positions = (words[:, None] * per + lanes).reshape(-1)
        first, last, offsets, kept = piece.locate(positions)
        bits = _read(target, staged, piece.target, offsets)
        into = torch.from_numpy(buffer.view(_INTEGERS[target.width]))[first:last]
    else:
        first, last, offsets, kept = whole.locate(words)
        if staged is None and _is_aligned(target, whole, per):
            memory = target.flat[: target.flat.numel() // per * per].view(torch.int64)
            index = (offsets // per if per > 1 else offsets).to(memory.device)
            bits = memory.index_select(0, index)
            into = torch.from_numpy(buffer.view(np.int64))[first:last]
        else:
            each = (offsets[:, None] + lanes).reshape(-1)
            bits = _read(target, staged, piece.target, each).view(-1, per)
            into = torch.from_numpy(buffer.view(_INTEGERS[target.width])).view(-1, per)[first:last]
    if kept is None:
        into.copy_(bits)
    else:
        into[kept] = bits.cpu()
    return []


def _read(target: Target, staged: Stage | None, index: int, offsets: torch.Tensor) -> torch.Tensor:
    places = target.place(offsets)
    if staged is not None:
        return staged.read(index, places)
    return target.flat.index_select(0, places.to(target.flat.device))


def _in_words(piece: Piece, per: int) -> Piece | None:
    """The piece by words instead of elements, the first element of each in the target; None if a
    word does not lie in it whole and in a row."""
    if per == 1:
        return piece
    if not piece.dims or piece.source_offset % per:
        return None
    *outer, (size, stride, step) = piece.dims
    if stride != 1 or step != 1 or size % per or any(along % per for _, along, _ in outer):
        return None
    dims = [(count, along // per, leap) for count, along, leap in outer]
    return Piece(
        piece.target, piece.source_offset // per, piece.target_offset,
        (*dims, (size // per, 1, per)),
    )  # fmt: skip


def _is_aligned(target: Target, piece: Piece, per: int) -> bool:
    """Whether each of its words is one in memory, too."""
    return (
        target.layout is None
        and target.flat.data_ptr() % 8 == 0
        and piece.target_offset % per == 0
        and all(step % per == 0 for _, _, step in piece.dims)
    )
