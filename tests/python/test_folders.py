"""Folders that other programs read and write: read locks, a folder for each step, torch's own
checkpoints, the hooks of slime; and that real loaders beside a follower never meet a mixture."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE, WISP_BIN
from page_blocks import blocks

import wisp

GOLDEN = TREE / "tests" / "golden" / "folders"


def arrays(value: int) -> dict[str, np.ndarray]:
    return {"a": np.full((8, 8), value, np.float32), "b": np.full(5, -value, np.float32)}


def test_reading_hands_out_the_folder_and_its_step(bucket, publish, tmp_path):
    publish(arrays(1), 1)
    follower = wisp.Follower(bucket, tmp_path / "policy")
    follower.sync()
    with wisp.reading(tmp_path / "policy") as folder:
        assert folder.step == 1 and os.fspath(folder) == str(folder) == str(tmp_path / "policy")
        assert (Path(folder) / "model.safetensors").exists()
        assert "step=1" in repr(folder)
        publish(arrays(2), 2)
        waiting = threading.Thread(target=follower.sync)
        waiting.start()
        assert (tmp_path / "policy" / ".wisp" / "readers").exists()
        assert folder.step == 1
    waiting.join(60)
    with wisp.reading(tmp_path / "policy") as folder:
        assert folder.step == 2


def test_reading_refuses_other_folders(tmp_path):
    with pytest.raises(wisp.InvalidError, match="wisp follow"), wisp.reading(tmp_path):
        pass
    with pytest.raises(wisp.NotFoundError), wisp.reading(tmp_path / "missing"):
        pass


def test_a_follower_makes_a_folder_for_each_step(bucket, publish, tmp_path):
    pattern = str(tmp_path / "models" / "step_{step}")
    follower = wisp.Follower(bucket, pattern, keep=2, mark="STABLE")
    for step in range(1, 5):
        publish(arrays(step), step)
        follower.sync()
        with wisp.reading(tmp_path / "models") as folder:
            assert folder.step == step and (Path(folder) / "STABLE").exists()
            assert Path(folder) == tmp_path / "models" / f"step_{step}"
    left = {path.name for path in (tmp_path / "models").iterdir()}
    assert left == {".wisp", "current", "step_3", "step_4"}
    with pytest.raises(wisp.InvalidError, match="at least 2"):
        wisp.Follower(bucket, str(tmp_path / "other" / "{step}"), keep=1)
    with pytest.raises(wisp.InvalidError, match="step_"):
        wisp.Follower(bucket, tmp_path / "plain", mark="STABLE")


def test_folders_are_published_from_python(bucket, tmp_path):
    publisher = wisp.folders.FolderPublisher(bucket, baseline=tmp_path / "baseline")
    assert publisher.step is None
    for step in (3, 12):
        report = publisher.publish(GOLDEN / "areal" / f"weight_update_v{step}", step)
        assert report.step == publisher.step == step
    with pytest.raises(wisp.CorruptError):
        publisher.publish(GOLDEN / "expected.json")


def test_the_baseline_lies_where_the_command_keeps_it(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wisp.folders.FolderPublisher(bucket).publish(GOLDEN / "areal" / "weight_update_v3", 3)
    (kept,) = (tmp_path / "cache" / "wisp" / "baselines").iterdir()
    assert kept.name == wisp.status(bucket).run
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "")
    with pytest.raises(wisp.InvalidError, match="name a folder for it$"):
        wisp.folders.FolderPublisher(bucket)


@pytest.fixture
def slime_run(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("WISP_RUN", bucket)
    monkeypatch.setenv("WISP_WAIT", "30")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield bucket
    wisp.slime._publishers.clear()


def written_by_slime(folder, step, of=None):
    """What its trainer leaves as version `step`, with the weights of golden version `of`."""
    target = folder / f"weight_v{step:06}"
    shutil.copytree(GOLDEN / "slime" / f"weight_v{of or step:06}", target)
    return str(target)


def same_files(one, other):
    for file in ("model-00001-of-00002.safetensors", "config.json"):
        assert (Path(one) / file).read_bytes() == (Path(other) / file).read_bytes()


def test_the_hooks_of_slime_carry_folders_over(slime_run, tmp_path):
    trainer, host = tmp_path / "trainer", tmp_path / "host"
    for step in (3, 12):
        folder = written_by_slime(trainer, step)
        wisp.slime.publish_written(object(), folder, [])
        for _ in range(2):  # every process of an engine asks
            wisp.slime.pull_before_read(str(host), step)
        same_files(host / Path(folder).name, folder)
    wisp.slime.pull_before_read(str(host), 3)  # an engine that comes late
    same_files(host / "weight_v000003", trainer / "weight_v000003")
    # A training that starts again counts from the beginning, in front of folders of the one before.
    again = written_by_slime(tmp_path / "again", 3, of=12)
    wisp.slime.publish_written(object(), again, [])
    wisp.slime.pull_before_read(str(host), 3)
    same_files(host / "weight_v000003", again)


def test_a_version_that_is_there_is_not_fetched_again(slime_run, tmp_path, monkeypatch):
    host, folder = tmp_path / "host", written_by_slime(tmp_path / "trainer", 3)
    wisp.slime.publish_written(object(), folder, [])
    wisp.slime.pull_before_read(str(host), 3)
    wisp.slime.publish_written(object(), written_by_slime(tmp_path / "trainer", 12), [])
    monkeypatch.setattr(wisp.slime, "Follower", None)
    monkeypatch.setattr(wisp.slime, "export", None)
    wisp.slime.pull_before_read(str(host), 3)
    same_files(host / "weight_v000003", folder)


def test_a_version_that_the_run_is_past_is_put_together_anew(slime_run, tmp_path, monkeypatch):
    host, folder = tmp_path / "host", written_by_slime(tmp_path / "trainer", 3)
    for step, of in ((3, 3), (5, 12), (12, 3)):
        if step != 3:
            written_by_slime(tmp_path / "trainer", step, of=of)
        wisp.slime.publish_written(object(), tmp_path / "trainer" / f"weight_v{step:06}", [])
    for _ in range(2):
        wisp.slime.pull_before_read(str(host), 3)
        same_files(host / "weight_v000003", folder)
    wisp.slime.pull_before_read(str(host), 12)
    with pytest.raises(wisp.NotFoundError, match="at step 12, and version 4 cannot be had"):
        wisp.slime.pull_before_read(str(host), 4)
    # Set back to the very same: a follower that waits for the next must get past it.
    monkeypatch.setenv("WISP_WAIT", "0.3")
    wisp.slime.publish_written(object(), folder, [])
    with pytest.raises(wisp.UnavailableError, match="version 4 .* step 3"):
        wisp.slime.pull_before_read(str(host), 4)
    same_files(host / "weight_v000003", folder)
    monkeypatch.setenv("WISP_WAIT", "30")
    wisp.slime.publish_written(object(), tmp_path / "trainer" / "weight_v000012", [])
    # Set back: what was put together is of a history that was given up, and in the way.
    again = written_by_slime(tmp_path / "again", 3, of=12)
    wisp.slime.publish_written(object(), again, [])
    wisp.slime.pull_before_read(str(host), 3)
    same_files(host / "weight_v000003", again)
    # And past it once more: now the follower's own folder is of the history given up.
    other = written_by_slime(tmp_path / "other", 3)
    wisp.slime.publish_written(object(), other, [])
    wisp.slime.publish_written(object(), tmp_path / "trainer" / "weight_v000005", [])
    wisp.slime.pull_before_read(str(host), 3)
    same_files(host / "weight_v000003", other)
    wisp.slime.pull_before_read(str(host), 5)
    same_files(host / "weight_v000005", tmp_path / "trainer" / "weight_v000005")


def test_engines_of_one_host_pull_at_once(slime_run, tmp_path):
    folder = written_by_slime(tmp_path / "trainer", 3)
    code = "import sys, wisp.slime as s; s.pull_before_read(sys.argv[1], 3)"
    host = tmp_path / "host"
    engines = [subprocess.Popen([sys.executable, "-c", code, str(host)]) for _ in range(3)]
    wisp.slime.publish_written(object(), folder, [])
    assert [engine.wait(120) for engine in engines] == [0, 0, 0]
    same_files(host / "weight_v000003", folder)


def test_of_slimes_ranks_the_first_publishes(slime_run, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    folder = written_by_slime(tmp_path, 3)
    wisp.slime.publish_written(object(), folder, [])
    assert wisp.status(slime_run).head is None
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    wisp.slime.publish_written(object(), folder, [])
    assert wisp.status(slime_run).head.step == 3


def test_an_engine_beside_the_trainer_reads_what_that_wrote(slime_run, tmp_path):
    written_by_slime(tmp_path / "shared", 3)
    wisp.slime.pull_before_read(str(tmp_path / "shared"), 3)
    assert {f.name for f in (tmp_path / "shared").iterdir()} == {"weight_v000003"}


def test_the_hooks_of_slime_refuse_what_they_cannot_carry(slime_run, tmp_path, monkeypatch):
    with pytest.raises(wisp.InvalidError, match="weight_v000012"):
        wisp.slime.publish_written(object(), "nothing", [])
    empty = tmp_path / "weight_v000001"
    empty.mkdir()
    with pytest.raises(wisp.NotFoundError, match="no safetensors"):
        wisp.slime.publish_written(object(), str(empty), [])
    monkeypatch.setenv("WISP_WAIT", "0.3")
    with pytest.raises(wisp.UnavailableError, match="version 7 .* no step"):
        wisp.slime.pull_before_read(str(tmp_path / "host"), 7)


@pytest.fixture
def miles(slime_run, tmp_path, monkeypatch):
    """What miles gives its hook, and the folder that it has written its versions to."""
    if importlib.util.find_spec("zstandard") is None:  # miles brings it
        pyarrow = pytest.importorskip("pyarrow")

        class Decompressor:
            def stream_reader(self, data):
                return pyarrow.CompressedInputStream(pyarrow.BufferReader(data), "zstd")

        stand_in = types.SimpleNamespace(ZstdDecompressor=Decompressor)
        monkeypatch.setitem(sys.modules, "zstandard", stand_in)
    pytest.importorskip("xxhash")
    written = tmp_path / "written"
    shutil.copytree(GOLDEN / "miles", written)
    return types.SimpleNamespace(
        hf_checkpoint=str(written / "base"), update_weight_disk_dir=str(written)
    )


def held_in(folder):
    pytest.importorskip("torch")
    from safetensors.torch import load_file

    found = {}
    for file in Path(folder).glob("*.safetensors"):
        found |= load_file(file)
    return {name: digest_of(tensor) for name, tensor in found.items()}


def test_the_hooks_of_miles_carry_its_deltas_over(miles, tmp_path):
    written, host = Path(miles.update_weight_disk_dir), tmp_path / "host"
    expected = json.loads((GOLDEN / "expected.json").read_text())
    for _ in range(2):  # a training that starts again
        wisp.slime.publish_written(miles, str(written), [])
        for version, step in ((1, "3"), (2, "12")):
            wisp.slime.publish_written(miles, str(written / f"weight_v{version:06}"), [])
            wisp.slime.pull_before_read(str(host), version)
            whole = host / f"weight_v{version:06}"
            assert held_in(whole) == expected[step]
            index = json.loads((whole / "model.safetensors.index.json").read_text())
            assert "delta_encoding" not in index.get("metadata", {})  # engines copy it as it is
            assert (whole / "config.json").exists()


def test_deltas_that_were_not_seen_are_made_up_for(miles, tmp_path):
    written = Path(miles.update_weight_disk_dir)
    wisp.slime.publish_written(miles, str(written / "weight_v000002"), [])
    wisp.slime.pull_before_read(str(tmp_path / "host"), 2)
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert held_in(tmp_path / "host" / "weight_v000002") == expected["12"]


def test_deltas_that_do_not_fit_are_refused_and_the_next_begins_anew(miles, slime_run):
    written = Path(miles.update_weight_disk_dir)
    first, second = (written / f"weight_v00000{version}" for version in (1, 2))
    index = first / "model.safetensors.index.json"
    told = index.read_text()
    for wrong, error in (
        (told.replace('"xor"', '"gzip"'), "by 'gzip'"),
        (told.replace('"zstd"', '"lz4"'), "by 'lz4'"),
        (told.replace('"000001"', '"000007"'), "says that it is version 000007"),
        (told.replace('"xor"', '"overwrite"'), "has .* bytes for"),
        (told.replace("xxh3-128", "adler32"), "is not what the trainer has"),
        (told.replace("model-00000", "model-00007"), "all ranks of the trainer"),
    ):
        index.write_text(wrong)
        with pytest.raises(wisp.Error, match=error):
            wisp.slime.publish_written(miles, str(first), [])
    index.write_text(told)
    second.rename(written / "aside")
    with pytest.raises(wisp.NotFoundError, match="holds no safetensors"):
        wisp.slime.publish_written(miles, str(second), [])
    (written / "aside").rename(second)
    first.rename(written / "aside")
    with pytest.raises(wisp.NotFoundError, match="version 2 builds on .*weight_v000001"):
        wisp.slime.publish_written(miles, str(second), [])
    assert wisp.status(slime_run).head is None
    (written / "aside").rename(first)
    wisp.slime.publish_written(miles, str(second), [])
    assert wisp.status(slime_run).head.step == 2


@pytest.mark.parametrize("nested", [True, False])
def test_folders_of_torch_distributed_are_published(tmp_path, nested):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    run, states = str(tmp_path / "run"), {}
    for step in (1, 2):
        torch.manual_seed(step)
        model = torch.nn.Linear(16, 8).to(torch.bfloat16)
        states[step] = {name: value.clone() for name, value in model.state_dict().items()}
        saved = {"model": states[step], "optimizer": {"lr": torch.ones(3)}} if nested else states[step]
        dcp.save(saved, checkpoint_id=str(tmp_path / "dcp" / f"step_{step}"), no_dist=True)
    assert wisp.folders.publish_distributed(run, tmp_path / "dcp" / "step_{step}", once=True) == 2
    assert wisp.folders.publish_distributed(run, tmp_path / "dcp", once=True) == 0
    followed = {name: torch.zeros_like(value) for name, value in states[2].items()}
    assert wisp.Follower(run, followed).sync().step == 2
    assert all(torch.equal(followed[name], value) for name, value in states[2].items())
    with pytest.raises(wisp.InvalidError, match="torch.distributed.checkpoint"):
        wisp.folders.FolderPublisher(run, baseline=tmp_path / "b").publish(
            tmp_path / "dcp" / "step_1"
        )


def test_folders_of_torch_distributed_as_they_were_written_once(tmp_path):
    torch = pytest.importorskip("torch")
    run = str(tmp_path / "run")
    watched = GOLDEN / "distributed"
    assert wisp.folders.publish_distributed(run, watched, once=True, quiet_for=0.05) == 2
    for step, wanted in json.loads((GOLDEN / "expected.json").read_text()).items():
        held = wisp.folders.read_distributed(watched / f"step_{step}")
        assert {n: digest_of(tensor) for n, tensor in held.items()} == wanted
    followed = {name: torch.zeros_like(tensor) for name, tensor in held.items()}
    assert wisp.Follower(run, followed).sync().step == 12
    assert {name: digest_of(tensor) for name, tensor in followed.items()} == wanted


def digest_of(tensor):
    flat = tensor.contiguous().reshape(-1)
    torch = sys.modules["torch"]
    return hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()


def test_the_programs_of_the_page_run(tmp_path, monkeypatch, capsys):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for step in (1, 2):
        state = {"model": {"w": torch.full((4,), float(step))}, "optimizer": {"lr": torch.ones(3)}}
        dcp.save(state, checkpoint_id=f"dcp/step_{step}", no_dist=True)
    publishes, reads = blocks("folders.md", "python", run="unused")
    exec(publishes, {})
    assert wisp.status("bucket/dcp").head.step == 2
    wisp.Follower("bucket/dcp", tmp_path / "models" / "step_{step}").sync()
    exec(reads, {"wisp": wisp})
    assert capsys.readouterr().out == f"{tmp_path / 'models' / 'step_2'} 2\n"


def test_the_flags_of_the_page_name_functions():
    flags = (TREE / "doc" / "frameworks" / "folders.md").read_text(encoding="utf-8")
    named = re.findall(r"hook wisp\.slime\.(\w+)|path wisp\.slime\.(\w+)", flags)
    assert len(named) == 4  # slime's and miles'
    for names in named:
        assert callable(getattr(wisp.slime, "".join(names)))


class StepPublisher(threading.Thread):
    """A trainer of a real model: every tensor of step n has n as its first element."""

    def __init__(self, run: str, folder: Path) -> None:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        super().__init__()
        config = LlamaConfig(
            vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False,
        )  # fmt: skip
        self.model = LlamaForCausalLM(config).to(torch.bfloat16)
        config.architectures = ["LlamaForCausalLM"]
        config.save_pretrained(folder)
        self.publisher = wisp.Publisher(
            run, self.model, side_files=[folder / "config.json"], on_error="raise"
        )
        self.over = threading.Event()
        self.step = 0
        self.publish()

    def publish(self) -> None:
        import torch

        self.step += 1
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.view(-1)[0] = self.step % 128
        self.publisher.publish(self.step)
        self.publisher.flush()

    def run(self) -> None:
        while not self.over.wait(0.02):
            self.publish()
        self.publisher.close()


def firsts_of(model) -> set[float]:
    return {float(value.detach().view(-1)[0]) for value in model.parameters()}


def loads_beside_a_follower(tmp_path: Path, into: str, read: str, loads: int) -> tuple[int, int]:
    """How many of the loads met a mixture, and how many steps they saw."""
    from transformers import AutoModelForCausalLM

    run = str(tmp_path / "run")
    (tmp_path / "config").mkdir()
    trainer = StepPublisher(run, tmp_path / "config")
    follow = subprocess.Popen(
        [TREE / WISP_BIN, "follow", run, "--into", tmp_path / into, "--poll", "5ms", "--keep", "400"]
        if "{step}" in into
        else [TREE / WISP_BIN, "follow", run, "--into", tmp_path / into, "--poll", "5ms"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    mixtures, seen = 0, set()
    try:
        assert "step" in follow.stdout.readline()
        drain = threading.Thread(target=follow.stdout.read)
        drain.start()
        trainer.start()
        for _ in range(loads):
            if read == "resolved":
                folder = os.path.realpath(tmp_path / "models" / "current")
                model, step = AutoModelForCausalLM.from_pretrained(folder), int(folder.rsplit("_", 1)[1])
            else:
                with wisp.reading(tmp_path / read) as held:
                    step = held.step
                    # Held for as long as it is looked at: transformers maps the file.
                    mixtures += firsts_of(AutoModelForCausalLM.from_pretrained(held)) != {step % 128}
            if read == "resolved":
                mixtures += firsts_of(model) != {step % 128}
            seen.add(step)
    finally:
        trainer.over.set()
        if trainer.is_alive():
            trainer.join(60)
        follow.terminate()
        follow.wait(60)
    return mixtures, len(seen)


WAYS = [("policy", "policy"), ("models/step_{step}", "models"), ("models/step_{step}", "resolved")]


@pytest.mark.parametrize(("into", "read"), WAYS)
def test_loaders_beside_a_follower_meet_one_step(tmp_path, into, read):
    pytest.importorskip("transformers")
    mixtures, seen = loads_beside_a_follower(tmp_path, into, read, 15)
    assert mixtures == 0
    assert seen > 1, "the follower moved meanwhile"


@pytest.mark.slow
@pytest.mark.parametrize(("into", "read"), WAYS)
def test_five_hundred_loads_meet_no_mixture(tmp_path, into, read):
    pytest.importorskip("transformers")
    mixtures, seen = loads_beside_a_follower(tmp_path, into, read, 500)
    print(f"{into} read by {read}: {mixtures} mixtures in 500 loads of {seen} steps")
    assert mixtures == 0
    assert seen > 50
