"""Weights are quantised, then compared: codes as others compute them, and few of them per step."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
ct = pytest.importorskip("compressed_tensors")

import wisp  # noqa: E402
from compressed_tensors.compressors.nvfp4.helpers import pack_fp4_to_uint8  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import quantize  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from wisp import quantize as schemes  # noqa: E402
from wisp.publish import sources  # noqa: E402
from wisp.quantize import quantized_sources, scheme  # noqa: E402

SCHEMES = {
    "fp8_block": schemes.BlockFp8,
    "fp8_block_ue8m0": lambda: schemes.BlockFp8(scales="ue8m0"),
    "fp8_block_e8m0": lambda: schemes.BlockFp8(scales="e8m0"),
    "fp8_channel": schemes.ChannelFp8,
    "int8_channel": schemes.ChannelInt8,
    "mxfp8": schemes.MxFp8,
    "mxfp4": schemes.MxFp4,
    "nvfp4": schemes.NvFp4,
}


def weight(rows=300, columns=320):
    torch.manual_seed(0)
    made = torch.randn(rows, columns) * torch.rand(rows, 1) * 0.1
    made[7] = 0  # a row, and whole groups of it, without any magnitude
    made[9, :64] = 0
    made[11, 3] = -0.0
    return made.to(torch.bfloat16)


def parts_of(way, tensor) -> dict:
    """The tensors that a weight becomes, read as the publisher reads them."""
    source = sources.Source("x.weight", tensor, tensor.dtype)
    made = quantized_sources.Quantizer(way).sources({"x.weight": source})
    return {
        name.removeprefix("x."): part.elements(0, part.count).reshape(part.shape)
        for name, part in made.items()
    }


def bits(tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def args_of(way):
    group = way.config([])["config_groups"]["group_0"]
    return QuantizationArgs(**group["weights"])


def qparams(way, tensor):
    """Scales as compressed-tensors computes them, of float32."""
    args = args_of(way)
    size = args.group_size or tensor.shape[1]
    grouped = tensor.float().unflatten(1, (-1, size))
    return args, calculate_qparams(grouped.amin(-1), grouped.amax(-1), args)


@pytest.mark.parametrize("name", ["int8_channel", "fp8_channel"])
def test_channels_are_quantised_as_compressed_tensors_does(name):
    way, tensor = SCHEMES[name](), weight()
    args, (scale, zero) = qparams(way, tensor)
    mine = parts_of(way, tensor)
    assert bits(mine["weight_scale"]) == bits(scale)
    code = torch.int8 if name == "int8_channel" else torch.float8_e4m3fn
    theirs = quantize(tensor.float(), scale, zero, args, dtype=code)
    assert bits(mine["weight"]) == bits(theirs)


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4"])
def test_groups_with_powers_of_two_are_those_of_compressed_tensors(name):
    way, tensor = SCHEMES[name](), weight()
    tensor[7] += 0.001  # of groups of zeros, theirs differ: an exponent of nothing
    tensor[9] += 0.001
    args, (scale, zero) = qparams(way, tensor)
    mine = parts_of(way, tensor)
    assert torch.equal(mine["weight_scale"].to(torch.int32), torch.log2(scale).int() + 127)
    theirs = quantize(tensor.float(), scale, zero, args)
    if name == "mxfp4":
        assert bits(mine["weight_packed"]) == bits(pack_fp4_to_uint8(theirs))
    else:
        assert bits(mine["weight"]) == bits(theirs.to(torch.float8_e4m3fn))


def test_nvfp4_is_that_of_compressed_tensors():
    way, tensor = schemes.NvFp4(), weight()
    args = args_of(way)
    wide = tensor.float()
    grouped = wide.unflatten(1, (-1, 16))
    whole = generate_gparam(wide.amin(), wide.amax())
    scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args, global_scale=whole)
    mine = parts_of(way, tensor)
    assert bits(mine["weight_global_scale"]) == bits(whole)
    assert bits(mine["weight_scale"]) == bits(scale.to(torch.float8_e4m3fn))
    theirs = quantize(wide, scale, zero, args, global_scale=whole)
    assert bits(mine["weight_packed"]) == bits(pack_fp4_to_uint8(theirs))


@pytest.mark.parametrize("scales", ["fp32", "ue8m0", "e8m0"])
def test_blocks_have_a_scale_each_and_lose_no_more_than_a_rounding(scales):
    tensor = weight()
    mine = parts_of(schemes.BlockFp8(scales=scales), tensor)
    assert mine["weight"].shape == (300, 320) and mine["weight_scale_inv"].shape == (3, 3)
    inverse = mine["weight_scale_inv"].float()
    for row in range(3):
        for column in range(3):
            at = (slice(row * 128, row * 128 + 128), slice(column * 128, column * 128 + 128))
            block, scale = tensor[at].float() + 0.0, inverse[row, column]
            if scales == "fp32":
                assert scale == block.abs().max() / 448
            else:
                assert scale.view(torch.int32) & 0x7FFFFF == 0
                assert block.abs().max() / 448 <= scale < block.abs().max() / 224
            assert bits(mine["weight"][at]) == bits((block / scale).to(torch.float8_e4m3fn))
            back = mine["weight"][at].float() * scale
            assert ((back - block).abs() <= block.abs() / 16 + scale * 2**-10).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_the_bits_are_the_same_in_whatever_pieces_they_are_made(name, monkeypatch):
    tensor = weight(140, 160)
    whole = parts_of(SCHEMES[name](), tensor)
    monkeypatch.setattr(scheme, "CHUNK_ELEMENTS", 2400)
    monkeypatch.setattr(quantized_sources, "CHUNK_ELEMENTS", 2400)
    for part, value in parts_of(SCHEMES[name](), tensor.t().contiguous().t()).items():
        assert bits(value) == bits(whole[part]), part
    source = sources.Source("x.weight", tensor, tensor.dtype)
    made = quantized_sources.Quantizer(SCHEMES[name]()).sources({"x.weight": source})
    for label, part in made.items():
        flat = whole[label.removeprefix("x.")].reshape(-1)
        for first in range(0, part.count, 1777):
            count = min(1777, part.count - first)
            assert bits(part.elements(first, count)) == bits(flat[first : first + count])


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(64, 256)
        self.up_proj = torch.nn.Linear(256, 256)
        self.router = torch.nn.Linear(256, 8)
        self.lm_head = torch.nn.Linear(256, 64, bias=False)


def model():
    torch.manual_seed(3)
    return Block().to(torch.bfloat16)


def exported(run, folder):
    out = folder / f"export-{len(list(folder.iterdir()))}"
    wisp.export(run, out)
    return out, load_file(out / "model.safetensors")


@pytest.mark.parametrize("device_diff", [False, True])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_run_holds_what_the_scheme_makes_of_each_step(tmp_path, name, device_diff):
    trained, way = model(), SCHEMES[name]()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    options = {"side_files": [tmp_path / "config.json"], "device_diff": device_diff}
    with wisp.Publisher(tmp_path / "run", trained, quantize=way, **options) as publisher:
        publisher.publish()
        with torch.no_grad():
            trained.up_proj.weight[5, 7] += 0.01
        publisher.publish()
    folder, found = exported(tmp_path / "run", tmp_path)
    expected = parts_of(way, trained.up_proj.weight)
    for part, value in expected.items():
        assert found[f"up_proj.{part}"].shape == value.shape, part
        assert bits(found[f"up_proj.{part}"]) == bits(value), part
    for kept in ("embed.weight", "router.weight", "lm_head.weight", "up_proj.bias"):
        assert bits(found[kept]) == bits(trained.state_dict()[kept])
    told = json.loads((folder / "config.json").read_text())
    assert told["model_type"] == "llama" and told["quantization_config"] == way.config(
        ["lm_head", "router"]
    )
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())


def test_a_moved_scale_does_not_send_its_block(tmp_path):
    trained = model()
    with wisp.Publisher(tmp_path / "run", trained, quantize="fp8_block") as publisher:
        publisher.publish()
        with torch.no_grad():
            block = trained.up_proj.weight[:128, :128]
            at = divmod(int(block.float().abs().argmax()), 128)
            block[at] *= 1 + 2**-7  # one unit in the last place of its largest element
        publisher.publish()
    changed = publisher.stats[-1].changed
    # The scale and every code that the new scale rounds otherwise, of 16,384.
    assert 1 <= changed < 16_384 / 8


def test_a_scale_that_is_a_power_of_two_stays(tmp_path):
    trained = model()
    way = schemes.BlockFp8(scales="ue8m0")
    with wisp.Publisher(tmp_path / "run", trained, quantize=way) as publisher:
        publisher.publish()
        with torch.no_grad():
            block = trained.up_proj.weight[:128, :128]
            at = divmod(int(block.float().abs().argmax()), 128)
            block[at] *= 1 - 2**-7
        publisher.publish()
    assert publisher.stats[-1].changed <= 1


def test_a_function_of_ones_own_is_called_for_a_weight_at_a_time(tmp_path):
    trained = model()
    calls = []

    def halves(name, tensor):
        if name != "up_proj.weight" and name != "lm_head.weight":
            return None
        calls.append(name)
        return {f"{name}_low": tensor[:, ::2].clone(), f"{name}_high": tensor[:, 1::2].clone()}

    with wisp.Publisher(tmp_path / "run", trained, quantize=halves) as publisher:
        publisher.publish()
        first = len(calls)
        with torch.no_grad():
            trained.up_proj.weight[0, 0] += 1
        publisher.publish()
    _, found = exported(tmp_path / "run", tmp_path)
    assert bits(found["up_proj.weight_low"]) == bits(trained.up_proj.weight[:, ::2])
    assert "up_proj.weight" not in found
    assert len(calls) - first == 2  # once for each weight: shapes are known


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("fp9", "none of fp8_block"),
        (schemes.NvFp4(ignore=["up_proj"]), None),
        (lambda name, tensor: {"same": tensor}, "two tensors"),
        (lambda name, tensor: {name: 3}, "no tensor"),
    ],
)
def test_what_cannot_be_quantised_is_said(tmp_path, rule, says):
    if says is None:
        wisp.Publisher(tmp_path / "run", model(), quantize=rule).close()
        return
    with pytest.raises(wisp.InvalidError, match=says):
        wisp.Publisher(tmp_path / "run", model(), quantize=rule)


def test_odd_columns_and_values_that_are_no_numbers_are_refused(tmp_path):
    odd = {"a.weight": torch.zeros(4, 30)}
    with pytest.raises(wisp.InvalidError, match=r"a\.weight.*30 columns.*ignore"):
        wisp.Publisher(tmp_path / "run", odd, quantize="mxfp4")
    broken = {"a.weight": torch.full((4, 32), float("nan"))}
    with wisp.Publisher(tmp_path / "run", broken, quantize="int8_channel") as publisher:
        with pytest.raises(wisp.InvalidError, match=r"a\.weight.*not finite"):
            publisher.publish()
        broken["a.weight"].zero_()
        publisher.publish()


def test_weights_that_servers_fuse_share_the_scale_of_the_whole(tmp_path):
    names = [f"layers.0.self_attn.{part}_proj.weight" for part in "qkvo"]
    state = {n: (2.0**i) * weight()[:64].float() for i, n in enumerate(names)}
    with wisp.Publisher(tmp_path / "run", state, quantize="nvfp4") as publisher:
        publisher.publish(1)
        publisher.flush()
        _, first = exported(tmp_path / "run", tmp_path)
        for tensor in state.values():
            tensor[3] *= 1.5
        publisher.publish_handed(iter(state.items()), 2)  # one by one
        publisher.flush()
        _, second = exported(tmp_path / "run", tmp_path)
    with wisp.Publisher(tmp_path / "again", state, quantize="nvfp4") as publisher:
        publisher.publish(2)
    _, whole = exported(tmp_path / "again", tmp_path)
    assert {n: bits(t) for n, t in second.items()} == {n: bits(t) for n, t in whole.items()}
    for found in (first, second):
        scales = [found[f"{n}_global_scale"] for n in names]
        assert scales[0] == scales[1] == scales[2] != scales[3]
    largest = max(state[n].abs().max() for n in names[:3])
    assert scales[0] == 448 * 6 / largest
