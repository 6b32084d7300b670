"""Who codes which block: every one once, whatever the ranks hold."""

from __future__ import annotations

import random

import pytest

import wisp
from wisp.sharded.shard_plan import holders_of, make_plans


def cuts(elements: int, ranks: int, chance: random.Random) -> list[tuple[int, int]]:
    """Contiguous ranges, some of them empty."""
    marks = sorted(chance.randint(0, elements) for _ in range(ranks - 1))
    return list(zip([0, *marks], [*marks, elements], strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_every_block_is_coded_once_and_every_piece_finds_its_way(seed: int) -> None:
    chance = random.Random(seed)
    ranks, log2 = chance.randint(1, 6), chance.randint(1, 4)
    tensors = [(f"t{i}", chance.choice([0, 1, 7, 16, 17, 100])) for i in range(8)]
    by_tensor = [cuts(elements, ranks, chance) for _, elements in tensors]
    ranges = [[by_tensor[t][rank] for t in range(len(tensors))] for rank in range(ranks)]
    plans = make_plans(tensors, ranges, log2)
    for tensor, (_, elements) in enumerate(tensors):
        coded = []
        for rank, plan in enumerate(plans):
            for t, first, count in plan.spans:
                if t != tensor:
                    continue
                for block in range(first, first + count):
                    coded.append(block)
                    have = set(range(*ranges[rank][t]))
                    for pieces in plan.receives.values():
                        for p in pieces:
                            if (p.tensor, p.block) == (t, block):
                                have |= set(range(p.low, p.high))
                    wanted = range(block << log2, min((block + 1) << log2, elements))
                    assert set(wanted) <= have
        assert sorted(coded) == list(range(-(-elements >> log2)))
    for rank, plan in enumerate(plans):
        assert plan.spans == sorted(plan.spans)
        for peer, pieces in plan.sends.items():
            assert pieces == plans[peer].receives[rank]


def test_blocks_on_several_ranks_are_given_out_in_turn() -> None:
    tensors = [(f"t{i}", 8) for i in range(6)]
    plans = make_plans(tensors, [[(0, 4)] * 6, [(4, 8)] * 6], 4)
    assert [len(plan.spans) for plan in plans] == [3, 3]


def test_of_replicas_the_lowest_rank_is_taken() -> None:
    assert holders_of("w", 8, [(0, 4), (4, 8), (0, 4), (4, 8)]) == [(0, 4, 0), (4, 8, 1)]
    assert holders_of("w", 8, [(0, 8)] * 3) == [(0, 8, 0)]


@pytest.mark.parametrize("ranges", [[(0, 4), (5, 8)], [(0, 5), (4, 8)], [(0, 4)], [(0, 9)]])
def test_gaps_and_overlaps_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(wisp.InvalidError, match="does not cover it once"):
        holders_of("w", 8, ranges)
