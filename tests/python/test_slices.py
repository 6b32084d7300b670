"""An engine that spans two hosts, each with a feed: it fetches, proves and keeps its slices alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from wisp.engine.feed_files import FeedSettings  # noqa: E402
from wisp.engine.feed_link import FeedLink  # noqa: E402
from wisp.engine.rank_follower import RankFollower  # noqa: E402
from wisp.engine.rank_vote import Served  # noqa: E402

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
    def __init__(self, folder: Path) -> None:
        from safetensors.torch import save_file

        torch.manual_seed(0)
        shapes = {name: shape for name, (shape, _) in TENSORS.items()} | EXPERTS
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
    """One rank on each of two hosts: half of the slices, and two of four experts."""

    def __init__(self, trainer: Trainer, host: int) -> None:
        self.host = host
        self.model = torch.nn.Module()
        for key, tensor in trainer.weights.items():
            part = self.part(key, tensor)
            if part is not None:
                self.model.register_buffer(key.replace(".", "_"), torch.zeros(part.shape, dtype=BF16))
        self.load(trainer.initial.items())
        # Another address of the same run is another feed.
        settings = FeedSettings(
            ("", "file://")[host] + str(trainer.run), poll=0.2, base=str(trainer.served),
            scratch=str(trainer.served.parent / f"scratch-{host}"),
        )  # fmt: skip
        self.follower = RankFollower(
            FeedLink(settings), self.model, self.load, label=f"{trainer.served}/{host}",
            checkpoint=str(trainer.served), peers=1,
        )  # fmt: skip

    def part(self, name: str, tensor: torch.Tensor) -> torch.Tensor | None:
        if name in EXPERTS:
            return tensor if list(EXPERTS).index(name) // 2 == self.host else None
        dim = TENSORS[name][1]
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
