"""wisp: weights in sparse patches. Delta weight sync for reinforcement learning, bit for bit."""

from . import stores
from ._native import __version__, kernel_name
from .errors import (
    Conflict,
    Corrupt,
    Denied,
    Error,
    Fenced,
    Forked,
    Gap,
    Incapable,
    Internal,
    Invalid,
    NoRun,
    NoSpace,
    NotFound,
    Unavailable,
    Unsupported,
    WrongBase,
)
from .runs import compact, doctor, export, init, log, retain, scrub, status

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
    "__version__",
    "compact",
    "doctor",
    "export",
    "init",
    "kernel_name",
    "log",
    "retain",
    "scrub",
    "status",
    "stores",
]
