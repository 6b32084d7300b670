"""Torch tensors, modules and state dicts are seen in place."""

from __future__ import annotations

import numpy as np
import pytest

import wisp
from wisp import tensors

torch = pytest.importorskip("torch")

FLOATS = ["bfloat16", "float16", "float32", "float64", "complex64"]
FP8 = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
OTHERS = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("name", FLOATS + FP8 + OTHERS)
def test_every_dtype_is_seen_by_its_bytes(name):
    dtype = getattr(torch, name)
    size = torch.empty(0, dtype=dtype).element_size()
    raw = torch.arange(6 * size, dtype=torch.uint8) % 2
    tensor = raw.view(dtype).reshape(2, 3)
    entry = tensors.host_entries([("w", tensor)])[0]
    assert entry[1:3] == (tensors.DTYPES[name], (2, 3))
    assert entry[3].tobytes() == raw.numpy().tobytes()
    assert entry[3].ctypes.data == tensor.data_ptr()
    assert tensors.torch_dtype(entry[1]) == dtype


def test_scalars_and_empty_tensors_are_tensors_too():
    source = {"scalar": torch.tensor(1.5, dtype=torch.bfloat16), "empty": torch.empty(0, 4)}
    assert tensors.host_weights(source).schema == [("empty", "F32", (0, 4)), ("scalar", "BF16", ())]


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scratch", torch.zeros(3), persistent=False)


def test_a_module_gives_parameters_and_buffers_with_tied_weights_once():
    found = tensors.named_tensors(Tied())
    assert found.aliases == {"head.weight": "embed.weight"}
    assert "norm.running_mean" in found.tensors and "scratch" not in found.tensors
    assert found.tensors["embed.weight"].requires_grad


def test_the_state_dict_is_the_same_as_the_module():
    model = Tied()
    assert tensors.host_weights(model).schema == tensors.host_weights(model.state_dict()).schema


def test_tensors_that_cannot_be_seen_are_refused_by_name():
    with pytest.raises(wisp.InvalidError, match=r"'w' \(float32 \[2, 3\] on cpu\) is not contiguous"):
        tensors.host_weights({"w": torch.zeros(3, 2).T})
    with pytest.raises(wisp.InvalidError, match=r"'w' \(float32 \[2\] on meta\) has no memory"):
        tensors.host_weights({"w": torch.zeros(2, device="meta")})
    with pytest.raises(wisp.UnsupportedError, match="complex128"):
        tensors.host_weights({"w": torch.zeros(2, dtype=torch.complex128)})
    with pytest.raises(wisp.InvalidError, match="not contiguous"):
        tensors.host_weights({"w": torch.zeros(2, 2).to_sparse()})


def test_a_parameter_that_needs_its_gradient_is_seen_all_the_same():
    weight = torch.nn.Parameter(torch.ones(4))
    view = tensors.byte_view("w", weight)
    view.view(np.float32)[0] = 7
    assert weight[0].item() == 7
