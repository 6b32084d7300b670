"""verl with rollouts that take their weights from a run. See doc/frameworks/verl.md.

    actor_rollout_ref.rollout.checkpoint_engine:
      backend: wisp
      custom_backend_module: wisp.verl
      engine_kwargs: {wisp: {run: "s3://bucket/run"}}

verl imports this module in every worker, and finds the backend registered.
"""

from __future__ import annotations

from .checkpoint_engine import BACKEND, WispCheckpointEngine

__all__ = ["BACKEND", "WispCheckpointEngine"]
