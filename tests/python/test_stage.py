"""What a stage works out natively, held against the plainest way to say it: one element at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wisp import _native  # noqa: E402
from wisp.engine.plan.load_plan import Layout, LoadPlan, Piece, Target  # noqa: E402
from wisp.engine.stage import room  # noqa: E402
from wisp.engine.stage.stage import Stage  # noqa: E402
from wisp.errors import InvalidError, WrongBaseError  # noqa: E402

KINDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Tensors of 24 elements in one target of 120: whole, two side by side by columns, transposed,
#: every other element, and one that lies twice in it.
PIECES = {
    "whole": [Piece(0, 0, 24, ((24, 1, 1),))],
    "left": [Piece(0, 0, 48, ((6, 4, 8), (4, 1, 1)))],
    "right": [Piece(0, 0, 52, ((6, 4, 8), (4, 1, 1)))],
    "turned": [Piece(0, 0, 0, ((4, 6, 1), (6, 1, 4)))],
    "half": [Piece(0, 12, 96, ((6, 2, 1),))],
    "twice": [Piece(0, 0, 102, ((6, 1, 1),)), Piece(0, 0, 110, ((6, 1, 1),))],
}


def plan_of(width: int, layout: Layout | None = None) -> LoadPlan:
    made = torch.Generator().manual_seed(width)
    flat = torch.randint(0, 100, (120,), generator=made).to(KINDS[width])
    dtype = KINDS[width]
    names = {name: dtype for name in PIECES}
    return LoadPlan([Target("memory", dtype, flat, layout)], PIECES, dtypes=names)


def offsets_of(plan: LoadPlan, name: str, position: int) -> list[int]:
    found = []
    for piece in PIECES[name]:
        rest, offset, inside = position - piece.source_offset, piece.target_offset, True
        for size, stride, step in piece.dims:
            inside = inside and 0 <= rest // stride < size
            offset, rest = offset + rest // stride * step, rest % stride
        if inside and rest == 0:
            found.append(int(plan.targets[0].place(torch.tensor([offset]))[0]))
    return found


class Reference:
    """The memory as it should become, written element by element."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.memory = plan.targets[0].flat.clone()
        self.changed: set[int] = set()

    def random_move(self, stage: Stage, random: np.random.Generator, *, tells_old: bool) -> None:
        width = self.plan.targets[0].width
        kind = np.dtype(f"i{width}") if width > 1 else np.dtype(np.uint8)
        stage.next_move()
        for name in random.permutation(list(PIECES)):
            places = np.flatnonzero(random.random(24) < 0.4)
            bits = random.integers(0, 100, places.size).astype(kind)
            old = np.zeros(places.size, kind)
            for at, place in enumerate(places):
                for offset in offsets_of(self.plan, name, int(place)):
                    old[at] = self.memory[offset]
            wide = random.random() < 0.5
            stage.put(name, places.astype(np.int64 if wide else np.uint32), bits,
                      old if tells_old and name != "twice" else None)  # fmt: skip
            for at, place in enumerate(places):
                for offset in offsets_of(self.plan, name, int(place)):
                    self.memory[offset] = int(bits[at])
                    self.changed.add(offset)


@pytest.fixture(params=[1, 2, 4, 8])
def plan(request: pytest.FixtureRequest) -> LoadPlan:
    return plan_of(request.param)


@pytest.mark.parametrize("tells_old", [False, True])
@pytest.mark.parametrize("moves", [1, 2, 5])
def test_moves_become_what_they_say(plan: LoadPlan, moves: int, tells_old: bool) -> None:
    random = np.random.default_rng(moves)
    for _ in range(10):
        before = plan.targets[0].flat.clone()
        stage, wanted = Stage(plan), Reference(plan)
        for _ in range(moves):
            wanted.random_move(stage, random, tells_old=tells_old)
        assert stage.seal().elements == len(wanted.changed)
        assert torch.equal(plan.targets[0].flat, before)  # nothing is written yet
        stage.switch()
        assert torch.equal(plan.targets[0].flat, wanted.memory)
        stage.restore()
        assert torch.equal(plan.targets[0].flat, before)
        stage.switch()


