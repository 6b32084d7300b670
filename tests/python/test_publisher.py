"""Publishing from torch: what arrives is what the trainer has, bit for bit, whatever it does."""

from __future__ import annotations

import json
import logging
import runpy
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from wisp.publish import staging  # noqa: E402
from wisp.model.checkpoint_names import Naming  # noqa: E402
from wisp.publish.publisher import Publisher  # noqa: E402

TREE = Path(__file__).resolve().parents[2]

MODES = {
    "in_place": dict,
    "staged": lambda: {"stager": staging.Stager(stage_all=True)},
    "on_device": lambda: {"device_diff": True},
}


def stored(run, folder: Path, step: int | None = None) -> dict[str, bytes]:
    """The bytes of each tensor of a published step, read without torch."""
    out = folder / f"export-{len(list(folder.iterdir()))}"
    wisp.export(run, out, step=step)
    raw = (out / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8 : 8 + length])
    head.pop("__metadata__", None)
    data = raw[8 + length :]
    return {n: data[e["data_offsets"][0] : e["data_offsets"][1]] for n, e in head.items()}


def bits(tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def small_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Embedding(50, 32), torch.nn.Flatten(), torch.nn.Linear(128, 60)
    )


def train_step(model, optimizer) -> None:
    loss = model(torch.randint(50, (8, 4))).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def as_bf16(model) -> dict[str, bytes]:
    return {n: bits(t.to(torch.bfloat16)) for n, t in model.state_dict().items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_every_step_arrives_as_the_trainer_has_it(tmp_path, mode, kind):
    model = small_model()
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-4)
    run = tmp_path / "run"
    states = []
    with Publisher(run, model, dtype=torch.bfloat16, **MODES[mode]()) as publisher:
        publisher.attach(optimizer)
        states.append(as_bf16(model))
        for _ in range(4):
            train_step(model, optimizer)
            states.append(as_bf16(model))
            publisher.flush()
    assert [s.step for s in publisher.stats] == [0, 1, 2, 3, 4]
    assert [s.kind for s in publisher.stats] == ["anchor"] + ["delta"] * 4
    assert 0 < publisher.stats[-1].changed < publisher.stats[-1].total
    for step, state in enumerate(states):
        assert stored(run, tmp_path, step) == state


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("trained", [torch.float32, torch.bfloat16])
def test_weights_may_change_as_soon_as_publish_returns(tmp_path, mode, trained):
    tensors = {"weight": torch.randn(300, 400).to(trained), "bias": torch.randn(400).to(trained)}
    with Publisher(tmp_path / "run", tensors, dtype=torch.bfloat16, **MODES[mode]()) as publisher:
        publisher.publish(0)
        for step in range(1, 6):
            tensors["weight"][step::7] += 1
            state = {n: bits(t.to(torch.bfloat16)) for n, t in tensors.items()}
            publisher.publish(step)
            for tensor in tensors.values():
                tensor.neg_()
            publisher.flush()
            assert stored(tmp_path / "run", tmp_path, step) == state
            for tensor in tensors.values():
                tensor.neg_()


@pytest.mark.parametrize("mode", MODES)
def test_bits_that_are_no_numbers_arrive(tmp_path, mode):
    nans = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    tensors = {"patterns": nans.clone(), "nan": torch.full((3, 5), float("nan"))}
    with Publisher(tmp_path / "run", tensors, **MODES[mode]()) as publisher:
        publisher.publish(1)
        tensors["patterns"] = nans.flip(0)
        tensors["nan"].view(torch.int32)[1, 2] ^= 1
        publisher.publish(2)
    assert stored(tmp_path / "run", tmp_path) == {n: bits(t) for n, t in tensors.items()}


