"""SGLang's plugin (0.5.23): `wisp follow --sglang URL` drives a server that was started as always.

SGLang finds `register` by its entry point and calls it in each of its processes. It hooks into:

- the loader wisp.sglang.load_delta is among those that a server lets pass, without the flag
  `--custom-weight-loader`;
- sessions of updates (`begin_weight_update` … `end_weight_update`): SGLang brings all weights into
  the layout of a checkpoint when one begins and processes all of them anew when it ends. A step of
  a run is written into the weights as they serve, so for a model that follows a run neither is
  done, unless something else is loaded in the same session.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["register"]

_log = logging.getLogger("wisp.engine")
LOADER = "wisp.sglang.load_delta"
TESTED = "0.5.23"
_ARGUMENTS = "sglang.srt.server_args.ServerArgs"
_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"


def register() -> None:
    """Hangs the hooks up. Never raises: a part that is missing is a line in the log."""
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        before, around = HookType.BEFORE, HookType.AROUND
        for target, hook, kind in (
            (f"{_ARGUMENTS}.resolve_once", _name_loader, before),
            (f"{_UPDATER}.begin_weight_update", _begin, around),
            (f"{_UPDATER}.update_weights_from_tensor", _load_tensors, around),
            (f"{_UPDATER}.load_weights_from_distributed", _load_distributed, around),
            (f"{_UPDATER}.end_weight_update", _end, around),
        ):
            if all(known is not hook for _, known, _ in HookRegistry._hooks[target]):
                HookRegistry.register(target, hook, kind)
    except Exception as error:
        _log.warning(
            "this SGLang has no place for wisp's plugin (%s: %s); it is tested with %s. Start the "
            "server with --custom-weight-loader %s",
            type(error).__name__, error, TESTED, LOADER,
        )  # fmt: skip


def _name_loader(arguments: Any) -> None:
    """Before the arguments of a server are resolved, and then read-only."""
    if getattr(arguments, "_input_frozen", False):
        return
    if getattr(arguments, "startup_weight_load_mode", "serial") != "serial":
        _log.info("wisp: no loader beside --startup-weight-load-mode, which allows for none")
        return
    named = list(arguments.custom_weight_loader or [])
    if LOADER not in named:
        arguments.custom_weight_loader = [*named, LOADER]


class _Sessions:
    """Updates that are under way in this worker, by model."""

    def __init__(self) -> None:
        #: Begun, and nothing done yet: what SGLang would have done.
        self.put_off: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = (
            weakref.WeakKeyDictionary()
        )
        #: Weights are in the layout of a checkpoint: what came of ours meanwhile.
        self.restored: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()


_sessions = _Sessions()


def _begin(original: Callable[[Any], None], updater: Any) -> None:
    from .sglang import is_following

    model = updater.get_model()
    if is_following(model):
        _sessions.put_off[model] = original
        return
    original(updater)
    _sessions.restored[model] = []


def _load_tensors(
    original: Callable[..., Any], updater: Any, named_tensors: Any, load_format: str | None = None
) -> Any:
    waiting = _sessions.restored.get(updater.get_model())
    if load_format == LOADER and waiting is not None:
        waiting.append(named_tensors)  # the layout of memory is learned when it serves again
        return True, "Success"
    if load_format != LOADER:
        _begin_after_all(updater)
    return original(updater, named_tensors=named_tensors, load_format=load_format)


def _load_distributed(original: Callable[..., Any], updater: Any, named_tensors: Any) -> Any:
    _begin_after_all(updater)
    return original(updater, named_tensors)


def _begin_after_all(updater: Any) -> None:
    """Somebody else writes to a model that follows a run."""
    model = updater.get_model()
    restore = _sessions.put_off.pop(model, None)
    if restore is None:
        return
    _log.warning(
        "weights that are no step of the run are loaded into a model that follows one; the next "
        "step proves what is there, and is refused where it is not the run's"
    )
    restore(updater)
    _sessions.restored[model] = []


def _end(original: Callable[..., None], updater: Any, *, run_post_load: bool) -> None:
    from .sglang import load_delta

    model = updater.get_model()
    if _sessions.put_off.pop(model, None) is not None:
        return
    try:
        original(updater, run_post_load=run_post_load)
    finally:
        waiting = _sessions.restored.pop(model, [])
    for named_tensors in waiting:
        load_delta(model, named_tensors)
