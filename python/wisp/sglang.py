"""SGLang's loader `wisp.sglang.load_delta`, driven by `wisp follow --sglang URL`.

wisp.sglang_plugin makes it known to servers of 0.5.23; others want it named by the flag
`--custom-weight-loader`.

SGLang calls the loader in every worker with what `/update_weights_from_tensor` brings. Ours brings
no weights but a small record: which run to follow, or which staged step to switch to. Fetching,
proving and staging go on while it serves, once per host; the call inside the pause only writes.
What came of it is asked through `/get_weights_by_name` with the name "wisp".
"""

from __future__ import annotations

import json
import logging
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .engine.feed.feed_files import FeedSettings
from .engine.feed.feed_link import FeedLink, FeedState
from .engine.plan.attribute_loader import AttributeLoader
from .engine.rank.rank_follower import RankFollower
from .engine.rank.rank_vote import Vote
from .errors import ConflictError, InvalidError, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_following", "load_delta"]

_log = logging.getLogger("wisp.engine")
_NAME = "wisp"
_LONGEST = 1 << 16  # bytes of a record
_SKEW = 30.0  # seconds for the other ranks to stage what the first has staged
_SAID = 512  # bytes of what a rank says to the others


def load_delta(model: torch.nn.Module, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """For SGLang's `--custom-weight-loader`. Never raises: SGLang would end the server.

    A step that cannot be taken leaves the weights that were there on all ranks; the driver is told
    why, and names no version that is not served.
    """
    rank = _ranks.get(model)
    if rank is None:
        rank = _ranks[model] = _Rank(model)
    try:
        rank.obey(_record_in(named_tensors))
    except Exception as error:
        rank.error = text_of(error)
        _log.warning("wisp: %s; the weights that were there are served on", rank.error)


def is_following(model: torch.nn.Module) -> bool:
    """Whether steps of a run are staged for this model, or will be."""
    rank = _ranks.get(model)
    return rank is not None and rank.follows


def _record_in(named_tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Any]:
    tensors = list(named_tensors)
    if [name for name, _ in tensors] != [_NAME]:
        raise InvalidError(
            "this loader takes records of `wisp follow --sglang`, not weights; send those without "
            "load_format"
        )
    ((_, tensor),) = tensors
    if tensor.dtype != torch.uint8 or tensor.numel() > _LONGEST:
        raise InvalidError("a record of wisp is a short tensor of bytes; this is none")
    record = json.loads(bytes(tensor.cpu().tolist()))
    if not isinstance(record, dict) or not isinstance(record.get("run"), str):
        raise InvalidError("a record of wisp names its run; this one does not")
    return record


class _Rank:
    """What this worker knows of the run it follows."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.error = ""
        self._model = weakref.ref(model)
        self._follower: RankFollower | None = None
        self._run = ""
        self._number, self._vote = _ranks_of_server()
        self._engine = f"sglang-{os.getppid()}"
        self._answer_for(model)

    @property
    def follows(self) -> bool:
        """Whether it was told of a run."""
        return self._follower is not None

    def obey(self, record: dict[str, Any]) -> None:
        """Follows a run, or switches to a step of it."""
        self.error = ""
        action = record.get("action")
        if self._run and record["run"] != self._run:
            raise ConflictError(
                f"this server follows {self._run}; start it anew to follow another run"
            )
        if action == "prepare":
            self._prepare(record)
        elif action == "apply":
            self._apply(int(record["step"]))
        else:
            raise InvalidError(f"a record of wisp says what to do; this one says {action!r}")

    def _prepare(self, record: dict[str, Any]) -> None:
        if self._follower is not None:
            return
        model = self._model()
        assert model is not None
        checkpoint = _folder_of(record.get("checkpoint"))
        trust = [str(key) for key in record.get("trust", [])]
        believed = {name: record[name] for name in ("min_serial", "run_id") if name in record}
        link = FeedLink(FeedSettings(record["run"], trust, base=checkpoint, **believed))
        self._follower = RankFollower(
            link, model, AttributeLoader(model), label=f"{self._engine}/{self._number}",
            checkpoint=checkpoint,
        )  # fmt: skip
        self._run = record["run"]

    def _apply(self, step: int) -> None:
        if self._follower is None:
            raise InvalidError("this server does not follow a run yet")
        # Every rank must come to the vote, also one that has nothing to switch to.
        found = self._follower.wait_staged(lambda served: served.step == step, _SKEW)
        served = self._follower.switch(found.key if found else f"{step}:", self._vote)
        _log.info("wisp: serves step %d", served.step)

    def status(self) -> dict[str, Any]:
        """As the driver reads it."""
        follower = self._follower
        told: dict[str, Any] = {"run": self._run, "served": None, "staged": None, "faults": []}
        # Of staging, which is tried again; `error` is of the last record.
        failure: str | None = self.error
        if follower is not None:
            feed = follower.link.known
            served = follower.served
            told["served"] = served.step if served else None
            told["staged"] = self._staged_everywhere(feed)
            told["faults"] = [*feed.status.faults][-8:]
            failure = follower.failure or feed.status.failure
        return {**told, "failure": (failure or "")[:2000], "error": self.error[:2000]}

    def _staged_everywhere(self, feed: FeedState) -> int | None:
        """The newest step that all workers of this host can switch to, or serve."""
        mine = f"{self._engine}/"
        ranks = [report for label, report in feed.ranks.items() if label.startswith(mine)]
        newest = next((rank.staged for rank in ranks if rank.staged), None)
        if newest is None or not all(rank.can_serve(newest.key) for rank in ranks):
            return None
        return newest.step

    def _answer_for(self, model: torch.nn.Module) -> None:
        """`/get_weights_by_name` asks the model; of this one name we know the answer."""
        asked: Callable[..., Any] | None = getattr(model, "get_weights_by_name", None)

        def get_weights_by_name(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == _NAME:
                return [float(byte) for byte in json.dumps(self.status()).encode()]
            return asked(name, *args, **kwargs) if asked is not None else None

        model.get_weights_by_name = get_weights_by_name


_ranks: weakref.WeakKeyDictionary[torch.nn.Module, _Rank] = weakref.WeakKeyDictionary()


def _folder_of(checkpoint: Any) -> str | None:
    """What the server was started with: a folder, or a model of the Hub that is in its cache."""
    if not isinstance(checkpoint, str) or not checkpoint:
        return None
    if Path(checkpoint).is_dir():
        return checkpoint
    from huggingface_hub import snapshot_download

    return str(snapshot_download(checkpoint, local_files_only=True))


def _ranks_of_server() -> tuple[int, Vote]:
    """This worker among those that share the model, and how they agree."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return 0, lambda number, complaint: [(number, complaint)]
    try:
        from sglang.srt.distributed import get_tp_group

        group = get_tp_group().cpu_group
    except ImportError:
        group = torch.distributed.group.WORLD
    return torch.distributed.get_rank(group), lambda number, text: _vote(group, number, text)


def _vote(group: Any, number: int, complaint: str) -> list[tuple[int, str]]:
    """What every rank says, on every rank; in tensors, which nobody has to unpickle."""
    said = torch.zeros(8 + _SAID, dtype=torch.uint8)
    text = complaint.encode()[:_SAID]
    said[:8] = torch.tensor(list(number.to_bytes(8, "little")), dtype=torch.uint8)
    if text:
        said[8 : 8 + len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    everybody = [torch.zeros_like(said) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(everybody, said, group=group)
    heard = [bytes(one.tolist()) for one in everybody]
    return [
        (int.from_bytes(one[:8], "little"), one[8:].rstrip(b"\0").decode(errors="replace"))
        for one in heard
    ]