@pytest.mark.parametrize("mode", MODES)
def test_all_kinds_of_tensors_arrive(tmp_path, mode):
    wide = torch.randn(7, 9)
    tensors = {
        "transposed": wide.t(),
        "sliced": wide[::2, 1:],
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "counts": torch.arange(5),
        "flags": torch.tensor([True, False, True]),
        "fp8": torch.randn(33).to(torch.float8_e4m3fn),
        "half": torch.randn(5).half(),
        "expanded": torch.ones(1, 3).expand(4, 3),
    }
    with Publisher(tmp_path / "run", tensors, **MODES[mode]()) as publisher:
        publisher.publish()
        wide += 1
        tensors["counts"][2] = -1
        publisher.publish()
    assert stored(tmp_path / "run", tmp_path) == {n: bits(t) for n, t in tensors.items()}
    assert publisher.stats[-1].kind == "delta"


def test_numpy_needs_no_torch_tensors(tmp_path):
    arrays = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "t": np.ones((3, 4)).T}
    with Publisher(tmp_path / "run", arrays) as publisher:
        publisher.publish()
        arrays["w"][1, 1] = 9
        publisher.publish()
    expected = {name: np.ascontiguousarray(a).tobytes() for name, a in arrays.items()}
    assert stored(tmp_path / "run", tmp_path) == expected
    assert publisher.stats[-1].changed == 1


def test_large_tensors_go_through_small_buffers(tmp_path):
    tensor = torch.randn(2_500_000)
    stager = staging.Stager(group_bytes=4 << 20, stage_all=True)
    tensors = {"a": tensor, "b": torch.randn(10), "c": torch.randn(1_100_000, dtype=torch.float64)}
    run = tmp_path / "run"
    with Publisher(run, tensors, dtype=torch.bfloat16, stager=stager) as publisher:
        publisher.publish()
        tensor[::1000] += 1
        publisher.publish()
    expected = {name: bits(t.to(torch.bfloat16)) for name, t in tensors.items()}
    assert stored(run, tmp_path) == expected
    assert publisher.stats[-1].changed == 2500


def test_dtype_may_be_chosen_for_each_tensor(tmp_path):
    tensors = {"norm": torch.randn(4), "weight": torch.randn(4), "count": torch.arange(3)}

    def rule(name, tensor):
        return torch.float8_e4m3fn if name == "weight" else None

    with Publisher(tmp_path / "run", tensors, dtype=rule) as publisher:
        publisher.publish()
    tensors["weight"] = tensors["weight"].to(torch.float8_e4m3fn)
    assert stored(tmp_path / "run", tmp_path) == {n: bits(t) for n, t in tensors.items()}


def test_tied_weights_are_published_once(tmp_path):
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(9, 4), "head": torch.nn.Linear(4, 9)})
    model["head"].weight = model["embed"].weight
    model.register_buffer("scale", torch.ones(2))
    model.register_buffer("cache", torch.ones(2), persistent=False)
    with Publisher(tmp_path / "run", model) as publisher:
        publisher.publish()
    assert sorted(stored(tmp_path / "run", tmp_path)) == ["embed.weight", "head.bias", "scale"]
    raw = next(tmp_path.glob("export-*/model.safetensors")).read_bytes()
    head = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert head["__metadata__"] == {"format": "pt", "head.weight": "embed.weight"}


def test_parameters_that_are_replaced_are_followed(tmp_path):
    model = small_model()
    with Publisher(tmp_path / "run", model) as publisher:
        publisher.publish()
        model[2].weight.data = torch.randn(60, 128)
        model[0].weight = torch.nn.Parameter(torch.randn(50, 32))
        publisher.publish()
    expected = {n: bits(t) for n, t in model.state_dict().items()}
    assert stored(tmp_path / "run", tmp_path) == expected


def test_compiled_models_keep_their_names(tmp_path):
    model = small_model()
    compiled = torch.nn.Module()  # as torch.compile() wraps it
    compiled._orig_mod = model
    with Publisher(tmp_path / "run", compiled) as publisher:
        publisher.publish()
    assert sorted(stored(tmp_path / "run", tmp_path)) == sorted(model.state_dict())


