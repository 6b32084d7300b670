"""The ranks of a sharded trainer before the first step: who holds what, and who codes what."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch.distributed as dist

from ..errors import Error, GapError, InvalidError, UnavailableError
from ..model.checkpoint_names import NamingRule, sharded_views
from ..publish.sources import DtypeRule
from ..tensors import state_of
from .key_store import KeyStore
from .local_tensors import LocalTensor, describe_local
from .piece_exchange import PieceExchange
from .round_messages import PulledState, RankFailure, parse_pulled, write_message
from .shard_plan import make_plans

T = TypeVar("T")


@dataclass(frozen=True)
class _Result(Generic[T]):
    """What a rank's work gave; told apart from a failure."""

    value: T


class RankGroup:
    """All ranks of `group`, agreed on what each of them holds. All make one at the same time."""

    def __init__(
        self,
        model: Any,
        rule: DtypeRule,
        names: NamingRule,
        group: Any,
        timeout: float,
        log2_block_elements: int,
    ) -> None:
        self._model = model
        self._rule = rule
        self._naming = names
        self._log2 = log2_block_elements
        self.rank = dist.get_rank(group)
        self.world = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.exchange = PieceExchange(self.world, timeout)
        prefix = self.agree(lambda: uuid.uuid4().hex)[0]
        store = dist.PrefixStore(f"wisp/{prefix}", dist.distributed_c10d._get_default_store())
        self.keys = KeyStore(store, self.rank, len(self.world))
        self._divide()

    def agree(self, work: Callable[[], T]) -> list[T]:
        """Runs `work` on every rank; all results, or on all ranks the exception of the first."""
        mine: _Result[T] | RankFailure
        try:
            mine = _Result(work())
        except Error as error:
            mine = RankFailure.of(error)
        answers: list[_Result[T] | RankFailure] = [mine] * len(self.world)
        dist.all_gather_object(answers, mine, group=self.exchange.group)
        results: list[T] = []
        for rank, answer in enumerate(answers):
            if isinstance(answer, RankFailure):
                raise answer.as_exception(f"rank {rank}: ")
            results.append(answer.value)
        return results

    def _divide(self) -> None:
        """Finds out who holds what, and who codes what."""
        # Of a tied weight with an empty shard no rank can tell; rank 0 always has rows.
        self._views, self.aliases = self.agree(lambda: sharded_views(self._model, self._naming))[0]

        rule = self._rule

        def look() -> tuple[list[LocalTensor], str]:
            tensors = self.tensors()
            locals_ = [
                describe_local(name, self._views[name], tensors[self._views[name].source], rule)
                for name in sorted(self._views, key=str.encode)  # the order of the schema
            ]
            return (locals_, socket.gethostname())

        answers = self.agree(look)
        self.locals: list[LocalTensor] = answers[self.rank][0]
        for rank, (theirs, _) in enumerate(answers):
            for mine, other in zip(self.locals, theirs, strict=True):
                ours, others = ((one.entry, one.source, one.source_shape) for one in (mine, other))
                if ours != others:
                    raise InvalidError(f"ranks {self.rank} and {rank} differ: {ours} and {others}")
        self._hosts = [host for _, host in answers]
        plans = make_plans(
            [(local.name, local.elements) for local in self.locals],
            [[local.held for local in theirs] for theirs, _ in answers],
            self._log2,
        )
        self.plan = plans[self.rank]

    def tensors(self) -> Mapping[str, Any]:
        """The model's tensors as they are now, by their names in it."""
        tensors: Mapping[str, Any] = state_of(self._model)
        missing = [view.source for view in self._views.values() if view.source not in tensors]
        if missing:
            raise InvalidError(f"rank {self.rank} has no tensor '{missing[0]}' (any more)")
        return tensors

    def share_state(
        self,
        pull: Callable[[str], str | None],
        adopt: Callable[[str, str], None],
        scratch: str | None,
        timeout: float,
    ) -> bool:
        """One rank of each host pulls a state into a folder, and all adopt it from there.

        False when there is nothing left in the bucket to pull.
        """
        leader = self._hosts.index(self._hosts[self.rank])
        key = f"pulled/{leader}"
        folder = None
        answer: PulledState | RankFailure
        if self.rank == leader:
            folder = tempfile.mkdtemp(prefix="wisp-", dir=scratch)
            try:
                answer = PulledState(folder, pull(folder))
            except GapError:
                answer = PulledState(folder, None)
            except Error as error:
                answer = RankFailure.of(error)
            self.keys.put(key, write_message(answer))

        def take() -> bool:
            if self.keys.wait([key], time.monotonic() + timeout):
                raise UnavailableError(
                    f"rank {leader} did not take the newest state within {timeout:g} s"
                )
            told = parse_pulled(self.keys.get(key) or b"")
            if isinstance(told, RankFailure):
                raise told.as_exception()
            if told.state is None:
                return False
            adopt(told.folder, told.state)
            return True

        try:
            return all(self.agree(take))
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
