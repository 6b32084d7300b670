"""Every tensor of a run has its place in the served model, and every place its tensor, or it is said
which has none: at ranks of a real feed, with a small model in place of an engine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import wisp  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from wisp.engine.plan.coverage import CACHE_SCALES, Allowed, Coverage, agree, judge, region_of  # noqa: E402
from wisp.engine.feed.feed_files import FeedSettings  # noqa: E402
from wisp.engine.feed.feed_link import FeedLink  # noqa: E402
from wisp.engine.plan.load_plan import targets_of  # noqa: E402
from wisp.engine.plan.load_recorder import learn  # noqa: E402
from wisp.engine.rank.rank_follower import RankFollower  # noqa: E402
from wisp.engine.plan.served_checkpoint import open_served  # noqa: E402
from wisp.errors import InvalidError, UnavailableError, WrongBaseError  # noqa: E402

BF16 = torch.bfloat16
TIMEOUT = 60.0
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
UP, DOWN = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"


@pytest.fixture(params=["compact", "swift"])
def codec(request: pytest.FixtureRequest) -> str:
    return request.param


def weights(*, head: bool = True, rows: int = 24) -> dict[str, Any]:
    torch.manual_seed(0)
    shapes = {EMBED: (rows, 8), UP: (16, 8), GATE: (16, 8), DOWN: (8, 16)}
    if head:
        shapes[HEAD] = (rows, 8)
    return {name: torch.randn(shape).to(BF16) for name, shape in shapes.items()}


class Model(torch.nn.Module):
    """Loads as engines do: gate and up fused, the vocabulary padded, the head tied or its own."""

    def __init__(self, *, tied: bool, strict: bool = False) -> None:
        super().__init__()

        def parameter(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.zeros(shape, dtype=BF16), requires_grad=False)

        self.embed, self.gate_up, self.down = parameter(32, 8), parameter(32, 8), parameter(8, 16)
        self.head = self.embed if tied else parameter(32, 8)
        self.tied, self.strict = tied, strict

    def load(self, tensors: Any) -> None:
        for name, tensor in tensors:
            if name in (EMBED, HEAD):
                if name == HEAD and self.tied:
                    continue
                place = self.embed if name == EMBED else self.head
                assert tensor.shape[0] == 24
                place.data[:24].copy_(tensor)
                place.data[24:].fill_(0)
            elif name == GATE:
                self.gate_up.data[:16].copy_(tensor)
            elif name == UP:
                self.gate_up.data[16:].copy_(tensor)
            elif name == DOWN:
                self.down.data.copy_(tensor)
            elif self.strict:
                raise ValueError(f"There is no module or parameter named {name!r}")


class Rank:
    """One that follows a run of `published`, and was loaded from a folder with `served`."""

    def __init__(
        self, folder: Path, served: dict[str, Any], published: dict[str, Any], *, tied: bool,
        codec: str = "compact", strict: bool = False, kind: Any = Model, says_tied: bool = False,
        draft: Callable[[], Any] = lambda: None, **settings: Any,
    ) -> None:  # fmt: skip
        (folder / "served").mkdir()
        save_file(served, folder / "served" / "model.safetensors")
        self.tensors = {name: tensor.clone() for name, tensor in published.items()}
        self.publisher = wisp.Publisher(
            str(folder / "run"), self.tensors, codec=codec, on_error="raise"
        )
        self.model = kind(tied=tied, strict=strict)
        self.model.load(served.items())
        feed = FeedSettings(str(folder / "run"), poll=0.2, base=str(folder / "served"))
        self.step = 0
        self.follower = RankFollower(
            FeedLink(feed), self.model, self.model.load, label=f"{folder}/0",
            checkpoint=str(folder / "served"), tied=says_tied, draft=draft(), **settings,
        )  # fmt: skip

    def publish(self) -> None:
        self.step += 1
        self.publisher.publish(self.step)
        self.publisher.flush()

    def train(self, *names: str) -> None:
        for name in names or self.tensors:
            flat = self.tensors[name].view(torch.int16).view(-1)
            flat[self.step % 5 :: 7] ^= 3
        self.publish()

    def follow(self) -> None:
        self.follower.link.look()
        staged = self.follower.wait_staged(lambda s: s.step == self.step, TIMEOUT)
        assert staged is not None, self.follower.failure
        self.follower.switch(staged.key, lambda number, text: [(number, text)])

    def refusal(self) -> str:
        self.follower.link.look()
        told = self.follower.link.wait(lambda f: any(r.refused for r in f.ranks.values()), TIMEOUT)
        assert told is not None, self.follower.link.known
        (rank,) = told.ranks.values()
        assert rank.failure
        return rank.failure

    def report(self, ready: Callable[[Any], bool] = lambda report: True) -> Any:
        def found(feed: Any) -> bool:
            return any(ready(report) for report in feed.ranks.values())

        told = self.follower.link.wait(found, TIMEOUT)
        assert told is not None
        (report,) = told.ranks.values()
        return report

    def holds(self, parameter: Any, name: str) -> bool:
        rows = self.tensors[name].shape[0]
        return torch.equal(parameter.data[:rows].view(torch.int16), self.tensors[name].view(torch.int16))


@pytest.fixture
def rank(tmp_path: Path, codec: str) -> Iterator[Callable[..., Rank]]:
    made: list[Rank] = []

    def make(*args: Any, **settings: Any) -> Rank:
        made.append(Rank(tmp_path, *args, codec=codec, **settings))
        made[-1].publish()
        return made[-1]

    yield make
    for one in made:
        one.follower.close()
        one.publisher.close()


def test_a_run_that_lacks_a_tensor_is_refused_by_its_name(rank: Any) -> None:
    served = weights()
    published = {name: tensor for name, tensor in served.items() if name != DOWN}
    one = rank(served, published, tied=False)
    text = one.refusal()
    assert f"'{DOWN}'" in text and "allow_missing" in text and "would stay old" in text
    assert "publish all weights" in text and "tie_word_embeddings" not in text
    assert one.follower.wait_staged(lambda s: True, 0) is None


def test_half_of_a_fused_parameter_is_missed_too(rank: Any) -> None:
    served = weights()
    published = {name: tensor for name, tensor in served.items() if name != GATE}
    text = rank(served, published, tied=False).refusal()
    assert f"'{GATE}'" in text and UP not in text


def test_what_is_allowed_one_by_one_is_followed_and_reported_for_ever(rank: Any) -> None:
    served = weights()
    published = {name: tensor for name, tensor in served.items() if name != DOWN}
    published["extra.weight"] = torch.zeros(3, dtype=BF16)
    one = rank(
        served, published, tied=False, strict=True,
        allowed=Allowed(missing=(DOWN,), unused=("extra.*",)),
    )  # fmt: skip
    for _ in range(2):
        one.train()
        one.follow()
        report = one.report(lambda r: r.served is not None and r.served.step == one.step)
        assert report.missing == (DOWN,) and report.unused == ("extra.weight",)
        assert one.follower.verify() == 0 and one.holds(one.model.embed, EMBED)


def test_what_is_allowed_later_is_followed_from_then_on(rank: Any) -> None:
    served = weights()
    published = {name: tensor for name, tensor in served.items() if name != DOWN}
    one = rank(served, published, tied=False)
    assert DOWN in one.refusal()
    one.follower.allow(Allowed(missing=(DOWN,)))
    one.follow()
    assert one.report(lambda r: r.served is not None).missing == (DOWN,)


def test_a_tensor_that_no_rank_holds_is_refused(rank: Any) -> None:
    served = weights()
    text = rank(served, {**served, "extra.weight": torch.zeros(3, dtype=BF16)}, tied=False).refusal()
    assert "'extra.weight'" in text and "allow_unused" in text


def test_a_tensor_that_the_engine_ignores_in_its_own_folder_is_only_told(rank: Any) -> None:
    served = {**weights(), "rotary.inv_freq": torch.zeros(3, dtype=BF16)}
    one = rank(served, served, tied=False)
    one.train()
    one.follow()
    assert one.report(lambda r: r.served is not None).ignored == ("rotary.inv_freq",)


def test_a_loader_that_refuses_a_name_is_told_with_name_shape_and_cure(rank: Any) -> None:
    served = weights()
    adapter = {f"base_model.model.{UP[:-7]}.lora_A.weight": torch.zeros(2, 8, dtype=BF16)}
    text = rank(served, {**served, **adapter}, tied=False, strict=True).refusal()
    assert next(iter(adapter)) in text and "[2, 8]" in text and "adapter's names" in text


def test_another_architecture_is_told_as_that(rank: Any) -> None:
    other = {"transformer.h.0.attn.c_attn.weight": torch.zeros(8, 24, dtype=BF16)}
    text = rank(weights(), other, tied=False, strict=True).refusal()
    assert next(iter(other)) in text and "[8, 24]" in text and "another architecture" in text


def test_resized_embeddings_are_refused_with_both_shapes(rank: Any) -> None:
    text = rank(weights(), weights(rows=26), tied=False).refusal()
    assert f"'{EMBED}' is [26, 8] in the run and [24, 8] in the served folder" in text
    assert "resized its embeddings" in text


def test_another_size_of_a_layer_is_refused_with_both_shapes(rank: Any) -> None:
    served = weights()
    text = rank(served, {**served, DOWN: torch.zeros(8, 32, dtype=BF16)}, tied=False).refusal()
    assert f"'{DOWN}' is [8, 32] in the run and [8, 16] in the served folder" in text


# --- tied heads


def test_a_tied_run_is_followed_by_a_tied_server(rank: Any) -> None:
    one = rank(weights(head=False), weights(head=False), tied=True)
    one.train()
    one.follow()
    assert one.holds(one.model.embed, EMBED) and one.follower.verify() == 0


def test_a_tied_run_is_refused_by_a_server_with_a_head_of_its_own(rank: Any) -> None:
    text = rank(weights(), weights(head=False), tied=False).refusal()
    assert f"'{HEAD}'" in text and "tie_word_embeddings true" in text


def test_where_the_folder_says_tied_a_second_copy_follows_the_embedding(rank: Any) -> None:
    served = weights()
    served[HEAD] = served[EMBED].clone()
    published = {name: tensor for name, tensor in served.items() if name != HEAD}

    one = rank(served, published, tied=False, says_tied=True)
    for _ in range(2):
        one.train()
        one.follow()
        assert one.holds(one.model.embed, EMBED) and one.holds(one.model.head, EMBED)
        assert one.follower.verify() == 0


def test_a_head_that_is_published_beside_its_embedding_is_fine_while_equal(rank: Any) -> None:
    published = weights()
    published[HEAD] = published[EMBED].clone()
    one = rank(weights(head=False), published, tied=True)
    for _ in range(2):
        one.train()
        one.follow()
        assert one.holds(one.model.embed, EMBED) and one.follower.verify() == 0
    # They part: that step is not served, the one before is.
    one.train(HEAD)
    assert f"'{HEAD}' of the run has parted from '{EMBED}'" in one.refusal()
    one.step -= 1
    assert one.follower.served.step == one.step
    # And meet again.
    one.step += 1
    one.tensors[HEAD].copy_(one.tensors[EMBED])
    one.publish()
    one.follow()
    assert one.holds(one.model.embed, EMBED)


def test_a_head_that_has_parted_is_refused_by_a_server_that_ties_them(rank: Any) -> None:
    text = rank(weights(), weights(), tied=True).refusal()
    assert f"'{HEAD}' of the run has parted from '{EMBED}'" in text
    assert "tie_word_embeddings false" in text


# --- several ranks


def schema_of(tensors: dict[str, Any]) -> Any:
    return [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]


def test_what_one_rank_lacks_another_may_hold_but_one_must() -> None:
    model = Model(tied=False)
    served = learn(model.load, targets_of(model), schema_of(weights()))
    run = {**weights(), "second.half": torch.zeros(4), "nowhere": torch.zeros(4)}
    plan = learn(model.load, targets_of(model), schema_of(run))
    found = judge(served, plan, Allowed(), (), alone=False)
    assert set(found.absent) == {"second.half", "nowhere"} and not found.agreed
    elsewhere = (("nowhere",), (), ())
    with pytest.raises(InvalidError, match="'nowhere'"):
        agree(found, [found.said, elsewhere], Allowed())
    agree(found, [found.said, elsewhere], Allowed(unused=("nowhere",)))
    assert found.agreed and found.unused == ("nowhere",)


@pytest.mark.parametrize(
    ("said", "unused", "ignored"),
    [
        # Only the last rank of a pipeline has the draft, which uses the served model's embedding.
        ([(("draft.e",), (), ()), (("draft.e",), (), ("draft.e",))], (), ("draft.e",)),
        ([(("draft.e",), (), ()), (("draft.e",), (), ())], ("draft.e",), ()),
        # Of a layer that is elsewhere a rank cannot tell what the engine does with its tensors.
        ([(("scale",), (), ("scale",)), (("scale",), (), ())], ("scale",), ()),
        ([(("scale",), (), ("scale",)), (("scale",), (), ("scale",))], (), ("scale",)),
        ([(("scale",), (), ("scale",)), ((), (), ())], (), ()),
        ([(("head",), (), ()), (("head",), ("head",), ())], (), ()),
    ],
)
def test_all_ranks_come_to_the_same_from_what_all_said(said: Any, unused: Any, ignored: Any) -> None:
    """One that refuses what another goes on with would leave it waiting with its engine paused."""
    for own in said:
        found = Coverage((), own[0], own[2], dict.fromkeys(own[1], "embedding"))
        if unused:
            with pytest.raises(InvalidError, match=unused[0]):
                agree(found, said, Allowed())
        else:
            agree(found, said, Allowed())
        assert (found.unused, found.ignored, found.agreed) == (unused, ignored, not unused)


def test_ranks_that_were_allowed_different_tensors_do_not_part_ways(rank: Any) -> None:
    other = Allowed(unused=("x",)).key
    answers = [[other], [None]]  # None: what the rank itself says

    def share(mine: Any) -> list[Any]:
        return [mine, *((mine[0], key or mine[1]) for key in answers.pop(0))]

    one = rank(weights(), weights(), tied=False, share=share)
    with pytest.raises(UnavailableError, match="different allowed tensors"):
        one.follow()
    one.follow()
    assert one.holds(one.model.embed, EMBED)


def test_ranks_agree_on_it_before_the_first_switch_writes(tmp_path: Path) -> None:
    served = weights()
    said: list[Any] = []

    def share(mine: Any) -> list[Any]:
        said.append(mine)
        return [mine, mine]

    one = Rank(
        tmp_path, served, {**served, "extra.weight": torch.zeros(3, dtype=BF16)}, tied=False,
        share=share,
    )  # fmt: skip
    try:
        one.publish()
        before = one.model.embed.data.clone()
        with pytest.raises(UnavailableError, match=rf"rank 0: .*\(on host {socket.gethostname()}\)"):
            one.follower.switch("9:", lambda number, text: [(number, text)])
        with pytest.raises(InvalidError, match="'extra.weight'"):
            one.follow()
        assert said and torch.equal(before, one.model.embed.data)
        assert "extra.weight" in one.refusal()
        one.follower.allow(Allowed(unused=("extra.weight",)))
        one.follow()
        assert one.report(lambda r: r.served is not None).unused == ("extra.weight",)
    finally:
        one.follower.close()
        one.publisher.close()


def test_what_another_rank_may_hold_is_not_called_ignored(
    rank: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A rank of a pipeline loads nothing of the other's layers, neither of folder nor of run."""

    class First(Model):
        def load(self, tensors: Any) -> None:
            super().load((name, tensor) for name, tensor in tensors if name != DOWN)

    one = rank(weights(), weights(), tied=False, kind=First, share=lambda mine: [mine, (((), (), ()), mine[1])])
    with caplog.at_level("WARNING", "wisp.engine"):
        assert one.report(lambda r: r.staged is not None).ignored == ()
        one.follow()
        assert one.report(lambda r: r.served is not None).ignored == ()
    assert DOWN not in caplog.text


