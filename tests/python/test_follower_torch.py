"""Followers of torch modules and tensors, in place, on any device."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import bits

import wisp
from wisp.tensors import host_entries, named_tensors

torch = pytest.importorskip("torch")


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight


def trained(seed: int) -> Tiny:
    torch.manual_seed(0)
    model = Tiny().bfloat16()
    for past in range(1, seed + 1):
        torch.manual_seed(past)
        with torch.no_grad():
            model.embed.weight[past] += 1
            model.norm.running_mean[past % 16] = past
            model.norm.num_batches_tracked += 1
    return model


def save(model, path) -> None:
    from safetensors.torch import save_file

    save_file({name: t.detach().clone() for name, t in named_tensors(model).tensors.items()}, path)


@pytest.fixture
def publish_model(publish, tmp_path):
    import subprocess

    from conftest import TREE, WISP_BIN

    def go(model, step):
        path = tmp_path / "to_publish.safetensors"
        save(model, path)
        command = [TREE / WISP_BIN, "publish", publish.run, path, "--step", str(step)]
        command += ["--baseline", tmp_path / "baseline"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    return go


def same(a, b) -> bool:
    mine = {name: view for name, _, _, view in host_entries(named_tensors(a).tensors.items())}
    theirs = {name: view for name, _, _, view in host_entries(named_tensors(b).tensors.items())}
    return mine.keys() == theirs.keys() and all((mine[n] == theirs[n]).all() for n in mine)


@pytest.mark.parametrize("own_copy", [False, True])
def test_a_module_follows_in_place_with_tied_weights(bucket, publish_model, own_copy):
    target = Tiny().bfloat16()
    weight = target.embed.weight
    with wisp.Follower(bucket, target, own_copy=own_copy) as follower:
        for step in range(4):
            publish_model(trained(step), step)
            assert follower.sync().step == step and same(target, trained(step))
        assert follower.rollback() == 2 and same(target, trained(2))
        assert follower.sync().step == 3 and same(target, trained(3))
    assert target.embed.weight is weight and target.head.weight is weight and weight.requires_grad


def test_a_state_dict_follows(bucket, publish_model):
    publish_model(trained(1), 1)
    target = Tiny().bfloat16().state_dict()
    with wisp.Follower(bucket, target, device="cpu") as follower:
        follower.sync()
    assert same(target, trained(1))


def test_an_fp32_module_follows_a_bf16_run_when_asked_to_cast(bucket, publish_model):
    publish_model(trained(0), 0)
    target = Tiny()
    with wisp.Follower(bucket, target) as follower, pytest.raises(wisp.InvalidError, match="BF16.*F32"):
        follower.sync()
    with wisp.Follower(bucket, target, cast=True) as follower:
        for step in range(3):
            publish_model(trained(step), step)
            follower.sync()
            wanted = trained(step).float()
            assert same(target, wanted)
        follower.rollback()
        assert same(target, trained(1).float())


def test_without_cast_other_dtypes_are_refused_through_a_copy_too(bucket, publish_model):
    publish_model(trained(0), 0)
    before = Tiny()
    target = Tiny()
    target.load_state_dict(before.state_dict())
    with wisp.Follower(bucket, target, own_copy=True) as follower:
        with pytest.raises(wisp.InvalidError, match="'embed.weight' is BF16.*cast=True"):
            follower.sync()
    assert same(target, before)


def test_tensors_that_cannot_be_written_in_place_are_refused():
    with pytest.raises(wisp.InvalidError, match=r"'w' \(float32 \[3, 2\] on cpu\) is not contiguous"):
        wisp.Follower("/tmp/x", {"w": torch.zeros(2, 3).T})
    with pytest.raises(wisp.InvalidError, match="'w'.*on meta.*has no memory"):
        wisp.Follower("/tmp/x", {"w": torch.zeros(2, 3, device="meta")})
    with pytest.raises(wisp.InvalidError, match="'w'.*on cpu.* is not on cuda:1"):
        wisp.Follower("/tmp/x", {"w": torch.zeros(2, 3)}, device="cuda:1")


def test_a_failing_device_leaves_the_tensors_at_the_last_step(bucket, publish_model, monkeypatch):
    publish_model(trained(0), 0)
    target = Tiny().bfloat16()
    with wisp.Follower(bucket, target, own_copy=True) as follower:
        follower.sync()
        publish_model(trained(1), 1)
        real = torch.Tensor.index_copy_
        calls = []

        def failing(self, *args):
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("device lost")
            return real(self, *args)

        monkeypatch.setattr(torch.Tensor, "index_copy_", failing)
        with pytest.raises(RuntimeError, match="device lost"):
            follower.sync()
        assert same(target, trained(0))
        assert follower.sync().step == 1 and same(target, trained(1))


FP8 = ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]


@pytest.mark.parametrize("own_copy", [False, True])
def test_every_dtype_arrives_bit_for_bit(own_copy):
    names = [*FP8, "bool", "int8", "uint16", "int32", "uint64", "complex64", "float64", "float16"]

    def state(seed):
        torch.manual_seed(seed)
        made = {}
        for name in names:
            dtype = getattr(torch, name)
            size = torch.empty(0, dtype=dtype).element_size()
            top = 2 if name == "bool" else 256
            raw = torch.randint(0, top, (24 * size,), dtype=torch.uint8)
            made[name] = raw.view(dtype).reshape(4, 6)
        return made

    old, new = state(1), state(2)
    target = {name: tensor.clone() for name, tensor in old.items()}
    if not own_copy:
        wisp.apply(target, wisp.diff(old, new))
    else:
        from wisp.follow.targets import Changes, TensorChange, TensorTarget

        writer = TensorTarget(target, set(), cast=False)
        changes = [
            TensorChange(
                name,
                dtype,
                shape,
                np.arange(24),
                view.view(f"u{view.nbytes // 24}"),
            )
            for name, dtype, shape, view in host_entries(new.items())
        ]
        writer._write(Changes("applied", 1, lambda: iter(changes)))
    for name in names:
        mine, theirs = target[name].view(torch.uint8), new[name].view(torch.uint8)
        assert (bits(mine.numpy()) == bits(theirs.numpy())).all(), name
