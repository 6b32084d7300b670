"""Axolotl (0.21): two entries in its configuration publish. See doc/frameworks/callbacks.md.

plugins:
  - wisp.axolotl.WispPlugin
wisp:
  run: s3://bucket/run
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from .errors import InvalidError
from .frameworks.seams import find_seam
from .hf import PublishCallback

__all__ = ["WispArgs", "WispPlugin"]

(BasePlugin,) = find_seam("axolotl", "0.21.0", "axolotl.integrations.base", "BasePlugin")


class WispArgs(BaseModel):  # type: ignore[misc]
    """What Axolotl lets pass in its configuration; the settings of wisp.hf.PublishCallback."""

    wisp: dict[str, Any] | None = None


class WispPlugin(BasePlugin):  # type: ignore[misc,valid-type]
    """Adds wisp.hf.PublishCallback to the trainer, with what `wisp:` says."""

    def get_input_args(self) -> str:
        return f"{__name__}.WispArgs"

    def add_callbacks_post_trainer(self, cfg: Any, trainer: Any) -> list[Any]:
        callback = PublishCallback(**_settings(cfg))
        callback.watch(trainer)
        return [callback]


def _settings(cfg: Any) -> dict[str, Any]:
    told = cfg.get("wisp") if hasattr(cfg, "get") else getattr(cfg, "wisp", None)
    if not told or not dict(told).get("run"):
        raise InvalidError(
            "the plugin wisp.axolotl.WispPlugin needs to know where to publish: add `wisp:` with "
            "`run: s3://bucket/run` to the configuration"
        )
    return dict(told)
