"""For an engine in one's own process (vllm.LLM): what the routes do for a server."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .fan_out import Answer
from .update_coordinator import UpdateCoordinator

if TYPE_CHECKING:
    from vllm import LLM

__all__ = ["status_offline", "update_offline"]

_coordinators: weakref.WeakKeyDictionary[Any, UpdateCoordinator] = weakref.WeakKeyDictionary()


def _coordinator(llm: LLM) -> UpdateCoordinator:
    engine = llm.llm_engine
    if engine not in _coordinators:
        _coordinators[engine] = UpdateCoordinator(engine.vllm_config)
    return _coordinators[engine]


def _core(llm: LLM, method: str, *args: Any) -> Any:
    client = llm.llm_engine.engine_core
    inside = getattr(client, "engine_core", None)  # no other process
    return getattr(inside, method)(*args) if inside else client.call_utility(method, *args)


def update_offline(
    llm: LLM, step: int | None, *, timeout: float, mode: str, recompute: bool
) -> dict[str, Any]:
    """Waits until the step is staged, then switches."""
    coordinator = _coordinator(llm)
    target = coordinator.ready(step, timeout)
    if target.served:
        return target.answer()
    answer = Answer(0, _core(llm, "wisp_update", target.key, mode, recompute))
    told = coordinator.note_switch(target.key, [answer])
    coordinator.wait_told(target.key)
    return told


def status_offline(llm: LLM) -> dict[str, Any]:
    """Where the engine is."""
    return _coordinator(llm).status()


def verify_offline(llm: LLM) -> int:
    """How many elements of the engine's memory differ from the state that it serves."""
    return sum(_core(llm, "wisp_verify"))
