"""The names under which vLLM knows this backend, on servers and on trainers."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["BACKEND", "backend_names", "is_ours", "register_rank_engine", "register_trainer_engine"]

BACKEND = "wisp"
#: Further names, with commas between them: frameworks have lists of names that they let pass.
FURTHER_NAMES = "WISP_BACKENDS"


def backend_names() -> list[str]:
    """All names, the first one ours."""
    further = [name.strip() for name in os.environ.get(FURTHER_NAMES, "").split(",")]
    return [BACKEND, *(name for name in further if name and name != BACKEND)]


def is_ours(transfer: Any) -> bool:
    """Whether a weight transfer configuration (or its dict, or None) names this backend."""
    named = transfer.get("backend") if isinstance(transfer, dict) else None
    return (named or getattr(transfer, "backend", None)) in backend_names()


def register_rank_engine() -> None:
    """On servers. A name that another package has taken already stays that package's."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    for name in backend_names():
        if name not in WeightTransferEngineFactory._registry:
            WeightTransferEngineFactory.register_engine(name, "wisp.vllm.rank_engine", "WispEngine")


def register_trainer_engine(name: str, engine: Any, class_name: str | None = None) -> bool:
    """On trainers; False: the name is taken. `engine`: a class, or the module of `class_name`."""
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    if name in WeightTransferTrainerFactory._registry:
        return False
    WeightTransferTrainerFactory.register_engine(name, engine, class_name)
    return True
