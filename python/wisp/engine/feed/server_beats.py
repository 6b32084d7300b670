"""The servers of a host, each shown as a replica of its own by `wisp status`.

The feed follows once for all of them; where each of them stands only their ranks know.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ... import _native
from ...errors import Error
from ...runs import trust_of
from ...stores import location
from .feed_files import FeedSettings
from .feed_messages import RankReport

__all__ = ["ServerBeats", "servers_of", "shown_name"]

_log = logging.getLogger("wisp.feed")
_EVERY = 30.0  # seconds between two heartbeats of a server that stands still


@dataclass(frozen=True)
class _Server:
    seq: int  #: of the commit that all its ranks serve; 0: none yet
    state: str


def shown_name(told: str, engine: str, *, spans_hosts: bool) -> str:
    """The name under which a host shows an engine. `told`: the one that its settings give it.

    Each host tells of its own ranks: of an engine over several, which share their settings, each
    shows a replica, or they would write over one another's heartbeats.
    """
    host = socket.gethostname()
    if not told:
        return f"{host}-{engine.partition('-')[0]}"
    return f"{told}-{host}" if spans_hosts else told


def servers_of(reports: dict[str, RankReport]) -> dict[str, _Server]:
    """By the name under which each is shown."""
    engines: dict[str, list[RankReport]] = {}
    for label, report in reports.items():
        engines.setdefault(label.rpartition("/")[0], []).append(report)
    names = [ranks[0].replica for ranks in engines.values()]
    found: dict[str, _Server] = {}
    for engine, ranks in sorted(engines.items()):
        name = ranks[0].replica
        if not name:
            continue
        if names.count(name) > 1:
            name += f"-{engine.partition('-')[0]}"
        served = [rank.served.seq if rank.served else 0 for rank in ranks]
        failing = any(rank.failure for rank in ranks)
        state = "failing" if failing else "following" if min(served) else "joining"
        found[re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".")] = _Server(min(served), state)
    return found


class ServerBeats:
    """Writes them on a thread of its own: a store may take its time, or not be open to writes."""

    def __init__(
        self, settings: FeedSettings, reports: Callable[[], dict[str, RankReport]]
    ) -> None:
        self._settings = settings
        self._reports = reports
        self._news = threading.Event()
        self._told: dict[str, _Server] = {}
        threading.Thread(target=self._run, name="wisp-beats", daemon=True).start()

    def wake(self) -> None:
        """Some rank has said something."""
        self._news.set()

    def _run(self) -> None:
        while True:
            moved = self._news.wait(_EVERY)
            self._news.clear()
            self.beat(everybody=not moved)

    def beat(self, *, everybody: bool) -> None:
        """Tells of those that have changed, or of all."""
        now = servers_of(self._reports())
        gone = {
            name: _Server(before.seq, "stopped")
            for name, before in self._told.items()
            if name not in now
        }
        for name, server in {**now, **gone}.items():
            if everybody or self._told.get(name) != server:
                self._tell(name, server)
        self._told = now

    def _tell(self, name: str, server: _Server) -> None:
        settings = self._settings
        try:
            trust = trust_of(settings.trust, settings.min_serial, settings.run_id or None)
            where, every = location(settings.run), int(1000 * _EVERY)
            _native.tell_replica(where, name, server.seq, server.state, None, every, trust)
        except Error as error:  # advice only: a host that may not write follows all the same
            _log.debug("the heartbeat of %s was not written: %s", name, error)
