"""Buckets in TRL's layout from Python: published to, followed, and the same for the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import TREE, WISP_BIN
from safetensors.numpy import load_file, save_file

import wisp
from wisp.trl import LayoutPublisher


def model(step: int) -> dict[str, np.ndarray]:
    weights = np.zeros((20, 30), np.float32)
    weights.reshape(-1)[: step + 1] = np.arange(step + 1) + 1
    return {"w": weights, "b": np.arange(7, dtype=np.float16)}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all((a[name] == b[name]).all() for name in a)


@pytest.fixture
def run(tmp_path: Path) -> str:
    return str(tmp_path / "bucket")


def publish_steps(run: str, *steps: int, codec: str = "plain") -> None:
    weights = model(steps[0])
    publisher = LayoutPublisher(run, weights, codec=codec, anchor_every=3)
    for count, step in enumerate(steps):
        weights["w"][...] = model(step)["w"]
        report = publisher.publish(step)
        assert report.step == step and report.kind == ("anchor" if count == 0 else "delta")
        assert report.state == wisp.digest(model(step))


@pytest.mark.parametrize("codec", ["plain", "gap"])
def test_what_is_published_is_followed(run: str, tmp_path: Path, codec: str) -> None:
    publish_steps(run, 3, 4, 11, codec=codec)
    files = sorted(str(p.relative_to(run)) for p in Path(run).rglob("*.safetensors"))
    assert files == [
        "anchors/step_000003.safetensors",
        "deltas/step_000004.safetensors",
        "deltas/step_000011.safetensors",
    ]
    target = model(0)
    with wisp.Follower(run, target, layout="trl") as follower:
        report = follower.sync()
        assert report.step == 11 and report.moved and not report.unproven
        assert report.state == wisp.digest(model(11)) and same(target, model(11))
        assert follower.verify() and not follower.sync().moved
        publish_steps_on(run, 12)
        assert follower.sync().step == 12 and same(target, model(12))
        assert follower.rollback() == 11 and same(target, model(11))


def publish_steps_on(run: str, step: int) -> None:
    """By a new publisher: the newest state comes from the bucket."""
    report = LayoutPublisher(run, model(step)).publish(step)
    assert report.kind == "delta" and report.changed_elements == 1


def test_a_follower_in_the_background_takes_each_step(run: str) -> None:
    seen: list[int] = []
    target = model(0)
    publish_steps(run, 1)
    with wisp.Follower(run, target, layout="trl", poll=0.05) as follower:
        follower.on_step = lambda event: seen.append(event.step)
        follower.start()
        assert follower.wait_for(1, timeout=60).step == 1
        publish_steps_on(run, 2)
        assert follower.wait_for(2, timeout=60).step == 2
    assert seen == [1, 2] and same(target, model(2))


def test_the_command_line_reads_it_and_is_read(run: str, tmp_path: Path) -> None:
    publish_steps(run, 1, 2)
    wisp_bin = TREE / WISP_BIN
    pull = [wisp_bin, "pull", "--layout", "trl", run, "--into", tmp_path / "policy"]
    subprocess.run(pull, check=True, capture_output=True, timeout=120)
    assert same(load_file(tmp_path / "policy" / "model.safetensors"), model(2))
    save_file(model(5), tmp_path / "five.safetensors")
    command = [wisp_bin, "publish", "--layout", "trl", run, tmp_path / "five.safetensors"]
    command += ["--step", "5", "--baseline", tmp_path / "baseline"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    target = model(0)
    with wisp.Follower(run, target, layout="trl") as follower:
        assert follower.sync().step == 5 and same(target, model(5))


def test_files_without_a_digest_are_taken_on_trust_and_it_says_so(run: str) -> None:
    anchors = Path(run, "anchors")
    anchors.mkdir(parents=True)
    about = {"format": "sparse_weight_patch", "version": "1", "sparse": "False"}
    save_file(model(4), anchors / "step_000004.safetensors", {**about, "model_version": "4"})
    target = model(0)
    with wisp.Follower(run, target, layout="trl") as follower:
        report = follower.sync()
        assert report.unproven and "unproven" in repr(report) and same(target, model(4))


def test_what_such_a_bucket_cannot_do_is_refused(run: str) -> None:
    publish_steps(run, 4)
    with pytest.raises(wisp.ConflictError):
        LayoutPublisher(run, model(3)).publish(3)
    with pytest.raises(wisp.InvalidError, match="plain"):
        LayoutPublisher(run, model(3), codec="compact")  # type: ignore[arg-type]
    with pytest.raises(wisp.InvalidError, match="trust"):
        wisp.Follower(run, model(0), layout="trl", run_id="0" * 32)
    with pytest.raises(wisp.InvalidError, match="layout"):
        wisp.Follower(run, model(0), layout="other")  # type: ignore[arg-type]
