"""TRL's trainers publish: real ones, with rollouts and servers that only keep a record."""

from __future__ import annotations

import importlib.util
import logging
import queue
import threading
from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import byte_model  # noqa: E402
import fsspec  # noqa: E402
import numpy as np  # noqa: E402
import trl_on_cpu  # noqa: E402, F401
from conftest import TREE  # noqa: E402
from datasets import Dataset  # noqa: E402
from engine_servers import ScriptedVllm  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402
from trl.experimental.async_distillation import (  # noqa: E402
    AsyncDistillationConfig,
    AsyncDistillationTrainer,
)
from trl.experimental.async_distillation import async_rollout_worker as taught  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer  # noqa: E402
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample  # noqa: E402

import wisp  # noqa: E402
import wisp.trl  # noqa: E402
from wisp.stores import FsspecStore  # noqa: E402


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return byte_model.save_tiny_qwen3(tmp_path_factory.mktemp("model"))


class EndlessRollouts:
    """A rollout worker that makes samples up, tagged with the version it was told last."""

    def __init__(self):
        self.rollout_buffer = self
        self.metrics_queue = queue.Queue()
        self.versions = []
        self.made = 0

    def start(self):
        self.numbers = np.random.default_rng(0)

    def stop(self):
        pass

    def update_model_version(self, version):
        self.versions.append(version)

    def check_health(self, stale_after_s):
        pass

    def qsize(self):
        return 0

    def get(self, timeout=None):
        self.made += 1
        tokens = self.numbers.integers(256, size=12)
        return RolloutSample(
            prompt=[], completion=[], input_ids=tokens, completion_mask=(np.arange(12) >= 4) * 1,
            old_log_probs=np.full(12, -5.0, np.float32), advantage=float(self.made % 2 * 2 - 1),
            model_version=self.versions[-1], group_id=self.made // 2, metrics={"reward": 1.0},
        )  # fmt: skip


class RecordingServer(ScriptedVllm):
    """`steps` is what it was brought to, in order."""

    def __init__(self, port=0):
        self.steps = []
        super().__init__(port)

    def answer(self, method, path, body):
        if path == "/wisp/update":
            self.steps.append(body["step"])
        return super().answer(method, path, body)


@pytest.fixture
def server():
    with RecordingServer() as server:
        yield server


