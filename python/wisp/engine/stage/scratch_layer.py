"""A layer of the scratch model: what it is before the engine processes it, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...errors import UnsupportedError

__all__ = ["Alone", "ScratchLayer", "bits_of", "flat_bits", "restore", "state_of", "trial_values"]

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(eq=False)
class ScratchLayer:
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

    def __init__(self, unit: ScratchLayer) -> None:
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


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(_INTEGERS[tensor.element_size()])


def flat_bits(tensor: torch.Tensor) -> torch.Tensor:
    """All of its storage, as integers of the elements' width."""
    storage, width = tensor.untyped_storage(), tensor.element_size()
    flat = torch.empty(0, dtype=_INTEGERS[width], device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // width,), (1,))


def trial_values(unit: ScratchLayer, count: int, bits: int) -> Iterator[torch.Tensor]:
    """Bit patterns by number: any, and those of ordinary numbers. Nearly all of the first are so
    small that a scale's inverse is infinite, whichever it is."""
    chance = torch.Generator().manual_seed(0)
    values = torch.randint(0, 1 << bits, (count,), generator=chance)
    values[0] = 0
    yield values
    ordinary = values.clone()
    for name, parameter in unit.inputs.items():
        if parameter.dtype.is_floating_point:
            first, size = unit.starts[name], flat_bits(parameter).numel()
            made = (1 + torch.rand(size, generator=chance)).to(parameter.dtype)
            ordinary[first : first + size] = bits_of(made)
    yield ordinary
