"""The draft model of speculative decoding: where vLLM has it, and what of it a run reaches.

vLLM tells a weight transfer engine of the served model only, so that the worker that loads both is
noted while it does.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from ..engine.plan.draft_loader import Draft
from ..errors import Error
from ..frameworks.when_imported import when_imported
from .packed import expert_layouts, refuse_packed
from .twin import computing_layers

__all__ = ["attach_to_worker", "draft_beside", "draft_kind"]

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
    """The draft of the worker that is loading; None: it has none on this rank."""
    runner = _loading[-1].model_runner if _loading else None
    drafter = getattr(runner, "drafter", None)
    model = getattr(drafter, "model", None)
    model = getattr(model, "unwrap", lambda: model)()
    if draft_kind(vllm_config) is None or model is None:
        return None
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
    try:
        refuse_packed(model)
    except Error as error:
        return str(error)
    computing = computing_layers(model)
    return f"'{computing[0]}' is quantised or keeps copies of its weights" if computing else ""
