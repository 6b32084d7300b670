"""The switch itself, inside vLLM's engine core: pause, write, name the version, go on.

All of it is one call, so that nobody who dies half-way, driver or API server, leaves the engine
paused.
"""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import Future
from typing import Any

from .rank_engine import switch_rank, verify_rank
from .versions import name_version

__all__ = ["attach_to_core"]


def attach_to_core() -> None:
    """Gives the engine core the calls `wisp_update` and `wisp_verify`."""
    from vllm.v1.engine.core import EngineCore

    EngineCore.wisp_update = _update
    EngineCore.wisp_verify = _verify


def _update(core: Any, key: str, mode: str, recompute: bool) -> Any:
    asked = time.time()
    already = core.is_scheduler_paused()
    waiting = None if already else core.pause_scheduler(mode, False)
    if waiting is None:
        return _switch(core, key, recompute, asked, already)
    done: Future[Any] = Future()

    def idle(paused: Future[Any]) -> None:
        try:
            paused.result()
            done.set_result(_switch(core, key, recompute, asked, already))
        except Exception as error:
            done.set_exception(error)

    waiting.add_done_callback(idle)
    return done


def _switch(core: Any, key: str, recompute: bool, asked: float, already: bool) -> dict[str, Any]:
    began, clock = time.time(), time.perf_counter()
    applied = clock
    try:
        answers = core.model_executor.collective_rpc(switch_rank, args=(key,))
        applied = time.perf_counter()
        refused = next((answer for answer in answers if "error" in answer), None)
        if refused is None:
            name_version(core, str(answers[0]["step"]))
            _forget_prefixes(core, key, recompute)
    finally:
        if not already:
            core.resume_scheduler()
    pause = time.perf_counter() - clock
    if refused is not None:
        return {**refused, "pause_seconds": pause}
    times = {
        **answers[0]["times"], "asked": asked, "paused": began,
        "applied": began + applied - clock, "resumed": began + pause,
    }  # fmt: skip
    return {"key": key, "step": answers[0]["step"], "times": times, "pause_seconds": pause}


def _forget_prefixes(core: Any, key: str, recompute: bool) -> None:
    """Nothing that was computed with the old weights may be found by a request to come.

    Requests under way keep what they have computed, under hashes that no other request has; with
    `recompute` they compute it again.
    """
    scheduler = core.scheduler
    if core.vllm_config.model_config.is_multimodal_model:
        core.reset_encoder_cache()
    try:
        pool = scheduler.kv_cache_manager.block_pool
        cached = pool.cached_block_hash_to_block
        entries = list(cached._cache.values())
    except AttributeError:
        recompute = True  # another vLLM than this was written for
    if recompute:
        scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        return
    for entry in entries:
        for block in entry.values() if isinstance(entry, dict) else (entry,):
            block.reset_hash()
    pool.cached_block_hash_to_block = type(cached)()
    pool.cached_block_hashes_by_block.clear()
    if pool.enable_kv_cache_events:
        from vllm.distributed.kv_events import AllBlocksCleared

        pool.kv_event_queue.append(AllBlocksCleared())
    for request in scheduler.requests.values():
        if request.num_computed_tokens > 0:
            salt = f"{key} {request.request_id}"
            request.block_hashes = [
                hashlib.sha256(salt.encode() + h).digest()[: len(h)] for h in request.block_hashes
            ]
            # Hashes to come descend from the last one; the very first from this.
            request.cache_salt = f"{request.cache_salt or ''} {salt}"
    scheduler.reset_connector_cache()


def _verify(core: Any) -> list[int]:
    counts: list[int] = core.model_executor.collective_rpc(verify_rank)
    return counts
