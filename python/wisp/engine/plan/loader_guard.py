"""Keeps a model's parameters where they are while its loader runs for a plan.

Some loaders register a parameter anew each time they load. What is served would then be the new
memory, which a recording never fills. So the new one gets the memory of the old, since requests are
served beside, the old one is put back at the end, and what the loader writes to the memory that it
made counts as written to the old.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...errors import UnsupportedError
from .load_plan import Loader

__all__ = ["guarded"]

_patching = threading.Lock()


def guarded(model: torch.nn.Module, load: Loader) -> Loader:
    """The loader, after which each parameter and buffer of the model is what it was before.

    UnsupportedError when the loader has put one into memory that could not be told apart.
    """

    def run(tensors: Iterable[tuple[str, torch.Tensor]]) -> object:
        with _kept(model):
            return load(tensors)

    return run


@contextmanager
def _kept(model: torch.nn.Module) -> Iterator[None]:
    before = [
        (module, table, name, tensor, tensor.data)
        for module in model.modules()
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        # What no checkpoint holds is not the loader's: a forward pass beside may replace it (tables
        # of rotary embeddings, when they first meet their dtype).
        if tensor is not None and name not in module._non_persistent_buffers_set
    ]
    adopted: set[int] = set()
    with _registrations(adopted):
        try:
            yield
        finally:
            moved = _put_back(before)
    strange = [tensor for tensor in moved if tensor.untyped_storage().data_ptr() not in adopted]
    if strange:
        names = [
            name
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]
            if any(tensor is one for one in strange)
        ]
        raise UnsupportedError(
            f"the model's loader puts {', '.join(names[:3])} into new memory each time it loads, "
            "in a way that cannot be followed; reload the server from an export of each step"
        )


def _put_back(before: list[tuple[Any, Any, str, torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
    moved = []
    for _, table, name, tensor, data in before:
        if table.get(name) is not tensor:
            table[name] = tensor
            moved.append(tensor)
        if tensor.data_ptr() != data.data_ptr():
            tensor.data = data
            moved.append(tensor)
    return moved


@contextmanager
def _registrations(adopted: set[int]) -> Iterator[None]:
    """Tells the recorder of a parameter that is registered, on this thread, in place of another."""
    thread = threading.get_ident()
    with _patching:
        original = torch.nn.Module.register_parameter

        def register_parameter(
            module: torch.nn.Module, name: str, param: torch.nn.Parameter | None
        ) -> None:
            old = module._parameters.get(name) if threading.get_ident() == thread else None
            adopt = getattr(_get_current_dispatch_mode(), "adopt", None)
            if old is not None and param is not None and adopt is not None and adopt(old, param):
                adopted.add(old.untyped_storage().data_ptr())
                param.data = old.data
            original(module, name, param)

        torch.nn.Module.register_parameter = register_parameter
        try:
            yield
        finally:
            torch.nn.Module.register_parameter = original
