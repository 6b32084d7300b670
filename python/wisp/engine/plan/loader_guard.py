"""Keeps a model's parameters where they are while its loader runs for a plan.

Some loaders register a parameter anew each time they load. What is served would then be the new
memory, which a recording never fills. So the new one gets the memory of the old, since requests are
served meanwhile, and the old one is put back at the end. What the loader had put into the new one,
and what it writes there later, counts as written to the old.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ...errors import UnsupportedError
from .load_plan import Loader

__all__ = ["guarded"]

_patching = threading.Lock()
_replaced = threading.local()  # buffers: (module, name, the old one), while a loader is recorded


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
        (module, table, name, tensor, None if tensor is None else tensor.data)
        for module in model.modules()
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        # What no checkpoint holds a forward pass may replace meanwhile (tables of rotary
        # embeddings, when they first meet their dtype): of those only this thread's are seen.
        if name not in module._non_persistent_buffers_set
    ]
    known = {id(module): module._parameters.keys() | set() for module in model.modules()}
    adopted: set[int] = set()
    replaced: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
    _replaced.buffers = replaced
    with _registrations(adopted):
        try:
            yield
        finally:
            _replaced.buffers = None
            _remove_new(model, known)
            moved = _put_back(before)
            for module, name, tensor in reversed(replaced):
                module._buffers[name] = tensor
            moved += [tensor for _, _, tensor in replaced]
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


def _remove_new(model: torch.nn.Module, known: dict[int, set[str]]) -> None:
    """Parameters that a loader makes out of nothing would be served with nothing in them."""
    for module in model.modules():
        for name in module._parameters.keys() - known.get(id(module), set()):
            del module._parameters[name]


def _put_back(
    before: list[tuple[Any, Any, str, torch.Tensor | None, torch.Tensor | None]],
) -> list[torch.Tensor]:
    moved = []
    for _, table, name, tensor, data in before:
        if table.get(name) is not tensor:
            table[name] = tensor
            if tensor is not None:
                moved.append(tensor)
        if tensor is not None and data is not None and tensor.data_ptr() != data.data_ptr():
            tensor.data = data
            moved.append(tensor)
    return moved


def _note_buffer(module: torch.nn.Module, name: str, new: torch.Tensor | None) -> None:
    """A buffer is registered, on any thread of the process."""
    noted = getattr(_replaced, "buffers", None)
    old = module._buffers.get(name)
    if noted is not None and old is not None and new is not old:
        if name in module._non_persistent_buffers_set:
            noted.append((module, name, old))


# Once for ever: to take it away while another thread goes through all hooks would fail there.
register_module_buffer_registration_hook(_note_buffer)


@contextmanager
def _registrations(adopted: set[int]) -> Iterator[None]:
    """Tells the recorder of a parameter that is registered, on this thread, in place of another."""
    thread = threading.get_ident()
    with _patching:
        original = torch.nn.Module.register_parameter

        def register_parameter(
            module: torch.nn.Module, name: str, param: torch.nn.Parameter | None
        ) -> None:
            recorder: Any = None
            if threading.get_ident() == thread:
                recorder = _get_current_dispatch_mode()
            if param is not None and hasattr(recorder, "adopt"):
                old = module._parameters.get(name)
                if old is None and recorder.holds_given(param):
                    raise UnsupportedError(
                        f"the model's loader makes a parameter '{name}' of {type(module).__name__} "
                        "that the served model does not have; serve a folder that holds it, or "
                        "reload the server from an export of each step"
                    )
                if old is not None and recorder.adopt(old, param):
                    adopted.add(old.untyped_storage().data_ptr())
                    param.data = old.data
            original(module, name, param)

        torch.nn.Module.register_parameter = register_parameter
        try:
            yield
        finally:
            torch.nn.Module.register_parameter = original
