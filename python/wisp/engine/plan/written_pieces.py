"""Writes of a loader as pieces of a plan, and which of them later ones replaced."""

from __future__ import annotations

import torch

from ...errors import UnsupportedError
from .element_map import factor, nested
from .load_plan import Piece

__all__ = ["last_of", "piece_of"]


def piece_of(index: int, view: torch.Tensor, source: torch.Tensor) -> Piece | None:
    """None when the views are not each other's image by steps alone."""
    dims = nested(list(zip(source.shape, source.stride(), view.stride(), strict=True)))
    if dims is None:
        return None
    return Piece(index, source.storage_offset(), view.storage_offset(), dims)


def last_of(pieces: list[Piece]) -> list[Piece]:
    """Without what a later write of the same tensor has replaced."""
    kept: list[Piece] = []
    for target in sorted({piece.target for piece in pieces}):
        here = [piece for piece in pieces if piece.target == target]
        spans = sorted((p.target_offset, p.target_end) for p in here)
        if all(one[1] <= two[0] for one, two in zip(spans, spans[1:], strict=False)):
            kept += here
        else:
            kept += _without_replaced(here, spans[0][0], max(end for _, end in spans))
    return kept


def _without_replaced(pieces: list[Piece], first: int, end: int) -> list[Piece]:
    last = torch.full((end - first,), -1, dtype=torch.int32)
    for number, piece in enumerate(pieces):
        _at(piece, last, first).fill_(number)
    kept: list[Piece] = []
    for number, piece in enumerate(pieces):
        mine = (_at(piece, last, first) == number).reshape(-1)
        if bool(mine.all()):
            kept.append(piece)
        elif bool(mine.any()):
            sources, places = torch.tensor(piece.source_offset), torch.tensor(piece.target_offset)
            for size, stride, step in piece.dims:
                sources = sources.unsqueeze(-1) + torch.arange(size) * stride
                places = places.unsqueeze(-1) + torch.arange(size) * step
            parts = factor(sources.reshape(-1)[mine], places.reshape(-1)[mine])
            if parts is None:
                raise UnsupportedError(
                    "the model's loader writes a tensor over itself without an order that can be "
                    "followed; reload the server from an export of each step"
                )
            kept += [Piece(piece.target, s, p, dims, piece.function) for s, p, dims in parts]
    return kept


def _at(piece: Piece, flat: torch.Tensor, first: int) -> torch.Tensor:
    sizes = [size for size, _, _ in piece.dims]
    return flat.as_strided(sizes, [step for _, _, step in piece.dims], piece.target_offset - first)
