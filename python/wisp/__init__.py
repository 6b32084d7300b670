"""wisp: weights in sparse patches. Delta weight sync for reinforcement learning, bit for bit."""

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
    "kernel_name",
]
