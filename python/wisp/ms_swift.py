"""ms-swift (4.6): publishing as one of its callbacks. See doc/frameworks/callbacks.md.

A file of your own, named by `--external_plugins`, and `--callbacks wisp`:

    from wisp.ms_swift import register

    register(run="s3://bucket/run")
"""

from __future__ import annotations

from typing import Any

from .errors import InvalidError
from .frameworks.seams import find_seam
from .hf import PublishCallback

__all__ = ["register"]


def register(*, run: Any, name: str = "wisp", **options: Any) -> None:
    """Gives ms-swift a callback of this name, with the settings of wisp.hf.PublishCallback."""
    if not run:
        raise InvalidError("`run` says where to publish, and is empty")
    (known,) = find_seam("ms-swift", "4.6.0", "swift.callbacks", "callbacks_map")

    class SwiftCallback(PublishCallback):
        """Made by ms-swift, of its arguments and its trainer."""

        def __init__(self, args: Any, trainer: Any) -> None:
            super().__init__(run, **options)
            self.watch(trainer)

    known[name] = SwiftCallback
