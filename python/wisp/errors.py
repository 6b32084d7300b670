"""Exceptions, one per cure: what to do next is in the class, what happened in the text."""

from __future__ import annotations

import errno

__all__ = [
    "ConflictError",
    "CorruptError",
    "DeniedError",
    "Error",
    "FencedError",
    "ForkedError",
    "GapError",
    "IncapableError",
    "InternalError",
    "InvalidError",
    "NoRunError",
    "NoSpaceError",
    "NotFoundError",
    "UnavailableError",
    "UnsupportedError",
    "WrongBaseError",
]


class Error(Exception):
    """Base of all exceptions of wisp. `kind` is stable across releases, e.g. "wrong_base"."""

    kind: str = "internal"
    #: How long the other side asked to be left alone, in milliseconds, if it did.
    retry_after_ms: int | None = None


class InvalidError(Error, ValueError):
    """Fix the call."""

    kind = "invalid"


class NotFoundError(Error, LookupError):
    """Wait, or take an anchor."""

    kind = "not_found"


class CorruptError(Error):
    """Fetch again, then take an anchor."""

    kind = "corrupt"


class WrongBaseError(Error):
    """The weights are not those that the delta was made from: plan again from where you are."""

    kind = "wrong_base"


class DeniedError(Error):
    """Fix credentials or permissions."""

    kind = "denied"


class ConflictError(Error):
    """Refresh and retry."""

    kind = "conflict"


class FencedError(Error):
    """Stop: a newer writer owns the run."""

    kind = "fenced"


class UnavailableError(Error):
    """Retry later."""

    kind = "unavailable"


class UnsupportedError(Error):
    """Upgrade, or ask for something else."""

    kind = "unsupported"


class NoSpaceError(Error):
    """Free room on the disk."""

    kind = "no_space"


class NoRunError(Error):
    """Check the address, or start a run there."""

    kind = "no_run"


class GapError(Error):
    """The history needed is gone: start over from an anchor."""

    kind = "gap"


class ForkedError(Error):
    """Stop and look: another history, a rollback, or another run."""

    kind = "forked"


class IncapableError(Error):
    """Use another store, or one writer only."""

    kind = "incapable"


class InternalError(Error):
    """Report our bug."""

    kind = "internal"


_BY_KIND: dict[str, type[Error]] = {
    c.kind: c for c in Error.__subclasses__() if c.__module__ == __name__
}


def exception_of(kind: str, text: str, retry_after_ms: int | None = None) -> Error:
    """The exception of a kind, by its name."""
    made = _BY_KIND.get(kind, InternalError)(text)
    made.retry_after_ms = retry_after_ms
    return made


def library_exception(kind: str, text: str, retry_after_ms: int | None) -> Error:
    """The exception for an error that the library returned, with what can be done about it here."""
    if kind == FencedError.kind:
        text += " (a new publisher takes over the run that it opens)"
    return exception_of(kind, text, retry_after_ms)


def kind_of(exception: BaseException) -> str:
    """What the library is told when Python code that it called has raised."""
    if isinstance(exception, Error):
        return exception.kind
    if isinstance(exception, FileNotFoundError):
        return NotFoundError.kind
    if isinstance(exception, PermissionError):
        return DeniedError.kind
    if isinstance(exception, OSError):
        full = exception.errno in (errno.ENOSPC, errno.EDQUOT)
        return NoSpaceError.kind if full else UnavailableError.kind
    return InternalError.kind


def text_of(exception: BaseException) -> str:
    """What people are told: ours explain themselves, others are called by their name."""
    ours = isinstance(exception, Error)
    return str(exception) if ours else f"{type(exception).__name__}: {exception}"
