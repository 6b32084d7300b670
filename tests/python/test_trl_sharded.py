"""TRL's weight sync with a model sharded by FSDP2 over two ranks, without a gather.

accelerate shards with FSDP2 on accelerators only, so no trainer of TRL trains a sharded model on a
CPU. What syncs here is TRL's own AsyncGRPOTrainer._sync_weight, barriers and all, on two processes
with gloo between them, around a real FSDP2 model that a loop in the test trains.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

import trl_on_cpu  # noqa: E402, F401
from accelerate import Accelerator  # noqa: E402
from rank_processes import run_ranks  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402
from trl.experimental.async_grpo import AsyncGRPOTrainer  # noqa: E402

import wisp  # noqa: E402
import wisp.trl  # noqa: E402


def tiny_qwen3():
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=16,
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


class Versions:
    def __init__(self):
        self.told = []

    def update_model_version(self, version):
        self.told.append(version)


class CommittedSteps:
    """In place of wisp.engine.Driver: the servers find what they are told of in the bucket."""

    def __init__(self, run):
        self.run = run
        self.steps = []

    def update(self, step, *, state):
        assert wisp.log(self.run, 1)[0].step == step
        self.steps.append(step)
        return [type("Report", (), {"url": "a", "ok": True, "served": step})]

    def close(self):
        pass


def sharded_trainer(transfer):
    """As much of the trainer as its weight sync looks at."""
    from torch.distributed.fsdp import fully_shard

    trainer = object.__new__(AsyncGRPOTrainer)
    trainer.accelerator = Accelerator(cpu=True)
    model = tiny_qwen3()
    for layer in model.model.layers:
        fully_shard(layer)
    trainer.model = fully_shard(model)
    trainer.model_version = 0
    trainer._lora_sync = False
    trainer._metrics = {"train": defaultdict(list)}
    main = trainer.accelerator.is_main_process
    trainer.weight_transfer = transfer if main else None
    trainer.rollout_worker = Versions() if main else None
    return trainer


def train(rank, world, run):
    whole = DTensor.full_tensor
    transfer = wisp.trl.ShardedBucketWeightTransfer(run, servers=["http://a"])
    driver = CommittedSteps(run)
    transfer.server_switch.make_driver = lambda _: driver
    trainer = sharded_trainer(transfer)
    transfer.attach(trainer)
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-4)
    gathered = []
    DTensor.full_tensor = lambda self, **options: gathered.append(self)
    transfer.init_weight_transfer()
    trainer._sync_weight()
    for step in range(2):
        torch.manual_seed(10 * rank + step)
        tokens = torch.randint(96, (2, 8))
        trainer.model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        trainer._sync_weight()
    if rank == 0:
        transfer.destroy()
    DTensor.full_tensor = whole
    assert not gathered
    full = {n: p.full_tensor().detach() for n, p in trainer.model.named_parameters()}
    if rank != 0:
        return None
    assert trainer.rollout_worker.told == [1, 2, 3] == driver.steps
    return {name: tensor.bfloat16().view(torch.int16).numpy() for name, tensor in full.items()}


def test_ranks_publish_their_rows_and_none_gathers(tmp_path):
    run = str(tmp_path / "run")
    expected, _ = run_ranks(2, train, run)
    lines = [(line.kind, line.step) for line in wisp.log(run) if line.kind != "fence"]
    assert lines == [("delta", 3), ("delta", 2), ("anchor", 1)]
    wisp.export(run, tmp_path / "export")
    # A whole checkpoint, configuration included, tied weights once.
    loaded = Qwen3ForCausalLM.from_pretrained(tmp_path / "export")
    assert loaded.dtype == torch.bfloat16
    got = {n: p.detach().view(torch.int16).numpy() for n, p in loaded.named_parameters()}
    assert got.keys() == expected.keys()
    for name, bits in expected.items():
        assert (got[name] == bits).all(), name


def test_without_attach_it_says_so(tmp_path):
    transfer = wisp.trl.ShardedBucketWeightTransfer(tmp_path / "run")
    with pytest.raises(wisp.InvalidError, match="attach"):
        transfer.send_weights(iter([("a", torch.zeros(3))]))
    with pytest.raises(wisp.UnsupportedError, match="PublishCallback"):
        transfer.attach(object())