def test_an_older_report_is_never_told_after_a_newer_one(rank: Any) -> None:
    one = rank(weights(), weights(), tied=False)
    one.follow()
    told: list[str] = []
    tell, telling = one.follower.link.report, one.follower._telling

    class Overtaken:
        """Between making a report and telling it, another thread makes and tells its own."""

        def __enter__(self) -> None:
            one.follower._telling = telling
            one.follower.allow(Allowed(unused=("newer",)))
            telling.acquire()

        def __exit__(self, *raised: object) -> None:
            telling.release()

    def note(label: str, report: Any) -> None:
        told.append(report.allowed)
        tell(label, report)

    one.follower.link.report = note
    one.follower._telling = Overtaken()
    one.follower.allow(Allowed(unused=("older",)))
    assert Allowed(unused=("newer",)).key in told
    assert Allowed(unused=("older",)).key not in told


def test_a_loader_that_registers_a_parameter_anew_leaves_what_is_served_and_is_followed(
    rank: Any,
) -> None:
    shown: list[int] = []  # the memory that requests beside the loader read

    class Renewing(Model):
        def load(self, tensors: Any) -> None:
            def rest() -> Any:
                for name, tensor in tensors:
                    if name == DOWN:
                        fresh = torch.empty(8, 16, dtype=BF16)
                        self.down = torch.nn.Parameter(fresh, requires_grad=False)
                        shown.append(self.down.data_ptr())
                        self.down.data.copy_(tensor)
                    else:
                        yield name, tensor

            super().load(rest())

    one = rank(weights(), weights(), tied=False, kind=Renewing)
    one.report(lambda r: r.staged is not None)  # the loader has run for the plan
    served = one.model.down
    assert shown[-1] == served.data_ptr()
    for _ in range(2):
        one.train()
        one.follow()
        assert one.model.down.data_ptr() == served.data_ptr()
        assert one.holds(one.model.down, DOWN)
        assert one.follower.verify() == 0


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_what_a_parameter_holds_when_it_is_registered_is_followed(
    rank: Any, computed: bool, late: bool
) -> None:
    """As vLLM's classifiers do with `score.bias`: no write is ever seen."""

    class Ready(Model):
        def load(self, tensors: Any) -> None:
            def rest() -> Any:
                for name, tensor in tensors:
                    if name != DOWN:
                        yield name, tensor
                        continue
                    ready = tensor
                    if late:  # half of it is written to what was registered
                        ready = torch.zeros_like(tensor)
                        ready[:4].copy_(tensor[:4])
                    if computed:  # of all elements, so that the loader runs for each step
                        ready = ready - tensor.float().mean().to(BF16)
                    self.down = torch.nn.Parameter(ready, requires_grad=False)
                    if late:
                        ready[4:].copy_(tensor[4:])

            super().load(rest())

    one = rank(weights(), weights(), tied=False, kind=Ready)
    served = one.model.down
    one.follow()
    for _ in range(2):
        one.train()
        one.follow()
        fresh = Ready(tied=False)
        fresh.load((n, t.clone()) for n, t in one.tensors.items())
        # Not the object: a loader that runs for the plan registers another over the same memory.
        assert one.model.down.data_ptr() == served.data_ptr()
        assert torch.equal(served.data.view(torch.int16), fresh.down.data.view(torch.int16))
        assert one.follower.verify() == 0
    assert one.report().ignored == ()


