"""From single elements to pieces: which steps lead from one place to the next on both sides."""

from __future__ import annotations

from itertools import product

import torch

__all__ = ["factor", "nested"]

Dims = tuple[tuple[int, int, int], ...]

_MOST = 4096  # pieces of one tensor in one target


def nested(dims: list[tuple[int, int, int]]) -> Dims | None:
    """(size, stride in the source, stride in the target), by falling stride in the source, joined
    where they can be; None when an element of the source occurs twice."""
    dims = sorted((dim for dim in dims if dim[0] != 1), key=lambda dim: -dim[1])
    joined: list[tuple[int, int, int]] = []
    for size, stride, step in dims:
        if joined and joined[-1][1] == stride * size and joined[-1][2] == step * size:
            joined[-1] = (joined[-1][0] * size, stride, step)
        else:
            joined.append((size, stride, step))
    inner = 1
    for size, stride, _ in reversed(joined):
        if stride < inner:
            return None
        inner = (size - 1) * stride + inner
    return tuple(joined)


def factor(sources: torch.Tensor, places: torch.Tensor) -> list[tuple[int, int, Dims]] | None:
    """Pairs of places as (first in the source, first in the target, dims); None: there is no order
    in them that is worth it."""
    found: list[tuple[int, int, Dims]] = []
    rest = [(sources, places)]
    while rest:
        sources, places = rest.pop()
        if sources.numel() == 0:
            continue
        dims, whole = _dims(sources, places)
        if dims is None:
            # Where the first run ends, something else begins.
            rest += [(sources[whole:], places[whole:]), (sources[:whole], places[:whole])]
        else:
            simple = _simple(int(sources[0]), int(places[0]), dims)
            if simple is None:
                return None
            found += simple
        if len(found) + len(rest) > _MOST:
            return None
    return found


def _dims(
    sources: torch.Tensor, places: torch.Tensor
) -> tuple[list[tuple[int, int, int]] | None, int]:
    """The dimensions of all pairs; else None, and how many of the first are in order."""
    dims: list[tuple[int, int, int]] = []
    length = 1
    while (count := sources.numel()) > 1:
        steps, leaps = sources.diff(), places.diff()
        breaks = ((steps != steps[0]) | (leaps != leaps[0])).nonzero()
        size = int(breaks[0]) + 1 if breaks.numel() else count
        if count % size:
            return None, length * size
        rows, columns = sources.view(-1, size), places.view(-1, size)
        at = torch.arange(size)
        if not bool(((rows - rows[:, :1]) == at * steps[0]).all()) or not bool(
            ((columns - columns[:, :1]) == at * leaps[0]).all()
        ):
            return None, length * size
        dims.append((size, int(steps[0]), int(leaps[0])))
        sources, places, length = rows[:, 0], columns[:, 0], length * size
    return dims, length


def _simple(
    source: int, place: int, dims: list[tuple[int, int, int]]
) -> list[tuple[int, int, Dims]] | None:
    """With steps forward only: what repeats or runs backward becomes pieces of its own."""
    forward = [dim for dim in dims if dim[1] > 0 and dim[2] > 0]
    others = [dim for dim in dims if dim[1] <= 0 or dim[2] <= 0]
    kept = nested(forward)
    total = 1
    for size, _, _ in others:
        total *= size
    if kept is None or total > _MOST:
        return None
    made = []
    for at in product(*(range(size) for size, _, _ in others)):
        along = [(i * stride, i * step) for i, (_, stride, step) in zip(at, others, strict=True)]
        made.append((source + sum(s for s, _ in along), place + sum(p for _, p in along), kept))
    return made
