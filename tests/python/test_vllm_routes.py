"""What a server lets itself be told, and by whom; what it answers when its engines disagree.

The routes are the real ones behind real HTTP; in place of engines there are scripted ones.
"""

from __future__ import annotations

import asyncio
import os
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vllm_server import ENVIRONMENT

os.environ.update(ENVIRONMENT)
pytest.importorskip("vllm")

import httpx  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from prometheus_client import generate_latest  # noqa: E402

import wisp  # noqa: E402
from wisp.engine.feed.feed_link import FeedLink, FeedState  # noqa: E402
from wisp.engine.feed.feed_messages import (  # noqa: E402
    FeedPosition,
    FollowStatus,
    RankReport,
    RankState,
)
from wisp.vllm import identity, update_coordinator  # noqa: E402
from wisp.vllm.draft_model import draft_kind  # noqa: E402
from wisp.vllm.overview import Overview  # noqa: E402
from wisp.vllm.routes import WispRoutes  # noqa: E402
from wisp.vllm.settings import InitInfo, configured  # noqa: E402

HERE, ELSEWHERE = "127.0.0.1", "203.0.113.9"
STATE = "ab" * 32
IDENTITY = "0123456789abcdef" * 2


class Engines:
    """vLLM's client to its engine cores, as far as it is used; `answers` by method and engine."""

    def __init__(self, count: int) -> None:
        self.core_engines = [number.to_bytes(2, "little") for number in range(count)]
        self.engine_ranks_managed = list(range(count))
        self.calls: list[tuple[int, str]] = []
        self.answer: Callable[[int, str, tuple[Any, ...]], Any] = lambda *_: None

    async def call_utility_async(self, method: str, *args: Any) -> Any:
        """As DPLBAsyncMPClient: asks all, and gives the answer of the first."""
        calls = [self._call_utility_async(method, *args, engine=e) for e in self.core_engines]
        return (await asyncio.gather(*calls))[0]

    async def _call_utility_async(self, method: str, *args: Any, engine: bytes) -> Any:
        number = int.from_bytes(engine, "little")
        self.calls.append((number, method))
        return self.answer(number, method, args)


def config_of(engines: int, told: dict[str, Any] | None = None) -> Any:
    parallel = SimpleNamespace(world_size=1, data_parallel_size_local=engines, nnodes=1)
    return SimpleNamespace(
        parallel_config=parallel,
        additional_config={"wisp": told} if told else {},
        model_config=SimpleNamespace(model="/nowhere"),
        weight_transfer_config=SimpleNamespace(backend="wisp"),
    )


class Served:
    """Asks the routes of a server, from an address of one's choice."""

    def __init__(self, engines: Engines, told: dict[str, Any] | None, key: str | None) -> None:
        self.engines = engines
        self._told = told
        self._args = Namespace(
            weight_transfer_config={"backend": "wisp"}, api_key=[key] if key else None
        )

    def ask(self, *requests: tuple[str, str, Any], **how: Any) -> list[httpx.Response]:
        return asyncio.run(self._ask(requests, **how))

    async def _ask(
        self, requests: Any, client: str = HERE, headers: dict[str, str] | None = None
    ) -> list[httpx.Response]:
        app = FastAPI()
        app.state.args = self._args
        routes = WispRoutes()
        routes.attach_router(app)
        config = config_of(len(self.engines.core_engines), self._told)
        engine = SimpleNamespace(vllm_config=config, engine_core=self.engines)
        await routes.init_state(engine, app.state, self._args)
        transport = httpx.ASGITransport(app, client=(client, 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as http:
            found = [
                await http.request(method, path, json=body, headers=headers)
                for method, path, body in requests
            ]
        assert routes._server is not None
        routes._server._by_itself.cancel()
        return found


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Served]]:
    monkeypatch.setenv("WISP_ENGINE_ID", f"{os.getpid()}-test")

    def make(
        count: int = 1, told: dict[str, Any] | None = None, key: str | None = None
    ) -> Served:
        return Served(Engines(count), told, key)

    yield make
    identity.forget_engine()


