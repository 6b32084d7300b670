"""An engine's ranks at a real feed of a real run, with a small model in place of an engine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from wisp.engine.feed.feed_files import FeedSettings  # noqa: E402
from wisp.engine.feed.feed_link import FeedLink  # noqa: E402
from wisp.engine.rank.rank_follower import RankFollower  # noqa: E402
from wisp.engine.rank.rank_vote import Served  # noqa: E402
from wisp.engine.feed.server_beats import shown_name  # noqa: E402

BF16 = torch.bfloat16
TIMEOUT = 60.0
CODEC = "compact"


@pytest.fixture(autouse=True, params=["compact", "swift"])
def codec(request: pytest.FixtureRequest) -> Iterator[str]:
    """With swift, the engine holds half of each tensor, and its feed has to keep all of them."""
    global CODEC
    CODEC = request.param
    yield CODEC
    CODEC = "compact"


class Trainer:
    """Weights in float32, published in bf16 by a real publisher."""

    def __init__(self, run: Path, served: Path) -> None:
        from safetensors.torch import save_file

        torch.manual_seed(0)
        self.model = torch.nn.ModuleDict(
            {"a": torch.nn.Linear(64, 96, bias=False), "b": torch.nn.Linear(64, 32, bias=False)}
        )
        served.mkdir()
        save_file(self.state(), served / "model.safetensors")
        self.publisher = wisp.Publisher(str(run), self.model, dtype=BF16, codec=CODEC)
        self.folder = run

    def state(self) -> dict[str, torch.Tensor]:
        return {name: t.detach().to(BF16) for name, t in self.model.state_dict().items()}

    def publish(self, step: int, share: float = 0.01) -> None:
        with torch.no_grad():
            for tensor in self.model.parameters():
                touched = torch.rand(tensor.shape) < share
                tensor[touched] += torch.randn(int(touched.sum()))
        self.publisher.publish(step)
        self.publisher.flush()

    def objects(self) -> list[Path]:
        return sorted(p for p in self.folder.rglob("*") if p.is_file())


class Engine:
    """Half of both tensors, fused into one parameter."""

    def __init__(self, run: Path, served: Path, rank: int, server: str = "") -> None:
        self.model = torch.nn.Module()
        memory = torch.zeros(64, 64, dtype=BF16)
        self.model.register_parameter("fused", torch.nn.Parameter(memory, requires_grad=False))
        self.rank = rank
        from safetensors.torch import load_file

        self.load(load_file(served / "model.safetensors").items())
        settings = FeedSettings(str(run), poll=0.2, base=str(served))
        self.follower = RankFollower(
            FeedLink(settings), self.model, self.load, label=f"{server or served}/{rank}",
            checkpoint=str(served), replica=server,
        )  # fmt: skip

    def load(self, weights: object) -> None:
        for name, tensor in weights:  # type: ignore[attr-defined]
            if name == "a.weight":
                self.model.fused.data[:48].copy_(tensor.narrow(0, 48 * self.rank, 48))
            elif name == "b.weight":
                self.model.fused.data[48:].copy_(tensor.narrow(0, 16 * self.rank, 16))

    def staged(self, step: int) -> Served:
        self.follower.link.look()
        served = self.follower.wait_staged(lambda s: s.step == step, TIMEOUT)
        assert served is not None, (self.follower.failure, self.follower.link.known)
        return served

    def holds(self, state: dict[str, torch.Tensor]) -> bool:
        expected = torch.zeros(64, 64, dtype=BF16)
        expected[:48] = state["a.weight"][48 * self.rank : 48 * self.rank + 48]
        expected[48:] = state["b.weight"][16 * self.rank : 16 * self.rank + 16]
        return torch.equal(self.model.fused.data.view(torch.int16), expected.view(torch.int16))


class Ballot:
    """Lets the ranks of a test, on a thread each, hear each other."""

    def __init__(self, ranks: int) -> None:
        self.said: list[tuple[int, str]] = [(0, "")] * ranks
        self.barrier = threading.Barrier(ranks)

    def vote(self, rank: int, number: int, complaint: str) -> list[tuple[int, str]]:
        self.said[rank] = (number, complaint)
        self.barrier.wait(TIMEOUT)
        heard = list(self.said)
        self.barrier.wait(TIMEOUT)
        return heard


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path / "run", tmp_path / "served")
    yield made
    made.publisher.close()


@pytest.fixture
def engine(trainer: Trainer, tmp_path: Path) -> Iterator[Engine]:
    made = Engine(tmp_path / "run", tmp_path / "served", 0)
    yield made
    made.follower.close()


def alone(number: int, complaint: str) -> list[tuple[int, str]]:
    return [(number, complaint)]


def switch(engine: Engine, step: int) -> Served:
    return engine.follower.switch(engine.staged(step).key, alone)


def test_every_step_is_staged_beside_serving_and_written_when_told(
    trainer: Trainer, engine: Engine
) -> None:
    for step in range(1, 6):
        before = engine.model.fused.data.clone()
        trainer.publish(step)
        served = engine.staged(step)
        assert torch.equal(engine.model.fused.data.view(torch.int16), before.view(torch.int16))
        assert engine.follower.switch(served.key, alone).step == step
        assert engine.holds(trainer.state()) and engine.follower.verify() == 0


def test_a_rank_that_fell_behind_makes_one_move_of_many(trainer: Trainer, engine: Engine) -> None:
    trainer.publish(1)
    switch(engine, 1)
    for step in range(2, 9):
        trainer.publish(step)
    switch(engine, 8)
    assert engine.holds(trainer.state())


def test_a_rank_that_starts_late_or_elsewhere_takes_the_whole_state(
    trainer: Trainer, tmp_path: Path
) -> None:
    for step in range(1, 4):
        trainer.publish(step, share=0.5)
    late = Engine(tmp_path / "run", tmp_path / "served", 1)
    switch(late, 3)
    assert late.holds(trainer.state())
    late.follower.close()


def test_a_run_that_is_set_back_is_followed_back(trainer: Trainer, engine: Engine) -> None:
    for step in range(1, 4):
        trainer.publish(step)
    switch(engine, 3)
    trainer.publish(2)
    switch(engine, 2)
    assert engine.holds(trainer.state())


def test_a_feed_that_is_killed_comes_back_and_nothing_is_lost(
    trainer: Trainer, engine: Engine
) -> None:
    trainer.publish(1)
    switch(engine, 1)
    os.kill(engine.follower.link.known.pid, signal.SIGKILL)
    trainer.publish(2)
    switch(engine, 2)
    assert engine.holds(trainer.state()) and engine.follower.verify() == 0


@contextmanager
def stopped(engine: Engine) -> Iterator[None]:
    """The feed must not be quicker than the damage."""
    pid = engine.follower.link.known.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
        engine.follower.link.look()


def test_a_corrupt_delta_leaves_the_step_before_until_a_sound_state_comes(
    trainer: Trainer, engine: Engine
) -> None:
    trainer.publish(1)
    switch(engine, 1)
    good = trainer.state()
    link = engine.follower.link
    before = set(trainer.objects())
    trainer.publisher.publish(2)
    trainer.publisher.flush()
    with torch.no_grad():
        trainer.model["a"].weight[:4] += 1
    with stopped(engine):
        trainer.publish(3)
        deltas = [p for p in set(trainer.objects()) - before if p.suffix == ".safetensors"]
        for delta in deltas:
            raw = bytearray(delta.read_bytes())
            raw[len(raw) // 2] ^= 0x55
            delta.write_bytes(raw)
    assert deltas
    assert link.wait(lambda f: bool(f.status.faults or f.status.failure), TIMEOUT) is not None
    assert engine.holds(good)
    trainer.publisher.close()
    trainer.publisher = wisp.Publisher(
        str(trainer.folder), trainer.model, dtype=BF16, anchor_every=1, codec=CODEC
    )
    trainer.publish(4)
    switch(engine, 4)
    assert engine.holds(trainer.state())


def test_a_dropped_commit_leaves_the_step_before_until_it_is_back(
    trainer: Trainer, engine: Engine, tmp_path: Path
) -> None:
    trainer.publish(1)
    switch(engine, 1)
    good = trainer.state()
    with stopped(engine):
        before = set(trainer.objects())
        trainer.publish(2)
        (commit,) = [p for p in set(trainer.objects()) - before if p.parent.name == "commits"]
        trainer.publish(3)
        commit.rename(tmp_path / "dropped")
    # Nothing tells that the feed has looked and found nothing: several polls have to do.
    follower = engine.follower
    assert follower.wait_staged(lambda served: served.step > 1, 2.0) is None
    assert engine.holds(good) and follower.verify() == 0
    (tmp_path / "dropped").rename(commit)
    switch(engine, 3)
    assert engine.holds(trainer.state())


def test_a_bucket_that_holds_another_run_is_not_taken_for_this_one(
    trainer: Trainer, engine: Engine, tmp_path: Path
) -> None:
    trainer.publish(1)
    switch(engine, 1)
    good = trainer.state()
    other = Trainer(tmp_path / "other", tmp_path / "elsewhere")
    for step in range(1, 4):
        other.publish(step, share=0.5)
    other.publisher.close()
    with stopped(engine):
        trainer.folder.rename(tmp_path / "away")
        other.folder.rename(trainer.folder)
    link = engine.follower.link
    assert link.wait(lambda f: bool(f.status.faults or f.status.failure), TIMEOUT) is not None
    assert engine.holds(good) and engine.follower.verify() == 0
    with stopped(engine):
        trainer.folder.rename(tmp_path / "other")
        (tmp_path / "away").rename(trainer.folder)
        trainer.publish(2)
    switch(engine, 2)
    assert engine.holds(trainer.state())


def test_what_fails_on_one_rank_is_undone_on_all(trainer: Trainer, tmp_path: Path) -> None:
    engines = [Engine(tmp_path / "run", tmp_path / "served", rank) for rank in range(2)]
    trainer.publish(1)
    keys = [engine.staged(1).key for engine in engines]
    ballot = Ballot(2)
    raised: list[str] = ["", ""]

    def turn(rank: int, during: object) -> None:
        def vote(number: int, complaint: str) -> list[tuple[int, str]]:
            return ballot.vote(rank, number, complaint)

        try:
            engines[rank].follower.switch(keys[rank], vote, during)  # type: ignore[arg-type]
        except wisp.Error as error:
            raised[rank] = str(error)

    def together(broken: object) -> None:
        threads = [
            threading.Thread(target=turn, args=(rank, broken if rank else (lambda: None)))
            for rank in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)

    before = [engine.model.fused.data.clone() for engine in engines]

    def out_of_memory() -> None:
        raise MemoryError("no room")

    together(out_of_memory)
    assert all("rank 1: MemoryError: no room" in text for text in raised), raised
    for engine, old in zip(engines, before, strict=True):
        assert torch.equal(engine.model.fused.data.view(torch.int16), old.view(torch.int16))
        assert engine.follower.served is None
    raised[:] = ["", ""]
    together(lambda: None)
    assert raised == ["", ""]
    for engine in engines:
        assert engine.holds(trainer.state())
        engine.follower.close()


def test_an_engine_over_several_hosts_is_shown_by_each_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They share their settings, and must not write over one another's heartbeats."""
    names = set()
    for host in ("east", "west"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.add(shown_name("policy", "17-ab", spans_hosts=True))
        assert shown_name("policy", "17-ab", spans_hosts=False) == "policy"
        assert shown_name("", "17-ab", spans_hosts=True) == f"{host}-17"
    assert names == {"policy-east", "policy-west"}


def test_each_server_of_a_host_is_a_replica_of_its_own(trainer: Trainer, tmp_path: Path) -> None:
    def shown(*wanted: tuple[str, int, str]) -> None:
        """Once the heartbeats say so; they are written beside everything else."""
        end = time.monotonic() + TIMEOUT
        while True:
            replicas = wisp.status(str(trainer.folder)).replicas
            said = {r.id: json.loads((run / "replicas" / r.id).read_text()) for r in replicas}
            found = {(r.id, r.step, said[r.id]["status"]) for r in replicas}
            if found == set(wanted):
                return
            assert time.monotonic() < end, found
            time.sleep(0.05)

    run, served = tmp_path / "run", tmp_path / "served"
    trainer.publish(1)
    east = Engine(run, served, 0, "east")
    west = Engine(run, served, 0, "west")
    switch(east, 1)
    shown(("east", 1, "following"), ("west", 0, "joining"))
    switch(west, 1)
    trainer.publish(2)
    switch(west, 2)
    shown(("east", 1, "following"), ("west", 2, "following"))
    west.follower.close()
    shown(("east", 1, "following"), ("west", 2, "stopped"))
    east.follower.close()


def test_a_run_of_another_model_is_refused_with_the_cure(trainer: Trainer, tmp_path: Path) -> None:
    other = torch.nn.Linear(8, 8)
    publisher = wisp.Publisher(str(tmp_path / "other"), other, dtype=BF16, codec=CODEC)
    publisher.publish(1)
    publisher.close()
    stranger = Engine(tmp_path / "other", tmp_path / "served", 0)
    stranger.follower.link.look()
    told = stranger.follower.link.wait(
        lambda f: any(rank.failure for rank in f.ranks.values()), TIMEOUT
    )
    assert told is not None and "serve the model that is trained" in str(told.ranks)
    stranger.follower.close()
