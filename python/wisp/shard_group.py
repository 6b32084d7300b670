"""The ranks of a sharded trainer before the first step: who holds what, and who codes what."""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from .errors import Error, Gap, Invalid, Unavailable, exception_of
from .shard_exchange import PieceExchange
from .shard_plan import make_plans
from .shard_state import LocalTensor, describe_local
from .shard_talk import ShardTalk
from .staging import DtypeRule
from .tensors import named_tensors


class ShardGroup:
    """All ranks of `group`, agreed on what each of them holds. All make one at the same time."""

    def __init__(
        self, model: Any, rule: DtypeRule, group: Any, timeout: float, log2_block_elements: int
    ) -> None:
        self._model = model
        self._rule = rule
        self._log2 = log2_block_elements
        self.rank = dist.get_rank(group)
        self.world = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.exchange = PieceExchange(self.world, timeout)
        prefix = self.agree(lambda: uuid.uuid4().hex)[0]
        store = dist.PrefixStore(f"wisp/{prefix}", dist.distributed_c10d._get_default_store())
        self.talk = ShardTalk(store, self.rank, len(self.world))
        self._divide()

    def agree(self, work: Callable[[], Any]) -> list[Any]:
        """Runs `work` on every rank; all results, or on all ranks the exception of the first."""
        try:
            mine: tuple[Any, ...] = (True, work())
        except Error as error:
            mine = (False, error.kind, str(error))
        all_ranks: list[Any] = [None] * len(self.world)
        dist.all_gather_object(all_ranks, mine, group=self.exchange.group)
        for rank, answer in enumerate(all_ranks):
            if not answer[0]:
                raise exception_of(answer[1], f"rank {rank}: {answer[2]}")
        return [answer[1] for answer in all_ranks]

    def _divide(self) -> None:
        """Finds out who holds what, and who codes what."""
        # Of a tied weight with an empty shard no rank can tell; rank 0 always has rows.
        named = self.agree(lambda: _names_of(self._model))[0]
        names: list[str] = named[0]
        self._names = names
        self.aliases: dict[str, str] = named[1]

        def look() -> tuple[list[LocalTensor], str]:
            tensors = self.tensors()
            locals_ = [describe_local(name, tensors[name], self._rule) for name in names]
            return (locals_, socket.gethostname())

        answers = self.agree(look)
        self.locals: list[LocalTensor] = answers[self.rank][0]
        for rank, (theirs, _) in enumerate(answers):
            for mine, other in zip(self.locals, theirs, strict=True):
                if mine.entry != other.entry:
                    raise Invalid(
                        f"ranks {self.rank} and {rank} differ: {mine.entry} and {other.entry}"
                    )
        self._hosts = [host for _, host in answers]
        plans = make_plans(
            [(local.name, local.elements) for local in self.locals],
            [[local.held for local in theirs] for theirs, _ in answers],
            self._log2,
        )
        self.plan = plans[self.rank]

    def tensors(self) -> dict[str, Any]:
        model = self._model
        tensors = model.state_dict(keep_vars=True) if hasattr(model, "state_dict") else model
        missing = [name for name in self._names if name not in tensors]
        if missing:
            raise Invalid(f"rank {self.rank} has no tensor '{missing[0]}' (any more)")
        return tensors

    def share_state(
        self,
        pull: Callable[[str], str],
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
        answer: dict[str, Any]
        if self.rank == leader:
            folder = tempfile.mkdtemp(prefix="wisp-", dir=scratch)
            try:
                answer = {"folder": folder, "state": pull(folder)}
            except Gap:
                answer = {"folder": folder, "state": None}
            except Error as error:
                answer = {"kind": error.kind, "text": str(error)}
            self.talk.put(key, json.dumps(answer).encode())

        def take() -> bool:
            if self.talk.wait([key], time.monotonic() + timeout):
                raise Unavailable(
                    f"rank {leader} did not take the newest state within {timeout:g} s"
                )
            told = json.loads(self.talk.get(key) or b"{}")
            if "kind" in told:
                raise exception_of(told["kind"], told["text"])
            if told["state"] is None:
                return False
            adopt(told["folder"], told["state"])
            return True

        try:
            return all(self.agree(take))
        finally:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def _names_of(model: Any) -> tuple[list[str], dict[str, str]]:
    """The tensors in the order of the schema, and further names of tied ones."""
    named = named_tensors(model)
    return sorted(named.tensors, key=str.encode), named.aliases
