"""Every tensor that a layer serves from, registered or not."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["objects_on", "tensors_on"]

_DEPTH = 3  # how far from a module an attribute may be
# What requests leave behind, and addresses of what cannot be seen.
_PASSING = ("cache", "workspace", "buffer_pool", "handler_tensor")


def tensors_on(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By the way there from the module: those of it and its submodules, of objects that hang on
    them (methods, kernels), and what functions have kept."""
    found: dict[str, torch.Tensor] = {}
    for path, part in module.named_modules():
        for name, value in _attributes(part):
            _collect(f"{path}.{name}".lstrip("."), value, found, 0)
    return found


def objects_on(module: torch.nn.Module) -> Iterator[Any]:
    """The module, its submodules, and the objects on them that may be changed along with them."""
    seen: set[int] = set()
    for part in module.modules():
        yield part
        for _, value in _attributes(part):
            yield from _objects(value, seen, 0)


def _attributes(part: torch.nn.Module) -> list[tuple[str, Any]]:
    held = {n: v for n, v in vars(part).items() if n not in ("_parameters", "_buffers", "_modules")}
    return [*part._parameters.items(), *part._buffers.items(), *held.items()]


def _objects(value: Any, seen: set[int], depth: int) -> Iterator[Any]:
    if not _is_plain(value) or id(value) in seen or depth >= _DEPTH:
        return
    seen.add(id(value))
    yield value
    for inner in vars(value).values():
        yield from _objects(inner, seen, depth + 1)


def _is_plain(value: Any) -> bool:
    """An object of the engine's own: with attributes, and no module, class or function."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, (torch.nn.Module, torch.Tensor, type))
        and not callable(getattr(value, "__code__", None))
        and not type(value).__module__.startswith(("torch", "builtins", "enum", "functools"))
        and "Config" not in type(value).__name__
    )


def _collect(path: str, value: Any, found: dict[str, torch.Tensor], depth: int) -> None:
    if any(word in path.rpartition(".")[2].lower() for word in _PASSING) or depth > _DEPTH:
        return
    if isinstance(value, torch.Tensor):
        if not value.is_meta and value.numel():
            found[path] = value
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value[:64]):
            _collect(f"{path}.{number}", inner, found, depth + 1)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _collect(f"{path}.{key}", inner, found, depth + 1)
    elif isinstance(value, functools.partial):
        _collect(f"{path}.arguments", [*value.args, *value.keywords.values()], found, depth + 1)
    elif getattr(value, "__closure__", None) or getattr(value, "__defaults__", None):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        kept = [*cells, *(value.__defaults__ or ())]
        _collect(f"{path}.kept", [v for v in kept if isinstance(v, torch.Tensor)], found, depth + 1)
    elif _is_plain(value):
        for name, inner in vars(value).items():
            _collect(f"{path}.{name}", inner, found, depth + 1)
