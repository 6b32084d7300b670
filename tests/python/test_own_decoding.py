"""What a rank is refused that would decode over memory in which its tensors do not lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wisp
from wisp import _native

COUNT = 256
BLOCK = 1 << 20  #: elements; a tensor of more is decoded in several pieces
Step = tuple[list[str], str, str, np.ndarray, np.ndarray]


@pytest.fixture
def step(tmp_path: Path) -> Step:
    """A delta, the states around it, and the weights before and after."""
    before = np.arange(COUNT, dtype=np.uint16) + 0x3F80
    after = before.copy()
    after[::9] += 1
    return delta_between(tmp_path, before, after)


def delta_between(tmp_path: Path, before: np.ndarray, after: np.ndarray) -> Step:
    from safetensors.numpy import save_file

    for name, weights in (("a", before), ("b", after)):
        path = tmp_path / f"{name}.safetensors"
        save_file({"w": weights}, path)
        head = path.read_bytes().replace(b'"U16"', b'"BF16"')
        length = int.from_bytes(head[:8], "little") + 1
        path.write_bytes(length.to_bytes(8, "little") + head[8:])
    delta = tmp_path / "delta.safetensors"
    made = wisp.diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors", delta, codec="swift")
    return [str(delta)], made.facts.base, made.facts.result, before, after


def decode(memory: Any, first: int, step: Any, *staged: Any) -> _native.DecodedChanges:
    deltas, base, result, _, _ = step
    over = staged or (None, None)
    schema = [("w", "BF16", step[3].shape)]
    return _native.decode_staged(schema, [(memory, first, *over)], deltas, base, result, "rank 7")


def test_a_tensor_is_decoded_where_it_lies(step: Any) -> None:
    _, _, _, before, after = step
    memory = np.concatenate([np.zeros(5, np.uint16), before, np.zeros(3, np.uint16)])
    found = decode(memory, 5, step)
    assert found.tensors == [("w", len(after[::9]))]
    room = [np.empty(len(after[::9]), kind) for kind in (np.uint32, np.uint16, np.uint16)]
    found.take([room])
    assert room[0].tolist() == list(range(0, COUNT, 9))
    assert np.array_equal(room[1], after[::9]) and np.array_equal(room[2], before[::9])


def test_what_is_staged_lies_over_it(step: Any) -> None:
    _, _, _, before, _ = step
    memory = np.concatenate([np.zeros(5, np.uint16), before])
    memory[5 + 9] = 7  # is about to become what it should be
    offsets = np.array([2, 5 + 9], np.int64)
    fresh = np.array([1, before[9]], np.uint16)
    assert decode(memory, 5, step, offsets, fresh).tensors
    with pytest.raises(wisp.WrongBaseError, match="came from rank 7: somebody else wrote"):
        decode(memory, 5, step)


@pytest.mark.parametrize("places", [np.uint32, np.int64])
def test_of_a_tensor_of_several_blocks_each_is_found_in_its_place(
    tmp_path: Path, places: Any
) -> None:
    rng = np.random.default_rng(3)
    before = rng.integers(0x3F00, 0x4000, BLOCK + 300, np.uint16)
    after = before.copy()
    changed = np.array([7, 4711, BLOCK - 1, BLOCK, BLOCK + 5, BLOCK + 299])
    after[changed] += 1
    # Memory is what it was some steps ago. Staged lies what leads from there to `before`: under
    # changes and beside them, in both blocks, and of tensors around this one.
    first = 5
    memory = np.concatenate([np.zeros(first, np.uint16), before, np.zeros(3, np.uint16)])
    within = np.array([7, 8, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 5, BLOCK + 6])
    memory[first + within] ^= 0x15
    offsets = np.concatenate([[2], first + within, [first + len(before) + 1]])
    fresh = np.concatenate([[1], before[within], [1]]).astype(np.uint16)
    step = delta_between(tmp_path, before, after)
    found = decode(memory, first, step, offsets, fresh)
    room = [np.empty(len(changed), kind) for kind in (places, np.uint16, np.uint16)]
    found.take([room])
    assert found.tensors == [("w", len(changed))] and room[0].tolist() == changed.tolist()
    assert np.array_equal(room[1], after[changed]) and np.array_equal(room[2], before[changed])
    without = offsets != first + BLOCK + 5  # in the second block
    with pytest.raises(wisp.WrongBaseError, match="rank 7"):
        decode(memory, first, step, offsets[without], fresh[without])


@pytest.mark.parametrize("first", [-1, 1, 1 << 62])
def test_a_tensor_outside_its_memory_is_refused(step: Any, first: int) -> None:
    with pytest.raises(wisp.InvalidError, match="does not lie in the memory"):
        decode(step[3], first, step)


def test_fewer_staged_bits_than_places_are_refused(step: Any) -> None:
    offsets, bits = np.zeros(2, np.int64), np.zeros(1, np.uint16)
    with pytest.raises(wisp.InvalidError, match="does not lie in the memory"):
        decode(step[3], 0, step, offsets, bits)


def test_room_that_does_not_fit_is_refused(step: Any) -> None:
    found = decode(step[3], 0, step)
    columns = [np.empty(3, kind) for kind in (np.uint32, np.uint16, np.uint16)]
    with pytest.raises(wisp.InvalidError, match="less room"):
        found.take([columns])
    with pytest.raises(wisp.InvalidError, match="other tensors"):
        found.take([])


def test_what_is_decoded_is_taken_once(step: Any) -> None:
    found = decode(step[3], 0, step)
    count = found.tensors[0][1]
    columns = [np.empty(count, kind) for kind in (np.uint32, np.uint16, np.uint16)]
    found.take([columns])
    with pytest.raises(wisp.InvalidError, match="taken once"):
        found.take([columns])
