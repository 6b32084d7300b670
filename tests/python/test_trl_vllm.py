"""TRL's trainers with real vLLM servers, and nothing between them but a bucket."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("vllm")

import byte_model  # noqa: E402
import trl_on_cpu  # noqa: E402, F401
from datasets import Dataset  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer  # noqa: E402
from vllm_process import VllmServer, expected_checksums  # noqa: E402

import wisp  # noqa: E402
import wisp.trl  # noqa: E402


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return byte_model.save_tiny_qwen3(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory, model_folder):
    logs = tmp_path_factory.mktemp("vllm")
    started = [VllmServer(model_folder, logs / name).start() for name in ("a.log", "b.log")]
    try:
        yield [server.wait_ready() for server in started]
    finally:
        for server in started:
            server.kill()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("bucket") / "run"


def distinct_letters(completions, **_):
    return [float(len(set(completion[0]["content"]))) for completion in completions]


class TaggedQueue:
    """The worker's samples on their way to the trainer, with the version that is current then."""

    def __init__(self, trainer):
        self._queue = trainer.rollout_queue
        self._trainer = trainer
        self.tags = []

    def get(self, timeout=None):
        sample = self._queue.get(timeout=timeout)
        self.tags.append((sample.model_version, self._trainer.model_version))
        return sample

    def qsize(self):
        return self._queue.qsize()

    def drain(self):
        """A process does not end before all it has put into a queue was taken out."""
        while self._trainer.rollout_worker._process is not None:
            with suppress(queue.Empty):
                self._queue.get(timeout=0.2)


class AfterSync(TrainerCallback):
    """Added last: what it does at the end of a step comes after the step's weight sync."""

    def __init__(self, server, trainer):
        self.server = server
        self.trainer = trainer
        self.seen = []

    def on_step_end(self, args, state, control, **kwargs):
        self.seen.append((self.trainer.model_version, self.server.weight_version))

    def on_train_end(self, args, state, control, **kwargs):
        threading.Thread(target=self.trainer.rollout_queue.drain, daemon=True).start()


class Failure(TrainerCallback):
    """A server dies before the sync of one step, and comes back before that of another."""

    def __init__(self, server, *, dies, returns):
        self.server = server
        self.dies = dies
        self.returns = returns

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.dies:
            self.server.kill()
        if state.global_step == self.returns:
            self.server.start().wait_ready()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.returns:
            # Without another sync.
            self.server.wait_version(self.trainer.model_version)


class Sent:
    """What the server must hold after the last sync."""

    def __init__(self, transfer, model):
        self._send = transfer.send_weights
        self._model = model
        transfer.send_weights = self

    def __call__(self, iterator):
        self.checksums = expected_checksums(dict(self._model.named_parameters()))
        self._send(iterator)


def trainer_of(folder, out, url, transfer, steps, callbacks=()):
    arguments = AsyncGRPOConfig(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=12, use_cpu=True, bf16=False, learning_rate=1e-4, report_to=[],
        save_strategy="no", disable_tqdm=True, vllm_server_base_url=url, weight_sync_steps=1,
        model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": [[{"role": "user", "content": c}] for c in "abcd"]})
    return AsyncGRPOTrainer(
        model=str(folder), reward_funcs=distinct_letters, args=arguments, train_dataset=prompts,
        weight_transfer=transfer, callbacks=list(callbacks),
    )  # fmt: skip


def train(trainer, server):
    after = AfterSync(server, trainer)
    trainer.add_callback(after)
    trainer.rollout_queue = tagged = TaggedQueue(trainer)
    trainer.train()
    # The step, vLLM's weight version and TRL's model_version are one number.
    assert after.seen == [(n, str(n)) for n in range(after.seen[0][0], trainer.model_version + 1)]
    # No sample claims a version that was not being served when it was asked for.
    assert tagged.tags and all(1 <= tag <= current for tag, current in tagged.tags)


def assert_serves(server, trainer):
    assert server.weight_version == str(trainer.model_version)
    assert server.get("/is_paused") == {"is_paused": False}
    found = server.checksums()
    expected = expected_checksums(dict(trainer.model.named_parameters()))
    assert expected.items() <= found.items()


def test_async_grpo_with_one_server(tmp_path, model_folder, servers, run):
    server = servers[0]
    transfer = wisp.trl.BucketWeightTransfer(run, servers=[server.url], patience=0)
    trainer = trainer_of(model_folder, tmp_path, server.url, transfer, steps=3)
    train(trainer, server)
    assert trainer.model_version == 4
    assert_serves(server, trainer)
    before = expected_checksums(byte_model.weights_of(model_folder))
    assert before != expected_checksums(dict(trainer.model.named_parameters()))


def test_one_of_two_servers_dies_and_comes_back(tmp_path, model_folder, servers, run, caplog):
    stays, leaves = servers
    transfer = wisp.trl.BucketWeightTransfer(run, servers=[s.url for s in servers], patience=0)
    failure = Failure(leaves, dies=1, returns=3)
    trainer = trainer_of(model_folder, tmp_path, stays.url, transfer, steps=4, callbacks=[failure])
    failure.trainer = trainer
    # Goes on counting where the run is, as if it were resumed.
    trainer.model_version = wisp.log(run)[0].step
    train(trainer, stays)
    assert f"{leaves.url} does not serve step" in caplog.text
    assert f"{leaves.url} is back" in caplog.text
    for server in servers:
        assert_serves(server, trainer)


def test_grpo_in_server_mode(tmp_path, model_folder, servers, run):
    server = servers[0]
    arguments = GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, num_generations=2,
        max_completion_length=4, use_cpu=True, bf16=False, learning_rate=1e-4, report_to=[],
        save_strategy="no", disable_tqdm=True, use_vllm=True, vllm_mode="server",
        vllm_server_base_url=server.url, model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    prompts = Dataset.from_dict({"prompt": [[{"role": "user", "content": c}] for c in "abcd"]})
    before = wisp.log(run)[0].step
    transfer = wisp.trl.BucketWeightTransfer(run, servers=[server.url], patience=0)
    with wisp.trl.bucket_client(transfer):
        trainer = GRPOTrainer(
            str(model_folder), reward_funcs=distinct_letters, args=arguments, train_dataset=prompts
        )
    sent = Sent(transfer, trainer.model)
    trainer.train()
    # Before each of the two steps.
    assert transfer.step == before + 2
    assert server.weight_version == str(transfer.step)
    assert sent.checksums.items() <= server.checksums().items()
    transfer.destroy()
