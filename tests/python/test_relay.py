"""Swift runs at a real feed: the ranks hold the weights, the feed none that they can give back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from wisp.engine.feed.feed_files import FeedSettings  # noqa: E402
from wisp.engine.feed.feed_link import FeedLink  # noqa: E402
from wisp.engine.rank import stage_builder  # noqa: E402
from wisp.engine.rank.rank_follower import RankFollower  # noqa: E402
from wisp.engine.rank.rank_vote import Served  # noqa: E402

BF16 = torch.bfloat16
TIMEOUT = 30.0
RANKS = 2
#: By name: the shape, and the dimension that ranks slice (None: each holds all of it).
TENSORS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "rows": ((96, 64), 0),
    "columns": ((32, 64), 1),
    "norm": ((63,), None),  # its last word is short
    "odd": ((5, 6), 1),  # cut inside its words
    "experts": ((4, 8, 16), 0),
}
EXTRA = {"doubled": (16, 16), "absent": (8, 8), "wide": (8, 8)}


class Trainer:
    scratch: str | None = None  #: of the engines' feed

    def __init__(
        self, folder: Path, *, extra: bool = False, scale: int = 1, codec: str = "swift"
    ) -> None:
        from safetensors.torch import save_file

        torch.manual_seed(0)
        shapes = {name: shape for name, (shape, _) in TENSORS.items()}
        shapes["rows"] = (96 * scale, 64)
        shapes.update(EXTRA if extra else {})
        self.weights = {name: torch.randn(shape).to(BF16) for name, shape in shapes.items()}
        self.initial = {name: tensor.clone() for name, tensor in self.weights.items()}
        self.run, self.served = folder / "run", folder / "served"
        self.served.mkdir()
        save_file(self.weights, self.served / "model.safetensors")
        self.publisher = wisp.Publisher(
            str(self.run), self.weights, codec=codec, on_error="raise"
        )
        self.step = 0

    def publish(self, share: float = 0.05) -> int:
        self.step += 1
        for tensor in self.weights.values():
            touched = torch.rand(tensor.shape) < share
            tensor[touched] += torch.randn(int(touched.sum())).to(BF16)
        self.publisher.publish(self.step)
        self.publisher.flush()
        return self.step


class Rank:
    """Slices of all tensors, two of them fused, one held twice."""

    def __init__(self, trainer: Trainer, rank: int, name: str = "", ranks: int = RANKS) -> None:
        self.rank, self.ranks = rank, ranks
        self.model = torch.nn.Module()
        for key, tensor in trainer.weights.items():
            part = self.part(key, tensor)
            if part is not None:
                kind = torch.float32 if key == "wide" else BF16
                empty = torch.zeros(part.shape, dtype=kind)
                self.model.register_buffer(key, empty)
        self.model.register_buffer("twice", torch.zeros(96, 64, dtype=BF16))
        self.has_twin = trainer.weights["rows"].shape[0] == 96
        self.load(trainer.initial.items())
        settings = FeedSettings(str(trainer.run), poll=0.2, base=str(trainer.served), scratch=trainer.scratch)
        self.follower = RankFollower(
            FeedLink(settings), self.model, self.load, label=f"{name}{trainer.served}/{rank}",
            checkpoint=str(trainer.served), peers=ranks,
        )  # fmt: skip

    def part(self, name: str, tensor: torch.Tensor) -> torch.Tensor | None:
        if name == "absent":
            return None
        if name == "doubled":
            return tensor * 2
        dim = TENSORS[name][1] if name in TENSORS else None
        if dim is None:
            return tensor
        size = tensor.shape[dim] // self.ranks
        return tensor.narrow(dim, size * self.rank, size)

    def load(self, weights: Any) -> None:
        for name, tensor in weights:
            part = self.part(name, tensor)
            if part is not None:
                getattr(self.model, name).copy_(part)
            if name == "rows" and self.has_twin:
                self.model.twice.copy_(tensor)

    def staged(self, step: int) -> Served:
        self.follower.link.look()
        served = self.follower.wait_staged(lambda s: s.step == step, TIMEOUT)
        assert served is not None, (self.follower.failure, self.follower.link.known)
        return served

    def holds(self, weights: dict[str, torch.Tensor]) -> bool:
        for name, tensor in weights.items():
            part = self.part(name, tensor)
            if part is not None:
                mine = getattr(self.model, name)
                if not torch.equal(mine.to(BF16).view(torch.int16), part.contiguous().view(torch.int16)):
                    return False
        return True


class Engine:
    """All ranks of one server, each on a thread when they switch."""

    def __init__(self, trainer: Trainer, name: str = "", ranks: int = RANKS) -> None:
        self.ranks = [Rank(trainer, rank, name, ranks) for rank in range(ranks)]
        self.raised: list[str] = []

    def switch(self, step: int, during: Callable[[int], object] = lambda _: None) -> None:
        keys = [rank.staged(step).key for rank in self.ranks]
        said: list[tuple[int, str]] = [(0, "")] * len(self.ranks)
        barrier = threading.Barrier(len(self.ranks))
        self.raised = []

        def turn(index: int) -> None:
            def vote(number: int, complaint: str) -> list[tuple[int, str]]:
                said[index] = (number, complaint)
                barrier.wait(TIMEOUT)
                heard = list(said)
                barrier.wait(TIMEOUT)
                return heard

            try:
                self.ranks[index].follower.switch(keys[index], vote, lambda: during(index))
            except wisp.Error as error:
                self.raised.append(str(error))

        threads = [threading.Thread(target=turn, args=(i,)) for i in range(len(self.ranks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)

    def holds(self, weights: dict[str, torch.Tensor]) -> bool:
        return all(rank.holds(weights) for rank in self.ranks)

    def verify(self) -> int:
        """On all ranks at once, as an engine does it."""
        found: list[int | Exception] = []

        def look(rank: Rank) -> None:
            try:
                found.append(rank.follower.verify())
            except wisp.Error as error:
                found.append(error)

        threads = [threading.Thread(target=look, args=(rank,)) for rank in self.ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        for one in found:
            if isinstance(one, Exception):
                raise one
        assert len(found) == len(self.ranks)
        return sum(found)  # type: ignore[arg-type]

    @property
    def link(self) -> FeedLink:
        return self.ranks[0].follower.link

    def close(self) -> None:
        for rank in self.ranks:
            rank.follower.close()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    made = Trainer(tmp_path)
    made.publish()
    made.publish()
    yield made
    made.publisher.close()


@pytest.fixture(params=[RANKS, 1], ids=["asked", "decodes"])
def engine(trainer: Trainer, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Its ranks are asked for their words; or there is one alone, which decodes for itself."""
    made = Engine(trainer, ranks=request.param)
    yield made
    made.close()


