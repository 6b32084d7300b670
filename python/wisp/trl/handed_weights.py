"""Weights that a trainer hands over one by one, held together until they are published."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import InvalidError
from ..publish.sources import DtypeRule, published_dtype


class HandedWeights:
    """One state of a model, by name, from an iterator of (name, tensor).

    keep: the tensors stay what they are until the state is published: they are only referred to.
      Otherwise each is copied to host memory, in the dtype it is published in, before the next one
      is asked for: gathered tensors never lie on the device together, and what the trainer does to
      a tensor after handing it over (partition it again, unmerge an adapter) does no harm.
    """

    def __init__(self, rule: DtypeRule, *, keep: bool) -> None:
        self._rule = rule
        self._keep = keep
        self._copies: dict[str, Any] = {}
        #: What a publisher is made for: the same dict for all states.
        self.tensors: dict[str, Any] = {}

    @property
    def rule(self) -> DtypeRule:
        """The dtype rule that is still to be applied to `tensors`."""
        return self._rule if self._keep else None

    def take(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Replaces the state by what the iterator gives."""
        taken: dict[str, Any] = {}
        for name, tensor in iterator:
            if name in taken:
                raise InvalidError(f"the trainer hands over '{name}' twice in one state")
            taken[name] = tensor.detach() if self._keep else self._copy(name, tensor.detach())
        self._copies = {} if self._keep else taken
        self.tensors.clear()
        self.tensors.update(taken)

    def _copy(self, name: str, tensor: Any) -> Any:
        import torch

        dtype = published_dtype(name, tensor, self._rule)
        room = self._copies.get(name)
        if room is None or room.shape != tensor.shape or room.dtype != dtype:
            pinned = tensor.device.type == "cuda"
            room = torch.empty(tensor.shape, dtype=dtype, pin_memory=pinned)
        # Rounded where it lies: what crosses to the host is what is published.
        room.copy_(tensor.to(dtype))
        return room
