"""A rank's answer to its feed: words of a state, out of the engine's own memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..feed.feed_files import inside, map_at_once
from ..feed.feed_messages import Gather, Part
from ..plan.load_plan import LoadPlan, Piece, Target
from ..stage.stage import Stage

__all__ = ["fill", "parts_of"]

_INTEGERS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def parts_of(plan: LoadPlan) -> dict[str, tuple[Part, ...]]:
    """What a rank can give back bit for bit, of each tensor of the checkpoint."""
    found: dict[str, tuple[Part, ...]] = {}
    for name, pieces in plan.pieces.items():
        if all(
            piece.function is None and plan.targets[piece.target].dtype == plan.dtypes[name]
            for piece in pieces
        ):
            found[name] = tuple(
                (piece.source_offset, tuple((size, stride) for size, stride, _ in piece.dims))
                for piece in pieces
            )
    return found


def fill(plan: LoadPlan, stage: Stage | None, asked: Gather, folder: Path) -> int:
    """Puts what this rank holds of the words into the file, or compares it with what is there.

    stage: what leads from memory to the state that is asked for; None: it is in memory.
    How many words differ, if it was to compare; those that it holds twice count twice.
    """
    differing = 0
    data = map_at_once(inside(folder, asked.file))
    for name, first, count, at in asked.tensors:
        if first < 0:
            words = data[at : at + 4 * count].view(np.int32)
            at += -(-4 * count // 8) * 8
        else:
            words = np.arange(first, first + count, dtype=np.int32)
        buffer = data[at : at + 8 * count]
        held: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        for piece in plan.pieces.get(name, ()):
            part = (piece.source_offset, tuple(dim[:2] for dim in piece.dims))
            if asked.only_compare:
                mine = buffer.copy()
                _fill_piece(plan, stage, piece, words, mine)
                differing += int(np.count_nonzero(mine.view(np.int64) != buffer.view(np.int64)))
            elif part not in held:  # tied weights may be in two places
                _fill_piece(plan, stage, piece, words, buffer)
                held.add(part)
    return differing


def _fill_piece(
    plan: LoadPlan, stage: Stage | None, piece: Piece, indices: np.ndarray, buffer: np.ndarray
) -> None:
    target = plan.targets[piece.target]
    per = 8 // target.width
    staged = stage if stage is not None and piece.target in stage.touched else None
    if staged is None and target.layout is None and target.flat.device.type == "cpu":
        piece.native.fill_words(target.flat.numpy(), target.width, indices, buffer)
        return
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
