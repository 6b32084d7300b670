"""Servers that generate, told which step to serve: vLLM and SGLang, over HTTP."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType

from .. import _native
from ..reports import Table, give_repr, human_seconds
from ..runs import TrustedKeys, trust_of

__all__ = ["Driver", "Report"]

#: What one server answered: url, engine, ok, served, moved, initialized, pause_seconds, seconds,
#: phases, faults, error, error_kind.
Report = _native.EngineReport


class Driver:
    """Brings servers to the steps of a run, all at once, each on a thread of its own.

    Nothing is sent but the run's address and a step: the servers fetch, prove and apply the step
    themselves. A server that is dead, slow or wrong never holds the others, and is tried again in
    the background; one that comes back is set up again and brought to the newest step in one move.

    run: the run as the servers see it, e.g. "s3://bucket/run"; a path must be the same on all
      hosts.
    servers: addresses of vLLM servers, "http://host:port"; `sglang`: of SGLang servers.
    mode: what becomes of requests under way: "keep" (they wait), "wait" (they end first), "abort".
    timeout: seconds for setting a server up, and for staging a step with the switch.
    trust: public keys (text or files) that the servers are to trust; `min_serial`, `run_id`: what
        they are to demand of certificates and run, as of a wisp.Follower.
    api_key: for servers started with --api-key; WISP_API_KEY by default. Sent to them alone.
    watch: seconds between looks at servers between two updates; 0: never.
    on_report: called with a `Report` of every move, failure and recovery, on another thread.
    """

    def __init__(
        self,
        run: str | os.PathLike[str],
        servers: Sequence[str] = (),
        *,
        sglang: Sequence[str] = (),
        mode: str = "keep",
        timeout: float = 300.0,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        api_key: str | None = None,
        connect_timeout: float = 5.0,
        answer_timeout: float = 15.0,
        watch: float = 5.0,
        on_report: Callable[[Report], object] | None = None,
    ) -> None:
        self._run = os.fspath(run)
        self._session = _native.DriveSession(
            self._run,
            list(servers),
            list(sglang),
            os.environ.get("WISP_API_KEY", "") if api_key is None else api_key,
            trust_of(trust, min_serial, run_id),
            mode,
            timeout,
            connect_timeout,
            answer_timeout,
            watch,
            on_report,
        )
        _open.add(self)

    def update(self, step: int, *, state: str = "") -> Table[Report]:
        """All servers to `step`; returns when each is there or has failed.

        Never raises because of a server: look at `ok` and `error`. One that was away before is
        waited for no longer than a second. `state` is anything that tells two states of one step
        apart, such as a digest: a step that was published anew after a rewind is taken anew.
        """
        return _table(self._session.update(step, state))

    def aim(self, step: int, *, state: str = "") -> None:
        """As update(), but returns at once; `on_report` and latest() tell what became of it."""
        self._session.aim(step, state)

    def status(self) -> Table[Report]:
        """Asks every server what it serves, and moves none."""
        return _table(self._session.look())

    def latest(self) -> Table[Report]:
        """The last report of each server, without asking."""
        return _table(self._session.latest())

    def close(self) -> None:
        """Ends what is under way; a server that was paused is resumed first."""
        _open.discard(self)
        self._session.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Driver of {self._run}>"


def _table(reports: list[Report]) -> Table[Report]:
    return Table(
        reports,
        {
            "server": lambda r: r.url,
            "step": lambda r: "-" if r.served is None else str(r.served),
            "paused": lambda r: human_seconds(r.pause_seconds) if r.moved else "-",
            "took": lambda r: human_seconds(r.seconds),
            "error": lambda r: r.error or "-",
        },
    )


#: Their threads may call Python, and must be gone before the interpreter is.
_open: weakref.WeakSet[Driver] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for driver in list(_open):
        driver.close()


give_repr(
    Report,
    lambda r: [
        ("", r.url),
        ("step", str(r.served)),
        *([("paused", human_seconds(r.pause_seconds))] if r.moved else []),
        *([("error", r.error)] if r.error else []),
    ],
)
