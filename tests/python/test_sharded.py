"""Sharded trainers: what ranks publish together is what one trainer would have published."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import torch.distributed as dist  # noqa: E402
from safetensors import safe_open  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402

import wisp  # noqa: E402
from wisp import ShardedPublisher, _native  # noqa: E402
from wisp.model.checkpoint_names import Naming  # noqa: E402
from wisp.sharded import presence, sharded_publisher  # noqa: E402

import fused_models  # noqa: E402
from rank_processes import run_ranks  # noqa: E402

#: Small enough that tensors have many blocks, and that blocks lie on several ranks.
LOG2 = 9


def use_small_blocks(log2: int = LOG2) -> None:
    """For the publishers of this process; each rank is a process of its own."""
    sharded_publisher._LOG2_BLOCK_ELEMENTS = log2


def tiny_model() -> torch.nn.Module:
    """A real transformer with sizes that no number of ranks divides; embeddings are tied."""
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=101,
        hidden_size=24,
        intermediate_size=46,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config)


# What it imports is imported once, before ranks are forked.
tiny_model()


def sharded_model(mesh: Any) -> torch.nn.Module:
    """The same, in fp32 masters spread over the mesh by FSDP2."""
    model = tiny_model()
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def nudge(tensors: dict[str, Any], step: int) -> None:
    """A training step that does the same to the weights however they are spread."""
    with torch.no_grad():
        for number, name in enumerate(sorted(tensors)):
            tensor = tensors[name]
            noise = torch.Generator().manual_seed(1000 * step + number)
            change = torch.randn(tensor.shape, generator=noise) * 1e-3
            change *= torch.rand(tensor.shape, generator=noise) < 0.2
            if isinstance(tensor, DTensor):
                spread = distribute_tensor(
                    change, tensor.device_mesh, tensor.placements, src_data_rank=None
                )
                tensor.to_local().add_(spread.to_local())
            else:
                tensor.add_(change)


def named(model: torch.nn.Module) -> dict[str, Any]:
    """Parameters, tied ones once."""
    return dict(model.named_parameters())


def whole_bits(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """The published state, gathered; a collective."""
    return {
        name: (t.full_tensor() if isinstance(t, DTensor) else t)
        .detach()
        .to(torch.bfloat16)
        .view(torch.int16)
        .numpy()
        .copy()
        for name, t in named(model).items()
    }


def pulled_bits(url: str, folder: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The newest state in the bucket, by a follower."""
    state = _native.pull_head(wisp.stores.location(url), folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        return state, {k: file.get_tensor(k).view(torch.int16).numpy() for k in file.keys()}


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def publish_steps(rank: int, world: int, url: str, steps: range, how: str) -> list[str]:
    """Nudges and publishes; the state digest of every step."""
    if how == "hsdp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replica", "shard"))
        model = sharded_model(mesh)
    elif how == "plain":
        model = tiny_model()
    else:
        model = sharded_model(init_device_mesh("cpu", (world,)))
    for step in range(steps.start):
        nudge(named(model), step)
    use_small_blocks()
    publisher = ShardedPublisher(
        url,
        torch.compile(model) if how == "waiting" else model,  # a wrapper changes no name
        dtype=torch.bfloat16,
        background=how != "waiting",
        anchor_every=3,
        timeout=90,
    )
    for step in steps:
        nudge(named(model), step)
        publisher.publish(step)
        publisher.flush()
    publisher.close()
    assert [r.step for r in publisher.stats] == list(steps)
    return [r.state for r in publisher.stats]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The digests of a trainer with all weights in one place."""
    url = str(tmp_path_factory.mktemp("reference") / "run")
    return run_ranks(1, publish_steps, url, range(5), "plain")[0]


@pytest.mark.parametrize(
    ("world", "how"), [(1, "fsdp"), (2, "waiting"), (3, "fsdp"), (4, "fsdp"), (4, "hsdp")]
)
def test_every_step_of_any_number_of_ranks_is_that_of_one_trainer(
    world: int, how: str, tmp_path: Path, reference: list[str]
) -> None:
    url = str(tmp_path / "run")
    for states in run_ranks(world, publish_steps, url, range(5), how):
        assert states == reference
    state, _ = pulled_bits(url, tmp_path / "pulled")
    assert state == reference[-1]
    assert not wisp.scrub(url, replay=True).findings


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path, reference: list[str]) -> None:
    url = str(tmp_path / "run")
    states = []
    for world, steps in ((2, range(2)), (3, range(2, 4)), (1, range(4, 5))):
        states += run_ranks(world, publish_steps, url, steps, "fsdp")[0]
    assert states == reference
    kinds = [line.kind for line in wisp.log(url, 100)]
    assert kinds.count("delta") == 4, "no state was sent whole again"


def experts(mesh: Any = None) -> torch.nn.Module:
    """A mixture whose experts transformers keeps fused, and saves one by one."""
    model = fused_models.make("Mixtral", torch.float32)
    return model if mesh is None else fully_shard(model, mesh=mesh)


def publish_experts(rank: int, world: int, url: str) -> None:
    model = experts(init_device_mesh("cpu", (world,)))
    use_small_blocks()
    with ShardedPublisher(url, model, dtype=torch.bfloat16, timeout=90) as publisher:
        for step in range(2):
            nudge(named(model), step)
            publisher.publish(step)


def test_fused_experts_are_published_as_checkpoints_have_them(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    run_ranks(3, publish_experts, url)
    model = experts()
    for step in range(2):
        nudge(named(model), step)
    tensors, _ = Naming(model).tensors()
    wanted = {n: t.detach().to(torch.bfloat16).view(torch.int16).numpy() for n, t in tensors.items()}
    assert "model.layers.1.block_sparse_moe.experts.3.w2.weight" in wanted
    assert same(pulled_bits(url, tmp_path / "pulled")[1], wanted)


def train(rank: int, world: int, url: str, folder: str) -> bool:
    """A few optimizer steps with what FSDP2 really does; followed at every one."""
    model = sharded_model(init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    use_small_blocks()
    publisher = ShardedPublisher(url, model, dtype=torch.bfloat16, timeout=90).attach(optimizer)
    good = True
    for step in range(3):
        tokens = torch.randint(0, 101, (2, 16), generator=torch.Generator().manual_seed(step))
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        publisher.flush()
        bits = whole_bits(model)
        if rank == 0:
            _, pulled = pulled_bits(url, Path(folder))
            good = good and same(bits, pulled)
    publisher.close()
    assert [r.kind for r in publisher.stats] == ["anchor", "delta", "delta", "delta"]
    return good


def test_a_follower_holds_what_fsdp_trained_bit_for_bit(tmp_path: Path) -> None:
    assert all(run_ranks(3, train, str(tmp_path / "run"), str(tmp_path / "pulled")))


def mixed_placements(rank: int, world: int, url: str) -> list[str]:
    """Columns, nothing but one row, replicated, plain, scalar, empty: all in one dict."""
    mesh = init_device_mesh("cpu", (world,))
    fill = torch.Generator().manual_seed(8)
    full = {
        "columns": torch.randn(7, 30, generator=fill),
        "empty": torch.zeros(0, 4),
        "one_row": torch.randn(1, 50, generator=fill),
        "plain": torch.randn(33, generator=fill),
        "replicated": torch.randn(5, 5, generator=fill),
        "rows": torch.randn(10, 40, generator=fill),
        "scalar": torch.tensor(4.0),
    }
    rows = Shard(0)
    placements = {"columns": Shard(1), "one_row": rows, "replicated": Replicate(), "rows": rows}
    tensors = {
        name: distribute_tensor(tensor, mesh, [placements[name]]) if name in placements else tensor
        for name, tensor in full.items()
    }
    use_small_blocks(6)
    with ShardedPublisher(url, tensors, timeout=90) as publisher:
        for step in range(3):
            nudge(tensors, step)
            publisher.publish(step)
            publisher.flush()
    return [r.state for r in publisher.stats]


def test_placements_that_are_not_rows_work_too(tmp_path: Path) -> None:
    states = [
        run_ranks(world, mixed_placements, str(tmp_path / f"run{world}"))[0] for world in (1, 3)
    ]
    assert states[0] == states[1]
    assert len(states[0]) == 3


def lose_a_rank(rank: int, world: int, url: str, how: str) -> list[str]:
    """Rank 2 dies, or sleeps through step 1; the others' words about it, and what comes after."""
    model = {
        name: tensor
        for name, tensor in named(sharded_model(init_device_mesh("cpu", (world,)))).items()
    }
    use_small_blocks()
    publisher = ShardedPublisher(
        url, model, dtype=torch.bfloat16, timeout=90, background=False, on_error="raise"
    )
    publisher.publish(0)
    said = []
    nudge(model, 1)
    # Only where somebody will be late anyway: this machine may be slow.
    publisher._rounds._timeout = 2.0
    if how == "dies" and rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs" and rank == 2:
        # Until the others have given the step up.
        publisher._ranks.keys.wait(["1/verdict"], float("inf"))
    try:
        publisher.publish(1)
    except wisp.UnavailableError as error:
        said.append(str(error))
    publisher._rounds._timeout = 90.0
    if how == "hangs":
        nudge(model, 2)
        publisher._rounds._renew = rank == 0  # as after a message that broke off
        said.append(publisher.publish(2).kind)
    return said


