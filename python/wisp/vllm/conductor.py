"""Moves an engine from one step to the next: waits until all is staged, then has it switched."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Error, Internal, Invalid, NotFound, Unavailable
from ..feed_link import Board, FeedLink
from ..rank_follower import state_key
from .fan_out import Answer, named
from .identity import engine_id, read_note
from .overview import Overview, phases_of
from .settings import InitInfo

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["Conductor", "Target"]

_log = logging.getLogger("wisp.engine")
_LOOK_AGAIN = 0.5


class Target:
    """The state to switch to."""

    def __init__(self, at: dict[str, Any], served: bool) -> None:
        self.step: int = at["step"]
        self.key = state_key(at["step"], at["state"])
        self.served = served

    def answer(self) -> dict[str, Any]:
        """For whoever asked for what is served already."""
        return {"served": self.step, "moved": False, "pause_seconds": 0.0, "phases": {}}


class Conductor:
    """For one engine, in the process that its users talk to. Blocking: call it from a thread."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        parallel = vllm_config.parallel_config
        self._expected = max(1, parallel.world_size * parallel.data_parallel_size_local)
        if parallel.nnodes > 1:
            self._expected = parallel.local_world_size
        self._link: FeedLink | None = None
        self._note: dict[str, Any] | None = None
        self._config = vllm_config
        self._switched_to = ""  # what ranks say of themselves arrives a little later
        self.faults: list[str] = []
        self.last: dict[str, float] = {}
        self.pause_seconds: float | None = None

    def info(self) -> InitInfo | None:
        """What the ranks follow, as they were told; None: nothing yet."""
        note = read_note()
        if note != self._note:
            if self._link is not None:
                self._link.close()
            self._link, self._note, self._switched_to = None, note, ""
            if note is not None:
                settings = InitInfo(**note).feed(self._config.model_config.model)
                self._link = FeedLink(settings, starts=False)
        return None if note is None else InitInfo(**note)

    def _required(self) -> FeedLink:
        if self.info() is None or self._link is None:
            raise Invalid("this server does not follow a run yet; POST /wisp/init tells it which")
        return self._link

    def _over(self, board: Board) -> Overview:
        return Overview(board, engine_id(), self._expected)

    def status(self) -> dict[str, Any]:
        """What GET /wisp/status answers."""
        info = self.info()
        empty = {
            "run": None, "mode": None, "initialized": False, "served": None, "staged": None,
            "head": None, "ranks": 0, "engines": {}, "expired": False, "faults": list(self.faults), "last": self.last,
        }  # fmt: skip
        if info is None or self._link is None:
            return empty
        board = self._link.board
        over = self._over(board)
        served, staged = over.served, over.staged
        faults = [*board.faults, *self.faults, *filter(None, [over.failure])]
        return {
            "run": info.run, "mode": info.mode, "initialized": True,
            "served": served and served["step"], "staged": staged and staged["step"],
            "head": board.at and board.at["step"], "ranks": len(over.ranks),
            "engines": over.engines, "expired": board.expired, "served_seq": served and served["seq"], "head_seq": board.head_seq,
            "behind": board.lag, "state": served and served["state"],
            "faults": faults[-20:], "last": self.last, "pause_seconds": self.pause_seconds,
        }  # fmt: skip

    def wait_status(self, step: int, timeout: float) -> dict[str, Any]:
        """The status once the step is staged or served, or when the time is up."""
        end = time.monotonic() + timeout
        while True:
            if self.info() is not None and self._link is not None:
                self._link.wait(lambda b: _has(self._over(b), step), end - time.monotonic())
                return self.status()
            if time.monotonic() >= end:
                return self.status()
            time.sleep(min(0.05, max(0.0, end - time.monotonic())))

    def ready(self, step: int | None, timeout: float) -> Target:
        """Waits until every rank has staged `step`, or the newest (None).

        A run whose newest commit is another step, after a look that began now, is past it or was
        set back: then it is the newest that counts.
        """
        link = self._required()
        end = time.monotonic() + timeout
        link.look()
        seen = link.wait(lambda b: b.connected, min(timeout, 30.0))
        passes = seen.passes if seen else 0
        while True:
            board = link.board
            over = self._over(board)
            at, served = board.at, over.served
            key = state_key(at["step"], at["state"]) if at else ""
            looked = board.passes >= passes + 2
            is_it = at is not None and step in (None, at["step"])
            is_served = key and key in ((served or {}).get("key"), self._switched_to)
            if at is not None and is_it and is_served:
                if looked:
                    return Target(at, True)
            elif at is not None and (looked or (is_it and step is not None)):
                if over.has_staged(key) and (is_it or at["step"] > (step or 0)):
                    return Target(at, False)
            if over.complete and over.failure and looked:
                raise Invalid(over.failure)
            left = end - time.monotonic()
            if left <= 0:
                raise self._too_late(step, timeout, over)
            if not looked:
                link.look()
            link.wait(_changed(board), min(left, _LOOK_AGAIN))

    def _too_late(self, step: int | None, timeout: float, over: Overview) -> Error:
        board = over.board
        newest = board.at and board.at["step"]
        if not over.complete:
            cause = f"{len(over.ranks)} of {self._expected} ranks are there"
        elif board.failure:
            cause = board.failure
        elif step is not None and newest is not None and newest < step:
            cause = f"the newest step of the run is {newest}"
        else:
            cause = "staging takes longer"
        wanted = "the newest step" if step is None else f"step {step}"
        kind = NotFound if "newest step of the run" in cause else Unavailable
        return kind(f"{wanted} was not staged within {timeout:g} s: {cause}")

    def wait_ahead(self, timeout: float) -> str | None:
        """The key of a staged state that is not served; None after `timeout` seconds."""
        if self.info() is None or self._link is None:
            time.sleep(min(timeout, 0.1))
            return None
        board = self._link.wait(lambda b: self._over(b).is_ahead(), timeout)
        staged = self._over(board).staged if board else None
        return staged["key"] if staged else None

    @property
    def is_complete(self) -> bool:
        """Whether all ranks of this host follow."""
        return self._link is not None and self._over(self._link.board).complete

    def note_switch(self, key: str, answers: list[Answer]) -> dict[str, Any]:
        """Takes down what the engine cores answered; the answer for whoever asked.

        All must have switched to `key`. If one has not, what is raised says which, and why; the
        others serve the step already, and the next switch brings those that are left.
        """
        refused = [a for a in answers if a.failure or "error" in a.value]
        if refused:
            self._switched_to = ""  # what is served where, the ranks say
            error = _refusal(key, answers, refused)
            self.faults = [*self.faults, str(error)][-20:]
            raise error
        answer = max((a.value for a in answers), key=lambda value: value["pause_seconds"])
        self._switched_to = key
        self.last = phases_of(answer["times"])
        self.pause_seconds = answer["pause_seconds"]
        _log.info(
            "serves step %d; pause %.1f ms; %s", answer["step"], 1000 * answer["pause_seconds"],
            ", ".join(f"{name} {seconds:.4f} s" for name, seconds in self.last.items()),
        )  # fmt: skip
        return {
            "served": answer["step"], "moved": True, "pause_seconds": answer["pause_seconds"],
            "phases": self.last,
        }  # fmt: skip

    def close(self) -> None:
        """Lets go of the feed."""
        if self._link is not None:
            self._link.close()


def _refusal(key: str, answers: list[Answer], refused: list[Answer]) -> Error:
    many = len(answers)
    causes = "; ".join(named(a, a.failure or a.value["error"], many) for a in refused)
    done = [str(answer.engine) for answer in answers if answer not in refused]
    if done:
        which = f"engine {done[0]} serves" if len(done) == 1 else f"engines {', '.join(done)} serve"
        causes += f"; {which} step {key.partition(':')[0]} already, the next update brings the rest"
    if any(answer.failure for answer in refused):
        return Internal(causes)
    return (Unavailable if all(a.value.get("again") for a in refused) else Error)(causes)


def _has(over: Overview, step: int) -> bool:
    states = [state for state in (over.staged, over.served) if state is not None]
    return any(state["step"] >= step for state in states)


def _changed(before: Board) -> Callable[[Board], bool]:
    return lambda board: board is not before


def self_owner() -> bool:
    """Of several API servers of one engine, exactly one moves it by itself."""
    import fcntl

    from ..feed_files import feed_home

    descriptor = os.open(feed_home() / f"self-{engine_id()}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True
