"""What a loader does to the value of a single element on its way into the model's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["ELEMENTS", "ElementFunction", "Step", "is_elementwise", "is_steady"]


class _Elements:
    """Stands for the elements among a step's arguments."""

    def __repr__(self) -> str:
        return "x"


ELEMENTS = _Elements()

_NAMES = frozenset(
    "abs acos add asin atan bitwise_and bitwise_left_shift bitwise_not bitwise_or "
    "bitwise_right_shift bitwise_xor ceil clamp clamp_max clamp_min clip cos cosh div elu erf exp "
    "exp2 expm1 floor floor_divide fmod frac gelu hardtanh ldexp leaky_relu log log10 log1p log2 "
    "logical_not logit masked_fill maximum minimum mul nan_to_num neg pow reciprocal relu "
    "remainder round rsqrt rsub sigmoid sign silu sin sinh softplus sqrt square sub tan tanh trunc "
    "true_divide _to_copy".split()
)  # fmt: skip


def is_elementwise(packet: Any) -> bool:
    """Whether an operator (aten's name, without the mark of those in place) maps each element."""
    namespace, _, name = str(packet._qualified_op_name).partition("::")
    return namespace == "aten" and name.removesuffix("_") in _NAMES


@dataclass(frozen=True, eq=False)
class Step:
    """One operator, and what it was given beside the elements."""

    operator: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"  #: where the loader ran it: elsewhere it may round otherwise

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        values = values.to(self.device)
        arguments = [values if a is ELEMENTS else a for a in self.arguments]
        result: torch.Tensor = self.operator(*arguments, **self.keywords)
        return result


@dataclass(frozen=True, eq=False)
class ElementFunction:
    """Steps that each element takes by itself, whatever stands beside it."""

    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> ElementFunction:
        """This one, and one step more."""
        return ElementFunction((*self.steps, step))

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for step in self.steps:
                values = step(values)
        return values

    def __repr__(self) -> str:
        return " then ".join(str(step.operator) for step in self.steps) or "nothing"


def is_steady(function: ElementFunction, values: torch.Tensor) -> bool:
    """Whether elements come out the same among others and alone. Some kernels compute the rest of
    a vector in another way than what fills a register."""
    whole = _bits(function(values))
    for parts in (3, 7, 37):
        for first in range(min(parts, values.numel())):
            if not torch.equal(_bits(function(values[first::parts])), whole[first::parts]):
                return False
            if parts == 37 and first == 3:
                break
    return True


def _bits(values: torch.Tensor) -> torch.Tensor:
    width = values.element_size()
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.contiguous().view(integers[width])