def test_a_part_of_a_tensor_that_becomes_a_parameter_is_refused_by_its_name(rank: Any) -> None:
    class Cutting(Model):
        def load(self, tensors: Any) -> None:
            def rest() -> Any:
                for name, tensor in tensors:
                    if name == DOWN:
                        self.down = torch.nn.Parameter(tensor.clone()[:4], requires_grad=False)
                    else:
                        yield name, tensor

            super().load(rest())

    one = rank(weights(), weights(), tied=False, kind=Cutting)
    assert "puts down into new memory" in one.refusal()


def test_a_parameter_that_only_the_run_would_make_is_refused_and_never_served(rank: Any) -> None:
    class Growing(Model):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.register_parameter("bias", None)

        def load(self, tensors: Any) -> None:
            def rest() -> Any:
                for name, tensor in tensors:
                    if name == "bias":
                        self.bias = torch.nn.Parameter(tensor, requires_grad=False)
                    else:
                        yield name, tensor

            super().load(rest())

    extra = {"bias": torch.ones(8, dtype=BF16)}
    one = rank(weights(), {**weights(), **extra}, tied=False, kind=Growing)
    assert "makes a parameter 'bias'" in one.refusal()
    assert one.model.bias is None


def test_a_loader_that_moves_a_parameter_unseen_is_refused_by_its_name(rank: Any) -> None:
    class Moving(Model):
        def load(self, tensors: Any) -> None:
            super().load(tensors)
            self.down.data = self.down.data.clone()

    one = rank(weights(), weights(), tied=False, kind=Moving)
    held = one.model.down.data_ptr()
    assert "puts down into new memory" in one.refusal()
    assert one.model.down.data_ptr() == held


