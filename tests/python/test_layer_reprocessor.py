"""Layers that an engine processes after loading: moved elements stay a scatter, the rest is run again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from wisp.engine.stage.held_tensors import tensors_on  # noqa: E402
from wisp.engine.stage.layer_reprocessor import LayerReprocessor, ScratchLayer  # noqa: E402
from wisp.engine.stage.stage import Stage  # noqa: E402
from wisp.errors import UnsupportedError  # noqa: E402

BF16 = torch.bfloat16
Weights = Iterable[tuple[str, Any]]


class Packed(torch.nn.Module):
    """A layer of the engine: `rows` of `columns`, processed by `how` once it is loaded."""

    def __init__(self, rows: int, columns: int, how: Callable[[Any], None]) -> None:
        super().__init__()
        self.how = how
        data = torch.full((rows, columns), float("nan"), dtype=BF16)
        self.weight = torch.nn.Parameter(data, requires_grad=False)

    def process(self) -> None:
        self.how(self)


def put(layer: Any, name: str, tensor: Any) -> None:
    setattr(layer, name, torch.nn.Parameter(tensor, requires_grad=False))


def amx(layer: Any) -> None:
    """Blocks of 16 rows, pairs of columns side by side, as AMX wants them."""
    rows, columns = layer.weight.shape
    tiles = layer.weight.view(rows // 16, 16, columns // 2, 2).permute(0, 2, 1, 3)
    put(layer, "weight", tiles.contiguous().view(rows, columns))


def four_dimensional(layer: Any) -> None:
    """TRT-LLM's blocks of experts; rows are interleaved, and padded to a multiple of 24."""
    rows, columns = layer.weight.shape
    halves = torch.stack([layer.weight[: rows // 2], layer.weight[rows // 2 :]], 1)
    padded = torch.nn.functional.pad(halves.reshape(rows, columns), (0, 0, 0, -rows % 24))
    put(layer, "weight", padded.view(-1, columns // 8, 8).transpose(0, 1).contiguous())


def emptied(layer: Any) -> None:
    """Absorbed attention: two copies in other orders, and the parameter is given up."""
    split = layer.weight.t().reshape(layer.weight.shape[1], 4, -1)
    layer.kernel = Kernel()
    layer.kernel.w_uk = split[:, :, :5].permute(1, 2, 0).contiguous()
    layer.kernel.w_uv = split[:, :, 5:].transpose(0, 1).contiguous()
    layer.kernel.scale = torch.tensor(1.0)
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)


class Kernel:
    """An object beside the module, as kernels are."""

    w_uk: Any
    w_uv: Any
    scale: Any


def quantised(layer: Any) -> None:
    """Block fp8: 16 by 16, a scale for each."""
    rows, columns = layer.weight.shape
    blocks = layer.weight.float().view(rows // 16, 16, columns // 16, 16)
    scale = blocks.abs().amax((1, 3), keepdim=True).clamp_min(1e-8) / 448
    codes = (blocks / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    put(layer, "weight", codes.view(rows, columns).t())
    put(layer, "weight_scale_inv", scale.view(rows // 16, columns // 16))


def kept_in_a_function(layer: Any) -> None:
    """The kernel is a closure over a scaled copy."""
    copy = layer.weight.t().contiguous() * 0.5
    layer.gemm = lambda x, copy=copy: x @ copy


HABITS = {
    "amx": (amx, True), "four_dimensional": (four_dimensional, True), "emptied": (emptied, True),
    "quantised": (quantised, False), "kept_in_a_function": (kept_in_a_function, False),
}  # fmt: skip


class Model(torch.nn.Module):
    def __init__(self, how: Callable[[Any], None]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Packed(32, 16, how), Packed(32, 16, how)])
        self.norm = torch.nn.Parameter(torch.zeros(16, dtype=BF16), requires_grad=False)

    def load_weights(self, weights: Weights) -> None:
        for name, tensor in weights:
            if name == "norm":
                self.norm.data.copy_(tensor)
                continue
            number, _, part = name.partition(".")
            rows = slice(0, 20) if part == "up" else slice(20, 32)
            self.layers[int(number)].weight.data[rows].copy_(tensor)


SHAPES = {"0.up": (20, 16), "0.gate": (12, 16), "1.up": (20, 16), "1.gate": (12, 16), "norm": (16,)}


def checkpoint(seed: int) -> dict[str, Any]:
    made = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=made).to(BF16) for name, shape in SHAPES.items()}


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(-1).view(torch.int16)


def loaded(how: Callable[[Any], None], tensors: dict[str, Any]) -> Model:
    model = Model(how)
    model.load_weights(tensors.items())
    for layer in model.layers:
        layer.process()
    return model


def memory(model: Model) -> dict[str, Any]:
    return {n: t.detach().reshape(-1).view(torch.uint8).clone() for n, t in tensors_on(model).items()}


def assert_same(one: Model, other: Model) -> None:
    mine, wanted = memory(one), memory(other)
    assert set(mine) == set(wanted)
    for name, tensor in wanted.items():
        assert torch.equal(mine[name], tensor), name


def reprocessor_of(model: Model, how: Callable[[Any], None]) -> LayerReprocessor:
    scratch = Model(how)
    units = [ScratchLayer(f"layers.{i}", layer.process) for i, layer in enumerate(scratch.layers)]
    return LayerReprocessor(model, scratch, scratch.load_weights, units)


@pytest.mark.parametrize("habit", HABITS)
def test_steps_reach_what_is_served(habit: str) -> None:
    how, is_moved = HABITS[habit]
    now, made = checkpoint(1), torch.Generator().manual_seed(3)
    model = loaded(how, now)
    loader = reprocessor_of(model, how)
    plan = loader.learn([], [(name, t.dtype, tuple(t.shape)) for name, t in now.items()])
    layers = {n for n in SHAPES if n != "norm"}
    assert set(plan.opaque) == (set() if is_moved else layers) and not plan.absent()
    assert_same(loaded(how, now), model)
    for round_ in range(3):
        stage, touched = Stage(plan), set()
        for name in ("0.up", "0.gate", "norm"):
            flat = now[name].view(-1)
            places = torch.randperm(flat.numel(), generator=made)[:5].sort()[0]
            old = bits(flat[places])
            flat[places] = torch.randn(5, generator=made).to(BF16)
            if name in plan.opaque:
                touched.update(plan.opaque[name])
            else:
                stage.put(name, places.numpy(), bits(flat[places]).numpy(), old.numpy())
        assert touched == (set() if is_moved else {"0.up", "0.gate"})  # the touched layer only
        stage.put_writes(loader.capture(plan, [(n, now[n]) for n in sorted(touched)]))
        stage.seal()
        if is_moved:
            assert stage.elements == 15, round_
        stage.switch()
        assert_same(loaded(how, now), model)


@pytest.mark.parametrize("habit", HABITS)
def test_what_is_proven_is_what_the_engine_holds(habit: str) -> None:
    how, _ = HABITS[habit]
    tensors = checkpoint(1)
    model = loaded(how, tensors)
    loader = reprocessor_of(model, how)
    plan = loader.learn([], [(name, t.dtype, tuple(t.shape)) for name, t in tensors.items()])

    def differing(given: dict[str, Any]) -> int:
        stage = Stage(plan)
        for name in plan.pieces:
            stage.put_whole(name, bits(given[name]))
        stage.put_writes(loader.capture(plan, [(n, given[n]) for n in plan.opaque]))
        return stage.seal().elements

    assert differing(tensors) == 0
    assert differing(checkpoint(2)) > 0


class Scaled(torch.nn.Module):
    """Two weights of one byte an element, fused: one scale serves both, turned over."""

    def __init__(self) -> None:
        super().__init__()
        put(self, "codes", torch.zeros(8, 4, dtype=torch.uint8))
        put(self, "scale", torch.zeros(2))

    def process(self) -> None:
        put(self, "scale", 1 / self.scale.max())

    def load_weights(self, weights: Weights) -> None:
        for name, tensor in weights:
            half, _, part = name.partition(".")
            held = getattr(self, part).data
            held[int(half) * len(tensor) :][: len(tensor)].copy_(tensor)


def test_a_scale_that_is_turned_over_after_loading_is_computed_again() -> None:
    def holds(tensors: dict[str, Any]) -> Any:
        model = torch.nn.Module()
        model.layer = Scaled()
        model.layer.load_weights(tensors.items())
        return model

    codes = torch.arange(16, dtype=torch.uint8).view(4, 4)
    now = {
        "0.codes": codes, "0.scale": torch.tensor([2.0]),
        "1.codes": codes + 16, "1.scale": torch.tensor([4.0]),
    }  # fmt: skip
    model, scratch = holds(now), holds({})
    model.layer.process()
    unit = ScratchLayer("layer", scratch.layer.process)
    loader = LayerReprocessor(model, scratch, scratch.layer.load_weights, [unit])
    plan = loader.learn([], [(name, t.dtype, tuple(t.shape)) for name, t in now.items()])
    assert set(plan.opaque) == set(now)
    now["1.scale"] = torch.tensor([8.0])
    stage = Stage(plan)
    stage.put_writes(loader.capture(plan, list(now.items())))
    stage.seal()
    stage.switch()
    assert model.layer.scale == 0.125 and torch.equal(model.layer.codes[:4], codes)


class Handle:
    """oneDNN's, say: nobody can look into it."""

    __slots__ = ("copy",)


def hidden(layer: Any) -> None:
    handle = Handle()
    handle.copy = layer.weight.clone()
    layer.handle = handle
    layer.weight = torch.nn.Parameter(torch.empty(0), requires_grad=False)


def half_hidden(layer: Any) -> None:
    handle = Handle()
    handle.copy = layer.weight[16:].clone()
    layer.handle = handle
    put(layer, "weight", layer.weight[:16].clone())


def test_weights_that_cannot_be_seen_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="'layers.0' keeps its weights where.*export"):
        reprocessor_of(loaded(hidden, checkpoint(1)), hidden)
    loader = reprocessor_of(loaded(half_hidden, checkpoint(1)), half_hidden)
    with pytest.raises(UnsupportedError, match="'layers.0' does not hold all of '0.up'.*export"):
        loader.learn([], [(name, BF16, shape) for name, shape in SHAPES.items()])


def test_what_all_ranks_do_together_is_refused(tmp_path: Path) -> None:
    def shared_scale(layer: Any) -> None:
        largest = layer.weight.abs().amax()
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        put(layer, "weight", layer.weight / largest)

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'ranks'}", rank=0, world_size=1
    )
    try:
        model = loaded(shared_scale, checkpoint(1))
        with pytest.raises(UnsupportedError, match="'layers.0' is processed by all ranks together"):
            reprocessor_of(model, shared_scale)
    finally:
        torch.distributed.destroy_process_group()


def test_copies_that_only_the_engine_can_make_are_made_anew() -> None:
    now = checkpoint(1)
    model = loaded(amx, now)
    scratch = Model(amx)
    units = [ScratchLayer(f"layers.{i}", layer.process) for i, layer in enumerate(scratch.layers)]
    again: list[int] = []
    packed = [([layer.weight], lambda i=i: again.append(i)) for i, layer in enumerate(model.layers)]
    loading = LayerReprocessor(model, scratch, scratch.load_weights, units, packed=packed)
    plan = loading.learn([], [(name, t.dtype, tuple(t.shape)) for name, t in now.items()])
    stage = Stage(plan)
    for name in ("1.up", "norm"):
        stage.put(name, np.array([3]), np.array([7], np.int16))
    loading.written(stage.seal().touched)
    assert again == [1]


def test_layers_of_one_make_are_learned_once() -> None:
    model = loaded(amx, checkpoint(1))
    passed: list[int] = []

    def counted(layer: Any) -> None:
        passed.append(1)
        amx(layer)

    reprocessor_of(model, counted)
    assert len(passed) == 3  # the numbers, and two checks that they hold
