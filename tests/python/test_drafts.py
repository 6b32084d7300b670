"""A draft model beside a served one: at ranks of a real feed, with small models in place of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from test_coverage import (  # noqa: E402, F401 - the last two are fixtures
    BF16,
    EMBED,
    HEAD,
    Model,
    Rank,
    codec,
    rank,
    weights,
)
from wisp.engine.rank import rank_plan  # noqa: E402
from wisp.engine.plan.draft_loader import Draft, DraftLoader, unreachable  # noqa: E402
from wisp.errors import WrongBaseError  # noqa: E402

OWN = {"fc.weight": (8, 16), "norm.weight": (8,), "embed_tokens.weight": (24, 8)}


class Guesser(torch.nn.Module):
    """Shares the embedding with the served model, whatever its folder says of one."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.embed = model.embed
        self.fc = torch.nn.Parameter(torch.zeros(8, 16, dtype=BF16), requires_grad=False)
        self.norm = torch.nn.Parameter(torch.zeros(8, dtype=BF16), requires_grad=False)
        self.doubles = self.exponential = False

    def load(self, tensors: Any) -> None:
        for name, tensor in tensors:
            if name.endswith("fc.weight"):
                self.fc.data.copy_(tensor.flip(0) @ tensor.T @ tensor if self.doubles else tensor)
            elif name.endswith("norm.weight"):
                self.norm.data.copy_(tensor.exp() if self.exponential else tensor)
            elif name.endswith("embed_tokens.weight"):
                self.embed.data[:24].copy_(tensor)


def own_weights(prefix: str) -> dict[str, Any]:
    torch.manual_seed(1)
    return {prefix + name: torch.randn(shape).to(BF16) for name, shape in OWN.items()}


@pytest.fixture
def drafted(tmp_path: Path, rank: Callable[..., Rank]) -> Callable[..., tuple[Rank, Guesser]]:  # noqa: F811
    """A rank with a draft of a folder of its own, that follows a run with `published` beside."""

    def make(published: dict[str, Any], **settings: Any) -> tuple[Rank, Guesser]:
        folder = tmp_path / "draft"
        folder.mkdir()
        save_file(own_weights(""), folder / "model.safetensors")
        found: list[Guesser] = []

        class Both(Model):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                found.append(Guesser(self))

        def load(tensors: Any) -> None:
            found[0].load(tensors)

        def draft() -> Draft:
            guesser = found[0]
            guesser.exponential = settings.get("exponential", False)
            for name, tensor in own_weights("").items():
                if not name.startswith("embed"):
                    guesser.load([(name, tensor)])
            guesser.doubles = settings.get("doubles", False)
            return Draft(guesser, load, str(folder), obstacle=settings.get("obstacle", ""))

        one = rank(weights(), {**weights(), **published}, tied=False, kind=Both, draft=draft)
        return one, found[0]

    return make


def told(one: Rank, text: str) -> Any:
    return one.report(lambda report: text in report.draft)


def test_what_a_draft_has_of_its_own_follows_a_run_that_holds_it(drafted: Any) -> None:
    one, guesser = drafted(own_weights("draft."))
    one.follow()
    for _ in range(3):
        one.train()
        one.follow()
        assert one.holds(guesser.fc, "draft.fc.weight")
        assert one.holds(guesser.norm, "draft.norm.weight")
        assert one.holds(one.model.embed, EMBED)  # and not the draft's own, which it does not use
        assert one.holds(one.model.head, HEAD)
        assert one.follower.verify() == 0
    assert told(one, "follow the run, 2 tensors").ignored == ("draft.embed_tokens.weight",)
    guesser.fc.data[0, 0] += 1
    with pytest.raises((AssertionError, WrongBaseError)):  # counted, or found by the sum of all
        assert one.follower.verify() == 0


def test_a_draft_that_the_run_lacks_stays_as_loaded(drafted: Any) -> None:
    one, guesser = drafted({})
    before = guesser.fc.data.clone()
    one.follow()
    one.train()
    one.follow()
    assert torch.equal(guesser.fc.data, before) and one.holds(one.model.embed, EMBED)
    report = told(one, "since the run does not hold them")
    assert not report.missing and not report.unused


def test_half_a_draft_is_refused(drafted: Any) -> None:
    published = own_weights("draft.")
    del published["draft.norm.weight"]
    one, _ = drafted(published)
    assert "does not write 'draft.norm.weight'" in one.refusal()


def test_a_draft_that_cannot_follow_does_not_hold_up_the_served_model(drafted: Any) -> None:
    one, guesser = drafted({}, obstacle="it is quantised")
    one.follow()
    told(one, "stay as loaded, so that fewer of its tokens may be accepted as training goes on: it is")


def test_a_draft_that_nobody_gets_at_does_not_hold_up_the_served_model(
    rank: Callable[..., Rank],  # noqa: F811
) -> None:
    one = rank(weights(), weights(), tied=False, draft=lambda: unreachable("it is elsewhere"))
    one.follow()
    told(one, "as training goes on: it is elsewhere")


def test_a_draft_whose_loader_breaks_does_not_hold_up_the_served_model(
    drafted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> Any:
        raise TypeError("another make of layers")

    monkeypatch.setattr(DraftLoader, "learn_own", breaks)
    one, guesser = drafted({})
    before = guesser.fc.data.clone()
    for _ in range(2):
        one.follow()
        one.train()
    assert torch.equal(guesser.fc.data, before) and one.follower.verify() == 0
    told(one, "as training goes on: TypeError: another make of layers")


def test_a_draft_whose_loader_computes_stays(drafted: Any) -> None:
    one, _ = drafted({}, doubles=True)
    one.follow()
    told(one, "computes with all of")


def test_a_draft_whose_function_looks_at_the_place_of_an_element_stays(
    drafted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loader runs again for a draft, so that its changed elements would be rounded otherwise."""
    steady = rank_plan.is_steady
    monkeypatch.setattr(
        rank_plan, "is_steady", lambda f, values: "exp" not in repr(f) and steady(f, values)
    )
    one, guesser = drafted({}, exponential=True)
    before = guesser.norm.data.clone()
    one.follow()
    told(one, "computes with all of 'draft.norm.weight'")
    one.train()
    one.follow()
    assert torch.equal(guesser.norm.data, before) and one.holds(one.model.embed, EMBED)


def test_a_run_with_a_draft_is_refused_where_none_is_served(rank: Callable[..., Rank]) -> None:  # noqa: F811
    one = rank(weights(), {**weights(), **own_weights("draft.")}, tied=False, strict=True)
    assert "draft model's: start the server with it" in one.refusal()