# --- the served folder


def test_a_file_outside_the_index_is_not_read_as_engines_do_not(tmp_path: Path) -> None:
    tensors = weights()
    save_file({EMBED: tensors[EMBED]}, tmp_path / "model-00001-of-00002.safetensors")
    rest = {name: tensor for name, tensor in tensors.items() if name != EMBED}
    save_file(rest, tmp_path / "model-00002-of-00002.safetensors")
    stale = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    save_file({**stale, "other": torch.zeros(2)}, tmp_path / "zz-left-behind.safetensors")
    where = {
        name: f"model-0000{1 if name == EMBED else 2}-of-00002.safetensors" for name in tensors
    }
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    schema, read = open_served(str(tmp_path))
    assert {name for name, _, _ in schema} == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(read(name), tensor.view(-1).view(torch.int16)), name


def test_a_tensor_in_two_files_without_an_index_is_told_as_that(tmp_path: Path) -> None:
    save_file(weights(), tmp_path / "model.safetensors")
    save_file(weights(), tmp_path / "old.safetensors")
    with pytest.raises(WrongBaseError, match=r"model.safetensors and in old.safetensors"):
        open_served(str(tmp_path))
    (tmp_path / "old.safetensors").unlink()
    assert len(open_served(str(tmp_path))[0]) == len(load_file(tmp_path / "model.safetensors"))


