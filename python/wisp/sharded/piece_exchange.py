"""Pieces of blocks that lie on several ranks, on their way to the rank that codes them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ..errors import UnavailableError
from .local_tensors import LocalTensor, StagedTensors
from .shard_plan import BlockPart, ShardPlan

#: What is brought to the host at a time.
_BATCH_BYTES = 256 << 20

#: By (tensor, block): what other ranks hold of it.
Received = dict[tuple[int, int], list[tuple[BlockPart, np.ndarray]]]


def _size(pieces: list[BlockPart], locals_: list[LocalTensor]) -> int:
    return sum((p.high - p.low) * locals_[p.tensor].dtype.itemsize for p in pieces)


class PieceExchange:
    """Point-to-point messages between the ranks, over a group of its own.

    One message per pair of ranks and step. A message that does not come in time breaks the group,
    as it does every gloo group: `broken` says so, and the next exchange makes a new one.
    """

    def __init__(self, ranks: list[int], timeout: float) -> None:
        self._ranks = ranks  # numbers in the whole world
        self._timeout = timedelta(seconds=timeout)
        self.broken = False
        self.group: Any = self._new_group()

    def _new_group(self) -> Any:
        whole_world = len(self._ranks) == dist.get_world_size()
        return dist.new_group(
            self._ranks,
            timeout=self._timeout,
            backend="gloo",
            use_local_synchronization=not whole_world,
        )

    def renew(self) -> None:
        """A new group in place of a broken one; all ranks call it at the same step."""
        self.group = self._new_group()
        self.broken = False

    def swap(
        self,
        plan: ShardPlan,
        locals_: list[LocalTensor],
        staged: StagedTensors,
        deadline: float,
    ) -> Received:
        """Sends what others code and returns what they hold of one's own blocks."""
        buffers: dict[int, torch.Tensor] = {}
        works: list[tuple[int, str, Any]] = []
        outgoing = []  # kept until it is sent
        peer = -1
        try:
            for peer, pieces in sorted(plan.receives.items()):
                buffers[peer] = torch.empty(_size(pieces, locals_), dtype=torch.uint8)
                work = dist.irecv(buffers[peer], self._ranks[peer], group=self.group)
                works.append((peer, "from", work))
            for peer, pieces in sorted(plan.sends.items()):
                cuts = [staged.bytes_of(p.tensor, p.low, p.high) for p in pieces]
                outgoing.append(torch.from_numpy(np.concatenate(cuts)))
                work = dist.isend(outgoing[-1], self._ranks[peer], group=self.group)
                works.append((peer, "to", work))
            for peer, _, work in works:  # noqa: B007 - the exception names it
                left = max(deadline - time.monotonic(), 0.001)
                work.wait(timedelta(seconds=left))
        except RuntimeError as error:
            self.broken = True
            raise UnavailableError(
                f"rank {peer} did not exchange its pieces of blocks in time ({error})"
            ) from error
        found: Received = {}
        for peer, pieces in plan.receives.items():
            at = 0
            whole = buffers[peer].numpy()
            for piece in pieces:
                size = (piece.high - piece.low) * locals_[piece.tensor].dtype.itemsize
                found.setdefault((piece.tensor, piece.block), []).append(
                    (piece, whole[at : at + size])
                )
                at += size
        return found


def span_batches(
    plan: ShardPlan,
    locals_: list[LocalTensor],
    staged: StagedTensors,
    received: Received,
    log2: int,
) -> Iterator[list[np.ndarray]]:
    """The bytes of every span, in order, a batch at a time: memory does not grow with the model."""
    batch: list[np.ndarray] = []
    size = 0
    for tensor, first, count in plan.spans:
        local = locals_[tensor]
        low = first << log2
        high = min((first + count) << log2, local.elements)
        batch.append(_span(tensor, first, low, high, local, staged, received))
        size += batch[-1].size
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _span(
    tensor: int,
    first: int,
    low: int,
    high: int,
    local: LocalTensor,
    staged: StagedTensors,
    received: Received,
) -> np.ndarray:
    own_low, own_high = max(low, local.held[0]), min(high, local.held[1])
    if (own_low, own_high) == (low, high):
        return staged.bytes_of(tensor, low, high)
    size = local.dtype.itemsize
    block = np.empty((high - low) * size, np.uint8)
    if own_low < own_high:
        own = staged.bytes_of(tensor, own_low, own_high)
        block[(own_low - low) * size : (own_high - low) * size] = own
    for piece, data in received[(tensor, first)]:
        block[(piece.low - low) * size : (piece.high - low) * size] = data
    return block
