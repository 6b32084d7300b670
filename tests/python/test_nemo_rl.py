"""wisp.nemo_rl against NeMo-RL's published contract for refit transports."""

from __future__ import annotations

import asyncio
import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import wisp
from conftest import TREE
from framework_stand_ins import forget, install, install_nemo_rl

torch = pytest.importorskip("torch")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    install_nemo_rl(monkeypatch)
    forget(monkeypatch, "wisp.nemo_rl")
    yield importlib.import_module("wisp.nemo_rl").WispCheckpointEngine
    forget(monkeypatch, "wisp.nemo_rl")


class Job:
    """Two policy workers and two rollouts, as CheckpointEngineWeightSynchronizer drives them."""

    def __init__(self, engine: Any, run: Path, bucket_size: int = 1 << 20) -> None:
        settings = {"run": str(run), "timeout": 60, "poll": 0.05, "dtype": None}
        self.policy = [engine(bucket_size=bucket_size, **settings) for _ in range(2)]
        self.rollouts = [engine(bucket_size=bucket_size, **settings) for _ in range(2)]
        self.weights = {f"layer.{i}": torch.randn(40, 10) for i in range(4)}
        self.got: list[dict[str, Any]] = [{}, {}]
        self.batches: list[list[list[str]]] = [[], []]
        self.connect()

    def connect(self) -> None:
        metadata = [e.prepare() for e in (*self.policy, *self.rollouts)]
        sizes = {"train_world_size": 2, "rollout_world_size": 2, "metadata": metadata}
        for rank, worker in enumerate(self.policy):
            worker.init_policy_process_group(worker_rank=rank, **sizes)
        for rank, worker in enumerate(self.rollouts):
            worker.init_rollout_process_group(rollout_rank=rank, **sizes)

    async def load(self, rank: int) -> None:
        self.batches[rank] = []
        async for batch in self.rollouts[rank].receive_weight_batches():
            self.batches[rank].append([name for name, _ in batch])
            for name, tensor in batch:
                self.got[rank][name] = tensor.clone()

    def refit(self) -> None:
        async def both() -> None:
            sending = [e.send_weights(iter(self.weights.items())) for e in self.policy]
            await asyncio.gather(*sending, self.load(0), self.load(1))

        asyncio.run(both())
        for got in self.got:
            assert all(torch.equal(got[n], tensor) for n, tensor in self.weights.items())

    def close(self) -> None:
        for worker in (*self.policy, *self.rollouts):
            worker.finalize()
            worker._refit.close()


@pytest.fixture
def job(engine: Any, tmp_path: Path) -> Any:
    made = Job(engine, tmp_path / "run")
    yield made
    made.close()


def test_refits_bring_what_they_touched(job: Job) -> None:
    job.refit()
    assert job.batches == [[sorted(job.weights)]] * 2
    job.weights["layer.2"][1, 1] += 1
    job.refit()
    assert job.batches == [[["layer.2"]]] * 2
    job.refit()
    assert job.batches == [[], []]


def test_batches_are_no_larger_than_the_bucket(engine: Any, tmp_path: Path) -> None:
    job = Job(engine, tmp_path / "run", bucket_size=2 * 40 * 10 * 4)
    job.refit()
    assert [len(batch) for batch in job.batches[0]] == [2, 2]
    job.close()


def test_a_synchronizer_that_is_made_again_goes_on(job: Job, engine: Any, tmp_path: Path) -> None:
    job.refit()
    job.close()
    again = Job(engine, tmp_path / "run")
    again.refit()
    assert wisp.status(tmp_path / "run").head.step == 1
    again.close()


def test_a_refit_that_failed_counts_on_both_sides(job: Job) -> None:
    job.refit()

    def broken() -> Any:
        yield "layer.0", job.weights["layer.0"]
        raise RuntimeError("out of memory")

    for rollout in job.rollouts:
        settings = rollout._refit.settings
        object.__setattr__(settings, "timeout", 0.3)

    async def failing() -> list[Any]:
        sending = [e.send_weights(broken()) for e in job.policy]
        return await asyncio.gather(*sending, job.load(0), job.load(1), return_exceptions=True)

    said = asyncio.run(failing())
    assert [type(s).__name__ for s in said] == ["RuntimeError"] * 2 + ["UnavailableError"] * 2
    for rollout in job.rollouts:
        object.__setattr__(rollout._refit.settings, "timeout", 60)
    job.weights["layer.3"] += 1
    job.refit()


def test_policy_and_rollouts_with_different_runs_are_told(engine: Any, tmp_path: Path) -> None:
    job = Job(engine, tmp_path / "run")
    job.rollouts[1] = engine(bucket_size=1, run=str(tmp_path / "other"))
    with pytest.raises(wisp.InvalidError, match="different runs"):
        job.connect()
    job.close()


def test_the_documented_configuration_makes_an_engine(engine: Any, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    text = (TREE / "doc/frameworks/nemo_rl.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    told = yaml.safe_load(block.replace("s3://bucket/run", str(tmp_path / "run")))
    generation = told["policy"]["generation"]
    # As NeMo-RL does: settings lie under the class path, the ratio is its own, bytes are the engine's.
    path = generation["refit_transport"]
    settings = generation["refit_cfg"][path]
    settings.pop("update_weights_bucket_memory_ratio")
    module, _, name = path.partition(":")
    made = getattr(importlib.import_module(module), name)(bucket_size=1 << 20, **settings)
    assert type(made) is engine
    assert made.prepare()["run"] == str(tmp_path / "run")


def test_a_contract_that_moved_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "nemo_rl.utils.checkpoint_engines.base")
    forget(monkeypatch, "wisp.nemo_rl")
    with pytest.raises(wisp.UnsupportedError, match=r"CheckpointEngine.* nemo_rl 0\.8"):
        importlib.import_module("wisp.nemo_rl")
