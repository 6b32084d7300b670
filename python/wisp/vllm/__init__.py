"""The vLLM plugin: a server that follows a run. See doc/engines.md.

    vllm serve MODEL --weight-transfer-config '{"backend": "wisp"}'

vLLM finds `register` by its entry point and calls it in every one of its processes. For an engine
in your own process, `update(llm)` does what POST /wisp/update does for a server.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm import LLM

__all__ = ["register", "status", "update"]

BACKEND = "wisp"
_REGISTRY_PROCESS = "vllm.model_executor.models.registry"


def register() -> None:
    """Makes the backend known. Called by vLLM, in each process, any number of times."""
    from .identity import assign_engine_id

    assign_engine_id()
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, "wisp.vllm.rank_engine", "WispEngine")
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == _REGISTRY_PROCESS:
        return  # it looks at one model's class and ends
    from .core_switch import attach_to_core
    from .packed import keep_unpacked
    from .routes import attach_to_server

    attach_to_core()
    attach_to_server()
    keep_unpacked()


def update(
    llm: LLM,
    step: int | None = None,
    *,
    timeout: float = 300.0,
    mode: str = "keep",
    recompute: bool = False,
) -> dict[str, Any]:
    """Brings an engine in this process to `step`, or to the newest (None); see doc/engines.md."""
    from .offline import update_offline

    return update_offline(llm, step, timeout=timeout, mode=mode, recompute=recompute)


def status(llm: LLM) -> dict[str, Any]:
    """What GET /wisp/status answers for a server."""
    from .offline import status_offline

    return status_offline(llm)
