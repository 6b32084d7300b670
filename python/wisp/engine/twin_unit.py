"""A layer of a twin: what it is before the engine processes it, and how it gets back there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import UnsupportedError

__all__ = ["Alone", "Unit", "restore", "state_of"]


@dataclass(eq=False)
class Unit:
    """A layer that the engine processes after loading: where it is, and how."""

    path: str
    process: Callable[[], object]
    #: Where each element of what the layer serves from comes from; None: it computes.
    moves: dict[str, torch.Tensor] | None = None
    inputs: dict[str, torch.nn.Parameter] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)  # first number of each input
    pristine: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def told(self, name: str, what: str) -> str:
        """That something of it stands in the way, and the cure."""
        where = f"{self.path}.{name}".rstrip(".")
        return (
            f"'{where}' {what}; serve the model without what the engine does to this layer "
            "after loading, or reload it from an export of each step"
        )


class Alone(TorchDispatchMode):  # type: ignore[misc]
    """Refuses what only all ranks together can do: they stage at times of their own, and what they
    would send now is between messages of those that serve."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self._unit = unit

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            raise UnsupportedError(
                f"'{self._unit.path}' is processed by all ranks together after loading (a scale "
                "over slices of a weight); serve it on one rank, or with a quantisation whose "
                "scales no slice cuts, or publish it quantised"
            )
        return func(*args, **(kwargs or {}))


def state_of(held: Any) -> dict[str, Any]:
    """Its attributes, one level deep: what processing replaces."""
    return {n: dict(v) if isinstance(v, dict) else v for n, v in vars(held).items()}


def restore(held: Any, state: dict[str, Any]) -> None:
    now = vars(held)
    for name in [n for n in now if n not in state]:
        del now[name]
    for name, value in state.items():
        if isinstance(value, dict):
            if not isinstance(now.get(name), dict) or not _is_same(now[name], value):
                now[name] = dict(value)
        elif now.get(name) is not value:
            now[name] = value


def _is_same(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(one[key] is other[key] for key in one)
