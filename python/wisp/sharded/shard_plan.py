"""Who codes what: the blocks of every tensor divided among the ranks that hold its elements.

A tensor is seen flat. Each rank holds one contiguous range of it (its rows), perhaps none. It is
cut into blocks of 2^log2 elements; a block that lies on one rank is that rank's. One that lies on
several is given to one of them, in turn, and the others send it their pieces at every publish: at
most one block per tensor and boundary. Every rank computes the same plan from the same ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InvalidError

#: The elements [low, high) of a tensor; low == high: none.
Range = tuple[int, int]


@dataclass(frozen=True)
class BlockPart:
    """What one rank holds of a block that another one codes."""

    tensor: int
    block: int
    low: int
    high: int
    holder: int
    coder: int


@dataclass
class ShardPlan:
    """What one rank does. `spans` are (tensor, first block, count), ascending."""

    spans: list[tuple[int, int, int]] = field(default_factory=list)
    sends: dict[int, list[BlockPart]] = field(default_factory=dict)
    receives: dict[int, list[BlockPart]] = field(default_factory=dict)

    @property
    def peers(self) -> list[int]:
        """The ranks that pieces are exchanged with."""
        return sorted(set(self.sends) | set(self.receives))


def holders_of(name: str, elements: int, ranges: Sequence[Range]) -> list[tuple[int, int, int]]:
    """[(low, high, rank), …] that cover the tensor once, of what each rank holds.

    Of ranks that hold the same range (replicas) the lowest is taken, for all of its tensors, so
    that what is published is one replica's state. Raises InvalidError for gaps and overlaps.
    """
    taken: list[tuple[int, int, int]] = []
    at = 0
    for low, high, rank in sorted((low, high, rank) for rank, (low, high) in enumerate(ranges)):
        if low == high or (taken and taken[-1][:2] == (low, high)):
            continue
        if low != at:
            break
        taken.append((low, high, rank))
        at = high
    if at != elements:
        raise InvalidError(
            f"tensor '{name}': the ranks hold {list(ranges)} of its {elements} elements, which "
            "does not cover it once"
        )
    return taken


def make_plans(
    tensors: Sequence[tuple[str, int]], ranges: Sequence[Sequence[Range]], log2: int
) -> list[ShardPlan]:
    """One plan per rank. `tensors` are (name, elements); `ranges[rank][tensor]` what it holds."""
    plans = [ShardPlan() for _ in ranges]
    turn = 0
    for tensor, (name, elements) in enumerate(tensors):
        holders = holders_of(name, elements, [held[tensor] for held in ranges])
        for low, high, rank in holders:
            # Blocks that begin and end here; the last one of the tensor may be short.
            first = -(-low >> log2)
            end = -(-high >> log2) if high == elements else high >> log2
            if first < end:
                plans[rank].spans.append((tensor, first, end - first))
        for block, parts in _straddling(holders, log2):
            coder = parts[turn % len(parts)][2]
            turn += 1
            plans[coder].spans.append((tensor, block, 1))
            for low, high, holder in parts:
                if holder == coder:
                    continue
                piece = BlockPart(tensor, block, low, high, holder, coder)
                plans[holder].sends.setdefault(coder, []).append(piece)
                plans[coder].receives.setdefault(holder, []).append(piece)
    for plan in plans:
        plan.spans.sort()
    return plans


def _straddling(
    holders: list[tuple[int, int, int]], log2: int
) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Blocks with elements on several ranks, each with the parts of it."""
    blocks: dict[int, list[tuple[int, int, int]]] = {}
    for low, high, rank in holders:
        for block in {low >> log2, (high - 1) >> log2}:
            start, end = block << log2, (block + 1) << log2
            blocks.setdefault(block, []).append((max(low, start), min(high, end), rank))
    return sorted((block, sorted(parts)) for block, parts in blocks.items() if len(parts) > 1)
