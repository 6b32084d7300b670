"""What a way to quantise is, and which tensors of a model it is for."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import InvalidError

#: Elements that are quantised at a time: bounds the memory that takes, whatever a weight's size.
CHUNK_ELEMENTS = 1 << 22

#: Gives the tensors to publish in place of one, by name; None: it is published as it is.
QuantizeFunction = Callable[[str, torch.Tensor], "dict[str, torch.Tensor] | None"]

#: Modules that servers keep in full precision: embeddings, heads, routers, towers of other senses.
_KEPT = re.compile(
    r"(^|\.)(lm_head|embed\w*|\w*embeddings?|wte|wpe|shared|router|gate|score|classifier)$"
    r"|(^|\.)(vision|audio|visual|multi_modal_projector)|norm"
)


@dataclass(frozen=True)
class Part:
    """One tensor of a quantised weight: `name` is what comes after the module's."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Scheme(ABC):
    """A way to quantise matrices, `unit_rows` rows at a time and independently of each other.

    ignore: regular expressions of modules that stay as they are, beside embeddings, heads, routers,
      norms and vision towers.
    """

    unit_rows = 1  #: rows that share a scale
    multiple = 1  #: columns come in so many

    def __init__(self, *, ignore: Iterable[str] = ()) -> None:
        self._ignore = [re.compile(pattern) for pattern in ignore]

    @abstractmethod
    def parts(self, rows: int, columns: int) -> list[Part]:
        """The tensors that a matrix of this size becomes."""

    @abstractmethod
    def encode(self, part: str, rows: torch.Tensor, constant: Any) -> torch.Tensor:
        """The part that belongs to some rows of a weight, which are float32."""

    @abstractmethod
    def config(self, kept: list[str]) -> dict[str, Any]:
        """`quantization_config` of config.json; `kept` are the modules that were not quantised."""

    def constant(self, chunks: Iterable[torch.Tensor]) -> Any:
        """What all rows of a weight share, from its rows in order; None if nothing."""
        return None

    def fused(self, name: str) -> str:
        """The same for weights that share their constant, since servers make one layer of them."""
        return name

    def takes(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
        """Whether the tensor is the weight of a linear layer that is to be quantised."""
        if not is_matrix(name, shape, dtype):
            return False
        module = name.removesuffix(".weight")
        if _KEPT.search(module) or any(pattern.search(module) for pattern in self._ignore):
            return False
        if shape[1] % self.multiple:
            raise InvalidError(
                f"tensor '{name}' has {shape[1]} columns, no multiple of {self.multiple}, which "
                f"{type(self).__name__} needs; name the module in `ignore`"
            )
        return True


def is_matrix(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a tensor could be the weight of a linear layer."""
    return len(shape) == 2 and name.endswith(".weight") and dtype.is_floating_point


def scales_of(absmax: torch.Tensor, largest: float) -> torch.Tensor:
    """Scales by which `absmax` becomes the largest code; never 0, so that they can divide."""
    scales = absmax / largest
    return torch.where(scales == 0, torch.finfo(torch.float32).eps, scales)


def group_absmax(rows: torch.Tensor, size: int) -> torch.Tensor:
    """The largest magnitude of each group of `size` columns."""
    grouped = rows.abs().unflatten(1, (-1, size))
    return grouped.amax(dim=2)


def e8m0_codes(absmax: torch.Tensor, offset: int) -> torch.Tensor:
    """Exponents of MX scales, biased by 127: the power of two next to absmax, less `offset`.

    A magnitude of 1.75 and more counts as the next power, as the OCP's formats saturate otherwise.
    """
    exponents = (absmax.view(torch.int32) + (1 << 21)) >> 23
    return (exponents - offset).clamp(0, 254)


def power_of_two(codes: torch.Tensor) -> torch.Tensor:
    """The scales that biased exponents stand for."""
    return torch.where(codes == 0, 2.0**-127, (codes << 23).view(torch.float32))


def compressed_config(
    weights: dict[str, Any], activations: dict[str, Any] | None, format: str, kept: list[str]
) -> dict[str, Any]:
    """`quantization_config` in the layout of compressed-tensors."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {**group, "output_activations": None}},
        "ignore": kept,
    }


def scheme_of(wanted: Any) -> Scheme | QuantizeFunction:
    """The scheme of this name, or what was given."""
    from .eight_bit import BlockFp8, ChannelFp8, ChannelInt8, MxFp8
    from .four_bit import MxFp4, NvFp4

    named: dict[str, type[Scheme]] = {
        "fp8_block": BlockFp8,
        "fp8_channel": ChannelFp8,
        "int8_channel": ChannelInt8,
        "mxfp8": MxFp8,
        "mxfp4": MxFp4,
        "nvfp4": NvFp4,
    }
    if isinstance(wanted, Scheme):
        return wanted
    if isinstance(wanted, str) and wanted in named:
        return named[wanted]()
    if callable(wanted):
        function: QuantizeFunction = wanted
        return function
    raise InvalidError(
        f"quantize={wanted!r} is none of {', '.join(named)}, no scheme of wisp.quantize and no "
        "function (name, tensor) -> dict of tensors"
    )
