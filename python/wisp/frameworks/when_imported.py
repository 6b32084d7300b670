"""Something to do once a module has been imported, by whatever imports it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

__all__ = ["when_imported"]

logger = logging.getLogger("wisp")


def when_imported(name: str, act: Callable[[], object]) -> None:
    """Calls `act` after the module has run; at once if it has. What `act` raises is logged."""
    if name in sys.modules:
        _try(name, act)
    else:
        sys.meta_path.insert(0, _Watch(name, act))


def _try(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        logger.warning("after the import of %s: %s: %s", name, type(error).__name__, error)


class _Watch(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, act: Callable[[], object]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            found: importlib.machinery.ModuleSpec | None = find and find(fullname, path, target)
            if found is not None:
                if found.loader is not None:
                    found.loader = _Telling(found.loader, self._name, self._act)
                return found
        return None


class _Telling(importlib.abc.Loader):
    """A loader of another's, and what is to be done after it."""

    def __init__(self, loader: importlib.abc.Loader, name: str, act: Callable[[], object]) -> None:
        self._loader = loader
        self._name = name
        self._act = act

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _try(self._name, self._act)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)
