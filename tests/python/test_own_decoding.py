"""What a rank is refused that would decode over memory in which its tensors do not lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wisp
from wisp import _native

COUNT = 256
SCHEMA = [("w", "BF16", (COUNT,))]


@pytest.fixture
def step(tmp_path: Path) -> tuple[list[str], str, str, np.ndarray, np.ndarray]:
    """A delta, the states around it, and the weights before and after."""
    from safetensors.numpy import save_file

    before = np.arange(COUNT, dtype=np.uint16) + 0x3F80
    after = before.copy()
    after[::9] += 1
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
    over = staged or (None, None, None)
    return _native.decode_staged(SCHEMA, [(memory, first, *over)], deltas, base, result, "rank 7")


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
    fresh, old = np.array([1, before[9]], np.uint16), np.array([0, 7], np.uint16)
    assert decode(memory, 5, step, offsets, fresh, old).tensors
    with pytest.raises(wisp.WrongBaseError, match="came from rank 7: somebody else wrote"):
        decode(memory, 5, step)


@pytest.mark.parametrize("first", [-1, 1, 1 << 62])
def test_a_tensor_outside_its_memory_is_refused(step: Any, first: int) -> None:
    with pytest.raises(wisp.InvalidError, match="does not lie in the memory"):
        decode(step[3], first, step)


def test_fewer_old_bits_than_staged_ones_are_refused(step: Any) -> None:
    offsets, bits = np.zeros(2, np.int64), np.zeros(2, np.uint16)
    with pytest.raises(wisp.InvalidError, match="does not lie in the memory"):
        decode(step[3], 0, step, offsets, bits, bits[:1])


def test_room_that_does_not_fit_is_refused(step: Any) -> None:
    found = decode(step[3], 0, step)
    columns = [np.empty(3, kind) for kind in (np.uint32, np.uint16, np.uint16)]
    with pytest.raises(wisp.InvalidError, match="less room"):
        found.take([columns])
    with pytest.raises(wisp.InvalidError, match="other tensors"):
        found.take([])
