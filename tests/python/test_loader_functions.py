"""Loaders that compute: what they write is known as functions of single elements where it is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wisp.engine.plan.element_function import is_steady  # noqa: E402
from wisp.engine.rank.gather import parts_of  # noqa: E402
from wisp.engine.plan.load_plan import LoadPlan, targets_of  # noqa: E402
from wisp.engine.plan.load_recorder import capture, learn  # noqa: E402
from wisp.engine.stage.stage import Stage  # noqa: E402
from wisp.errors import UnsupportedError  # noqa: E402

BF16 = torch.bfloat16
Weights = Iterable[tuple[str, Any]]


class Computing(torch.nn.Module):
    """Every habit of loaders that do more than copy."""

    def __init__(self) -> None:
        super().__init__()

        def parameter(*shape: int, dtype: torch.dtype = BF16) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)

        self.A = parameter(6, dtype=torch.float32)  # Mamba's: written, then -exp of itself
        self.norm = parameter(12)  # + 1
        self.scaled = parameter(8, 6)  # in place, by half
        self.turned = parameter(6, 8)  # a transposed copy
        self.halves = parameter(8, 6)  # rows of pairs taken apart
        self.stack = parameter(2, 4, 6)  # of two tensors, gathered before they are written
        self.twice = parameter(8, 6)  # each head of two stands twice
        self.narrow = parameter(7, dtype=torch.float16)  # rounded, then doubled
        self.normed = parameter(4, 6)  # weight norm: g * v / |v|
        self.partly = parameter(10)  # + 1 on the first half
        self.padded = parameter(10, 6)  # a copy with rows of zeros
        self._held: dict[str, Any] = {}

    def load_weights(self, weights: Weights) -> None:
        for name, tensor in weights:
            getattr(self, f"load_{name.partition('.')[0]}")(name, tensor)

    def load_A(self, _: str, tensor: Any) -> None:
        self.A.data.copy_(tensor.narrow(0, 6, 6))
        self.A.data.copy_(-torch.exp(self.A.float()))

    def load_norm(self, _: str, tensor: Any) -> None:
        self.norm.data.copy_(tensor.to(torch.float32).add(1.0))

    def load_scaled(self, _: str, tensor: Any) -> None:
        self.scaled.data.copy_(tensor)
        self.scaled.data.mul_(0.5)

    def load_turned(self, _: str, tensor: Any) -> None:
        self.turned.data.copy_(tensor.t().contiguous())

    def load_halves(self, _: str, tensor: Any) -> None:
        pairs = tensor.view(4, 2, 6)
        self.halves.data.copy_(torch.cat([pairs[:, 1], pairs[:, 0]]))

    def load_stack(self, name: str, tensor: Any) -> None:
        self._held[name] = tensor
        if len(self._held) == 2:
            parts = [self._held.pop(f"stack.{i}") for i in range(2)]
            self.stack.data.copy_(torch.stack(parts).transpose(1, 2))

    def load_twice(self, _: str, tensor: Any) -> None:
        self.twice.data.copy_(tensor.view(2, 2, 6).repeat_interleave(2, dim=0).reshape(8, 6))

    def load_narrow(self, _: str, tensor: Any) -> None:
        self.narrow.data.copy_(tensor.half() * torch.tensor(2.0))

    def load_normed(self, name: str, tensor: Any) -> None:
        self._held[name] = tensor
        if len(self._held) == 2:
            g, v = self._held.pop("normed.g"), self._held.pop("normed.v")
            self.normed.data.copy_(g * v / v.norm(dim=1, keepdim=True))

    def load_partly(self, _: str, tensor: Any) -> None:
        self.partly.data.copy_(tensor)
        self.partly.data[:5].add_(1)

    def load_padded(self, _: str, tensor: Any) -> None:
        self.padded.data.copy_(torch.nn.functional.pad(tensor, (0, 0, 0, 2)))


SHAPES = {
    "A": (12,), "norm": (12,), "scaled": (8, 6), "turned": (8, 6), "halves": (8, 6),
    "stack.0": (6, 4), "stack.1": (6, 4), "twice": (4, 6), "narrow": (7,), "normed.g": (4, 1),
    "normed.v": (4, 6), "partly": (10,), "padded": (8, 6),
}  # fmt: skip


def checkpoint(seed: int) -> dict[str, Any]:
    made = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=made).to(BF16) for name, shape in SHAPES.items()}


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(-1).view(torch.int16)


def loaded(tensors: dict[str, Any]) -> Computing:
    model = Computing()
    model.load_weights(tensors.items())
    return model


def plan_of(model: Computing) -> LoadPlan:
    schema = [(name, t.dtype, tuple(t.shape)) for name, t in checkpoint(0).items()]
    return learn(model.load_weights, targets_of(model), schema)


def assert_same(one: Any, other: Any) -> None:
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor.view(torch.uint8), other.state_dict()[name].view(torch.uint8)), name


def test_functions_of_single_elements_are_told_from_others() -> None:
    model = loaded(checkpoint(1))
    plan = plan_of(model)
    assert set(plan.opaque) == {"normed.g", "normed.v"} and not plan.absent()
    assert_same(loaded(checkpoint(1)), model)
    computed = {n for n, ps in plan.pieces.items() if any(p.function is not None for p in ps)}
    assert computed == {"A", "norm", "scaled", "narrow", "partly"}
    assert set(parts_of(plan)) == set(plan.pieces) - computed  # what can be read back
    assert [len(plan.pieces[n]) for n in ("A", "scaled", "partly", "twice")] == [1, 1, 2, 2]
    tensors = checkpoint(1)
    for name in plan.pieces:
        for _, mask, _ in plan.differences(name, bits(tensors[name])):
            assert not bool(mask.any()), name


def test_only_what_changed_is_computed_and_written() -> None:
    now, made = checkpoint(1), torch.Generator().manual_seed(3)
    model = loaded(now)
    plan = plan_of(model)
    for _ in range(4):
        stage, touched = Stage(plan), 0
        for name in plan.pieces:
            flat = now[name].view(-1)
            places = torch.randperm(flat.numel(), generator=made)[:2].sort()[0]
            old = bits(flat[places])
            flat[places] = torch.randn(2, generator=made).to(BF16)
            stage.put(name, places.numpy(), bits(flat[places]).numpy(), old.numpy())  # memory must hold f(old)
            touched += 4 if name == "twice" else 2
        assert stage.seal().elements <= touched
        stage.switch()
        wanted = loaded(now)
        model.normed.data.copy_(wanted.normed)
        assert_same(wanted, model)


def test_a_whole_state_and_what_is_no_function_of_elements() -> None:
    model, new = loaded(checkpoint(1)), checkpoint(2)
    plan = plan_of(model)
    stage = Stage(plan)
    for name in plan.pieces:
        stage.put_whole(name, bits(new[name]))
    stage.put_writes(capture(plan, model.load_weights, [(n, new[n]) for n in plan.opaque]))
    stage.seal().switch()
    assert_same(loaded(new), model)


def test_what_is_captured_of_a_tensor_that_is_written_twice_is_its_end() -> None:
    model, new = loaded(checkpoint(1)), checkpoint(2)
    plan = plan_of(model)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name in ("A", "partly", "scaled"):
        plan.forget_pieces(name)
    writes = capture(plan, model.load_weights, [(n, new[n]) for n in ("A", "partly", "scaled")])
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())
    stage = Stage(plan)
    stage.put_writes(writes)
    stage.seal().switch()
    wanted = loaded(new)
    for name in ("A", "partly", "scaled"):
        assert torch.equal(getattr(model, name), getattr(wanted, name)), name


def refused(load: Callable[[Any, Any], None]) -> None:
    model = Computing()
    with pytest.raises(UnsupportedError, match="in memory before it runs.*'norm'.*export"):
        learn(lambda weights: [load(model, t) for _, t in weights], targets_of(model),
              [("norm", BF16, (12,))])  # fmt: skip


def test_what_is_written_over_without_being_read_is_captured_as_its_end() -> None:
    """Zeros first, then values, as loaders fill what is padded: the values are in memory already."""
    model = torch.nn.Module()
    model.register_parameter("p", torch.nn.Parameter(torch.zeros(8), requires_grad=False))

    def load(weights: Any) -> None:
        for _, tensor in weights:
            model.p.data.fill_(0)
            model.p.data[:6].copy_(tensor / tensor.sum())

    given = torch.arange(1.0, 7.0)
    load([("p", given)])
    plan = learn(load, targets_of(model), [("p", torch.float32, (6,))])
    stage = Stage(plan)
    stage.put_writes(capture(plan, load, [("p", given)]))
    assert stage.seal().elements == 0
    stage = Stage(plan)
    stage.put_writes(capture(plan, load, [("p", given.flip(0))]))
    stage.seal().switch()
    wanted = torch.cat([given.flip(0) / given.sum(), torch.zeros(2)])
    assert torch.equal(model.p.data, wanted)


def test_what_depends_on_memory_from_before_is_refused() -> None:
    refused(lambda model, tensor: model.norm.data.add_(tensor))
    refused(lambda model, tensor: model.norm.data.copy_(tensor + model.norm))

    def half_of_it(model: Any, tensor: Any) -> None:
        model.norm.data[:5].copy_(tensor[:5])
        model.norm.data.copy_(model.norm * 2)

    refused(half_of_it)


def test_a_function_of_what_is_no_function_of_elements_runs_the_loader() -> None:
    model = Computing()

    def load(weights: Weights) -> None:
        for _, tensor in weights:
            model.norm.data.copy_(tensor.softmax(0))
            model.norm.data.copy_(model.norm + 1)

    plan = learn(load, targets_of(model), [("norm", BF16, (12,))])
    assert set(plan.opaque) == {"norm"} and not plan.pieces
    given = torch.randn(12, generator=torch.Generator().manual_seed(0)).to(BF16)
    stage = Stage(plan)
    stage.put_writes(capture(plan, load, [("norm", given)]))
    stage.seal().switch()
    assert torch.equal(model.norm.data, given.softmax(0) + 1)


def test_memory_that_no_loading_changes_may_be_read() -> None:
    model = Computing()
    model.register_buffer("order", torch.tensor([3, 1, 2, 0]))

    def load(weights: Weights) -> None:
        for _, tensor in weights:
            model.norm.data[:4].copy_(tensor.index_select(0, model.order))

    plan = learn(load, targets_of(model), [("norm", BF16, (4,))])
    stage = Stage(plan)
    stage.put("norm", np.array([0, 2]), np.array([7, 8], np.int16))
    stage.seal().switch()
    assert bits(model.norm.data)[:4].tolist() == [0, 0, 8, 7]


def test_a_function_that_looks_at_its_neighbours_is_not_steady() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    steady = learned_function(lambda tensor: -torch.exp(tensor.float()))
    assert is_steady(steady, values.to(BF16))

    class Neighbours:
        def __call__(self, given: Any) -> Any:
            return given - given.roll(1)

    assert not is_steady(Neighbours(), values)  # type: ignore[arg-type]


def learned_function(compute: Callable[[Any], Any]) -> Any:
    model = torch.nn.Module()
    model.register_parameter("p", torch.nn.Parameter(torch.zeros(6), requires_grad=False))
    load = lambda weights: [model.p.data.copy_(compute(t)) for _, t in weights]  # noqa: E731
    plan = learn(load, targets_of(model), [("p", BF16, (6,))])
    return plan.pieces["p"][0].function
