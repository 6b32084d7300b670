"""Deltas over a rank's own memory: for ranks that hold every tensor of the run without a gap.

Such a rank needs nobody's words to decode and prove a step, so the feed hands it the files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ... import _native
from ...follow.targets import UNSIGNED, element_width
from ...tensors import TensorEntry
from ..feed.feed_messages import Move
from ..plan.load_plan import LoadPlan, Piece
from ..stage.room import Room
from ..stage.stage import Stage

__all__ = ["can_decode", "decoded"]


def can_decode(plan: LoadPlan, schema: Sequence[TensorEntry]) -> bool:
    """Whether memory holds all tensors in host memory, as the checkpoint has them."""
    return not plan.opaque and all(_whole(plan, name) is not None for name, _, _ in schema)


def _whole(plan: LoadPlan, name: str) -> Piece | None:
    """A piece that is all of a tensor, in one row."""
    count = math.prod(plan.shapes.get(name, (0,)))
    pieces = plan.pieces.get(name, [])
    if not all(plan.is_copy(name, piece) for piece in pieces):
        return None
    for piece in pieces:
        target = plan.targets[piece.target]
        in_a_row = piece.dims == ((count, 1, 1),) or (count == 1 and piece.count == 1)
        if in_a_row and target.layout is None and target.flat.device.type == "cpu":
            return piece
    return None


def decoded(
    before: Stage, schema: Sequence[TensorEntry], moves: Sequence[Move], label: str
) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """(name, positions, new and old bits as unsigned integers) of consecutive moves together.

    before: what leads from memory to where they begin. WrongBaseError: somebody else wrote to
    memory; NotFoundError: the feed has let the deltas go; CorruptError: they are damaged, or wrong.
    """
    whole: dict[int, np.ndarray] = {}  # targets of which rows are staged
    found = _native.decode_staged(
        schema,
        [_memory(before, name, whole) for name, _, _ in schema],
        [delta for move in moves for delta in move.deltas],
        moves[0].base,
        moves[-1].state,
        f"the memory of rank {label}",
    )
    whole.clear()  # before there is room for what was found
    entries = {entry[0]: entry for entry in schema}
    kinds = []
    for name, count in found.tensors:
        _, dtype, shape = entries[name]
        places = np.dtype(np.uint32 if math.prod(shape) < 1 << 32 else np.int64)
        bits = np.dtype(UNSIGNED[element_width(dtype)])
        kinds.append((name, count, places, bits))
    room = Room(sum(n * (p.itemsize + 2 * b.itemsize) + 3 * 8 for _, n, p, b in kinds))
    columns = [(room.take(n, p), room.take(n, b), room.take(n, b)) for _, n, p, b in kinds]
    found.take(columns)
    return [(kind[0], *taken) for kind, taken in zip(kinds, columns, strict=True)]


def _memory(before: Stage, name: str, whole: dict[int, np.ndarray]) -> object:
    """As decode_staged takes it."""
    piece = _whole(before.plan, name)
    assert piece is not None, name
    index = piece.target
    if before.has_rows(index):
        if index not in whole:
            whole[index] = before.after(index).numpy()
        return whole[index], piece.target_offset, None, None
    flat = before.plan.targets[index].flat.numpy()
    staged = before.staged(index)
    if staged is None:
        return flat, piece.target_offset, None, None
    return flat, piece.target_offset, staged.offsets.numpy(), staged.new.numpy()
