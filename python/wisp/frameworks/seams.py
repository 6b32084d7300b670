"""Where other people's packages take ours in: found, or named with the versions that have it."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

from ..errors import UnsupportedError

__all__ = ["find_seam", "require_methods"]


def find_seam(package: str, tested: str, module: str, *names: str) -> tuple[Any, ...]:
    """The `names` of `module`; UnsupportedError if the installed `package` has them elsewhere."""
    try:
        found = importlib.import_module(module)
        return tuple(getattr(found, name) for name in names)
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(
            f"{_installed(package)}: {error}. {_works(package, tested)}"
        ) from error


def require_methods(package: str, tested: str, made: type) -> None:
    """UnsupportedError if the base class of `made`, which is theirs, wants more than it has."""
    missing = sorted(getattr(made, "__abstractmethods__", ()))
    if missing:
        raise UnsupportedError(
            f"{_installed(package)} asks a {made.__mro__[1].__name__} for {', '.join(missing)}, "
            f"which wisp does not know. {_works(package, tested)}"
        )


def _installed(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} (not installed)"


def _works(package: str, tested: str) -> str:
    return f"wisp works with {package} {tested}"
