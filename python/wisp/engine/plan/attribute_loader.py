"""Loaders that hang new tensors on the model instead of writing to those that are there.

SGLang's absorbed attention does: at the end of loading, `w_kc` and `w_vc` are made of another
parameter and assigned. Such a loader runs on a copy of the model's structure, which shares all
parameters, so that what it assigns never meets a request; the values are written to the tensors
that are served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ...errors import UnsupportedError
from .load_plan import LoadPlan, Schema, Target, Write, add_targets
from .load_recorder import LearningLoader, capture, learn

__all__ = ["AttributeLoader"]


class AttributeLoader(LearningLoader):
    """Loads into `model`, and into tensors that its loader would replace."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._copy = _structure_of(model, {})
        self._made: dict[str, torch.Tensor] = {}
        self._adopted: set[str] = set()

    def learn(self, targets: list[Target], schema: Schema) -> LoadPlan:
        """The plan, with the tensors that the loader would replace among the targets."""
        plan = learn(self._load, targets, schema)
        if self._made.keys() <= self._adopted:
            return plan
        # Now they are known, so that writes to them are caught.
        self._adopted |= set(self._made)
        return learn(self._load, add_targets(targets, self._made), schema)

    def capture(self, plan: LoadPlan, tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Write]:
        """What the loader would write."""
        return capture(plan, self._load, tensors)

    def _load(self, weights: Iterable[tuple[str, torch.Tensor]]) -> object:
        try:
            result = self._copy.load_weights(weights)
            for path, served, made in list(self._replaced()):
                if served.shape != made.shape or served.dtype != made.dtype:
                    raise UnsupportedError(
                        f"the model's loader makes '{path}' of another shape or dtype than the one "
                        "that is served; reload the server from an export of each step"
                    )
                self._made[path] = served
                if path in self._adopted:
                    served.copy_(made)
            return result
        finally:
            for one, other in zip(self._model.modules(), self._copy.modules(), strict=True):
                _share(one, other)

    def _replaced(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        for path, one in self._model.named_modules():
            other = self._copy.get_submodule(path)
            ours, theirs = _tensors(one), _tensors(other)
            for name, served in ours.items():
                made = theirs.get(name)
                if made is not None and made is not served and made.data_ptr() != served.data_ptr():
                    yield f"{path}.{name}".lstrip("."), served, made


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    held: dict[str, Any] = {**vars(module), **module._parameters, **module._buffers}
    return {n: t for n, t in held.items() if isinstance(t, torch.Tensor) and not t.is_meta}


def _structure_of(module: torch.nn.Module, seen: dict[int, torch.nn.Module]) -> torch.nn.Module:
    if id(module) not in seen:
        copy: torch.nn.Module = object.__new__(type(module))
        seen[id(module)] = copy
        vars(copy)["_modules"] = {
            name: None if part is None else _structure_of(part, seen)
            for name, part in module._modules.items()
        }
        _share(module, copy)
    return seen[id(module)]


def _share(module: torch.nn.Module, copy: torch.nn.Module) -> None:
    """All attributes but the submodules."""
    parts = vars(copy)["_modules"]
    vars(copy).clear()
    vars(copy).update(vars(module))
    vars(copy).update(
        _modules=parts, _parameters=dict(module._parameters), _buffers=dict(module._buffers)
    )
