"""Buckets in TRL's layout: ours read with the stock package, TRL's followed by wisp."""

import json

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from run_wisp import DAMAGED, LOCKED, NO_RUN, USAGE, answer, refused, wisp

GAP = 15  # the history needed is gone


class TrlTrainer:
    """Weights of bf16 tensors, and the files that TRL writes of them."""

    def __init__(self, bucket):
        self.bucket = bucket
        self.rng = np.random.default_rng(3)
        self.weights = {
            name: self.rng.normal(size=shape).astype(ml_dtypes.bfloat16)
            for name, shape in {"embed.weight": (64, 16), "layers.0.mlp.weight": (32, 32),
                                "norm.weight": (16,)}.items()}
        self.old = None

    def train(self, *names):
        self.old = {name: tensor.copy() for name, tensor in self.weights.items()}
        for name in names or self.weights:
            bits = self.weights[name].view(np.uint16).reshape(-1)
            bits[self.rng.choice(bits.size, max(1, bits.size // 20), replace=False)] ^= 1

    def save(self, folder, step, tensors, **metadata):
        path = self.bucket / folder / f"step_{step:06d}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        common = {"format": "sparse_weight_patch", "version": "1", "model_version": str(step)}
        safetensors.numpy.save_file(tensors, path, {**common, **metadata})
        return path

    def anchor(self, step, *names):
        return self.save("anchors", step, {n: self.weights[n] for n in names or self.weights},
                         sparse="False")

    def delta(self, step, encoding=None):
        tensors = {}
        for name, tensor in self.weights.items():
            new, old = tensor.reshape(-1), self.old[name].reshape(-1)
            positions = np.flatnonzero(new.view(np.uint16) != old.view(np.uint16))
            if positions.size == 0:
                continue
            if encoding:
                gaps = np.diff(positions, prepend=-1) - 1
                tensors[f"{name}.idx"] = gaps.astype(np.uint16)
                tensors[f"{name}.val"] = new[positions]
            else:
                tensors[f"{name}.indices"] = positions.astype(np.int32)
                tensors[f"{name}.values"] = new[positions]
        more = {"encoding": encoding} if encoding else {}
        return self.save("deltas", step, tensors, sparse="True", **more)

    def held_by(self, folder):
        held = safetensors.numpy.load_file(folder / "model.safetensors")
        return held.keys() == self.weights.keys() and all(
            held[n].tobytes() == tensor.tobytes() for n, tensor in self.weights.items())

    def checkpoint(self, path):
        safetensors.numpy.save_file(self.weights, path)
        return path


@pytest.fixture
def trainer(tmp_path):
    return TrlTrainer(tmp_path / "bucket")


def pull(trainer, into, *more):
    done = wisp("pull", trainer.bucket, "--into", into, "--layout", "trl", "--json", *more)
    return [json.loads(line) for line in done.out.splitlines()]


def publish(trainer, folder, *more):
    return answer("publish", trainer.bucket, trainer.checkpoint(folder / "now.safetensors"),
                  "--layout", "trl", "--baseline", folder / "baseline", *more)


@pytest.mark.parametrize("encoding", [None, "gap_delta"])
def test_what_trl_wrote_is_followed_on_trust(tmp_path, trainer, encoding):
    into = tmp_path / "replica"
    trainer.anchor(1)
    for step in (2, 3, 8):
        trainer.train()
        trainer.delta(step, encoding)
    joined, summary = pull(trainer, into)
    assert joined["event"] == "joined" and joined["deltas_applied"] == 3
    assert summary["step"] == 8 and summary["unproven"] is True
    assert trainer.held_by(into)
    trainer.train()
    trainer.delta(9, encoding)
    applied, summary = pull(trainer, into)
    assert applied["event"] == "applied" and applied["unproven"] is True
    assert trainer.held_by(into)


def test_an_anchor_in_place_of_a_delta_may_leave_tensors_out(tmp_path, trainer):
    early, late = tmp_path / "early", tmp_path / "late"
    trainer.anchor(1)
    pull(trainer, early)
    trainer.train("embed.weight")
    trainer.anchor(2, "embed.weight")
    trainer.train()
    trainer.delta(3)
    for into in (early, late):
        assert pull(trainer, into)[-1]["step"] == 3
        assert trainer.held_by(into)


@pytest.mark.parametrize("codec", ["plain", "gap"])
def test_the_stock_package_reads_what_wisp_publishes(tmp_path, trainer, codec):
    for step in (10, 12, 14):
        if step > 10:
            trainer.train()
        report = publish(trainer, tmp_path, "--step", step, "--codec", codec, "--anchor-every", 2)
        assert report["anchored"] == (step != 12)
    assert sorted(p.relative_to(trainer.bucket).as_posix()
                  for p in trainer.bucket.rglob("*.safetensors")) == [
        "anchors/step_000010.safetensors", "anchors/step_000014.safetensors",
        "deltas/step_000012.safetensors", "deltas/step_000014.safetensors"]
    with safe_open(trainer.bucket / "anchors/step_000014.safetensors", "numpy") as file:
        metadata = file.metadata()
        held = {name: file.get_tensor(name).tobytes() for name in file.keys()}
    assert held == {name: tensor.tobytes() for name, tensor in trainer.weights.items()}
    assert metadata["sparse"] == "False" and metadata["model_version"] == "14"

    patched = safetensors.numpy.load_file(trainer.bucket / "anchors/step_000010.safetensors")
    for step in (12, 14):
        delta = safetensors.numpy.load_file(trainer.bucket / f"deltas/step_{step:06d}.safetensors")
        for name, tensor in patched.items():
            if codec == "plain":
                positions = delta.get(f"{name}.indices", [])
                values = delta.get(f"{name}.values", [])
            else:
                positions = np.cumsum(delta[f"{name}.idx"].astype(np.int64) + 1) - 1
                values = delta[f"{name}.val"]
            tensor.reshape(-1)[positions] = values
    assert all(patched[n].tobytes() == t.tobytes() for n, t in trainer.weights.items())

    into = tmp_path / "replica"
    assert pull(trainer, into)[-1]["unproven"] is False
    assert trainer.held_by(into)


def test_wisp_goes_on_where_trl_stopped(tmp_path, trainer):
    trainer.anchor(1)
    trainer.train()
    trainer.delta(2)
    trainer.train()
    assert publish(trainer, tmp_path)["step"] == 3
    assert pull(trainer, tmp_path / "replica")[-1]["unproven"] is False
    assert trainer.held_by(tmp_path / "replica")


def test_a_half_written_delta_keeps_the_last_good_state(tmp_path, trainer):
    into = tmp_path / "replica"
    trainer.anchor(1)
    pull(trainer, into)
    before = (into / "model.safetensors").read_bytes()
    trainer.train()
    path = trainer.delta(2)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    refused(DAMAGED, "pull", trainer.bucket, "--into", into, "--layout", "trl")
    assert (into / "model.safetensors").read_bytes() == before
    path.write_bytes(whole)
    pull(trainer, into)
    assert trainer.held_by(into)


def test_deltas_alone_need_a_base(tmp_path, trainer):
    base = trainer.checkpoint(tmp_path / "base.safetensors")
    trainer.train()
    trainer.delta(5)
    into = tmp_path / "replica"
    refused(GAP, "pull", trainer.bucket, "--into", into, "--layout", "trl", names=["base"])
    assert pull(trainer, into, "--base", base)[-1]["step"] == 5
    assert trainer.held_by(into)


def test_refusals(tmp_path, trainer):
    into = tmp_path / "replica"
    refused(NO_RUN, "pull", trainer.bucket, "--into", into, "--layout", "trl")
    publish(trainer, tmp_path, "--step", 4)
    checkpoint = tmp_path / "now.safetensors"
    trainer.train()
    trainer.checkpoint(checkpoint)
    common = ["publish", trainer.bucket, checkpoint, "--layout", "trl", "--baseline",
              tmp_path / "baseline"]
    refused(LOCKED, *common, "--step", 4, names=["step 4"])
    refused(USAGE, *common, "--codec", "compact", names=["plain"])
    refused(USAGE, *common, "--expires", "5m", names=["--layout wisp"])
    refused(USAGE, "pull", trainer.bucket, "--into", into, "--layout", "trl", "--id", "x")