def test_a_stage_beyond_another_is_what_both_lead_to(plan: LoadPlan) -> None:
    random = np.random.default_rng(7)
    before = plan.targets[0].flat.clone()
    stage, wanted = Stage(plan), Reference(plan)
    wanted.random_move(stage, random, tells_old=True)
    stage.seal()
    for _ in range(4):
        stage = Stage.beyond(stage)
        wanted.random_move(stage, random, tells_old=True)
        stage.seal()
        everywhere = torch.arange(120)
        assert torch.equal(stage.read(0, everywhere), wanted.memory)
        assert torch.equal(plan.targets[0].flat, before)
    assert stage.elements == len(wanted.changed)
    stage.switch()
    assert torch.equal(plan.targets[0].flat, wanted.memory)
    stage.restore()
    assert torch.equal(plan.targets[0].flat, before)


def test_elements_in_another_order_are_found() -> None:
    places = torch.randperm(30, generator=torch.Generator().manual_seed(3))
    plan = plan_of(2, Layout(30, places))
    random = np.random.default_rng(2)
    stage, wanted = Stage(plan), Reference(plan)
    for _ in range(3):
        wanted.random_move(stage, random, tells_old=True)
    stage.seal().switch()
    assert torch.equal(plan.targets[0].flat, wanted.memory)


def test_memory_that_somebody_else_wrote_to_is_refused(plan: LoadPlan) -> None:
    kind = plan.targets[0].flat.numpy().dtype
    old = plan.targets[0].flat.numpy()[24:27].copy()
    plan.targets[0].flat[25] += 1
    stage = Stage(plan)
    stage.put("whole", np.arange(3, dtype=np.uint32), np.zeros(3, kind), old)
    with pytest.raises(WrongBaseError, match="1 elements of 'memory'"):
        stage.seal()


def test_a_step_that_does_not_follow_the_staged_one_is_refused(plan: LoadPlan) -> None:
    kind = plan.targets[0].flat.numpy().dtype
    first = Stage(plan)
    first.put("whole", np.arange(3, dtype=np.uint32), np.full(3, 101, kind))
    beyond = Stage.beyond(first.seal())
    beyond.put("whole", np.arange(2, dtype=np.uint32), np.zeros(2, kind), np.full(2, 102, kind))
    with pytest.raises(WrongBaseError, match="2 elements"):
        beyond.seal()


