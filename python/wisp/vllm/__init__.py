"""The vLLM plugin: a server that follows a run. See doc/engines.md.

    vllm serve MODEL --weight-transfer-config '{"backend": "wisp"}'

vLLM finds `register` by its entry point and calls it in every one of its processes. For an engine
in your own process, `update(llm)` does what POST /wisp/update does for a server.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm import LLM

    from .trainer import TrainerInfo

__all__ = ["TrainerInfo", "register", "status", "update"]

_log = logging.getLogger("wisp.engine")
_REGISTRY_PROCESS = "vllm.model_executor.models.registry"


def register() -> None:
    """Makes the backend known. Called by vLLM, in each process, any number of times.

    A part that this vLLM has no place for is a line in the log, never the end of a server that may
    not even use the backend.
    """
    _take("naming this engine", _assign_engine_id)
    if not _take("the backend", _register_rank_engine):
        return
    _take("the trainer's side", _register_trainer_engine)
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == _REGISTRY_PROCESS:
        return  # it looks at one model's class and ends
    _take("the switch in the engine core", _attach_to_core)
    _take("the routes /wisp", _attach_to_server)
    _take("unpacked weights on CPUs", _keep_unpacked)
    _take("the weights of draft models", _attach_to_worker)


def _take(part: str, act: Callable[[], object]) -> bool:
    try:
        act()
    except Exception as error:
        from .versions import told_lack

        _log.warning("%s", told_lack(part, error))
        return False
    return True


def _assign_engine_id() -> None:
    from .identity import assign_engine_id

    assign_engine_id()


def _register_rank_engine() -> None:
    from .backend import register_rank_engine

    register_rank_engine()


def _register_trainer_engine() -> None:
    from .backend import BACKEND, register_trainer_engine

    register_trainer_engine(BACKEND, "wisp.vllm.trainer", "TrainerEngine")


def _attach_to_core() -> None:
    from .core_switch import attach_to_core

    attach_to_core()


def _attach_to_server() -> None:
    from .routes import attach_to_server

    attach_to_server()


def _keep_unpacked() -> None:
    from .packed import keep_unpacked

    keep_unpacked()


def _attach_to_worker() -> None:
    from .draft_model import attach_to_worker

    attach_to_worker()


def __getattr__(name: str) -> object:
    if name == "TrainerInfo":  # it needs vLLM
        from .trainer import TrainerInfo

        return TrainerInfo
    raise AttributeError(f"module 'wisp.vllm' has no attribute '{name}'")


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
