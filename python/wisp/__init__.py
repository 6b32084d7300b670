"""wisp: weights in sparse patches. Delta weight sync for reinforcement learning, bit for bit."""

from importlib import import_module
from typing import TYPE_CHECKING

from . import stores
from ._native import kernel_name
from ._native import version as __version__
from .checkpoints import Delta, apply, diff, digest, inspect, merge, verify
from .errors import (
    ConflictError,
    CorruptError,
    DeniedError,
    Error,
    FencedError,
    ForkedError,
    GapError,
    IncapableError,
    InternalError,
    InvalidError,
    NoRunError,
    NoSpaceError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
    WrongBaseError,
)
from .folders import ReadFolder, reading
from .follow.follower import Follower, SyncReport
from .follow.targets import Changes, TensorChange
from .publish.publisher import Publisher, PublishStats
from .publish.stream_publisher import StreamPublisher
from .runs import compact, doctor, export, init, log, retain, scrub, status

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import axolotl as axolotl
    from . import engine as engine
    from . import folders as folders
    from . import hf as hf
    from . import ms_swift as ms_swift
    from . import nemo_rl as nemo_rl
    from . import plot as plot
    from . import quantize as quantize
    from . import ray as ray
    from . import sglang as sglang
    from . import sharded as sharded
    from . import skyrl as skyrl
    from . import slime as slime
    from . import trl as trl
    from . import verl as verl
    from . import vllm as vllm
    from .sharded import ShardedPublisher, ShardedReport

#: Submodules that need more than numpy: `import wisp; wisp.trl` imports them when they are asked
#: for.
_SUBMODULES = (
    "adapters", "axolotl", "engine", "hf", "ms_swift", "nemo_rl", "plot", "quantize", "ray",
    "sglang", "sharded", "skyrl", "slime", "trl", "verl", "vllm",
)  # fmt: skip

__all__ = [
    "Changes",
    "ConflictError",
    "CorruptError",
    "Delta",
    "DeniedError",
    "Error",
    "FencedError",
    "Follower",
    "ForkedError",
    "GapError",
    "IncapableError",
    "InternalError",
    "InvalidError",
    "NoRunError",
    "NoSpaceError",
    "NotFoundError",
    "PublishStats",
    "Publisher",
    "ReadFolder",
    "ShardedPublisher",
    "ShardedReport",
    "StreamPublisher",
    "SyncReport",
    "TensorChange",
    "UnavailableError",
    "UnsupportedError",
    "WrongBaseError",
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
    "reading",
    "retain",
    "scrub",
    "status",
    "stores",
    "verify",
]


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    if name in ("ShardedPublisher", "ShardedReport"):
        return getattr(import_module(".sharded", __name__), name)
    raise AttributeError(f"module 'wisp' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