def test_several_optimizer_steps_make_one_publish(tmp_path):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Publisher(tmp_path / "run", model, every=3) as publisher:
        publisher.attach(optimizer)
        for _ in range(7):
            train_step(model, optimizer)
            publisher.flush()
    train_step(model, optimizer)  # after close() nothing is hooked any more
    assert [s.step for s in publisher.stats] == [0, 3, 6]


def test_a_run_goes_on_where_it_ended(tmp_path):
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with Publisher(tmp_path / "run", model).attach(optimizer) as publisher:
            for _ in range(2):
                train_step(model, optimizer)
                publisher.flush()
    assert [s.step for s in publisher.stats] == [3, 4]
    assert all(s.kind == "delta" for s in publisher.stats)


def test_another_model_is_refused(tmp_path):
    with Publisher(tmp_path / "run", {"a": torch.ones(3), "b": torch.ones(2)}) as publisher:
        publisher.publish()
    other = {"a": torch.ones(4), "c": torch.ones(2).half()}
    with pytest.raises(wisp.InvalidError) as refused:
        Publisher(tmp_path / "run", other)
    for part in ("'a' is F32 [4], there F32 [3]", "'b' is missing", "'c' is new"):
        assert part in str(refused.value)
    with Publisher(tmp_path / "run", other, allow_schema_change=True) as publisher:
        publisher.publish()
    assert publisher.stats[-1].kind == "anchor"
    assert stored(tmp_path / "run", tmp_path) == {n: bits(t) for n, t in other.items()}


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_changes_its_shape_while_training_is_refused(tmp_path, mode):
    tensors = {"a": torch.ones(3)}
    with Publisher(tmp_path / "run", tensors, **MODES[mode]()) as publisher:
        publisher.publish()
        tensors["a"] = torch.ones(4)
        with pytest.raises(wisp.InvalidError, match="allow_schema_change"):
            publisher.publish()


@pytest.mark.parametrize(
    ("model", "options", "kind"),
    [
        ({"a": "no tensor"}, {}, wisp.InvalidError),
        ({"a": 3}, {}, wisp.InvalidError),
        (torch.ones(3), {}, wisp.InvalidError),
        ({"a": torch.ones(3, device="meta")}, {}, wisp.InvalidError),
        ({"a": torch.ones(3, dtype=torch.complex128)}, {}, wisp.UnsupportedError),
        ({"a": torch.ones(3)}, {"codec": "zip"}, wisp.InvalidError),
        ({"a": torch.ones(3)}, {"every": 0}, wisp.InvalidError),
        ({"a": torch.ones(3)}, {"on_error": "ignore"}, wisp.InvalidError),
        ({"a": torch.ones(3)}, {"create": False}, wisp.NoRunError),
        ({"a": torch.ones(3)}, {"sign_key": "/nowhere"}, wisp.NotFoundError),
    ],
)
def test_what_cannot_be_published_is_refused(tmp_path, model, options, kind):
    with pytest.raises(kind):
        Publisher(tmp_path / "run", model, **options)


def test_a_closed_publisher_says_so(tmp_path):
    publisher = Publisher(tmp_path / "run", {"a": torch.ones(3)})
    publisher.close()
    publisher.close()
    with pytest.raises(wisp.InvalidError, match="closed"):
        publisher.publish()


def test_steps_are_logged_and_shown(tmp_path, caplog):
    caplog.set_level(logging.INFO, "wisp")
    tensors = {"a": torch.zeros(1000)}
    with Publisher(tmp_path / "run", tensors) as publisher:
        publisher.publish(7)
        tensors["a"][:10] = 1
        publisher.publish(8)
    last = publisher.stats[-1]
    assert (last.changed, last.total, last.sparsity) == (10, 1000, 0.99)
    assert last.full_bytes == 4000 and last.ratio == 4000 / last.bytes
    assert last.blocked_seconds > 0
    assert "step 8: 10 of 1,000 changed (1 %)" in caplog.text
    assert "step 8" in repr(publisher) and "blocked" in repr(publisher.stats)
    assert "<table>" in publisher.stats._repr_html_()