def init(info: dict[str, Any]) -> tuple[str, str, Any]:
    return ("POST", "/wisp/init", {"init_info": info})


# --- who may name the run


def test_without_a_key_a_stranger_may_not_name_the_run(serve: Any) -> None:
    server = serve()
    (answer,) = server.ask(init({"run": "/etc"}), client=ELSEWHERE)
    assert answer.status_code == 403
    for cure in ("--api-key", "WISP_RUN", "WISP_ALLOW_INIT"):
        assert cure in answer.json()["error"]
    assert server.engines.calls == []


def test_without_a_key_a_program_of_the_same_host_may(serve: Any) -> None:
    for client in (HERE, "::1", "::ffff:127.0.0.1"):
        server = serve()
        (answer,) = server.ask(init({"run": "s3://bucket/run"}), client=client)
        assert answer.status_code == 200, answer.text
        assert server.engines.calls == [(0, "collective_rpc")]


def test_a_proxy_or_a_browser_of_the_host_is_not_such_a_program(serve: Any) -> None:
    for header in ("Origin", "X-Forwarded-For", "Forwarded", "Via"):
        server = serve()
        (answer,) = server.ask(init({"run": "s3://bucket/run"}), headers={header: "somebody"})
        assert answer.status_code == 403 and server.engines.calls == [], header


