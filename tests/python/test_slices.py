"""An engine that spans two hosts, each with a feed: it fetches, proves and keeps its slices alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from wisp.engine.feed.feed_files import FeedSettings  # noqa: E402
from wisp.engine.feed.feed_link import FeedLink  # noqa: E402
from wisp.engine.feed.feed_messages import RankHolds, RankReport  # noqa: E402
from wisp.engine.feed.join_parts import has_parts  # noqa: E402
from wisp.engine.rank.rank_follower import RankFollower  # noqa: E402
from wisp.engine.feed.rank_table import RankTable  # noqa: E402
from wisp.engine.rank.rank_vote import Served  # noqa: E402

BF16 = torch.bfloat16
TIMEOUT = 60.0
#: By name: the shape, and the dimension that the hosts slice (None: each holds all of it).
TENSORS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "a.q_proj.weight": ((512, 1024), 0),
    "a.o_proj.weight": ((1024, 512), 1),
    "a.norm": ((63,), None),
    "b.o_proj.weight": ((131, 3000), 1),  # cannot be cut into strips: each host needs all tiles
}
EXPERTS = {f"experts.{i}.weight": (256, 512) for i in range(4)}


class Trainer:
    def __init__(self, folder: Path, tensors: Any = TENSORS) -> None:
        from safetensors.torch import save_file

        torch.manual_seed(0)
        self.tensors = tensors
        shapes = {name: shape for name, (shape, _) in tensors.items()} | EXPERTS
        self.weights = {name: torch.randn(shape).to(BF16) for name, shape in shapes.items()}
        self.initial = {name: tensor.clone() for name, tensor in self.weights.items()}
        self.run, self.served = folder / "run", folder / "served"
        self.served.mkdir()
        save_file(self.weights, self.served / "model.safetensors")
        wisp.init(str(self.run), slices=4)
        self.publisher = wisp.Publisher(str(self.run), self.weights, on_error="raise")
        self.step = 0

    def publish(self, share: float = 0.005) -> int:
        self.step += 1
        for tensor in self.weights.values():
            touched = torch.rand(tensor.shape) < share
            tensor[touched] += torch.randn(int(touched.sum())).to(BF16)
        self.publisher.publish(self.step)
        self.publisher.flush()
        return self.step


class Host:
    """One rank on each of two hosts: half of the slices, and two of four experts.

    whole: it holds all of it, and is an engine of its own; feed: the host it is on, if another.
    """

    def __init__(
        self, trainer: Trainer, host: int, *, whole: bool = False, feed: int | None = None
    ) -> None:
        feed = host if feed is None else feed
        self.host = host
        self.whole = whole
        self.tensors = trainer.tensors
        self.model = torch.nn.Module()
        for key, tensor in trainer.weights.items():
            part = self.part(key, tensor)
            if part is not None:
                self.model.register_buffer(key.replace(".", "_"), torch.zeros(part.shape, dtype=BF16))
        self.load(trainer.initial.items())
        # Another address of the same run is another feed.
        settings = FeedSettings(
            ("", "file://")[feed] + str(trainer.run), poll=0.2, base=str(trainer.served),
            scratch=str(trainer.served.parent / f"scratch-{feed}"),
        )  # fmt: skip
        self.follower = RankFollower(
            FeedLink(settings), self.model, self.load, checkpoint=str(trainer.served), peers=1,
            label=f"{trainer.served}-{feed}-{host}-{whole}/{host}",
        )  # fmt: skip

    def part(self, name: str, tensor: torch.Tensor) -> torch.Tensor | None:
        if self.whole:
            return tensor
        if name in EXPERTS:
            return tensor if list(EXPERTS).index(name) // 2 == self.host else None
        dim = self.tensors[name][1]
        if dim is None:
            return tensor
        size = tensor.shape[dim] // 2
        return tensor.narrow(dim, size * self.host, size)

    def load(self, weights: Any) -> None:
        for name, tensor in weights:
            part = self.part(name, tensor)
            if part is not None:
                getattr(self.model, name.replace(".", "_")).copy_(part)

    def switch(self, step: int) -> None:
        self.follower.link.look()
        served: Served | None = self.follower.wait_staged(lambda s: s.step == step, TIMEOUT)
        assert served is not None, (self.follower.failure, self.follower.link.known)
        self.follower.switch(served.key, lambda number, complaint: [(number, complaint)], lambda: None)

    def holds(self, weights: dict[str, torch.Tensor]) -> bool:
        for name, tensor in weights.items():
            part = self.part(name, tensor)
            if part is None:
                continue
            mine = getattr(self.model, name.replace(".", "_"))
            if not torch.equal(mine.view(torch.int16), part.contiguous().view(torch.int16)):
                return False
        return True

    def share(self, weights: dict[str, torch.Tensor]) -> float:
        """What it holds of all elements."""
        parts = [self.part(name, tensor) for name, tensor in weights.items()]
        held = sum(part.numel() for part in parts if part is not None)
        return held / sum(tensor.numel() for tensor in weights.values())

    def fetched(self) -> int:
        return self.follower.link.known.status.fetched_bytes

    def kept_bytes(self) -> int:
        return sum(p.stat().st_size for p in self.follower.link.folder.glob("kept-*"))


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    made.publish()
    yield made
    made.publisher.close()


@pytest.fixture
def hosts(trainer: Trainer) -> Iterator[list[Host]]:
    made = [Host(trainer, host) for host in range(2)]
    yield made
    for host in made:
        host.follower.close()


def test_each_host_takes_its_slices_and_keeps_nothing_else(
    trainer: Trainer, hosts: list[Host]
) -> None:
    assert hosts[0].follower.link.folder != hosts[1].follower.link.folder
    for host in hosts:
        host.switch(trainer.step)
    for _ in range(3):
        trainer.publish()
        for host in hosts:
            host.switch(trainer.step)
            assert host.holds(trainer.weights)
            assert host.follower.link.known.relay and host.follower.link.known.kept == ()
            assert host.kept_bytes() == 0
            assert not host.follower.link.known.status.faults
    for host in hosts:
        assert host.follower.verify() == 0


def test_several_steps_at_once(trainer: Trainer, hosts: list[Host]) -> None:
    for host in hosts:
        host.switch(trainer.step)
    for _ in range(4):
        trainer.publish(0.002)
    for host in hosts:
        host.switch(trainer.step)
        assert host.holds(trainer.weights)


def test_memory_that_somebody_else_wrote_to_is_refused_and_mended(
    trainer: Trainer, hosts: list[Host]
) -> None:
    host = hosts[1]
    host.switch(trainer.step)
    trainer.publish()
    host.switch(trainer.step)
    host.model.a_o_proj_weight.view(torch.int16).bitwise_xor_(1)
    with pytest.raises(wisp.Error, match="wrote to it"):
        host.follower.verify()
    trainer.publish()
    host.switch(trainer.step)
    assert host.holds(trainer.weights)
    assert host.follower.verify() == 0


def object_bytes(run: Path) -> int:
    """Of the anchor and the deltas behind it."""
    return sum(p.stat().st_size for kind in ("anchors", "deltas") for p in (run / kind).iterdir())


@pytest.fixture
def cut_trainer(tmp_path: Path) -> Iterator[Trainer]:
    """All of whose tensors can be cut in two."""
    made = Trainer(tmp_path, {n: t for n, t in TENSORS.items() if n != "b.o_proj.weight"})
    for _ in range(3):
        made.publish()
    yield made
    made.publisher.close()


def test_each_host_joins_with_its_share(cut_trainer: Trainer) -> None:
    trainer = cut_trainer
    whole = object_bytes(trainer.run)
    hosts = [Host(trainer, host) for host in range(2)]
    try:
        for host in hosts:
            host.switch(trainer.step)
            assert host.holds(trainer.weights)
            assert host.fetched() <= 1.1 * host.share(trainer.weights) * whole
            assert host.follower.link.known.whole_parts is not None
            assert not host.follower.link.known.status.faults
        joined = [host.fetched() for host in hosts]
        before = object_bytes(trainer.run)
        for _ in range(2):
            trainer.publish()
            for host in hosts:
                host.switch(trainer.step)
                assert host.holds(trainer.weights)
        for host, bytes_before in zip(hosts, joined, strict=True):
            assert host.fetched() - bytes_before < 0.7 * (object_bytes(trainer.run) - before)
            assert host.follower.verify() == 0
    finally:
        for host in hosts:
            host.follower.close()


def test_an_engine_that_needs_more_than_was_fetched_does_not_serve_holes(
    cut_trainer: Trainer,
) -> None:
    trainer = cut_trainer
    hosts = [Host(trainer, 0)]
    try:
        hosts[0].switch(trainer.step)
        few = hosts[0].fetched()
        hosts.append(Host(trainer, 0, whole=True))
        assert hosts[0].follower.link.folder == hosts[1].follower.link.folder
        hosts[1].switch(trainer.step)
        assert hosts[1].holds(trainer.weights)
        assert hosts[1].fetched() > 2 * few, "another join, of all of it"
        trainer.publish()
        for host in hosts:
            host.switch(trainer.step)
            assert host.holds(trainer.weights)
    finally:
        for host in hosts:
            host.follower.close()


def holds(rank: str, number: int, peers: int = 1) -> RankHolds:
    return RankHolds(rank, peers, {"w": ((0, ((4, 1),)),)}, number=number)


def go_on() -> None:
    pass


def test_ranks_are_waited_for_until_all_have_said_what_they_hold() -> None:
    ranks = RankTable()
    ranks.report("a/0", RankReport())
    assert "a/0" in str(ranks.wait_holds(7, go_on, 0.01))
    ranks.hold(holds("a/0", 6))
    assert "a/0" in str(ranks.wait_holds(7, go_on, 0.01)), "that was of another state"
    ranks.hold(holds("a/0", 7, peers=2))
    assert "1 more" in str(ranks.wait_holds(7, go_on, 0.01)), "its peer has not come yet"
    ranks.report("a/1", RankReport())
    ranks.hold(holds("a/1", 7, peers=2))
    assert ranks.wait_holds(7, go_on, 0.01) is None
    ranks.report("b/0", RankReport(failure="it does not fit"))
    assert ranks.wait_holds(7, go_on, 0.01) is None, "it cannot serve anyway"


def test_a_rank_that_leaves_meanwhile_is_not_waited_for() -> None:
    ranks = RankTable()
    for rank in ("a/0", "b/0"):
        ranks.report(rank, RankReport())
    ranks.hold(holds("a/0", 7))
    leaving = threading.Timer(0.05, ranks.leave, ["b/0"])
    leaving.start()
    assert ranks.wait_holds(7, go_on, TIMEOUT) is None
    leaving.join()


def test_parts_of_a_state_are_taken_only_by_those_whose_parts_they_are() -> None:
    schema = (("v", "BF16", (8,)), ("w", "BF16", (4, 4)))
    upper, lower = (0, ((8, 1),)), (8, ((8, 1),))
    fetched = {"v": ((0, ((8, 1),)),), "w": (upper,)}
    assert has_parts(None, {"w": (lower,)}, schema), "a whole state has them all"
    assert has_parts(fetched, {"w": (upper,)}, schema)
    assert has_parts(fetched, {"v": ((3, ((2, 1),)),)}, schema), "any part of what came whole"
    assert not has_parts(fetched, {"w": (lower,)}, schema)
    assert not has_parts({"v": fetched["v"]}, {"w": (upper,)}, schema)
