"""vLLM's weight transfer engine: one per rank, at the feed of its host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.parallel_state import get_world_group
from vllm.distributed.weight_transfer.base import WeightTransferEngine

from ..engine.feed.feed_link import FeedLink
from ..engine.feed.server_beats import shown_name
from ..engine.plan.coverage import CACHE_SCALES
from ..engine.rank.rank_follower import RankFollower
from ..engine.rank.rank_vote import Served
from ..errors import ConflictError, Error, InvalidError, UnavailableError
from .draft_model import draft_beside
from .identity import engine_id, forget_engine, note_engine
from .packed import expert_layouts, refuse_packed
from .scratch_model import reprocessor_of
from .settings import InitInfo, UpdateInfo, configured, same_run
from .versions import EngineOfAnyVersion, forget_adapters

if TYPE_CHECKING:
    from vllm.config import VllmConfig, WeightTransferConfig

__all__ = ["WispEngine", "follow_rank", "switch_rank", "verify_rank"]

_log = logging.getLogger("wisp.engine")


class WispEngine(EngineOfAnyVersion, WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """Stages while serving; an update writes what is staged, on all ranks or on none."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def __init__(
        self,
        config: WeightTransferConfig,
        vllm_config: VllmConfig,
        device: torch.device,
        model: torch.nn.Module,
    ) -> None:
        super().__init__(config, vllm_config, device, model)
        self._follower: RankFollower | None = None
        self._info: InitInfo | None = None
        self._draft = draft_beside(vllm_config)
        self.during: Callable[[], object] = lambda: None  #: called half-way, by tests that break it
        info = configured(vllm_config)
        if info is not None:
            self.init_transfer_engine(info)

    @property
    def label(self) -> str:
        """This rank among those of its host."""
        replica = self.parallel_config.data_parallel_index
        return f"{engine_id()}/{replica}.{get_world_group().rank}"

    @property
    def _local_ranks(self) -> int:
        """Those of this replica that must be there for all of the model to be."""
        parallel = self.parallel_config
        return int(parallel.local_world_size if parallel.nnodes > 1 else parallel.world_size)

    @property
    def _spans_hosts(self) -> bool:
        parallel = self.parallel_config
        # Replicas of a dense model are told that they are alone; where they met stays.
        met = str(getattr(parallel, "data_parallel_master_ip", ""))
        return parallel.nnodes > 1 or met not in ("", "127.0.0.1", "localhost")

    @property
    def _quantises_cache(self) -> bool:
        cache = getattr(self.vllm_config, "cache_config", None)
        return str(getattr(cache, "cache_dtype", "auto")) not in ("auto", "float16", "bfloat16")

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Begins to follow; learning the plan and joining the run go on in the background."""
        if self._info is not None:
            if same_run(self._info.run, init_info.run):
                self._allow(init_info)
                return
            raise ConflictError(
                f"this server follows {self._info.run} already; shut its weight transfer down "
                f"first to follow {init_info.run}"
            )
        if self.vllm_config.load_config.load_format == "dummy":
            raise InvalidError(
                "this server was started with --load-format dummy: its weights are random, and no "
                "checkpoint says what is where in its memory; start it without that option"
            )
        refuse_packed(self.model)
        served = self.model_config.model
        link = FeedLink(init_info.feed(served))

        def load(tensors: Any) -> object:
            return self.model.load_weights(tensors)

        layouts = expert_layouts(self.model)
        self._follower = RankFollower(
            link,
            self.model,
            reprocessor_of(self.model, self.vllm_config, layouts) or load,
            label=self.label,
            checkpoint=served,
            layouts=layouts,
            peers=self._local_ranks,
            share=share if get_world_group().world_size > 1 else None,
            tied=bool(getattr(self.model_config.hf_text_config, "tie_word_embeddings", False)),
            allowed=init_info.allowed,
            replica=shown_name(init_info.replica_id, engine_id(), spans_hosts=self._spans_hosts),
            draft=self._draft,
            consumed=CACHE_SCALES if self._quantises_cache else None,
        )
        self._note(init_info)

    def _allow(self, init_info: InitInfo) -> None:
        """More than before may be without a counterpart."""
        assert self._info is not None and self._follower is not None
        told = self._info.allowing(init_info)
        if told.allowed != self._info.allowed:
            self._follower.allow(told.allowed)
            self._note(told)

    def _note(self, init_info: InitInfo) -> None:
        self._info = init_info
        if get_world_group().local_rank == 0:
            note_engine(init_info.as_dict())

    def start_weight_update(self) -> None:
        """Nothing to prepare: staging is done, or under way."""

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Waits for the step to be staged and switches to it. Prefer POST /wisp/update, which
        waits before it pauses."""
        follower = self._required()
        follower.link.look()
        assert self._info is not None
        step = update_info.step
        served = follower.wait_staged(lambda s: step in (None, s.step), self._info.timeout)
        key = served.key if served else f"{step}:"
        switched = follower.switch(key, vote)
        _log.info("%s: serves step %d", self.label, switched.step)

    def switch(self, key: str) -> Served:
        """Writes the staged state `key`."""
        return self._required().switch(key, vote, self.during)

    def verify(self) -> int:
        """How many elements of this rank differ from the served state."""
        return self._required().verify()

    def finish_weight_update(self) -> None:
        """Nothing to finish: a switch is whole when it returns."""

    def shutdown(self) -> None:
        """Ends following; the weights stay as they are."""
        if self._follower is not None:
            self._follower.close()
            forget_engine()
        self._follower = self._info = None

    def _required(self) -> RankFollower:
        if self._follower is None:
            raise InvalidError(
                "this server does not follow a run yet; POST /wisp/init tells it which"
            )
        return self._follower


def vote(number: int, complaint: str) -> list[tuple[int, str]]:
    """What every rank says, on every rank. In the good case one small reduction."""
    group = get_world_group()
    if group.world_size == 1:
        return [(number, complaint)]
    said = torch.tensor([number, -number, 0 if complaint else 1])
    torch.distributed.all_reduce(said, torch.distributed.ReduceOp.MIN, group=group.cpu_group)
    lowest, highest, fine = said.tolist()
    if fine and lowest == -highest:
        return [(number, "")] * group.world_size
    everybody: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(everybody, (number, complaint), group=group.cpu_group)
    return everybody


def share(said: Any) -> list[Any]:
    """What every rank says, on every rank."""
    group = get_world_group()
    everybody: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(everybody, said, group=group.cpu_group)
    return everybody


def follow_rank(worker: Any, init_info: dict[str, Any]) -> None:
    """Called on a worker by the engine core."""
    worker.init_weight_transfer_engine(init_info)


def switch_rank(worker: Any, key: str) -> dict[str, Any]:
    """Called on a worker by the engine core. Errors come back as text, with their kind."""
    try:
        engine = worker.weight_transfer_engine
        if not isinstance(engine, WispEngine):
            raise InvalidError("this server was not started with the weight transfer backend wisp")
        served = engine.switch(key)
        forget_adapters(worker)
        return {"step": served.step, "times": served.times}
    except UnavailableError as error:
        return {"error": str(error), "again": True}
    except Error as error:
        return {"error": str(error), "again": False}


def verify_rank(worker: Any) -> int:
    """Called on a worker by the engine core."""
    return int(worker.weight_transfer_engine.verify())
