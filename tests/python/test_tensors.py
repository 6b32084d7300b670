"""Arrays of numpy and torch are seen in place, whatever their dtype, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import wisp
from wisp import _native, tensors


def test_numpy_arrays_of_all_dtypes_make_a_schema():
    source = {
        name: np.zeros((2, 3), dtype)
        for name, dtype in {"a": np.float32, "b": np.int8, "c": np.bool_, "d": np.complex64}.items()
    }
    weights = tensors.host_weights(source)
    assert weights.schema == [
        ("a", "F32", (2, 3)),
        ("b", "I8", (2, 3)),
        ("c", "BOOL", (2, 3)),
        ("d", "C64", (2, 3)),
    ]
    assert weights.total_bytes == 6 * (4 + 1 + 1 + 8)


def test_a_view_shares_the_memory():
    array = np.arange(8, dtype=np.float32)
    weights = tensors.host_weights({"w": array})
    before = _native.digest_of(weights)
    array[3] = 0.5
    after = _native.digest_of(weights)
    assert before != after
    assert after == _native.digest_of(tensors.host_weights({"w": array.copy()}))


def test_scalars_and_empty_arrays_are_tensors_too():
    weights = tensors.host_weights({"empty": np.zeros((0, 4)), "scalar": np.array(1.5)})
    assert weights.schema == [("empty", "F64", (0, 4)), ("scalar", "F64", ())]


def test_names_are_sorted_and_unique():
    weights = tensors.host_weights({"b": np.zeros(2), "a": np.zeros(1)})
    assert [name for name, _, _ in weights.schema] == ["a", "b"]


def test_arrays_that_cannot_be_seen_are_refused_by_name():
    with pytest.raises(wisp.InvalidError, match=r"'w'.*\[2, 3\].*not contiguous"):
        tensors.host_weights({"w": np.zeros((3, 2)).T})
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    tensors.host_weights({"w": frozen})
    with pytest.raises(wisp.InvalidError, match="'w'.*read-only"):
        tensors.host_weights({"w": frozen}, writable=True)
    with pytest.raises(wisp.UnsupportedError, match="complex128"):
        tensors.host_weights({"w": np.zeros(2, np.complex128)})
    with pytest.raises(wisp.InvalidError, match="'w' is no tensor but int"):
        tensors.host_weights({"w": 3})
    with pytest.raises(wisp.InvalidError, match="not str"):
        tensors.host_weights("path")


def test_the_module_refuses_buffers_that_do_not_fit():
    with pytest.raises(wisp.InvalidError, match="'w'.*needs 8 bytes, but its memory has 4"):
        _native.HostWeights([("w", "F32", (2,), b"1234")])
    with pytest.raises(wisp.UnsupportedError, match="F5"):
        _native.HostWeights([("w", "F5", (1,), b"1234")])
    with pytest.raises(wisp.InvalidError, match="overflow|bytes"):
        _native.HostWeights([("w", "F32", (1 << 40, 1 << 40), b"")])


def test_errors_have_kinds_and_a_common_base():
    assert issubclass(wisp.WrongBaseError, wisp.Error) and wisp.WrongBaseError.kind == "wrong_base"
    assert issubclass(wisp.InvalidError, ValueError)
    with pytest.raises(wisp.NotFoundError) as caught:
        _native.Checkpoint.open("/nowhere/at/all")
    assert caught.value.kind == "not_found"


def test_torch_is_not_imported_by_the_package():
    import subprocess
    import sys

    code = "import sys, wisp; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
