"""The draft model of speculative decoding: what of it a run reaches."""

from __future__ import annotations

from typing import Any

__all__ = ["draft_note"]


def draft_note(vllm_config: Any) -> str | None:
    """For status and log; None: nothing drafts, or it has no weights.

    A draft never decides a token: the served model accepts it or not. Old weights there cost
    speed and nothing else.
    """
    speculative = getattr(vllm_config, "speculative_config", None)
    draft = getattr(speculative, "draft_model_config", None)
    if speculative is None or draft is None:
        return None
    method = getattr(speculative, "method", None) or "draft_model"
    if method in ("ngram", "ngram_gpu", "suffix"):
        return None
    served = vllm_config.model_config.model
    own = (
        "its own layers, though of the served folder, stay as they were loaded"
        if draft.model == served
        else f"its own weights, of {draft.model}, are not the run's and stay as they were loaded"
    )
    return (
        f"draft model ({method}): what it shares with the served model follows the run; {own}, "
        "so that fewer of its tokens may be accepted as training goes on"
    )
