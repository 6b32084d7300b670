"""Exceptions, one per cure: what to do next is in the class, what happened in the text."""

from __future__ import annotations

import errno

__all__ = [
    "Conflict",
    "Corrupt",
    "Denied",
    "Error",
    "Fenced",
    "Forked",
    "Gap",
    "Incapable",
    "Internal",
    "Invalid",
    "NoRun",
    "NoSpace",
    "NotFound",
    "Unavailable",
    "Unsupported",
    "WrongBase",
]


class Error(Exception):
    """Base of all exceptions of wisp. `kind` is stable across releases, e.g. "wrong_base"."""

    kind: str = "internal"
    #: How long the other side asked to be left alone, in milliseconds, if it did.
    retry_after_ms: int | None = None


class Invalid(Error, ValueError):
    """Fix the call."""

    kind = "invalid"


class NotFound(Error, LookupError):
    """Wait, or take an anchor."""

    kind = "not_found"


class Corrupt(Error):
    """Fetch again, then take an anchor."""

    kind = "corrupt"


class WrongBase(Error):
    """The weights are not those that the delta was made from: plan again from where you are."""

    kind = "wrong_base"


class Denied(Error):
    """Fix credentials or permissions."""

    kind = "denied"


class Conflict(Error):
    """Refresh and retry."""

    kind = "conflict"


class Fenced(Error):
    """Stop: a newer writer owns the run."""

    kind = "fenced"


class Unavailable(Error):
    """Retry later."""

    kind = "unavailable"


class Unsupported(Error):
    """Upgrade, or ask for something else."""

    kind = "unsupported"


class NoSpace(Error):
    """Free room on the disk."""

    kind = "no_space"


class NoRun(Error):
    """Check the address, or start a run there."""

    kind = "no_run"


class Gap(Error):
    """The history needed is gone: start over from an anchor."""

    kind = "gap"


class Forked(Error):
    """Stop and look: another history, a rollback, or another run."""

    kind = "forked"


class Incapable(Error):
    """Use another store, or one writer only."""

    kind = "incapable"


class Internal(Error):
    """Report our bug."""

    kind = "internal"


_BY_KIND: dict[str, type[Error]] = {
    c.kind: c for c in Error.__subclasses__() if c.__module__ == __name__
}


def exception_of(kind: str, text: str, retry_after_ms: int | None = None) -> Error:
    """The exception for an error of the library."""
    made = _BY_KIND.get(kind, Internal)(text)
    made.retry_after_ms = retry_after_ms
    return made


def kind_of(exception: BaseException) -> str:
    """What the library is told when Python code that it called has raised."""
    if isinstance(exception, Error):
        return exception.kind
    if isinstance(exception, FileNotFoundError):
        return NotFound.kind
    if isinstance(exception, PermissionError):
        return Denied.kind
    if isinstance(exception, OSError):
        full = exception.errno in (errno.ENOSPC, errno.EDQUOT)
        return NoSpace.kind if full else Unavailable.kind
    return Internal.kind