def test_a_process_that_forgets_to_close_ends(tmp_path):
    script = f"""
import numpy, wisp
publisher = wisp.Publisher({str(tmp_path / "run")!r}, {{"a": numpy.zeros(10, "f4")}})
publisher.publish(0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    assert stored(tmp_path / "run", tmp_path) == {"a": bytes(40)}


@pytest.mark.parametrize("example", ["torch_loop.py", "hf_trainer.py"])
def test_examples_run(tmp_path, monkeypatch, capsys, example):
    if example == "hf_trainer.py":
        pytest.importorskip("transformers")
    run = str(tmp_path / "run")
    monkeypatch.setattr(sys, "argv", [example, run])
    runpy.run_path(str(TREE / "examples" / example), run_name="__main__")
    assert "blocked" in capsys.readouterr().out
    assert wisp.status(run).head.step == (10 if example == "torch_loop.py" else 6)


@pytest.mark.parametrize("mode", ["in_place", "staged"])  # arrays are on no device
def test_weights_that_move_between_steps_are_found_where_they_are(tmp_path, mode):
    """The plan of the last step is kept while every tensor lies where it lay, and no longer."""
    model = {
        "moved": torch.nn.Parameter(torch.randn(40, 30)),
        "replaced": torch.randn(64).to(torch.bfloat16),
        "turned": torch.nn.Parameter(torch.randn(20, 20)),
        "array": np.arange(32, dtype=np.float32),
        "tied": torch.randn(16),
    }
    model["also_tied"] = model["tied"]

    def move() -> None:
        model["moved"].data = model["moved"].data * 2

    def replace() -> None:
        model["replaced"] = torch.randn(64).to(torch.bfloat16)
        model["array"] = np.arange(32, dtype=np.float32) + 1

    def turn() -> None:
        model["turned"].data = model["turned"].data.T  # the same memory, read another way

    def write() -> None:
        model["tied"].add_(1)
        model["array"][3] = 7

    with Publisher(tmp_path / "run", model, on_error="raise", **MODES[mode]()) as publisher:
        for step, act in enumerate([lambda: None, write, move, write, replace, turn, write]):
            act()
            publisher.publish(step)
            publisher.flush()
            got = stored(tmp_path / "run", tmp_path)
            for name in ("moved", "replaced", "turned", "tied"):
                assert got[name] == bits(model[name]), (step, name)
            assert got["array"] == model["array"].tobytes(), step


def test_a_model_that_lies_still_is_looked_at_once():
    model = torch.nn.Linear(4, 4)
    tensors = staging.ModelTensors(Naming(model), torch.bfloat16)
    sources, schema = tensors.look()
    with torch.no_grad():
        model.weight.add_(1)
    assert tensors.look()[0] is sources
    assert tensors.look()[1] is schema
    model.bias.data = model.bias.data.clone()
    assert tensors.look()[0] is not sources
    moved = tensors.look()[0]
    assert tensors.look()[0] is not moved  # memory that moves is not kept alive


def test_what_a_rule_answers_is_asked_for_at_each_look():
    answers = iter([torch.bfloat16, torch.float32])
    tensors = staging.ModelTensors(Naming({"w": torch.randn(4)}), lambda *_: next(answers))
    assert [tensors.look()[1].tensors[0][1] for _ in range(2)] == ["BF16", "F32"]


def test_two_optimizers_make_one_step_of_an_iteration(tmp_path):
    model = small_model()
    parts = list(model.parameters())
    halves = [torch.optim.SGD(parts[:1], lr=0.1), torch.optim.AdamW(parts[1:], lr=0.1)]
    run = tmp_path / "run"
    states = []
    with Publisher(run, model, on_error="raise") as publisher:
        for optimizer in halves:
            publisher.attach(optimizer)
        for _ in range(3):
            model(torch.randint(50, (8, 4))).square().mean().backward()
            for optimizer in halves:
                optimizer.step()
            states.append({n: bits(t) for n, t in model.state_dict().items()})
            publisher.flush()
        assert publisher.next_step == 4
        # One is skipped, as a loss scaler does: the iteration ends when the other steps again.
        halves[0].step()
        skipped = {n: bits(t) for n, t in model.state_dict().items()}
        assert publisher.next_step == 4
        halves[0].step()
        assert publisher.next_step == 5
        publisher.flush()
        last = {n: bits(t) for n, t in model.state_dict().items()}
    assert [s.step for s in publisher.stats] == [0, 1, 2, 3, 4, 5]
    for step, state in enumerate([*states, skipped, last], start=1):
        assert stored(run, tmp_path, step) == state, step


def test_an_optimizer_of_accelerate_can_be_attached(tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = small_model()
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with Publisher(tmp_path / "run", model) as publisher:
        publisher.attach(optimizer)
        train_step(model, optimizer)
    assert [s.step for s in publisher.stats][-1] == 1


def test_layers_that_were_compiled_keep_their_names(tmp_path):
    model = small_model()
    names = list(model.state_dict())
    for number, layer in enumerate(model):
        model[number] = torch.compile(layer)
    assert any("_orig_mod" in name for name in model.state_dict())
    with Publisher(tmp_path / "run", model) as publisher:
        publisher.publish()
    assert stored(tmp_path / "run", tmp_path).keys() == set(names)
    served = small_model()
    for number, layer in enumerate(served):
        served[number] = torch.compile(layer)
    with torch.no_grad():
        served[0].weight.zero_()
    wisp.Follower(tmp_path / "run", served).sync()
    assert bits(served[0].weight) == bits(model[0].weight)


def test_a_transposed_view_is_no_alias(tmp_path):
    square = torch.arange(16.0).reshape(4, 4)
    with Publisher(tmp_path / "run", {"w": square, "wt": square.t(), "again": square}) as publisher:
        publisher.publish()
    found = stored(tmp_path / "run", tmp_path)
    assert found == {"w": bits(square), "wt": bits(square.t())}
    array = square.numpy()
    with Publisher(tmp_path / "numpy", {"w": array, "wt": array.T}) as publisher:
        publisher.publish()
    assert stored(tmp_path / "numpy", tmp_path) == found


def test_a_dtype_is_for_numpy_too(tmp_path):
    array = np.linspace(-1, 1, 1000, dtype=np.float32)
    arrays = {"a": array, "strided": array[::2], "count": np.arange(3)}
    expected = {
        "a": bits(torch.from_numpy(array).to(torch.bfloat16)),
        "strided": bits(torch.from_numpy(array)[::2].to(torch.float16)),
        "count": np.arange(3).tobytes(),
    }

    def rule(name, tensor):
        return {"a": torch.bfloat16, "strided": np.float16}.get(name)

    with Publisher(tmp_path / "run", arrays, dtype=rule) as publisher:
        publisher.publish()
    assert stored(tmp_path / "run", tmp_path) == expected
    with Publisher(tmp_path / "half", arrays, dtype=np.float16) as publisher:
        publisher.publish()
    assert stored(tmp_path / "half", tmp_path)["a"] == array.astype(np.float16).tobytes()


def test_a_fenced_trainer_is_not_told_that_training_goes_on(tmp_path, caplog):
    tensors = {"a": torch.zeros(10)}
    first = Publisher(tmp_path / "run", tensors)
    first.publish(0)
    first.flush()
    with Publisher(tmp_path / "run", tensors), caplog.at_level(logging.WARNING, "wisp"):
        tensors["a"][0] = 1
        first.publish(1)
        with pytest.raises(wisp.FencedError, match="a new publisher") as raised:
            first.flush()
        with pytest.raises(wisp.FencedError):
            first.close()
    assert "--" not in str(raised.value)
    assert "training goes on" not in caplog.text
    assert "nothing more is published" in caplog.text