def test_a_region_is_the_same_for_the_same_bytes() -> None:
    memory = torch.zeros(6, 8, dtype=BF16)
    assert region_of(memory[2:4]) == region_of(memory.view(-1)[16:32]) == (32, ((32, 1),))
    assert region_of(memory[:, 2:4]) == (4, ((6, 16), (4, 1)))


def test_scales_that_the_engine_has_used_up_are_not_called_ignored(rank: Callable[..., Rank]) -> None:
    scale = {"model.layers.0.self_attn.attn.k_scale": torch.ones(1)}
    served = {**weights(), **scale}
    one = rank(served, served, tied=False, consumed=CACHE_SCALES)
    refusal = one.refusal()
    assert "'model.layers.0.self_attn.attn.k_scale'" in refusal and "--kv-cache-dtype" in refusal
    one.follower.allow(Allowed(unused=("*.k_scale",)))
    one.follow()


@pytest.mark.parametrize("by_loader", [False, True])
def test_a_table_may_be_made_anew_by_a_forward_pass_and_not_by_the_loader(
    rank: Callable[..., Rank], by_loader: bool
) -> None:
    class Rotary(Model):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.register_buffer("table", torch.ones(4), persistent=False)

        def renew(self) -> None:
            self.table = self.table.clone()

        def load(self, tensors: Any) -> None:
            super().load(tensors)
            if by_loader:
                self.renew()
            else:
                beside = threading.Thread(target=self.renew)
                beside.start()
                beside.join()

    one = rank(weights(), weights(), tied=False, kind=Rotary)
    if by_loader:
        table = one.model.table
        assert "puts table into new memory" in one.refusal()
        assert one.model.table is table
        return
    one.follow()
    one.train()
    one.follow()
    assert one.holds(one.model.embed, EMBED)