def words_of(plan: LoadPlan, name: str, state: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """All words of a tensor, and which of their bytes its first piece holds."""
    width = plan.targets[0].width
    values, held = np.zeros(24, state.numpy().dtype), np.zeros(24, bool)
    for position in range(24):
        for offset in offsets_of(plan, name, position)[:1]:
            values[position], held[position] = state[offset], True
    return values.view(np.uint8), np.repeat(held, width)


def test_words_are_those_of_the_staged_state(plan: LoadPlan) -> None:
    width = plan.targets[0].width
    random = np.random.default_rng(5)
    stage, wanted = Stage(plan), Reference(plan)
    for _ in range(2):
        wanted.random_move(stage, random, tells_old=True)
    stage.seal()
    staged: Any = stage.staged(0)
    assert staged is not None
    for over, state in ((None, plan.targets[0].flat), (staged, wanted.memory)):
        for name in PIECES:
            values, held = words_of(plan, name, state)
            count = 24 * width // 8
            for words in (np.arange(count), np.arange(count)[::2]):
                room = np.full(words.size * 8, 0xEE, np.uint8)
                changes = (None, None) if over is None else (over.offsets.numpy(), over.new.numpy())
                _native.fill_words([
                    (piece.native, plan.targets[0].flat.numpy(), width, words.astype(np.int32),
                     room, *changes)
                    for piece in PIECES[name][:1]
                ])  # fmt: skip
                wanted_bytes = np.where(held, values, 0xEE).reshape(-1, 8)[words].reshape(-1)
                assert np.array_equal(room, wanted_bytes), name


def test_what_does_not_fit_is_refused() -> None:
    memory, room = np.zeros(8, np.int16), np.zeros(16, np.uint8)
    piece = _native.PieceMap(0, 4, [(8, 1, 1)])  # ends past the memory
    with pytest.raises(InvalidError, match="leads out of its target"):
        _native.fill_words([(piece, memory, 2, np.zeros(1, np.int32), room, None, None)])
    with pytest.raises(InvalidError, match="less room"):
        inside = _native.PieceMap(0, 0, [(8, 1, 1)])
        _native.fill_words([(inside, memory, 2, np.zeros(3, np.int32), room, None, None)])
    with pytest.raises(InvalidError, match="outside its target"):
        _native.scatter_elements([(memory, 2, np.array([1, 8]), np.ones(2, np.int16))])
    with pytest.raises(InvalidError, match="fewer elements"):
        _native.scatter_elements([(memory, 2, np.array([1, 2]), np.ones(1, np.int16))])

    def staged(places: np.ndarray, bits: np.ndarray, most: int = 4) -> object:
        columns = (np.zeros(most, np.int64), np.zeros(most, np.int16), np.zeros(most, np.int16))
        part = (piece, places, bits, None)
        job = (2, 8, memory, (None, None, None), [[part]], columns)
        return _native.stage_changes([job])

    with pytest.raises(InvalidError, match="led out of its target"):
        staged(np.array([1, 5]), np.ones(2, np.int16))
    with pytest.raises(InvalidError, match="must be as many"):
        staged(np.array([1, 5, 6]), np.ones(2, np.int16))
    with pytest.raises(InvalidError, match="less room"):
        staged(np.arange(5), np.ones(5, np.int16))
    assert not memory[[0, *range(2, 8)]].any()


def test_what_this_memory_was_proven_to_hold_is_not_read_again(plan: LoadPlan) -> None:
    kind = plan.targets[0].flat.numpy().dtype
    places, new = np.arange(3, dtype=np.uint32), np.full(3, 101, kind)
    told = np.full(3, 99, kind)  # not what is there, which only looking would show
    stage = Stage(plan)
    stage.put("whole", places, new, told, is_proven=True)
    stage.seal().switch()
    assert plan.targets[0].flat.numpy()[24:27].tolist() == [101] * 3
    stage.restore()
    assert plan.targets[0].flat.numpy()[24:27].tolist() == [99] * 3
    # One part that is not proven has the whole target looked at.
    stage = Stage(plan)
    stage.put("whole", places, new, new, is_proven=True)
    stage.put("left", places, new, plan.targets[0].flat.numpy()[48:51].copy())
    with pytest.raises(WrongBaseError, match="3 elements"):
        stage.seal()


def test_memory_is_used_again_when_nothing_lies_in_it_any_more() -> None:
    size = 1 << 20
    room._spare.clear()
    one = room.Room(size)
    kept = torch.from_numpy(one.take(size // 8, np.dtype(np.int64))[5:9])
    address = kept.data_ptr() - 5 * 8
    kept.fill_(7)
    del one
    other = room.Room(size).take(size, np.dtype(np.uint8))
    other[:] = 1
    assert other.ctypes.data != address and kept.tolist() == [7] * 4
    del kept
    again = room.Room(size).take(size, np.dtype(np.uint8))
    assert again.ctypes.data == address
    # What is far too large, or too small, stays for others.
    del again
    assert room.Room(size // 4).take(8, np.dtype(np.uint8)).ctypes.data != address
    assert room.Room(2 * size).take(8, np.dtype(np.uint8)).ctypes.data != address


def test_memory_of_a_rare_size_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1 << 20
    monkeypatch.setattr(room, "_LARGEST", size)
    room._spare.clear()
    kept = room.Room(size + 1).take(8, np.dtype(np.uint8))
    kept[:] = 7
    assert kept.tolist() == [7] * 8
    del kept
    assert not room._spare
    room.Room(size // 2)
    assert len(room._spare) == 1