def trainer_of(folder, out, transfer, **settings):
    arguments = AsyncGRPOConfig(
        output_dir=str(out), per_device_train_batch_size=2, num_generations=2, use_cpu=True,
        bf16=False, learning_rate=1e-4, report_to=[], token_budget=64, disable_tqdm=True,
        max_completion_length=8, model_init_kwargs={"dtype": "float32"},
        **{"save_strategy": "no", **settings},
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": [[{"role": "user", "content": "?"}]] * 4})
    return AsyncGRPOTrainer(
        model=str(folder), args=arguments, train_dataset=prompts, rollout_worker=EndlessRollouts(),
        weight_transfer=transfer,
    )  # fmt: skip


def steps_of(run):
    """The steps in the run's log, newest first."""
    return [line.step for line in wisp.log(run) if line.kind != "fence"]


def assert_published(run, folder, model):
    """The run's newest state is a checkpoint with the model's weights, rounded to bf16."""
    wisp.export(run, folder)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.dtype == torch.bfloat16
    expected = model.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    for name, tensor in loaded.state_dict().items():
        wanted = expected[name].to(torch.bfloat16).view(torch.int16)
        assert torch.equal(tensor.view(torch.int16), wanted), name


def test_the_step_is_the_model_version(tmp_path, model_folder, server):
    run = tmp_path / "run"
    transfer = wisp.trl.BucketWeightTransfer(run, servers=[server.url])
    trainer = trainer_of(model_folder, tmp_path / "out", transfer, max_steps=4, weight_sync_steps=2)
    trainer.train()
    # Before the first step, and after each second one.
    assert trainer.model_version == 3
    assert trainer.rollout_worker.versions == [1, 2, 3] == server.steps
    assert steps_of(run) == [3, 2, 1]
    assert server.run == str(run)
    assert transfer.reports[0].pause_seconds == 0.004
    assert_published(run, tmp_path / "export", trainer.model)


def test_a_resumed_training_goes_on_counting(tmp_path, model_folder, server, caplog):
    run = tmp_path / "run"
    settings = {"save_strategy": "steps", "save_steps": 2, "weight_sync_steps": 1}
    first = wisp.trl.BucketWeightTransfer(run, servers=[server.url])
    trainer_of(model_folder, tmp_path / "out", first, max_steps=3, **settings).train()
    assert steps_of(run) == [4, 3, 2, 1]

    # TRL keeps the version only with its own worker: here it is as if the checkpoint said 3.
    second = wisp.trl.BucketWeightTransfer(run, servers=[server.url])
    server.steps.clear()
    trainer = trainer_of(model_folder, tmp_path / "out", second, max_steps=4, **settings)
    trainer.model_version = 3
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    # The state after the third step is gone: the servers go back behind it, and on from there.
    assert "is at step 4, and this training goes on with step 4" in caplog.text
    assert server.steps == [4, 5, 6] == trainer.rollout_worker.versions
    assert wisp.log(run)[0].step == 6
    assert_published(run, tmp_path / "export", trainer.model)


class TaughtRollouts(EndlessRollouts):
    """Samples as a teacher's server would have scored them."""

    def get(self, timeout=None):
        self.made += 1
        tokens = self.numbers.integers(256, size=12)
        likely = np.stack([(tokens + other) % 256 for other in range(3)], axis=1)
        return taught.RolloutSample(
            prompt=[], completion=[], input_ids=tokens, completion_mask=(np.arange(12) >= 4) * 1,
            teacher_topk_ids=likely, metrics={}, teacher_id="default", prompt_id=self.made,
            teacher_topk_logprobs=np.log(np.tile(np.float32([0.5, 0.3, 0.1]), (12, 1))),
            model_version=self.versions[-1],
        )  # fmt: skip


def test_async_distillation_syncs_alike(tmp_path, model_folder, server):
    run = tmp_path / "run"
    arguments = AsyncDistillationConfig(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=2, use_cpu=True, bf16=False,
        learning_rate=1e-4, report_to=[], token_budget=64, disable_tqdm=True, max_steps=4,
        max_completion_length=8, weight_sync_steps=2, save_strategy="no", teacher_top_k=2,
        model_init_kwargs={"dtype": "float32", "attn_implementation": "sdpa"},
    )  # fmt: skip
    trainer = AsyncDistillationTrainer(
        model=str(model_folder), args=arguments, rollout_worker=TaughtRollouts(),
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "?"}]] * 4}),
        weight_transfer=wisp.trl.BucketWeightTransfer(run, servers=[server.url]),
    )  # fmt: skip
    trainer.train()
    assert trainer.rollout_worker.versions == [1, 2, 3] == server.steps
    assert steps_of(run) == [3, 2, 1]
    assert_published(run, tmp_path / "export", trainer.model)


def weights():
    torch.manual_seed(1)
    return {"a": torch.randn(300, 8), "b": torch.randn(40)}


def send(transfer, tensors):
    transfer.pause()
    transfer.send_weights(iter(tensors.items()))
    transfer.resume()


@contextmanager
def said(text):
    """An event that is set once the log says `text`, whichever thread it comes from."""
    event = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record):
            if text in record.getMessage():
                event.set()

    listener = Listener()
    logging.getLogger("wisp").addHandler(listener)
    try:
        yield event
    finally:
        logging.getLogger("wisp").removeHandler(listener)


def test_one_dead_server_is_named_and_left_behind(tmp_path, server, caplog):
    other = RecordingServer()
    transfer = wisp.trl.BucketWeightTransfer(tmp_path / "run", servers=[server.url, other.url])
    state = weights()
    send(transfer, state)
    assert server.served == other.served == 0
    other.close()
    for _ in range(2):
        state["a"][3] += 1
        send(transfer, state)
    assert server.served == 2
    assert [report.ok for report in transfer.reports] == [True, False]
    named = [record.message for record in caplog.records if other.url in record.message]
    assert len(named) == 1 and "does not serve step 1" in named[0]
    with RecordingServer(other.port) as again, said(f"{other.url} is back") as back:
        send(transfer, state)
        assert back.wait(60)
        assert again.steps == [3]
        transfer.destroy()