def handed(link: FeedLink) -> list[Path]:
    """The deltas that ranks are to decode themselves."""
    return [Path(delta) for move in link.known.moves for delta in move.deltas]


def shared_files(link: FeedLink) -> list[str]:
    return sorted(p.name for p in link.folder.glob("*.safetensors"))


def test_every_step_is_gathered_proven_and_served_bit_for_bit(
    trainer: Trainer, engine: Engine
) -> None:
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights)
    for _ in range(4):
        engine.switch(trainer.publish())
        assert engine.holds(trainer.weights)
    assert engine.link.known.relay and engine.verify() == 0
    assert shared_files(engine.link) == [] and not engine.link.known.kept
    assert not engine.link.known.whole, "what all ranks have is removed"
    assert all(bool(move.deltas) == (len(engine.ranks) == 1) for move in engine.link.known.moves)
    assert len(engine.link.known.moves) > 0


def test_steps_that_nobody_switches_to_are_built_on_each_other(
    trainer: Trainer, engine: Engine
) -> None:
    engine.switch(trainer.step)
    for share in (0.05, 0.9, 0.05, 0.02):
        step = trainer.publish(share)
        for rank in engine.ranks:
            rank.staged(step)
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights) and engine.verify() == 0


def test_many_deltas_at_once_are_one_gather(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    pid = engine.link.known.pid
    os.kill(pid, signal.SIGSTOP)
    for share in (0.05, 0.1, 0.9, 0.05, 0.0, 0.05):
        trainer.publish(share)
    os.kill(pid, signal.SIGCONT)
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights) and engine.verify() == 0


