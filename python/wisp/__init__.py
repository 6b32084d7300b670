"""wisp: weights in sparse patches. Delta weight sync for reinforcement learning, bit for bit."""

from typing import TYPE_CHECKING, Any

from . import stores
from ._native import kernel_name
from ._native import version as __version__
from .checkpoints import Delta, apply, diff, digest, inspect, merge, verify
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
from .follower import Follower, SyncReport
from .publisher import Publisher, PublishStats
from .runs import compact, doctor, export, init, log, retain, scrub, status
from .targets import Changes, TensorChange

if TYPE_CHECKING:
    from .sharded import ShardedPublisher, ShardedReport

__all__ = [
    "Changes",
    "Conflict",
    "Corrupt",
    "Delta",
    "Denied",
    "Error",
    "Fenced",
    "Follower",
    "Forked",
    "Gap",
    "Incapable",
    "Internal",
    "Invalid",
    "NoRun",
    "NoSpace",
    "NotFound",
    "PublishStats",
    "Publisher",
    "ShardedPublisher",
    "ShardedReport",
    "SyncReport",
    "TensorChange",
    "Unavailable",
    "Unsupported",
    "WrongBase",
    "__version__",
    "apply",
    "compact",
    "diff",
    "digest",
    "doctor",
    "export",
    "init",
    "inspect",
    "kernel_name",
    "log",
    "merge",
    "retain",
    "scrub",
    "status",
    "stores",
    "verify",
]


def __getattr__(name: str) -> Any:
    # What needs torch is imported when it is asked for.
    if name in ("ShardedPublisher", "ShardedReport"):
        from . import sharded

        return getattr(sharded, name)
    raise AttributeError(f"module 'wisp' has no attribute '{name}'")
