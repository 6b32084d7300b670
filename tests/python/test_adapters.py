"""LoRA runs: an adapter is published as what it is, and loaded by name and version."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from engine_servers import ScriptedVllm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

import wisp  # noqa: E402
from page_blocks import blocks  # noqa: E402
from patient_callback import PatientCallback  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from test_hf import tiny_llama, trainer  # noqa: E402
from wisp.adapters import export_adapter, load_adapter  # noqa: E402


def adapted():
    settings = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(tiny_llama(), settings)


def test_a_training_publishes_its_adapter_as_peft_saves_it(tmp_path):
    model = adapted()
    callback = PatientCallback(tmp_path / "run")
    trainer(model, tmp_path / "out", callback, max_steps=2).train()
    model.save_pretrained(tmp_path / "saved")
    adapter = export_adapter(tmp_path / "run", "math", tmp_path / "adapters")
    assert adapter.step == 2 and adapter.folder.endswith("math-2")
    mine = load_file(f"{adapter.folder}/adapter_model.safetensors")
    theirs = load_file(tmp_path / "saved" / "adapter_model.safetensors")
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())
    again = peft.PeftModel.from_pretrained(tiny_llama(), adapter.folder)
    assert again.peft_config["default"].r == 4


def merged_by_peft(model):
    """A dict of what merge_and_unload() gives, of a copy."""
    whole = copy.deepcopy(model).merge_and_unload()
    return {n: t for n, t in whole.state_dict().items() if n != "lm_head.weight"}


def move(model, by):
    torch.manual_seed(by)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)


def assert_follows(run, wanted):
    held = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    wisp.Follower(run, held).sync()
    for name, tensor in wanted.items():
        assert torch.equal(held[name].view(torch.int16), tensor.view(torch.int16)), name


@pytest.mark.parametrize("settings", [
    {"target_modules": ["q_proj", "v_proj"]},
    {"target_modules": ["q_proj", "up_proj"], "use_dora": True},
    {"target_modules": ["o_proj", "embed_tokens"], "modules_to_save": ["norm"]},
], ids=["lora", "dora", "embeddings"])  # fmt: skip
def test_merged_weights_are_published_while_the_adapter_trains(tmp_path, settings):
    base = tiny_llama().to(torch.bfloat16)
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, **settings))
    run = tmp_path / "run"
    with wisp.Publisher(run, model, names="merged", on_error="raise") as publisher:
        for step in range(3):
            before = {n: t.clone() for n, t in model.state_dict().items()}
            publisher.publish(step)
            publisher.flush()
            after = model.state_dict()
            assert all(torch.equal(after[n], t) for n, t in before.items()), "training was touched"
            assert_follows(run, merged_by_peft(model))
            move(model, step)
        changed = publisher.stats[-1].changed
    assert 0 < changed < sum(t.numel() for t in merged_by_peft(model).values())


def test_a_training_publishes_merged_weights_beside_the_bases_configuration(tmp_path):
    model = adapted()
    callback = PatientCallback(tmp_path / "run", names="merged")
    trainer(model, tmp_path / "out", callback, max_steps=2).train()
    wisp.export(tmp_path / "run", tmp_path / "model")
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    wanted = model.merge_and_unload().state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in whole.state_dict().items())


def test_what_cannot_be_merged_is_refused(tmp_path):
    with pytest.raises(wisp.InvalidError, match="models of peft"):
        wisp.Publisher(tmp_path / "run", tiny_llama(), names="merged")
    prompts = peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    with pytest.raises(wisp.InvalidError, match="nothing that could be merged"):
        wisp.Publisher(tmp_path / "run", peft.get_peft_model(tiny_llama(), prompts), names="merged")


class LoraServer(ScriptedVllm):
    """Takes adapters as vLLM does, or refuses them."""

    def __init__(self, code=200):
        self.code = code
        self.asked = []
        super().__init__()

    def answer(self, method, path, body):
        self.asked.append((method, path, body))
        return self.code, {"detail": "no"}


def test_an_adapter_is_loaded_by_name_and_version(tmp_path):
    model = adapted()
    run, folder = tmp_path / "run", tmp_path / "adapters"
    model.save_pretrained(tmp_path / "saved")
    files = [tmp_path / "saved" / "adapter_config.json"]
    with wisp.Publisher(run, model, side_files=files) as publisher, LoraServer() as server:
        for step in range(4):
            publisher.publish(step)
            publisher.flush()
            assert load_adapter(run, "math", folder, server.url).step == step
        bodies = [body for _, _, body in server.asked]
    assert {path for _, path, _ in server.asked} == {"/v1/load_lora_adapter"}
    assert bodies[-1] == {
        "lora_name": "math", "lora_path": str(folder / "math-3"), "load_inplace": True,
    }  # fmt: skip
    assert sorted(f.name for f in folder.iterdir()) == ["math-2", "math-3"]
    with LoraServer(404) as server, pytest.raises(wisp.InvalidError, match="--enable-lora"):
        load_adapter(run, "math", folder, server.url)
    with pytest.raises(wisp.UnavailableError):
        load_adapter(run, "math", folder, "http://127.0.0.1:9")


def test_the_program_of_the_page_loads_the_newest_adapter(tmp_path):
    model = adapted()
    model.save_pretrained(tmp_path / "saved")
    run, files = str(tmp_path / "run"), [tmp_path / "saved" / "adapter_config.json"]
    with wisp.Publisher(run, model, side_files=files) as publisher, LoraServer() as server:
        publisher.publish(7)
        publisher.flush()
        (code,) = blocks("callbacks.md", "python lora", run=run, server=server.url)
        names = {}
        exec(code.replace("/adapters", str(tmp_path / "adapters")), names)
        ((_, _, body),) = server.asked
    assert names["adapter"].step == 7
    assert body["lora_path"] == names["adapter"].folder == str(tmp_path / "adapters" / "math-7")


def test_a_step_that_is_published_anew_is_another_folder(tmp_path):
    """A training that starts again counts from the beginning, in front of what servers have."""
    model = adapted()
    run, folder = tmp_path / "run", tmp_path / "adapters"
    model.save_pretrained(tmp_path / "saved")
    files = [tmp_path / "saved" / "adapter_config.json"]
    taken = []
    for by in (1, 2):
        with wisp.Publisher(run, model, side_files=files) as publisher:
            publisher.publish(1)
        taken += [export_adapter(run, "math", folder).folder for _ in range(2)]
        model.save_pretrained(tmp_path / "saved")
        mine = load_file(f"{taken[-1]}/adapter_model.safetensors")
        theirs = load_file(tmp_path / "saved" / "adapter_model.safetensors")
        assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())
        move(model, by)
    assert taken[0] == taken[1] == str(folder / "math-1")
    assert taken[2] == taken[3] and taken[2].startswith(f"{taken[0]}.")
    assert len(list(folder.iterdir())) == 2


@pytest.fixture
def three_steps(tmp_path):
    """A run with the steps 0 to 2 of an adapter."""
    model = adapted()
    model.save_pretrained(tmp_path / "saved")
    files = [tmp_path / "saved" / "adapter_config.json"]
    with wisp.Publisher(tmp_path / "run", model, side_files=files) as publisher:
        for step in range(3):
            publisher.publish(step)
            publisher.flush()
            move(model, step)
    return tmp_path / "run"


def test_the_folder_that_is_handed_out_stays(three_steps, tmp_path):
    folder = tmp_path / "adapters"
    for step in (2, 0, 1, 0):
        taken = export_adapter(three_steps, "math", folder, step=step, keep=1)
        assert taken.folder == str(folder / f"math-{step}")
        assert [f.name for f in folder.iterdir()] == [f"math-{step}"]
    for step in (0, 1, 0, 2):
        export_adapter(three_steps, "math", folder, step=step, keep=2)
    assert {f.name for f in folder.iterdir()} == {"math-0", "math-2"}


def test_a_folder_that_is_there_is_not_fetched_again(three_steps, tmp_path, monkeypatch):
    first = export_adapter(three_steps, "math", tmp_path / "adapters")
    monkeypatch.setattr("wisp.adapters.export", None)
    assert export_adapter(three_steps, "math", tmp_path / "adapters") == first
    assert export_adapter(three_steps, "math", tmp_path / "adapters", step=2) == first
    with pytest.raises(TypeError):
        export_adapter(three_steps, "math", tmp_path / "adapters", step=1)


def test_another_configuration_of_the_same_weights_is_another_folder(tmp_path):
    model, folder = adapted(), tmp_path / "adapters"
    model.save_pretrained(tmp_path / "saved")
    config = tmp_path / "saved" / "adapter_config.json"
    taken = []
    for alpha in (8, 16):
        told = json.loads(config.read_text()) | {"lora_alpha": alpha}
        config.write_text(json.dumps(told))
        run = tmp_path / f"run-{alpha}"  # one that was begun anew
        with wisp.Publisher(run, model, side_files=[config]) as publisher:
            publisher.publish(1)
        taken += [export_adapter(run, "math", folder).folder for _ in range(2)]
        held = json.loads((Path(taken[-1]) / "adapter_config.json").read_text())
        assert held["lora_alpha"] == alpha
    assert taken[0] == taken[1] != taken[2] == taken[3]


def test_what_is_no_adapter_is_refused(tmp_path):
    with wisp.Publisher(tmp_path / "run", tiny_llama()) as publisher:
        publisher.publish()
    with pytest.raises(wisp.InvalidError, match="no adapter_config"):
        export_adapter(tmp_path / "run", "math", tmp_path / "adapters")
    assert not list((tmp_path / "adapters").iterdir())
    with pytest.raises(wisp.InvalidError, match="no name"):
        export_adapter(tmp_path / "run", "../up", tmp_path / "adapters")
