"""Plans learned from loaders of every habit: where elements go, and what a stage writes and undoes."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wisp.errors import UnsupportedError  # noqa: E402
from wisp.engine.plan.load_plan import Layout, learn_layout, targets_of  # noqa: E402
from wisp.engine.plan.load_recorder import capture, learn  # noqa: E402
from wisp.engine.stage.stage import Stage  # noqa: E402

BF16 = torch.bfloat16


class FusedModel(torch.nn.Module):
    """Loads as engines do: rank 1 of 2, fused projections, stacks of experts, a padded vocabulary."""

    def __init__(self) -> None:
        super().__init__()

        def parameter(*shape: int, dtype: torch.dtype = BF16) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)

        self.qkv = parameter(10, 6)  # q: 6 rows of 12, k and v: 2 of 4
        self.down = parameter(6, 4)  # columns 4 to 8 of 8
        self.embed = parameter(16, 6)  # 11 of 22 rows, and padding
        self.experts = parameter(3, 8, 6)
        self.norm = parameter(6)
        self.scale = parameter(1)
        self.wide = parameter(6, dtype=torch.float32)

    def load_weights(self, weights: object) -> None:
        for name, tensor in weights:  # type: ignore[attr-defined]
            kind, _, rest = name.partition(".")
            if kind in ("q", "k", "v"):
                start, rows = {"q": (0, 6), "k": (6, 2), "v": (8, 2)}[kind]
                self.qkv.data.narrow(0, start, rows).copy_(tensor.narrow(0, rows, rows))
            elif kind == "down":
                self.down.data.copy_(tensor.narrow(1, 4, 4))
            elif kind == "embed":
                self.embed[:11].data.copy_(tensor[11:])
                self.embed[11:].data.fill_(0)
            elif kind == "expert":
                half = {"gate": 0, "up": 4}[rest[2:]]
                self.experts.data[int(rest[0])].narrow(0, half, 4).copy_(tensor.t())
            elif kind == "norm":
                self.norm.data.copy_(tensor + 1)
            elif kind == "scale":
                self.scale.data.fill_(tensor.item())
            elif kind == "wide":
                self.wide.data.copy_(tensor)


def checkpoint(seed: int) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    shapes = {
        "q": (12, 6), "k": (4, 6), "v": (4, 6), "down": (6, 8), "embed": (22, 6), "norm": (6,),
        "scale": (1,), "wide": (6,), "elsewhere": (5,),
    }  # fmt: skip
    shapes.update({f"expert.{e}.{half}": (6, 4) for e in range(3) for half in ("gate", "up")})
    return {name: torch.randn(shape, generator=made).to(BF16) for name, shape in shapes.items()}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.int16)


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    for name, tensor in one.items():
        assert torch.equal(tensor.view(torch.uint8), other[name].view(torch.uint8)), name


def loaded(seed: int) -> FusedModel:
    model = FusedModel()
    model.load_weights(checkpoint(seed).items())
    return model


def plan_of(model: FusedModel) -> object:
    schema = [(name, t.dtype, tuple(t.shape)) for name, t in checkpoint(0).items()]
    return learn(model.load_weights, targets_of(model), schema)


def put_all(stage: Stage, model: FusedModel, new: dict[str, torch.Tensor]) -> None:
    for name in stage.plan.pieces:
        stage.put_whole(name, bits(new[name]))
    opaque = [(name, new[name]) for name in stage.plan.opaque]
    stage.put_writes(capture(stage.plan, model.load_weights, opaque))


def test_learning_writes_nothing_and_finds_every_tensor() -> None:
    model = loaded(1)
    before = state(model)
    plan = plan_of(model)
    assert_equal(before, state(model))
    assert set(plan.opaque) == {"scale"} and plan.absent() == ["elsewhere"]
    assert len(plan.pieces["q"]) == 1 and plan.pieces["q"][0].source_offset == 36


def test_a_whole_state_goes_where_the_loader_puts_it_and_back() -> None:
    model = loaded(1)
    before, plan = state(model), plan_of(model)
    stage = Stage(plan)
    put_all(stage, model, checkpoint(2))
    stage.seal()
    assert_equal(before, state(model))
    stage.switch()
    assert_equal(state(loaded(2)), state(model))
    stage.restore()
    assert_equal(before, state(model))


def test_single_elements_go_where_the_loader_puts_them() -> None:
    model, made = loaded(1), torch.Generator().manual_seed(3)
    plan, now = plan_of(model), checkpoint(1)
    for round_ in range(5):
        stage = Stage(plan)
        for name in plan.pieces:
            flat = now[name].view(-1)
            places = torch.randperm(flat.numel(), generator=made)[: 1 + flat.numel() // 5].sort()[0]
            flat[places] = torch.randn(len(places), generator=made).to(BF16)
            stage.put(name, places.numpy(), bits(flat[places]).numpy())
        stage.seal().switch()
        expected = FusedModel()
        expected.load_weights(now.items())
        assert_equal(state(expected), state(model))
        assert stage.elements > 0, round_


def test_of_several_moves_the_last_one_counts() -> None:
    model, plan = loaded(1), plan_of(loaded(1))
    plan = plan_of(model)
    stage = Stage(plan)
    places = torch.tensor([40, 41, 50])
    stage.put("q", places.numpy(), np.array([1, 2, 3], np.int16))
    stage.put("q", places[1:].numpy(), np.array([7, 8], np.int16))
    stage.seal()
    assert stage.elements == 3
    stage.switch()
    flat = bits(model.qkv.data)
    assert flat[[4, 5, 14]].tolist() == [1, 7, 8]


def test_a_switch_that_breaks_off_is_undone() -> None:
    model = loaded(1)
    before, stage = state(model), Stage(plan_of(model))
    put_all(stage, model, checkpoint(2))
    stage.seal()

    def break_off() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        stage.switch(break_off)
    stage.restore()
    assert_equal(before, state(model))


def test_a_loader_that_computes_in_place_is_refused() -> None:
    model = FusedModel()

    def load(weights: object) -> None:
        for _, tensor in weights:  # type: ignore[attr-defined]
            model.norm.data.mul_(2)
            model.norm.data.copy_(tensor)

    with pytest.raises(UnsupportedError, match="mul_.*'norm'"):
        learn(load, targets_of(model), [("norm", BF16, (6,))])


def test_another_order_of_elements_is_learned_and_used() -> None:
    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view(1, 4, 2, 3, 2).permute(0, 3, 1, 4, 2).contiguous()

    layout = learn_layout(pack, (1, 8, 6), BF16)
    assert layout.unit == 48 and sorted(layout.places.tolist()) == list(range(48))
    model = loaded(1)
    packed = torch.cat([pack(expert[None]) for expert in model.experts.data]).view(3, 8, 6)
    model.experts.data.copy_(packed)
    key = model.experts.untyped_storage().data_ptr()
    targets = targets_of(model, {key: layout})
    schema = [(name, t.dtype, tuple(t.shape)) for name, t in checkpoint(0).items()]
    plan = learn(model.load_weights, targets, schema)
    one = checkpoint(1)
    assert not any(
        bool(mask.any()) for name in plan.pieces
        for _, mask, _ in plan.differences(name, bits(one[name]))
    )  # fmt: skip
    stage = Stage(plan)
    put_all(stage, model, checkpoint(2))
    stage.seal().switch()
    wanted = torch.cat([pack(e[None]) for e in loaded(2).experts.data]).view(3, 8, 6)
    assert torch.equal(bits(model.experts.data), bits(wanted))


def test_packing_that_is_more_than_an_order_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="more than another order"):
        learn_layout(lambda tensor: torch.zeros_like(tensor), (1, 8, 6), BF16)
    assert Layout(1, torch.zeros(1)).unit == 1