def test_a_rank_that_hangs_costs_the_step_is_named_and_loses_nothing(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    for said, kind in run_ranks(3, lose_a_rank, url, "hangs"):
        assert "rank 2 did not deliver step 1 within 2 s" in said
        assert kind == "delta"
    state, _ = pulled_bits(url, tmp_path / "pulled")
    assert not wisp.scrub(url, replay=True).findings
    assert state == wisp.log(url, 1)[0].state


def test_a_rank_that_dies_is_named(tmp_path: Path) -> None:
    answers = run_ranks(3, lose_a_rank, str(tmp_path / "run"), "dies", lost=(2,))
    for said in answers[:2]:
        assert "rank 2 did not deliver step 1 within 2 s" in said[0]


def outlive_a_rank(rank: int, world: int, url: str) -> list[Any]:
    """Rank 1 dies before step 1; how long rank 0 waits for it after that, and what it says."""
    tensors = {"w": torch.zeros(4)}
    publisher = ShardedPublisher(url, tensors, timeout=600, background=False, on_error="raise")
    publisher.publish(0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    publisher._rounds._timeout = 2.0
    said: list[Any] = []
    for step in (1, 2):
        tensors["w"] += 1
        began = time.monotonic()
        try:
            publisher.publish(step)
        except wisp.UnavailableError as error:
            said.append(str(error))
        publisher._rounds._timeout = 600.0
    try:
        publisher.close()
    except wisp.UnavailableError as error:
        said.append(str(error))
    return [*said, time.monotonic() - began]


def test_a_dead_rank_is_not_waited_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "_GRACE_SECONDS", 0.2)
    said, _ = run_ranks(2, outlive_a_rank, str(tmp_path / "run"), lost=(1,))
    first, second, closing, seconds = said
    assert "rank 1 did not deliver step 1 within 2 s" in first
    assert "rank 1 did not deliver step 2 and was not heard of since an earlier one" in second
    assert "step 2 is not committed" in closing
    assert seconds < 60


def end_without_close(rank: int, world: int, url: str) -> int:
    """A child that inherits the publisher is refused, and the end of the program is played."""
    tensors = {"w": torch.zeros(4)}
    publisher = ShardedPublisher(url, tensors, timeout=90)
    publisher.publish(0)
    child = os.fork()
    if child == 0:
        try:
            publisher.publish(1)
        except wisp.InvalidError as error:
            os._exit(7 if "belongs to process" in str(error) else 8)
        os._exit(9)
    _, status = os.waitpid(child, 0)
    publisher.finish_at_exit(time.monotonic())
    return os.waitstatus_to_exitcode(status)


def test_a_step_under_way_is_committed_at_exit_and_children_are_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    assert run_ranks(2, end_without_close, url) == [7, 7]
    assert wisp.log(url, 1)[0].step == 0


class HeldWriter:
    """A rank's writer whose coding of a step waits for the test, and may fail."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.coding = threading.Event()
        self.go = threading.Event()
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def deliver(self, call: str) -> bytes:
        self.coding.set()
        self.go.wait()
        if self.fails:
            self.fails = False
            raise wisp.UnavailableError("no room")
        return self._writer.deliver(call)


def publish_while_coding(rank: int, world: int, url: str, held: list[int], fails: bool) -> Any:
    """Step 1 is held in the coding of some ranks while many others are published."""
    model = sharded_model(init_device_mesh("cpu", (world,)))
    use_small_blocks()
    publisher = ShardedPublisher(url, model, dtype=torch.bfloat16, timeout=90)
    publisher.publish(0)
    publisher.flush()
    writer = publisher._rounds._writer = HeldWriter(publisher._rounds._writer)
    writer.fails = fails and rank == 1
    if rank not in held:
        writer.go.set()
    newest = 20  # more rounds than keys are kept of
    for step in range(1, newest + 1):
        nudge(named(model), step)
        publisher.publish(step)
        if step == 1:
            writer.coding.wait()
            dist.barrier()  # all ranks code
        assert [report.step for report in publisher.stats] == [0]
    wanted = whole_bits(model)
    nudge(named(model), newest + 1)  # trained on: what waits is not what lies there now
    dist.barrier()
    writer.go.set()
    publisher.close()
    return [report.step for report in publisher.stats], wanted


@pytest.mark.parametrize(
    ("held", "fails"), [([0, 1, 2], False), ([0], False), ([1], False), ([0, 1, 2], True)]
)
def test_publishing_waits_for_no_coding_of_the_step_before(
    held: list[int], fails: bool, tmp_path: Path
) -> None:
    url = str(tmp_path / "run")
    answers = run_ranks(3, publish_while_coding, url, held, fails)
    for steps, _ in answers:
        assert steps == ([0, 20] if fails else [0, 1, 20])
    _, published = pulled_bits(url, tmp_path / "pulled")
    assert same(published, answers[0][1])
    assert not wisp.scrub(url, replay=True).findings


def wait_in_vain(rank: int, world: int, url: str) -> list[str]:
    """A step that waits is given up by one rank; the step before it stands."""
    tensors = {"w": torch.zeros(4)}
    publisher = ShardedPublisher(url, tensors, timeout=90)
    publisher.publish(0)
    publisher.flush()
    writer = publisher._rounds._writer = HeldWriter(publisher._rounds._writer)
    tensors["w"] += 1
    publisher.publish(1)
    writer.coding.wait()
    dist.barrier()
    whole = tensors["w"]
    if rank == 1:
        del tensors["w"]
    said = []
    try:
        publisher.publish(2)
    except wisp.InvalidError as error:
        said.append(str(error))
    writer.go.set()
    try:
        publisher.flush()
    except wisp.InvalidError as error:
        said.append(str(error))
    tensors["w"] = whole
    publisher.publish(3)
    publisher.close()
    return [*said, *(str(report.step) for report in publisher.stats)]


def test_a_step_that_waits_and_fails_on_one_rank_is_named_by_all(tmp_path: Path) -> None:
    first, second = run_ranks(2, wait_in_vain, str(tmp_path / "run"))
    assert "step 2 is not committed: rank 1: rank 1 has no tensor 'w'" in first[0]
    assert "rank 1 has no tensor 'w'" in second[0]
    assert "step 2 is not committed" in second[1]
    assert first[1:] == second[2:] == ["0", "1", "3"]


def miss_a_verdict(rank: int, world: int, url: str) -> list[str]:
    """Rank 1 never hears what became of step 1."""
    tensors = named(sharded_model(init_device_mesh("cpu", (world,))))
    use_small_blocks()
    publisher = ShardedPublisher(
        url, tensors, timeout=90, background=False, on_error="raise"
    )
    publisher.publish(0)
    said = []
    hear = publisher._ranks.keys.wait
    if rank == 1:
        publisher._ranks.keys.wait = lambda keys, *rest, **more: (
            keys if keys == ["1/verdict"] else hear(keys, *rest, **more)
        )
    for step in (1, 2):
        nudge(tensors, step)
        try:
            said.append(publisher.publish(step).state)
        except wisp.UnavailableError as error:
            said.append(str(error))
    return said


def test_a_rank_that_missed_a_verdict_goes_on_with_its_own_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing may be taken from the bucket for it.
    monkeypatch.setattr(_native, "pull_head", None)
    first, second = run_ranks(2, miss_a_verdict, str(tmp_path / "run"))
    assert "rank 0 did not say what became of step 1" in second[0]
    assert first[1] == second[1]


def disagree(rank: int, world: int, url: str) -> list[str]:
    said = []
    try:
        ShardedPublisher(url, {"w": torch.zeros(4 + rank)}, timeout=90)
    except wisp.InvalidError as error:
        said.append(str(error))
    publisher = ShardedPublisher(url, {"w": torch.zeros(4)}, timeout=90, background=False)
    try:
        publisher.publish(rank)
    except wisp.InvalidError as error:
        said.append(str(error))
    dist.barrier()
    return said


def test_ranks_that_disagree_are_told_so(tmp_path: Path) -> None:
    for schemas, steps in run_ranks(2, disagree, str(tmp_path / "run")):
        assert "ranks" in schemas and "differ" in schemas
        assert "rank 1 publishes step 1, rank 0 step 0" in steps
