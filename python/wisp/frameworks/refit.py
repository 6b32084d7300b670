"""Weights from the ranks of a trainer to the ranks of its rollouts: both ends, by way of a run.

What verl calls a checkpoint engine and NeMo-RL a refit transport are made of this: the trainer's
first rank publishes what it is handed, and on each host of rollouts one replica follows, from which
every rollout process takes the tensors that changed.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..engine.feed.feed_files import FeedSettings, StateMovedError
from ..engine.feed.host_replica import HostReplica
from ..errors import InvalidError, NoRunError
from ..publish.publisher import Publisher, PublishStats
from ..publish.stream_publisher import StreamPublisher
from ..runs import log, trust_of

__all__ = ["Refit", "RefitSettings"]

_AGAIN = 0.05  # seconds before a replica that has moved is looked at again
_PUBLISHER = frozenset(inspect.signature(Publisher).parameters) - {"run", "model", "on_error"}


@dataclass(frozen=True)
class RefitSettings:
    """As the configuration of a framework gives them.

    run: where the weights go: a bucket, or a folder that all hosts share.
    rollout_run: the same as the rollouts' hosts see it, if it is another.
    dtype: what the rollouts get; None for each tensor's own.
    timeout: seconds that a rollout waits for a step, and a trainer for store and rollout servers.
    touched_only: rollouts are handed what changed since their last step; False: everything.
    trust, min_serial, run_id: what trainer and rollouts demand of the run, as of wisp.Follower.
    base: a checkpoint folder on the rollouts' hosts to start from instead of fetching one.
    scratch: a folder for files on their way, on a disk with room for a checkpoint.
    mode, api_key: how rollout servers with the plugin are driven, as of wisp.engine.Driver.
    options: those of wisp.Publisher.
    """

    run: str
    rollout_run: str | None = None
    dtype: str | None = "bfloat16"
    timeout: float = 600.0
    touched_only: bool = True
    trust: tuple[str, ...] = ()
    min_serial: int = 0
    run_id: str | None = None
    base: str | None = None
    scratch: str | None = None
    poll: float = 1.0
    mode: str = "keep"
    api_key: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, where: str, told: dict[str, Any]) -> RefitSettings:
        """From what a configuration says at `where`; InvalidError names what it cannot mean."""
        told = dict(told)
        if not isinstance(told.get("run"), str) or not told["run"]:
            raise InvalidError(f"{where} needs `run`, the address of the run to publish to")
        trust = told.pop("trust", None) or ()
        trust = (trust,) if isinstance(trust, str) else tuple(trust)
        mine = set(cls.__dataclass_fields__) - {"options", "trust"}
        options = {name: told.pop(name) for name in list(told) if name not in mine}
        unknown = sorted(options.keys() - _PUBLISHER)
        if unknown:
            raise InvalidError(f"{where} has no setting {', '.join(map(repr, unknown))}")
        try:
            made = cls(**told, trust=trust, options=options)
            trust_of(made.trust, made.min_serial, made.run_id)
            float(made.timeout)
        except (TypeError, ValueError) as error:
            raise InvalidError(f"{where}: {error}") from error
        return made

    @property
    def seen_by_rollouts(self) -> str:
        """The run's address for other hosts: a folder by its whole path."""
        run = self.rollout_run or self.run
        return run if "://" in run else os.path.abspath(run)

    @property
    def feed(self) -> FeedSettings:
        """What the feed of a rollout host is to follow."""
        trust = [os.path.abspath(key) if os.path.exists(key) else key for key in self.trust]
        return FeedSettings(
            self.seen_by_rollouts, trust, self.poll, self.base, self.scratch, self.min_serial,
            self.run_id or "",
        )  # fmt: skip


class Refit:
    """One process's end: a trainer that sends, or a rollout that receives. Closed with close()."""

    def __init__(self, settings: RefitSettings) -> None:
        self.settings = settings
        self._publisher: StreamPublisher | None = None
        self._replica: HostReplica | None = None
        self._newest: tuple[int, int] | None = None

    def newest(self) -> tuple[int, int]:
        """Number and step of the newest commit; (0, -1) where there is none."""
        if self._newest is None:
            told = self.settings
            try:
                lines = log(told.run, 1, trust=told.trust, min_serial=told.min_serial,
                            run_id=told.run_id)  # fmt: skip
            except NoRunError:
                return (0, -1)
            if not lines:
                return (0, -1)
            self._newest = (lines[0].seq, lines[0].step)
        return self._newest

    def send(self, weights: Iterable[tuple[str, Any]], step: int | None) -> PublishStats:
        """Publishes what is handed over, and returns when it is committed."""
        told = self.settings
        if self._publisher is None:
            self._publisher = StreamPublisher(
                told.run, dtype=told.dtype, scratch=told.scratch, trust=told.trust or None,
                min_serial=told.min_serial, run_id=told.run_id, patience=float(told.timeout),
                **told.options,
            )  # fmt: skip
        self._newest = None  # unknown, should this fail
        stats = self._publisher.publish(weights, step)
        self._newest = (stats.seq, stats.step)
        return stats

    async def receive(
        self, step: int | None, *, after: int = 0, batch_bytes: int = 0
    ) -> AsyncIterator[list[tuple[str, Any]]]:
        """Batches of the tensors of `step` that changed since the last call that came to its end.

        `after`: the number of the commit that was the newest before the step was sent.
        """
        if self._replica is None:
            self._replica = HostReplica(self.settings.feed)
        replica = self._replica
        if not self.settings.touched_only:
            replica.forget()
        end = time.monotonic() + float(self.settings.timeout)
        while True:
            left = max(0.0, end - time.monotonic())
            feed = await asyncio.to_thread(replica.wait_for, step, after=after, timeout=left)
            reading = replica.read(feed, replica.touched(feed), batch_bytes)
            handed_over = False
            try:
                for batch in reading:
                    handed_over = True
                    yield batch
                return
            except StateMovedError:
                # Its feed went away, or on, before anything was read.
                if handed_over or time.monotonic() > end:
                    raise
            finally:
                reading.close()
            await asyncio.sleep(_AGAIN)

    def close(self) -> None:
        """Lets go of the run and of the host's feed. May be called twice."""
        publisher, self._publisher = self._publisher, None
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.close()
        if publisher is not None:
            publisher.close()


def drain(weights: Iterable[Any]) -> None:
    """Takes part in the collectives that make the weights, on ranks that do not send."""
    for _ in weights:
        pass
