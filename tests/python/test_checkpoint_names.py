"""A transformers model is published as save_pretrained would write it, without a copy of it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import fused_models  # noqa: E402
import wisp  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import core_model_loading  # noqa: E402
from wisp.model.checkpoint_names import ComputedTensor, Naming  # noqa: E402


def bits(tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def files_of(folder) -> dict:
    found = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def assert_saved(model, run, folder) -> dict:
    """The newest step of the run is what the model's save_pretrained writes, bit for bit."""
    folder = folder / f"looked-at-{len(list(folder.iterdir()))}"
    model.save_pretrained(folder / "saved")
    wisp.export(run, folder / "export")
    saved, exported = files_of(folder / "saved"), files_of(folder / "export")
    assert exported.keys() == saved.keys()
    for name, tensor in saved.items():
        assert exported[name].dtype == tensor.dtype and exported[name].shape == tensor.shape, name
        assert bits(exported[name]) == bits(tensor), name
    return saved


@pytest.mark.parametrize("family", fused_models.FAMILIES)
def test_what_is_published_is_what_save_pretrained_writes(tmp_path, family):
    model, served = fused_models.make(family), fused_models.make(family)
    with torch.no_grad():
        for parameter in served.parameters():
            parameter.zero_()
    run = tmp_path / "run"
    with wisp.Publisher(run, model) as publisher:
        publisher.publish()
        assert_saved(model, run_flushed(publisher, run), tmp_path)
        fused_models.train_a_little(model, 1)
        publisher.publish()
        assert_saved(model, run_flushed(publisher, run), tmp_path)
    # The same names lead back into the module.
    wisp.Follower(run, served).sync()
    mine = model.state_dict()
    for name, tensor in served.state_dict().items():
        assert bits(tensor) == bits(mine[name]), name


def run_flushed(publisher, run):
    publisher.flush()
    return run


@pytest.mark.parametrize("family", fused_models.FAMILIES)
def test_every_tensor_is_read_where_it_lies(family):
    model = fused_models.make(family)
    memory = {p.untyped_storage().data_ptr() for p in model.state_dict().values()}
    tensors, _ = Naming(model).tensors()
    for name, tensor in tensors.items():
        assert tensor.untyped_storage().data_ptr() in memory, name
        assert tensor.is_contiguous(), name


def test_names_of_the_module_on_request(tmp_path):
    model, served = fused_models.make("Mixtral"), fused_models.make("Mixtral")
    fused_models.train_a_little(model, 1)
    with wisp.Publisher(tmp_path / "run", model, names="module") as publisher:
        publisher.publish()
    wisp.export(tmp_path / "run", tmp_path / "export")
    assert files_of(tmp_path / "export").keys() == model.state_dict().keys()
    with pytest.raises(wisp.InvalidError, match=r"gate_up_proj"):
        wisp.Follower(tmp_path / "run", served).sync()
    wisp.Follower(tmp_path / "run", served, names="module").sync()
    name = "model.layers.0.mlp.experts.gate_up_proj"
    assert bits(served.state_dict()[name]) == bits(model.state_dict()[name])


def test_masters_in_a_dict_take_the_names_of_their_model(tmp_path):
    model = fused_models.make("Mixtral")
    masters = {name: tensor.float() for name, tensor in model.state_dict().items()}
    run = tmp_path / "run"
    with wisp.Publisher(run, masters, names=model, dtype=torch.bfloat16) as publisher:
        publisher.publish()
        for name, tensor in masters.items():
            tensor += 0.001
            model.state_dict()[name].copy_(tensor)
        publisher.publish()
    assert_saved(model, run, tmp_path)


def test_an_attached_optimizer_publishes_checkpoint_names(tmp_path):
    model = fused_models.make("Qwen3-MoE", torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = tmp_path / "run"
    with wisp.Publisher(run, model) as publisher:
        publisher.attach(optimizer)
        tokens = torch.arange(16).reshape(2, 8)
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
    assert publisher.stats[-1].step == 1
    assert_saved(model, run, tmp_path)


def test_the_callback_publishes_a_folder_that_transformers_loads(tmp_path):
    from patient_callback import PatientCallback

    model = fused_models.make("Mixtral", torch.float32)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, max_steps=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(64, (16, 8))]
    callback = PatientCallback(tmp_path / "run", dtype=torch.bfloat16)
    transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback]).train()
    wisp.export(tmp_path / "run", tmp_path / "export")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    for name, tensor in model.state_dict().items():
        assert bits(loaded.state_dict()[name]) == bits(tensor.to(torch.bfloat16)), name


def converted_model(*operations):
    """A model whose checkpoints have one tensor that these operations made."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model._weight_conversions = [
        core_model_loading.WeightConverter(
            ["mlp.up.weight"], ["mlp.up_proj.weight"], operations=list(operations)
        )
    ]
    return model


@pytest.mark.parametrize("mode", ["staged", "on_device"])
@pytest.mark.parametrize("kind", ["Transpose", "Interleave"])
def test_what_is_no_run_of_elements_is_published_all_the_same(tmp_path, kind, mode):
    model = converted_model(getattr(core_model_loading, kind)())
    found = Naming(model).tensors()[0]["model.layers.0.mlp.up.weight"]
    assert isinstance(found, ComputedTensor) == (kind == "Interleave")
    run = tmp_path / "run"
    with wisp.Publisher(run, model, device_diff=mode == "on_device") as publisher:
        publisher.publish()
        fused_models.train_a_little(model, 1)
        publisher.publish()
    assert_saved(model, run, tmp_path)
    with pytest.raises((wisp.UnsupportedError, wisp.InvalidError), match=r"mlp\.up\.weight"):
        wisp.Follower(run, model)


def test_a_plan_that_transformers_does_not_share_is_refused(tmp_path, monkeypatch):
    model = fused_models.make("Mixtral")
    honest = core_model_loading.revert_weight_conversion
    calls = []

    def fickle(model, state):
        calls.append(1)
        saved = honest(model, state)
        return saved if len(calls) == 1 else {f"x.{name}": t for name, t in saved.items()}

    monkeypatch.setattr(core_model_loading, "revert_weight_conversion", fickle)
    with pytest.raises(wisp.UnsupportedError, match='would be saved otherwise.*names="module"'):
        wisp.Publisher(tmp_path / "run", model)
    assert not (tmp_path / "run").exists()


def test_a_transposed_tensor_is_staged_by_rows():
    from wisp.publish.sources import Source

    tensor = torch.arange(4096 * 64, dtype=torch.float32).reshape(64, 4096).t()
    source = Source("w", tensor, tensor.dtype)
    flat = tensor.reshape(-1)
    for first, count in ((0, 10), (63, 130), (4096 * 64 - 7, 7), (0, 4096 * 64)):
        assert torch.equal(source.elements(first, count), flat[first : first + count])
    held = source.elements(650, 128).untyped_storage().nbytes()
    assert held <= 3 * 64 * 4
    array = tensor.numpy()
    assert np.array_equal(
        Source("w", array, array.dtype).elements(63, 130), array.reshape(-1)[63:193]
    )
