"""For an engine in one's own process (vllm.LLM): what the routes do for a server."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .conductor import Conductor
from .fan_out import Answer

if TYPE_CHECKING:
    from vllm import LLM

__all__ = ["status_offline", "update_offline"]

_conductors: weakref.WeakKeyDictionary[Any, Conductor] = weakref.WeakKeyDictionary()


def _conductor(llm: LLM) -> Conductor:
    engine = llm.llm_engine
    if engine not in _conductors:
        _conductors[engine] = Conductor(engine.vllm_config)
    return _conductors[engine]


def _core(llm: LLM, method: str, *args: Any) -> Any:
    client = llm.llm_engine.engine_core
    inside = getattr(client, "engine_core", None)  # no other process
    return getattr(inside, method)(*args) if inside else client.call_utility(method, *args)


def update_offline(
    llm: LLM, step: int | None, *, timeout: float, mode: str, recompute: bool
) -> dict[str, Any]:
    """Waits until the step is staged, then switches."""
    conductor = _conductor(llm)
    target = conductor.ready(step, timeout)
    if target.served:
        return target.answer()
    answer = Answer(0, _core(llm, "wisp_update", target.key, mode, recompute))
    return conductor.note_switch(target.key, [answer])


def status_offline(llm: LLM) -> dict[str, Any]:
    """Where the engine is."""
    return _conductor(llm).status()


def verify_offline(llm: LLM) -> int:
    """How many elements of the engine's memory differ from the state that it serves."""
    return sum(_core(llm, "wisp_verify"))