def test_an_operator_can_let_strangers_name_the_run_but_no_folders(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WISP_ALLOW_INIT", "1")
    server = serve()
    refused, taken = server.ask(
        init({"run": "s3://bucket/run", "scratch": "/root"}),
        init({"run": "s3://bucket/run"}),
        client=ELSEWHERE,
    )
    assert refused.status_code == 403 and "WISP_SCRATCH" in refused.json()["error"]
    assert taken.status_code == 200 and len(server.engines.calls) == 1


def test_with_a_key_its_holder_may(serve: Any) -> None:
    server = serve(key="hush")
    info = {"run": "s3://bucket/run", "scratch": "/fast"}
    (answer,) = server.ask(init(info), client=ELSEWHERE)
    assert answer.status_code == 401 and server.engines.calls == []
    key = {"Authorization": "Bearer hush"}
    (answer,) = server.ask(init(info), client=ELSEWHERE, headers=key)
    assert answer.status_code == 200 and len(server.engines.calls) == 1


def test_where_the_run_is_named_at_the_start_a_driver_needs_no_leave(serve: Any) -> None:
    server = serve(told={"run": "s3://bucket/run", "trust": ["ed25519:" + "ab" * 32]})
    seen: list[dict[str, Any]] = []
    server.engines.answer = lambda _, __, args: seen.append(args[3]["init_info"])
    taken, other, stricter = server.ask(
        init({"run": "s3://bucket/run", "scratch": "/root"}),
        init({"run": "s3://bucket/other"}),
        init({"run": "s3://bucket/run", "run_id": IDENTITY}),
        client=ELSEWHERE,
    )
    assert taken.status_code == 200 and other.status_code == 409
    assert stricter.status_code == 409 and "run_id" in stricter.json()["error"]
    # What the operator said, and not what the request did.
    assert [told["scratch"] for told in seen] == [None] and seen[0]["trust"]


# --- settings


def test_settings_for_no_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert configured(config_of(1)) is None
    for name, value in (("TRUST", "a.pub"), ("MIN_SERIAL", "3"), ("RUN_ID", IDENTITY)):
        with monkeypatch.context() as one:
            one.setenv(f"WISP_{name}", value)
            with pytest.raises(wisp.InvalidError, match=f"WISP_{name}: .*set WISP_RUN as well"):
                configured(config_of(1))
    with pytest.raises(wisp.InvalidError, match="run"):
        configured(config_of(1, {"trust": ["a.pub"]}))


def test_what_a_server_demands_reaches_its_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WISP_RUN", "s3://bucket/run")
    monkeypatch.setenv("WISP_MIN_SERIAL", "7")
    monkeypatch.setenv("WISP_RUN_ID", IDENTITY.upper())
    info = configured(config_of(1))
    assert info is not None
    feed = info.feed(None)
    assert (feed.min_serial, feed.run_id) == (7, IDENTITY)
    assert InitInfo(**info.as_dict()) == info
    for wrong in ({"run_id": "abc"}, {"min_serial": -1}, {"min_serial": "7"}):
        with pytest.raises(wisp.InvalidError):
            InitInfo(run="r", **wrong)
    monkeypatch.setenv("WISP_MIN_SERIAL", "seven")
    with pytest.raises(wisp.InvalidError, match="WISP_MIN_SERIAL is a number"):
        configured(config_of(1))


# --- several engines


class ScriptedLink:
    """In place of a link to a feed: a feed state that the test writes."""

    shown = FeedState()

    def __init__(self, settings: Any, *, starts: bool = True) -> None:
        self.known = ScriptedLink.shown

    def look(self) -> None:
        shown = ScriptedLink.shown
        status = replace(shown.status, passes=shown.status.passes + 1)
        ScriptedLink.shown = replace(shown, status=status)

    def wait(self, ready: Callable[[FeedState], bool], timeout: float | None) -> FeedState | None:
        self.known = ScriptedLink.shown
        return self.known if ready(self.known) else None

    def close(self) -> None:
        pass


def rank(served: int | None, staged: int) -> RankReport:
    def state(step: int) -> RankState:
        return RankState(step=step, seq=step, state=STATE)

    return RankReport(
        served=None if served is None else state(served),
        staged=state(staged),
        all_staged=(f"{staged}:{STATE}",),
    )


@pytest.fixture
def two(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A server of two engines that serve step 1 and have staged step 2."""
    monkeypatch.setattr(update_coordinator, "FeedLink", ScriptedLink)
    feed = FeedState(
        connected=True,
        status=FollowStatus(passes=1000, expired=True),
        at=FeedPosition(serial=2, step=2, seq=2, state=STATE),
        ranks={f"{identity.engine_id()}/{number}.0": rank(1, 2) for number in range(2)},
    )
    monkeypatch.setattr(ScriptedLink, "shown", feed)
    made = serve(2)
    identity.note_engine({"run": "s3://bucket/run"})
    return made


def test_what_an_engine_follows_is_swept_away_when_it_has_ended_and_not_before(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that share /dev/shm do not see each other's processes."""
    nobody = 2**22 + 1  # above the largest number that a process can have
    monkeypatch.setenv("WISP_ENGINE_ID", f"{nobody}-elsewhere")
    identity.note_engine({"run": "s3://bucket/theirs"})
    with monkeypatch.context() as here:
        here.setenv("WISP_ENGINE_ID", f"{os.getpid()}-test")
        here.setattr(identity, "_held", [])  # that of the other process
        identity.note_engine({"run": "s3://bucket/ours"})
        identity.forget_engine()
    assert identity.read_note() == {"run": "s3://bucket/theirs"}
    identity._let_go()  # as when it ends
    identity._sweep(identity.feed_home())
    assert identity.read_note() is None


UPDATE = ("POST", "/wisp/update", {"step": 2, "timeout": 0.5})
STATUS = ("GET", "/wisp/status", None)


def switched(number: int) -> dict[str, Any]:
    return {"key": f"2:{STATE}", "step": 2, "times": {}, "pause_seconds": 0.001 * (number + 1)}


def test_an_update_is_served_when_all_engines_serve_it(two: Served) -> None:
    two.engines.answer = lambda number, *_: switched(number)
    (answer,) = two.ask(UPDATE)
    assert answer.status_code == 200, answer.text
    assert answer.json()["served"] == 2 and answer.json()["pause_seconds"] == 0.002
    assert two.engines.calls == [(0, "wisp_update"), (1, "wisp_update")]


@pytest.mark.parametrize("again, code", [(False, 409), (True, 503)])
def test_an_engine_that_refuses_is_named_whichever_it_is(
    two: Served, again: bool, code: int
) -> None:
    def answer(number: int, *_: Any) -> dict[str, Any]:
        refusal = {"error": "rank 0: OSError: no room", "again": again, "pause_seconds": 0.0}
        return refusal if number == 1 else switched(number)

    two.engines.answer = answer
    ScriptedLink.shown.ranks[f"{identity.engine_id()}/0.0"] = rank(2, 2)
    update, status = two.ask(UPDATE, STATUS)
    assert update.status_code == code
    said = update.json()["error"]
    assert "engine 1: rank 0: OSError: no room" in said and "engine 0 serves step 2" in said
    told = status.json()
    assert told["served"] == 1 and told["engines"] == {"0": 2, "1": 1}
    assert said in told["faults"]


def test_who_asks_while_a_note_is_taken_in_waits_for_it(
    two: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task of self mode and a request look at the same time: both see the run or neither."""
    told: list[dict[str, Any]] = []
    coordinator = update_coordinator.UpdateCoordinator(config_of(2))
    other = threading.Thread(target=lambda: told.append(coordinator.status()))

    class SlowLink(ScriptedLink):
        def __init__(self, settings: Any, *, starts: bool = True) -> None:
            other.start()
            other.join(0.2)  # ends in it only where nobody is kept waiting
            super().__init__(settings, starts=starts)

    monkeypatch.setattr(update_coordinator, "FeedLink", SlowLink)
    assert coordinator.info() is not None
    other.join()
    assert told[0]["initialized"] and told[0]["staged"] == 2


@pytest.mark.parametrize("ask", ["ready", "wait_status"])
def test_who_waits_goes_on_at_the_new_link_when_what_is_followed_changes(
    two: Served, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    """As another request's POST /wisp/init does. A closed link returns from every wait at once."""
    links: list[ScriptedLink] = []
    staged = ScriptedLink.shown.ranks
    ScriptedLink.shown = replace(ScriptedLink.shown, ranks={})

    class ClosedLink(ScriptedLink):
        def __init__(self, settings: Any, *, starts: bool = True) -> None:
            super().__init__(settings, starts=starts)
            self.waits, self.closed = 0, False
            links.append(self)

        def wait(self, ready: Any, timeout: float | None) -> FeedState | None:
            self.waits += 1
            if len(links) == 1:
                identity.note_engine({"run": "s3://bucket/run", "allow_unused": ["x"]})
                assert coordinator.info() is not None  # of another thread
            else:
                ScriptedLink.shown = replace(ScriptedLink.shown, ranks=staged)
            return None if self.closed else super().wait(ready, timeout)

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(update_coordinator, "FeedLink", ClosedLink)
    coordinator = update_coordinator.UpdateCoordinator(config_of(2))
    if ask == "ready":
        assert coordinator.ready(2, 20).step == 2
    else:
        assert coordinator.wait_status(2, 20)["staged"] == 2
    assert [link.closed for link in links] == [True, False] and links[0].waits <= 2


def test_an_engine_that_breaks_is_named(two: Served) -> None:
    def answer(number: int, *_: Any) -> dict[str, Any]:
        if number == 1:
            raise RuntimeError("Call to wisp_update method failed: bus error")
        return switched(number)

    two.engines.answer = answer
    update, verify = two.ask(UPDATE, ("POST", "/wisp/verify", {}))
    assert update.status_code == 500
    assert "engine 1: Call to wisp_update method failed: bus error" in update.json()["error"]
    assert verify.status_code == 500 and "engine 1: " in verify.json()["error"]


def test_a_tensor_that_no_rank_knows_is_refused_before_any_engine_is_asked(two: Served) -> None:
    ranks = ScriptedLink.shown.ranks
    for number, unknown in enumerate([("elsewhere", "value_head"), ("value_head",)]):
        label = f"{identity.engine_id()}/{number}.0"
        ranks[label] = replace(ranks[label], unknown=unknown)
    update, status = two.ask(UPDATE, STATUS)
    assert update.status_code == 409 and not two.engines.calls
    assert "'value_head'" in update.json()["error"] and "elsewhere" not in update.json()["error"]
    assert status.json()["staged"] is None and update.json()["error"] in status.json()["faults"]


def test_what_another_rank_or_host_may_hold_is_left_to_the_ranks() -> None:
    def over(*unknown: tuple[str, ...], expected: int = 2, whole: bool = True) -> Overview:
        ranks = {f"engine/0.{n}": replace(rank(1, 2), unknown=u) for n, u in enumerate(unknown)}
        return Overview(FeedState(ranks=ranks), "engine", expected, whole)

    assert "'x'" in (over(("x",), ("x",)).refusal("") or "")
    assert over(("x",), ()).refusal("") is None
    assert over(("x",), ("x",), whole=False).refusal("") is None  # a rank elsewhere is not heard
    assert over(("x",), ("x",), expected=3).refusal("") is None
    assert over(("x",), ("x",)).refusal("allowed since") is None


# --- which step


@pytest.fixture
def one(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Served]:
    """A server of one engine, at the newest step of the run or behind it."""
    monkeypatch.setattr(update_coordinator, "FeedLink", ScriptedLink)

    def make(served: int, newest: int, **report: Any) -> Served:
        feed = FeedState(
            connected=True,
            status=FollowStatus(passes=1000),
            at=FeedPosition(serial=2, step=newest, seq=newest, state=STATE),
            ranks={f"{identity.engine_id()}/0.0": replace(rank(served, newest), **report)},
        )
        monkeypatch.setattr(ScriptedLink, "shown", feed)
        made = serve(1)
        identity.note_engine({"run": "s3://bucket/run"})
        return made

    return make


def update_to(step: Any) -> tuple[str, str, Any]:
    return ("POST", "/wisp/update", {"step": step, "timeout": 0.5})


def test_a_step_that_is_served_costs_no_pause(one: Any) -> None:
    server = one(6, 6)
    for answer in server.ask(update_to(6), update_to(None)):
        assert answer.status_code == 200
        assert answer.json()["moved"] is False and answer.json()["pause_seconds"] == 0
    assert server.engines.calls == []


@pytest.mark.parametrize("served", [6, 5])
def test_issue18_a_past_step_is_refused_without_a_pause(one: Any, served: int) -> None:
    server = one(served, 6)
    (answer,) = server.ask(update_to(3))
    assert answer.status_code == 409, answer.text
    assert f"step 3 is past: step {served} is served" in answer.json()["error"]
    assert server.engines.calls == []


def test_a_step_that_the_run_has_passed_before_it_was_served_means_the_newest(one: Any) -> None:
    server = one(4, 6)
    server.engines.answer = lambda number, *_: {**switched(number), "step": 6}
    (answer,) = server.ask(update_to(5))
    assert answer.status_code == 200 and answer.json()["served"] == 6


def test_issue18_what_is_no_step_is_no_request(one: Any) -> None:
    server = one(6, 6)
    for step in (-1, True, 1.5, "3"):
        (answer,) = server.ask(update_to(step))
        assert answer.status_code == 400, (step, answer.text)
    assert server.engines.calls == []


# --- coverage


def test_a_run_that_does_not_fit_is_refused_when_it_is_named(one: Any) -> None:
    server = one(6, 6, failure="the run does not write 'x'", refused=True, allowed="|")
    (answer,) = server.ask(init({"run": "s3://bucket/run"}))
    assert answer.status_code == 409 and "does not write 'x'" in answer.json()["error"]
    # The rank does not know yet of what is allowed now: what it says of before does not count.
    answer, stranger = (
        server.ask(init({"run": "s3://bucket/run", "allow_missing": ["x"]}), client=client)[0]
        for client in (HERE, ELSEWHERE)
    )
    assert server.engines.calls == [(0, "collective_rpc")]
    assert stranger.status_code == 403


def test_what_has_no_counterpart_shows_in_status_and_verify(one: Any) -> None:
    server = one(6, 6, missing=("x",), unused=("y",), ignored=("z",))
    server.engines.answer = lambda *_: [0]
    status, verify = server.ask(STATUS, ("POST", "/wisp/verify", {}))
    told = status.json()
    assert (told["missing"], told["unused"], told["ignored"]) == (["x"], ["y"], ["z"])
    assert verify.json() == {"differing": 0, "ranks": 1, "missing": ["x"], "unused": ["y"]}


def test_what_drafts_is_known_by_its_weights() -> None:
    def config(method: str, model: str | None) -> Any:
        draft = SimpleNamespace(model=model) if model else None
        speculative = SimpleNamespace(method=method, draft_model_config=draft)
        return SimpleNamespace(**vars(config_of(1)), speculative_config=speculative)

    assert draft_kind(config_of(1)) is None and draft_kind(config("ngram", None)) is None
    assert draft_kind(config("eagle", "/draft")) == "eagle"
    assert draft_kind(config("suffix", "/nowhere")) is None


def test_what_is_allowed_is_named_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WISP_RUN", "s3://bucket/run")
    monkeypatch.setenv("WISP_ALLOW_UNUSED", "lm_head.weight,visual.*")
    info = configured(config_of(1))
    assert info is not None and info.allowed.is_unused("visual.0.w")
    assert not info.allowed.is_unused("other") and not info.allowed.is_missing("lm_head.weight")
    for wrong in ("*", "", "**"):
        with pytest.raises(ValueError, match="names tensors"):
            InitInfo(run="r", allow_missing=[wrong])


def test_all_engines_are_verified(two: Served) -> None:
    two.engines.answer = lambda number, *_: [0, 5 * number]
    (answer,) = two.ask(("POST", "/wisp/verify", {}))
    assert answer.json() == {"differing": 5, "ranks": 4}


def test_an_engine_that_does_not_take_the_run_is_named_and_asked_again(serve: Any) -> None:
    server = serve(2)
    broken = True

    def answer(number: int, *_: Any) -> None:
        if number == 1 and broken:
            raise RuntimeError("packed weights")
        identity.note_engine({"run": "s3://bucket/run"})

    server.engines.answer = answer
    (refused,) = server.ask(init({"run": "s3://bucket/run"}))
    assert refused.status_code == 500 and "engine 1: packed weights" in refused.json()["error"]
    broken = False
    (taken,) = server.ask(init({"run": "s3://bucket/run"}))
    assert taken.status_code == 200
    assert [number for number, _ in server.engines.calls] == [0, 1, 0, 1]


def test_an_expired_run_shows_in_status_and_metrics(two: Served) -> None:
    (status,) = two.ask(STATUS)
    assert status.json()["expired"] is True
    shown = generate_latest().decode()
    assert "wisp_stale 1.0" in shown and "wisp_replica_step 1.0" in shown


def test_the_feed_tells_that_a_run_has_expired(tmp_path: Path) -> None:
    import numpy as np

    from wisp.engine.feed.feed_files import FeedSettings

    run = str(tmp_path / "run")
    with wisp.Publisher(run, {"w": np.zeros(10)}, expires_after=0.05) as publisher:
        publisher.publish(1)
    link = FeedLink(FeedSettings(run, poll=0.1))
    assert link.wait(lambda feed: feed.status.expired, 60) is not None
    link.close()
