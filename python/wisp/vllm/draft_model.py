"""The draft model of speculative decoding: where vLLM has it, and what of it a run reaches.

vLLM tells a weight transfer engine of the served model only, so that the worker that loads both is
noted while it does.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from ..engine.plan.draft_loader import Draft, unreachable
from ..errors import Error
from ..frameworks.when_imported import when_imported
from .packed import expert_layouts, refuse_packed
from .scratch_model import computing_layers
from .versions import MADE_FOR, drafter_of, drafts_here, installed, keeps_joined_copies

__all__ = ["attach_to_worker", "draft_beside", "draft_kind"]

_log = logging.getLogger("wisp.engine")
_WORKER = "vllm.v1.worker.gpu_worker"
_loading: list[Any] = []  # the workers of this process that load their models now


def attach_to_worker() -> None:
    """Notes each worker while it loads, from which on its engine can ask for the draft."""
    when_imported(_WORKER, _wrap)


def _wrap() -> None:
    worker: Any = sys.modules[_WORKER].Worker
    load = worker.load_model
    if getattr(load, "knows_wisp", False):
        return

    @functools.wraps(load)
    def load_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        _loading.append(self)
        try:
            return load(self, *args, **kwargs)
        finally:
            _loading.remove(self)

    load_model.knows_wisp = True  # type: ignore[attr-defined]
    worker.load_model = load_model


def draft_kind(vllm_config: Any) -> str | None:
    """How the server drafts; None: nothing does, or it has no weights."""
    speculative = getattr(vllm_config, "speculative_config", None)
    if getattr(speculative, "draft_model_config", None) is None:
        return None
    method = str(getattr(speculative, "method", None) or "draft_model")
    return None if method in ("ngram", "ngram_gpu", "suffix") else method


def draft_beside(vllm_config: Any) -> Draft | None:
    """The draft of the worker that is loading; None: it has none on this rank.

    One that cannot be found or looked at is a draft that stays as it was loaded: it costs speed,
    and must not cost the server its start.
    """
    try:
        return _draft_of(_loading[-1].model_runner if _loading else None, vllm_config)
    except Exception as error:
        _log.warning("the draft model could not be looked at", exc_info=True)
        return unreachable(f"{type(error).__name__}: {error}")


def _draft_of(runner: Any, vllm_config: Any) -> Draft | None:
    kind = draft_kind(vllm_config)
    if kind is None:
        return None
    drafter = drafter_of(runner)
    model = getattr(drafter, "model", None)
    model = getattr(model, "unwrap", lambda: model)()
    if model is None and not drafts_here():
        return None
    if model is None:
        return unreachable(
            f"vLLM {installed()} keeps the draft ({kind}) where it is not found; that is known of "
            f"{', '.join(MADE_FOR)}"
        )
    folder = vllm_config.speculative_config.draft_model_config.model
    own = None if folder == vllm_config.model_config.model else folder

    def load(tensors: Any) -> object:
        return model.load_weights(tensors)

    obstacle = _obstacle(drafter, model)
    return Draft(model, load, own, None if obstacle else expert_layouts(model), obstacle)


def _obstacle(drafter: Any, model: Any) -> str:
    """Why new weights would not reach all that the draft computes with."""
    if getattr(drafter, "parallel_drafting_hidden_state_tensor", None) is not None:
        return "it keeps a hidden state that was computed from them"
    joined = next((n for n, part in model.named_modules() if keeps_joined_copies(part)), None)
    if joined is not None:
        return f"'{joined}' computes with copies that were joined of its weights"
    try:
        refuse_packed(model)
    except Error as error:
        return str(error)
    computing = computing_layers(model)
    return f"'{computing[0]}' is quantised or keeps copies of its weights" if computing else ""