def test_all_dead_is_an_error_once_patience_is_over(tmp_path):
    with RecordingServer() as server:
        address = server.url
    transfer = wisp.trl.BucketWeightTransfer(tmp_path / "run", servers=[address], patience=0)
    with pytest.raises(wisp.UnavailableError, match=rf"{address}.*patience"):
        send(transfer, weights())
    transfer.destroy()


def test_a_patient_training_waits_for_a_server(tmp_path, monkeypatch):
    with RecordingServer() as server:
        port, address = server.port, server.url
    transfer = wisp.trl.BucketWeightTransfer(tmp_path / "run", servers=[address], patience=60)
    late = []
    first = threading.Lock()

    def start_one(report):
        """The first failure starts the server."""
        if first.acquire(blocking=False):
            late.append(RecordingServer(port))

    monkeypatch.setattr(transfer.server_switch, "note", start_one)
    send(transfer, weights())
    assert late[0].steps == [0] == [report.served for report in transfer.reports]
    transfer.destroy()
    late[0].close()


class LockedStore(FsspecStore):
    """Denies writing while it is locked."""

    locked = False

    def put(self, key, data):
        if self.locked:
            raise PermissionError("the key has expired")
        super().put(key, data)

    def create(self, key, data):
        if self.locked:
            raise PermissionError("the key has expired")
        return super().create(key, data)


def test_a_bucket_that_fails_costs_a_step(server, caplog):
    store = LockedStore(fsspec.filesystem("memory"), "/locked", creates_exclusively=True)
    transfer = wisp.trl.BucketWeightTransfer(
        store, servers=[server.url], server_run="s3://as/seen/there"
    )
    state = weights()
    send(transfer, state)
    store.locked = True
    state["b"][0] = 7
    send(transfer, state)
    assert "the next sync brings everything" in caplog.text
    store.locked = False
    send(transfer, state)
    assert len(server.steps) == 2 and server.run == "s3://as/seen/there"
    served = {n: torch.zeros(t.shape, dtype=torch.bfloat16) for n, t in state.items()}
    with wisp.Follower(store, served) as follower:
        follower.sync()
    assert torch.equal(served["b"].view(torch.int16), state["b"].bfloat16().view(torch.int16))
    transfer.destroy()


def test_tensors_may_be_gone_after_they_were_handed_over(tmp_path):
    transfer = wisp.trl.BucketWeightTransfer(tmp_path / "run", dtype=torch.float16)
    state = weights()

    def passing():
        for name, tensor in state.items():
            lent = tensor.clone()
            yield name, lent
            lent.zero_()

    transfer.send_weights(passing())
    state["a"][5, 5] = 3
    transfer.send_weights(passing())
    served = {n: torch.zeros(t.shape, dtype=torch.float16) for n, t in state.items()}
    with wisp.Follower(tmp_path / "run", served) as follower:
        follower.sync()
    for name, tensor in state.items():
        assert torch.equal(served[name].view(torch.int16), tensor.half().view(torch.int16))
    transfer.destroy()


def test_the_example_reads_its_arguments(capsys):
    path = TREE / "examples" / "trl_async_grpo.py"
    spec = importlib.util.spec_from_file_location("trl_async_grpo", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    command = "--model m --run r --server http://a --server http://b --steps 3 --sharded"
    given = example.arguments(command.split())
    assert given.server == ["http://a", "http://b"] and given.steps == 3 and given.sharded
    with pytest.raises(SystemExit):
        example.arguments(["--model", "m", "--run", "r"])
    assert "--server" in capsys.readouterr().err
    rows = example.sums(3)
    completions = [[{"content": f"It is {answer}."}] for answer in rows["answer"]]
    assert example.right_answer(completions, answer=rows["answer"]) == [1.0, 1.0, 1.0]
