"""The tensors of a model after quantisation, made when they are read and never all at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from ..errors import InvalidError
from ..publish.sources import MadeSource, Source
from ..tensors import is_torch
from .scheme import CHUNK_ELEMENTS, Part, QuantizeFunction, Scheme, is_matrix


@dataclass(frozen=True)
class _Like:
    """Stands for a tensor that is not there yet."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Quantizer:
    """Turns the tensors of a model into those that are published instead."""

    def __init__(self, scheme: Scheme | QuantizeFunction) -> None:
        self._scheme = scheme
        self._shapes: dict[Any, dict[str, _Like] | None] = {}  # what a function gave at first
        self._fused: dict[str, set[str]] = {}  # names of weights that share a constant
        self.kept: list[str] = []  #: modules whose weights stay as they are

    @property
    def config(self) -> dict[str, Any] | None:
        """`quantization_config`, once sources() was called; None: a function is used."""
        return self._scheme.config(self.kept) if isinstance(self._scheme, Scheme) else None

    def sources(self, sources: dict[str, Source]) -> dict[str, Source]:
        """What is published instead of `sources`; made, weight by weight, when it is read."""
        made: dict[str, Source] = {}
        kept = []
        under_way: dict[str, dict[str, torch.Tensor]] = {}
        constants: dict[str, _Constant] = {}
        for name, source in sources.items():
            if source.device is None:
                raise InvalidError(f"tensor '{name}' is no torch tensor; quantize needs them")
            parts: list[Source]
            if not isinstance(self._scheme, Scheme):
                parts = self._by_function(source, self._scheme, under_way)
            elif self._scheme.takes(name, source.shape, source.dtype):
                fused = self._scheme.fused(name)
                self._fused.setdefault(fused, set()).add(name)
                constant = constants.setdefault(fused, _Constant(self._scheme))
                parts = _by_scheme(source, self._scheme, constant)
            else:
                parts = [source]
                if is_matrix(name, source.shape, source.dtype) and "embed" not in name:
                    kept.append(name.removesuffix(".weight"))
            for part in parts:
                if part.name in made:
                    raise InvalidError(f"two tensors are quantised to the name '{part.name}'")
                made[part.name] = part
        self.kept = sorted(kept)
        return made

    def fused_with(self, name: str) -> set[str]:
        """Weights, of those seen so far, that sources() needs together with this; and itself."""
        fused = self._scheme.fused(name) if isinstance(self._scheme, Scheme) else name
        together = self._fused.get(fused, {name})
        return together if name in together else {name}  # one that is kept waits for nobody

    def _by_function(
        self,
        source: Source,
        function: QuantizeFunction,
        under_way: dict[str, dict[str, torch.Tensor]],
    ) -> list[Source]:
        """Calls the function when the tensors are read; at first also for names and shapes."""

        def call() -> dict[str, torch.Tensor] | None:
            tensor = source.elements(0, source.count).to(source.dtype).reshape(source.shape)
            result = function(source.name, tensor)
            for name, made in (result or {}).items():
                if not isinstance(name, str) or not is_torch(made):
                    raise InvalidError(f"quantize gave no tensor '{name}' for '{source.name}'")
            return result

        key = (source.name, source.shape, source.dtype)
        if key not in self._shapes:
            found = call()
            self._shapes[key] = found and {
                name: _Like(tuple(made.shape), made.dtype, made.device)
                for name, made in found.items()
            }
        shapes = self._shapes[key]
        if shapes is None:
            return [source]

        def value(name: str) -> torch.Tensor:
            # Its tensors are read one after the other, and lie in memory until another weight is.
            if source.name not in under_way:
                under_way.clear()
                under_way[source.name] = call() or {}
            made = under_way[source.name].get(name)
            like = shapes[name]
            if made is None or (tuple(made.shape), made.dtype) != (like.shape, like.dtype):
                raise InvalidError(f"quantize gave another '{name}' than at first; make it pure")
            return made

        def part(name: str) -> Source:
            def make(first: int, count: int) -> torch.Tensor:
                return value(name).reshape(-1)[first : first + count]

            return MadeSource(name, shapes[name], shapes[name].dtype, make)

        return [part(name) for name in shapes]


class _Constant:
    """What all rows of some weights share, made when it is first asked for."""

    def __init__(self, scheme: Scheme) -> None:
        self._scheme = scheme
        self._value: Any = None
        self._known = False
        self.weights: list[_Weight] = []

    def value(self) -> Any:
        if not self._known:
            self._value = self._scheme.constant(chain(*(w.all_chunks() for w in self.weights)))
            self._known = True
        return self._value


class _Weight:
    """One weight, read as float32 rows in the dtype it would have been published in."""

    def __init__(self, source: Source, scheme: Scheme, constant: _Constant) -> None:
        self._source = source
        self._scheme = scheme
        self._rows, self._columns = source.shape
        self._constant = constant
        constant.weights.append(self)

    def all_chunks(self) -> Iterator[torch.Tensor]:
        """All of its rows, in order."""
        return self._chunks(0, self._rows)

    def _read(self, low: int, high: int) -> torch.Tensor:
        first, count = low * self._columns, (high - low) * self._columns
        rows = self._source.elements(first, count).to(self._source.dtype).float()
        if not bool(torch.isfinite(rows).all()):
            raise InvalidError(f"tensor '{self._source.name}' has values that are not finite")
        # A zero has no sign here, as in compressed-tensors.
        return (rows + 0.0).view(-1, self._columns)

    def _chunks(self, low: int, high: int) -> Iterator[torch.Tensor]:
        unit = self._scheme.unit_rows
        step = max(CHUNK_ELEMENTS // max(self._columns, 1) // unit, 1) * unit
        for first in range(low, high, step):
            yield self._read(first, min(first + step, high))

    def elements(self, part: Part, first: int, count: int) -> torch.Tensor:
        """Elements of a part; only rows that these belong to are quantised."""
        constant = self._constant.value()
        unit = self._scheme.unit_rows
        units = -(-self._rows // unit)
        size = int(torch.Size(part.shape).numel())
        if size < units:  # of the whole weight
            return self._scheme.encode(part.name, self._read(0, 0), constant)[first : first + count]
        # Elements of the part for each unit; the last may have fewer.
        each = part.shape[1] * (unit if part.shape[0] == self._rows else 1)
        low, high = first // each, -(-(first + count) // each)
        made = [
            self._scheme.encode(part.name, rows, constant).reshape(-1)
            for rows in self._chunks(low * unit, min(high * unit, self._rows))
        ]
        flat = made[0] if len(made) == 1 else torch.cat(made)
        return flat[first - low * each : first - low * each + count]


def _by_scheme(source: Source, scheme: Scheme, constant: _Constant) -> list[Source]:
    weight = _Weight(source, scheme, constant)
    module = source.name.removesuffix("weight")
    made: list[Source] = []
    for part in scheme.parts(*source.shape):

        def make(first: int, count: int, part: Part = part) -> torch.Tensor:
            return weight.elements(part, first, count)

        like = _Like(part.shape, part.dtype, source.device)
        made.append(MadeSource(module + part.name, like, part.dtype, make))
    return made
