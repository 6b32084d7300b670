"""Publishing into a bucket in TRL's own layout, for rollout servers that read that."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from .. import _native
from ..model.checkpoint_names import Naming
from ..publish.sources import DtypeRule, MadeSource, Source, sources_of
from ..stores import RunAddress, location
from ..tensors import host_weights, is_torch, unwrapped

__all__ = ["LayoutPublisher"]


class LayoutPublisher:
    """Publishes a model as TRL's delta weight sync does: `anchors/` and `deltas/`, nothing else.

    Such a bucket has no commits, so it must have one writer at a time, and nothing in it is signed
    (doc/trl.md). wisp.Follower(run, target, layout="trl") follows it, and TRL's own readers do.
    The newest state of the bucket is kept in memory as the baseline of the next delta.

    model: a torch module or a dict of tensors by name; `dtype` as for wisp.Publisher.
    codec: "plain" or "gap".
    anchor_every: whole weights with every Nth step; 0: only with the first.
    scratch: a folder for what is fetched of the newest state.
    """

    def __init__(
        self,
        run: RunAddress,
        model: Any,
        *,
        dtype: DtypeRule = None,
        codec: Literal["plain", "gap"] = "plain",
        anchor_every: int = 10,
        scratch: str | os.PathLike[str] | None = None,
        threads: int = 0,
    ) -> None:
        place = location(run)
        self.url = place.url
        self._naming = Naming(unwrapped(model))
        self._dtype = dtype
        self._session = _native.open_trl_publish_session(
            place, codec, anchor_every, scratch, threads
        )

    def publish(self, step: int | None = None) -> _native.PublishReport:
        """Publishes the weights as they are now, as `step`; one after the newest if None.

        Returns once the step is in the bucket: what changed, and what it cost. ConflictError when
        the bucket holds that step or a later one, unless it holds these very weights.
        """
        sources, _ = sources_of(self._naming, self._dtype)
        tensors = {name: _in_host_memory(source) for name, source in sources.items()}
        return self._session.publish(host_weights(tensors), step)

    def __repr__(self) -> str:
        return f"<LayoutPublisher {self.url}>"


def _in_host_memory(source: Source) -> Any:
    """The tensor itself where it can be read in place, else a copy as it is published."""
    if isinstance(source, MadeSource):
        made = source.elements(0, source.count).reshape(source.shape)
        return made.detach().to(device="cpu", dtype=source.dtype).contiguous()
    if not is_torch(source.tensor):
        return np.ascontiguousarray(source.tensor)
    return source.tensor.detach().to(device="cpu", dtype=source.dtype).contiguous()
