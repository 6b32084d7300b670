"""After a fork: what belongs to the parent is inert in the child, and says so.

Threads do not survive a fork, and locks that they held are held for ever. So a child must neither
use nor destroy what works with threads; it leaks it, and can always exit.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable

from . import _native
from .errors import InvalidError

__all__ = ["OfOneProcess"]


class OfOneProcess:
    """Mixin for what works with native threads: usable only in the process that made it."""

    _process = 0
    _natives: Iterable[object] = ()

    def _own(self, *natives: object) -> None:
        """From now on this object belongs to this process, and with it what it is made of."""
        self._process = os.getpid()
        self._natives = natives
        _owners.add(self)

    @property
    def _is_inherited(self) -> bool:
        return self._process not in (0, os.getpid())

    def _require_own(self) -> None:
        if self._is_inherited:
            what = type(self).__name__.lower()
            raise InvalidError(
                f"this {what} belongs to process {self._process}; process {os.getpid()}, forked "
                "from it, has to make its own"
            )


_owners: weakref.WeakSet[OfOneProcess] = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    for owner in list(_owners):
        for native in owner._natives:
            _native.keep_for_ever(native)
    _owners.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)