def test_what_ranks_cannot_give_back_is_kept(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, extra=True)
    trainer.publish()
    trainer.publish()
    engine = Engine(trainer)
    for _ in range(4):
        engine.switch(trainer.step)
        assert engine.holds(trainer.weights)
        trainer.publish()
    for rank in engine.ranks:
        rank.staged(trainer.step)
    assert sorted(engine.link.known.kept) == ["absent", "doubled", "wide"]
    trainer.publish()
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights) and engine.verify() == 0
    # What is kept is not in the sum over all ranks, and is looked at all the same.
    doubled = engine.ranks[0].model.doubled
    doubled[0, 0] += 1
    assert engine.verify() == 1
    doubled[0, 0] -= 1
    (kept,) = shared_files(engine.link)
    assert (engine.link.folder / kept).stat().st_size < 2048
    engine.close()
    trainer.publisher.close()


def test_a_switch_that_fails_leaves_all_as_it_was(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    before = {name: tensor.clone() for name, tensor in trainer.weights.items()}
    step = trainer.publish()

    last = len(engine.ranks) - 1

    def break_last(rank: int) -> None:
        if rank == last:
            raise MemoryError("no room")

    engine.switch(step, break_last)
    assert len(engine.raised) == len(engine.ranks)
    assert f"rank {last}: MemoryError: no room" in engine.raised[0]
    assert engine.holds(before)
    with pytest.raises(wisp.UnavailableError, match="update first"):
        engine.verify()
    step = trainer.publish()
    engine.switch(step)
    assert not engine.raised and engine.holds(trainer.weights) and engine.verify() == 0


def test_memory_that_somebody_else_wrote_to_is_refused_named_and_mended(
    trainer: Trainer, engine: Engine
) -> None:
    engine.switch(trainer.step)
    served = trainer.step
    last = engine.ranks[-1]
    last.model.columns.view(torch.int16)[:] ^= 1
    changed = last.model.columns.clone()
    step = trainer.publish(0.5)
    told = engine.link.wait(
        lambda f: any("somebody else wrote" in fault for fault in f.status.faults), TIMEOUT
    )
    assert told is not None
    (fault, *_) = [fault for fault in told.status.faults if "somebody else wrote" in fault]
    assert f"step {step} is refused" in fault and last.follower.label in fault
    assert torch.equal(changed.view(torch.int16), last.model.columns.view(torch.int16))
    assert all(rank.follower.served.step == served for rank in engine.ranks)
    # A whole state comes, and with it what mends the damage.
    engine.switch(step)
    assert engine.holds(trainer.weights) and engine.verify() == 0
    engine.switch(trainer.publish())
    assert engine.holds(trainer.weights)


def test_of_two_copies_that_differ_one_is_refused(
    trainer: Trainer, engine: Engine
) -> None:
    """Both ranks hold "twice"; what the feed asks for is in "rows"."""
    engine.switch(trainer.step)
    twice = engine.ranks[0].model.twice
    twice.view(torch.int16)[:] ^= 1
    step = trainer.publish(0.5)
    # Which of the copies the feed got is chance; the other one is noticed by the rank that has it.
    told = engine.link.wait(
        lambda f: any(
            "somebody else wrote" in said
            for said in [*f.status.faults, *(rank.failure or "" for rank in f.ranks.values())]
        ),
        TIMEOUT,
    )
    assert told is not None
    engine.switch(step)
    assert engine.holds(trainer.weights)
    assert torch.equal(twice.view(torch.int16), trainer.weights["rows"].view(torch.int16))


def test_a_proof_of_all_weights_finds_a_single_bit(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    assert engine.verify() == 0
    engine.ranks[-1].model.odd.view(torch.int16)[4, 2] ^= 1
    with pytest.raises(wisp.WrongBaseError, match="somebody else wrote to it"):
        engine.verify()
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights) and engine.verify() == 0
    # Of what is held more than once, each copy counts.
    engine.ranks[0].model.twice.view(torch.int16)[95, 3] ^= 1
    with pytest.raises(wisp.WrongBaseError, match="holds other words than its peers"):
        engine.verify()


def test_a_feed_that_is_killed_is_followed_by_another(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    engine.switch(trainer.publish())
    os.kill(engine.link.known.pid, signal.SIGKILL)
    engine.switch(trainer.publish())
    assert engine.holds(trainer.weights) and engine.verify() == 0
    engine.switch(trainer.publish())
    assert engine.holds(trainer.weights)


def test_a_server_that_comes_late_takes_a_whole_state(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    for _ in range(3):
        engine.switch(trainer.publish())
    assert not engine.link.known.whole
    late = Engine(trainer, "late-")
    late.switch(trainer.step)
    assert late.holds(trainer.weights)
    step = trainer.publish()
    late.switch(step)
    engine.switch(step)
    assert late.holds(trainer.weights) and engine.holds(trainer.weights)
    assert late.verify() == 0 and engine.verify() == 0
    # Each serves what it likes; who goes is not missed.
    first = trainer.publish()
    engine.switch(first)
    engine.close()
    second = trainer.publish()
    late.switch(second)
    assert late.holds(trainer.weights) and late.verify() == 0
    late.close()


def test_what_one_server_cannot_decode_all_are_asked_for(trainer: Trainer) -> None:
    """A rank alone decodes; one that holds slices cannot, so that both get what was worked out."""
    alone = Engine(trainer, "alone-", ranks=1)
    alone.switch(trainer.step)
    alone.switch(trainer.publish())
    assert handed(alone.link)
    sliced = Engine(trainer, "sliced-")
    sliced.switch(trainer.step)
    assert sliced.holds(trainer.weights)
    for _ in range(2):
        step = trainer.publish()
        alone.switch(step)
        sliced.switch(step)
        assert alone.holds(trainer.weights) and sliced.holds(trainer.weights)
    assert not alone.link.known.moves[-1].deltas
    # Some steps of either kind, at once, over one that nobody switched to.
    alone.ranks[0].staged(trainer.publish())
    sliced.close()
    assert alone.link.wait(lambda f: len(f.ranks) == 1, TIMEOUT)
    for _ in range(2):
        alone.ranks[0].staged(trainer.publish())
    assert alone.link.known.moves[-1].deltas
    alone.switch(trainer.step)
    assert alone.holds(trainer.weights) and alone.verify() == 0
    alone.close()


def test_steps_beyond_a_whole_state_that_nobody_switched_to_are_decoded(trainer: Trainer) -> None:
    """Most of a whole state is rows of other values, not yet in memory."""
    trainer.publish(0.9)
    engine = Engine(trainer, ranks=1)
    for share in (0.05, 0.9, 0.05):
        engine.ranks[0].staged(trainer.publish(share))
    assert handed(engine.link)
    engine.switch(trainer.step)
    assert engine.holds(trainer.weights) and engine.verify() == 0
    engine.close()


def damage(delta: Path) -> None:
    """One byte, in the middle of it."""
    with open(delta, "r+b") as file:
        file.seek(delta.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


@pytest.mark.parametrize("engine", [1], indirect=True, ids=["decodes"])
@pytest.mark.parametrize("spoil", [Path.unlink, damage])
def test_deltas_that_are_gone_or_damaged_are_made_up_for_by_a_whole_state(
    trainer: Trainer, engine: Engine, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    """A rank that was held up finds nothing of what it was told of, or a disk failed it."""
    engine.switch(trainer.step)
    real, spoilt = stage_builder.decoded, []

    def decoded(before: Any, schema: Any, moves: Any, *more: Any) -> Any:
        if not spoilt:
            spoilt.extend(Path(delta) for move in moves for delta in move.deltas)
            for delta in spoilt:
                spoil(delta)
        return real(before, schema, moves, *more)

    monkeypatch.setattr(stage_builder, "decoded", decoded)
    engine.switch(trainer.publish())
    assert spoilt and engine.holds(trainer.weights)
    engine.switch(trainer.publish())
    assert engine.holds(trainer.weights) and engine.verify() == 0


@pytest.mark.parametrize("engine", [1], indirect=True, ids=["decodes"])
def test_a_delta_of_the_backlog_that_is_gone_holds_up_no_step(
    trainer: Trainer, engine: Engine
) -> None:
    """All ranks have staged it already."""
    engine.switch(trainer.step)
    engine.ranks[0].staged(trainer.publish())
    for delta in handed(engine.link):
        delta.unlink(missing_ok=True)
    engine.ranks[0].staged(trainer.publish())
    engine.switch(trainer.publish())
    assert engine.holds(trainer.weights) and engine.verify() == 0


@pytest.mark.parametrize("engine", [1], indirect=True, ids=["decodes"])
def test_deltas_that_all_ranks_serve_are_removed(trainer: Trainer, engine: Engine) -> None:
    engine.switch(trainer.step)
    seen: set[Path] = set()
    for _ in range(4):
        engine.switch(trainer.publish())
        seen |= set(handed(engine.link))
    assert len(seen) == 4 and sum(path.exists() for path in seen) <= 2


@pytest.mark.parametrize("scratch", [None, "scratch"])
def test_a_feed_leaves_no_deltas_behind(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scratch: str | None
) -> None:
    """Neither one that ends nor, once the next has begun, one that was killed."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    trainer.scratch = scratch and str(tmp_path / scratch)

    def left() -> set[Path]:
        return set(Path(trainer.scratch or temporary).rglob("handed-*"))

    engine = Engine(trainer, ranks=1)
    engine.switch(trainer.step)
    for _ in range(3):
        engine.ranks[0].staged(trainer.publish())
    assert len(left()) == 3
    pid = engine.link.known.pid
    os.kill(pid, signal.SIGKILL)
    engine.switch(trainer.publish())
    assert engine.link.known.pid != pid and left() <= set(handed(engine.link))
    engine.ranks[0].staged(trainer.publish())
    assert left()
    feed = engine.link._feed
    engine.close()
    assert feed is not None and feed.wait(TIMEOUT) == 0
    assert not left() and not any(temporary.iterdir())


STOPPED = """
import sys, threading
from pathlib import Path
from test_relay import Engine, Trainer
trainer = Trainer.__new__(Trainer)
folder = Path(sys.argv[1])
trainer.run, trainer.served = folder / "run", folder / "served"
from safetensors.torch import load_file
trainer.weights = trainer.initial = load_file(trainer.served / "model.safetensors")
engine = Engine(trainer, "stopped-")
for line in sys.stdin:
    engine.switch(int(line))
    print(engine.raised or engine.ranks[0].follower.served.step, flush=True)
"""


def test_a_server_that_is_stopped_holds_up_no_other(
    trainer: Trainer, engine: Engine, tmp_path: Path
) -> None:
    engine.switch(trainer.step)
    other = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)], cwd=Path(__file__).parent,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert other.stdin is not None and other.stdout is not None
    other.stdin.write(f"{trainer.step}\n")
    assert other.stdout.readline().strip() == str(trainer.step)
    os.kill(other.pid, signal.SIGSTOP)
    for _ in range(3):
        engine.switch(trainer.publish())
        assert engine.holds(trainer.weights)
    os.kill(other.pid, signal.SIGCONT)
    other.stdin.write(f"{trainer.step}\n")
    assert other.stdout.readline().strip() == str(trainer.step)
    assert engine.verify() == 0
    other.communicate(timeout=TIMEOUT)


def test_a_feed_keeps_what_is_in_proportion_to_the_changes(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, scale=6000)  # 37 M elements, 74 MB
    trainer.publish(0.01)
    trainer.publish(0.01)
    engine = Engine(trainer)
    engine.switch(trainer.step)
    changed = 0
    most = 0
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.005):
            most = max(most, memory_of_feed(engine.link))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(4):
        step = trainer.publish(0.01)
        engine.switch(step)
        moves = engine.link.known.moves
        changed = max(changed, sum(count for _, count in moves[-1].tensors))
    over.set()
    watcher.join()
    allowed = (64 << 20) + 4 * changed * (8 + 2)
    print(f"\nchanged {changed}, feed and shared memory at most {most / 1e6:.1f} MB of "
          f"{allowed / 1e6:.1f} allowed")  # fmt: skip
    assert engine.holds(trainer.weights) and most < allowed
    engine.close()
    trainer.publisher.close()


def memory_of_feed(link: FeedLink) -> int:
    """What the feed's process has for itself, and what its folder holds."""
    status = Path(f"/proc/{link.known.pid}/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    size = 0
    for path in link.folder.iterdir():
        try:
            size += path.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return own * 1024 + size


@pytest.mark.parametrize("codec", ["swift", "compact"])
def test_more_steps_than_are_taken_in_at_once_are_followed(tmp_path: Path, codec: str) -> None:
    """A feed that fell far behind takes them in in turns, and the ranks with it."""
    trainer = Trainer(tmp_path, scale=100, codec=codec)  # deltas must be less than an anchor
    trainer.publish(0.0002)
    engine = Engine(trainer)
    try:
        engine.switch(1)
        os.kill(engine.link.known.pid, signal.SIGSTOP)
        for _ in range(40):
            trainer.publish(0.0002)
        os.kill(engine.link.known.pid, signal.SIGCONT)
        engine.switch(41)
        assert engine.raised == []
        assert engine.holds(trainer.weights)
        assert engine.verify() == 0
    finally:
        engine.close()
        trainer.publisher.close()
