"""Moves an engine from one step to the next: waits until all is staged, then has it switched."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..engine.feed.feed_link import FeedLink, FeedState
from ..engine.feed.feed_messages import FeedPosition
from ..engine.plan.coverage import listed
from ..errors import (
    ConflictError,
    Error,
    InternalError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from .draft_model import draft_kind
from .fan_out import Answer, named
from .identity import engine_id, read_note
from .metrics import SwitchMetrics
from .overview import Overview, phases_of
from .settings import InitInfo

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["UpdateCoordinator", "UpdateTarget"]

_log = logging.getLogger("wisp.engine")
_LOOK_AGAIN = 0.5
_TOLD = 2.0  # seconds; a busy machine needs tenths of one
_NOTHING_UNCOVERED: dict[str, list[str]] = {"missing": [], "unused": [], "ignored": []}


class UpdateTarget:
    """The state to switch to."""

    def __init__(self, at: FeedPosition, served: bool) -> None:
        self.step = at.step
        self.key = at.key
        self.served = served

    def answer(self) -> dict[str, Any]:
        """When the state is served already."""
        return {"served": self.step, "moved": False, "pause_seconds": 0.0, "phases": {}}


class UpdateCoordinator:
    """For one engine, in the process that serves its users. Blocking: call it from a thread."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        parallel = vllm_config.parallel_config
        self._expected = max(1, parallel.world_size * parallel.data_parallel_size_local)
        self._is_whole = parallel.nnodes == 1
        if not self._is_whole:
            self._expected = parallel.local_world_size
        self._told: dict[str, Any] | None = None  # the note that _followed comes of
        self._followed: tuple[InitInfo, FeedLink] | None = None
        self._noting = threading.Lock()
        self._config = vllm_config
        self._draft = draft_kind(vllm_config)
        self._switched_to = ""  # what ranks say of themselves arrives a little later
        self.faults: list[str] = []
        self.last: dict[str, float] = {}
        self.pause_seconds: float | None = None
        self.switches = SwitchMetrics()

    def info(self) -> InitInfo | None:
        """What the ranks follow, as they were told; None: nothing yet."""
        followed = self._following()
        return followed[0] if followed else None

    def _following(self) -> tuple[InitInfo, FeedLink] | None:
        """What the ranks follow, and the link to its feed: both or neither, also for threads that
        ask at the same time."""
        with self._noting:
            note = read_note()
            if note != self._told:
                self._let_go()
                if note is not None:
                    info = InitInfo(**note)
                    settings = info.feed(self._config.model_config.model)
                    self._followed = (info, FeedLink(settings, starts=False))
                self._told = note
            return self._followed

    def _let_go(self) -> None:
        if self._followed is not None:
            self._followed[1].close()
        self._told, self._followed, self._switched_to = None, None, ""

    def _required(self) -> FeedLink:
        followed = self._following()
        if followed is None:
            raise InvalidError(
                "this server does not follow a run yet; POST /wisp/init tells it which"
            )
        return followed[1]

    def _over(self, feed: FeedState) -> Overview:
        return Overview(feed, engine_id(), self._expected, self._is_whole)

    def status(self) -> dict[str, Any]:
        """What GET /wisp/status answers."""
        followed = self._following()
        empty = {
            "run": None, "mode": None, "initialized": False, "served": None, "staged": None,
            "head": None, "ranks": 0, "engines": {}, "expired": False,
            "faults": list(self.faults), "last": self.last, "draft": self._told_draft(None),
            **_NOTHING_UNCOVERED,
        }  # fmt: skip
        if followed is None:
            return empty
        info, link = followed
        feed = link.known
        over = self._over(feed)
        served, staged = over.served, over.staged
        faults = [*feed.status.faults, *self.faults, *filter(None, [over.failure])]
        return {
            "run": info.run, "mode": info.mode, "initialized": True,
            "served": served.step if served else None, "staged": staged.step if staged else None,
            "head": feed.at.step if feed.at else None, "ranks": len(over.ranks),
            "engines": over.engines, "expired": feed.status.expired,
            "served_seq": served.seq if served else None, "head_seq": feed.status.head_seq,
            "behind": feed.status.lag_steps, "state": served.state if served else None,
            "faults": faults[-20:], "last": self.last, "pause_seconds": self.pause_seconds,
            "draft": self._told_draft(over), **over.uncovered,
        }  # fmt: skip

    def _told_draft(self, over: Overview | None) -> str | None:
        if self._draft is None:
            return None
        own = (over.draft if over else None) or "stay as loaded until a run is followed"
        if over and over.staged and not over.draft:
            own = "are on no rank of this host; the log of the rank that drafts says of them"
        return (
            f"draft model ({self._draft}): what it shares with the served model follows; its own "
            f"weights {own}"
        )

    def wait_status(self, step: int, timeout: float) -> dict[str, Any]:
        """The status once the step is staged or served, or when the time is up."""
        end = time.monotonic() + timeout
        while True:
            followed = self._following()  # anew: who asks at the same time may have closed the link
            left = end - time.monotonic()
            if followed is None:
                time.sleep(min(0.05, max(0.0, left)))
            elif followed[1].wait(lambda f: _has(self._over(f), step), left) is not None:
                return self.status()
            if time.monotonic() >= end:
                return self.status()

    def ready(self, step: int | None, timeout: float) -> UpdateTarget:
        """Waits until every rank has staged `step`, or the newest (None).

        A run whose newest commit is another step, after a look that began now, is past it or was
        set back: then it is the newest that counts. ConflictError: what is served is past it.
        """
        if step is not None and step < 0:
            raise ValueError(f"steps are numbered from 0 on, and {step} is none")
        end = time.monotonic() + timeout
        link: FeedLink | None = None
        passes = 0
        while True:
            known, link = link, self._required()
            if link is not known:  # what is followed may change meanwhile, which closes the link
                link.look()
                seen = link.wait(lambda f: f.connected, min(end - time.monotonic(), 30.0))
                passes = seen.status.passes if seen else 0
            feed = link.known
            over = self._over(feed)
            looked = feed.status.passes >= passes + 2
            target = self._target(over, step, looked)
            if target is not None:
                return target
            if over.complete and over.failure and looked:
                raise InvalidError(over.failure)
            left = end - time.monotonic()
            if left <= 0:
                raise self._too_late(step, timeout, over)
            if not looked:
                link.look()
            link.wait(_changed(feed), min(left, _LOOK_AGAIN))

    def _target(self, over: Overview, step: int | None, looked: bool) -> UpdateTarget | None:
        at, served = over.feed.at, over.served
        if at is None:
            return None
        is_it = step in (None, at.step)
        there = at.key in (served.key if served else "", self._switched_to)
        if is_it and there:
            return UpdateTarget(at, True) if looked else None
        if looked and step is not None and step < at.step:
            reached = at.step if there else served.step if served else 0
            if step < reached:
                raise ConflictError(
                    f"step {step} is past: step {reached} is served, and the newest of the run is "
                    f"{at.step}; a server goes back only where the run does. Ask for {at.step}, or "
                    "for null, which is the newest"
                )
        if not looked and not (is_it and step is not None):
            return None
        if over.has_staged(at.key) and (is_it or at.step > (step or 0)):
            return UpdateTarget(at, False)
        return None

    def _too_late(self, step: int | None, timeout: float, over: Overview) -> Error:
        feed = over.feed
        newest = feed.at.step if feed.at else None
        if not over.complete:
            cause = f"{len(over.ranks)} of {self._expected} ranks are there"
        elif feed.status.failure:
            cause = feed.status.failure
        elif step is not None and newest is not None and newest < step:
            cause = f"the newest step of the run is {newest}"
        else:
            cause = "staging takes longer"
        wanted = "the newest step" if step is None else f"step {step}"
        kind = NotFoundError if "newest step of the run" in cause else UnavailableError
        return kind(f"{wanted} was not staged within {timeout:g} s: {cause}")

    def wait_fit(self, timeout: float) -> None:
        """Waits until the ranks know whether they can follow the run; InvalidError: they cannot.

        They may need longer, and say so in the status then.
        """
        followed = self._following()
        if followed is None:
            return
        info, link = followed
        allowed = info.allowed.key

        def known(feed: FeedState) -> bool:
            over = self._over(feed)
            empty = feed.at is None and (feed.status.passes > 0 or bool(feed.status.faults))
            return empty or over.refusal(allowed) is not None or over.staged is not None

        feed = link.wait(known, timeout)
        refusal = self._over(feed).refusal(allowed) if feed else None
        if refusal is not None:
            raise InvalidError(refusal)

    def wait_ahead(self, timeout: float) -> str | None:
        """The key of a staged state that is not served; None after `timeout` seconds."""
        followed = self._following()
        if followed is None:
            time.sleep(min(timeout, 0.1))
            return None
        feed = followed[1].wait(lambda f: self._over(f).is_ahead(), timeout)
        staged = self._over(feed).staged if feed else None
        return staged.key if staged else None

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of this host follow."""
        followed = self._followed
        return followed is not None and self._over(followed[1].known).complete

    def note_switch(self, key: str, answers: list[Answer]) -> dict[str, Any]:
        """Takes down what the engine cores answered; the answer to the request.

        All must have switched to `key`. If one has not, what is raised says which, and why; the
        others serve the step already, and the next switch brings those that are left.
        """
        refused = [a for a in answers if a.failure or "error" in a.value]
        if refused:
            self._switched_to = ""  # what is served where, the ranks say
            error = _refusal(key, answers, refused)
            self.faults = [*self.faults, str(error)][-20:]
            self.switches.refused()
            raise error
        answer = max((a.value for a in answers), key=lambda value: value["pause_seconds"])
        self._switched_to = key
        self.last = phases_of(answer["times"])
        self.pause_seconds = answer["pause_seconds"]
        self.switches.switched(answer["pause_seconds"])
        _log.info(
            "serves step %d; pause %.1f ms; %s", answer["step"], 1000 * answer["pause_seconds"],
            ", ".join(f"{name} {seconds:.4f} s" for name, seconds in self.last.items()),
        )  # fmt: skip
        self._log_uncovered()
        return {
            "served": answer["step"], "moved": True, "pause_seconds": answer["pause_seconds"],
            "phases": self.last,
        }  # fmt: skip

    def wait_told(self, key: str) -> None:
        """Waits until the ranks have told of a switch, so that a status after it shows it.

        Their words come by way of the feed: where it is gone or slow, nobody waits for long.
        """

        def told(feed: FeedState) -> bool:
            served = self._over(feed).served
            return not feed.connected or (served is not None and served.key == key)

        followed = self._followed
        if followed is not None:
            followed[1].wait(told, _TOLD)

    def _log_uncovered(self) -> None:
        followed = self._followed
        over = self._over(followed[1].known) if followed else None
        for kind, names in over.uncovered.items() if over else ():
            if names and kind != "ignored":
                _log.warning("%s, as was allowed: %s", kind, listed(names))


def _refusal(key: str, answers: list[Answer], refused: list[Answer]) -> Error:
    many = len(answers)
    causes = "; ".join(named(a, a.failure or a.value["error"], many) for a in refused)
    done = [str(answer.engine) for answer in answers if answer not in refused]
    if done:
        which = f"engine {done[0]} serves" if len(done) == 1 else f"engines {', '.join(done)} serve"
        causes += f"; {which} step {key.partition(':')[0]} already, the next update brings the rest"
    if any(answer.failure for answer in refused):
        return InternalError(causes)
    return (UnavailableError if all(a.value.get("again") for a in refused) else Error)(causes)


def _has(over: Overview, step: int) -> bool:
    states = [state for state in (over.staged, over.served) if state is not None]
    return any(state.step >= step for state in states)


def _changed(before: FeedState) -> Callable[[FeedState], bool]:
    return lambda feed: feed is not before


def self_owner() -> bool:
    """Of several API servers of one engine, exactly one moves it by itself."""
    import fcntl

    from ..engine.feed.feed_files import feed_home

    descriptor = os.open(feed_home() / f"self-{engine_id()}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True
