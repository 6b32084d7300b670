"""SkyRL (0.4): what it calls the backend `delta` goes through wisp. See doc/frameworks/skyrl.md.

    RAY_RUNTIME_ENV_HOOK=wisp.skyrl.runtime_env python -m skyrl.train.entrypoints.main_base …

SkyRL lets only names of its own pass, and registers `delta` unless that is registered already. Ray
calls `runtime_env` when SkyRL starts it, and then `register` in each of its processes.
"""

from __future__ import annotations

import logging
import os
import weakref
from typing import Any

from ..errors import InvalidError
from ..frameworks.when_imported import when_imported
from ..vllm.backend import FURTHER_NAMES, backend_names, register_trainer_engine

__all__ = ["DELTA", "register", "runtime_env"]

logger = logging.getLogger("wisp")

DELTA = "delta"
_HOOK = "worker_process_setup_hook"
_FACTORY = "vllm.distributed.weight_transfer.factory"
_SERVER = "vllm.entrypoints.openai.api_server"
_taken_in: weakref.WeakSet[Any] = weakref.WeakSet()  # registries in which the name is ours


def runtime_env(environment: dict[str, Any] | None) -> dict[str, Any]:
    """For RAY_RUNTIME_ENV_HOOK: the environment of Ray's processes, in which `delta` is wisp's."""
    told = dict(environment or {})
    other = told.get(_HOOK)
    ours = f"{__name__}.register"
    if other not in (None, ours):
        raise InvalidError(
            f"Ray's processes are set up by {other} already; call wisp.skyrl.register() there, and "
            f"set {FURTHER_NAMES}={DELTA} for all of them, in the place of RAY_RUNTIME_ENV_HOOK"
        )
    told[_HOOK] = ours
    told["env_vars"] = {**told.get("env_vars", {}), FURTHER_NAMES: _with_delta()}
    return told


def register() -> None:
    """Makes `delta` wisp's in this process and those that it starts.

    To be called before SkyRL registers its own. Costs nothing in processes that never import vLLM.
    """
    os.environ[FURTHER_NAMES] = _with_delta()
    when_imported(_FACTORY, _register_engines)
    when_imported(_SERVER, _register_server)


def _with_delta() -> str:
    return ",".join(dict.fromkeys([*backend_names()[1:], DELTA]))


def _register_engines() -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory as Factory

    from ..vllm.backend import register_rank_engine

    register_rank_engine()
    if register_trainer_engine(DELTA, "wisp.skyrl.delta_trainer", "DeltaTrainerEngine"):
        _taken_in.add(Factory)
    elif Factory not in _taken_in:
        logger.warning(
            "'%s' is SkyRL's own in this process, which registered it before wisp.skyrl.register() "
            "was called: weights do not go through wisp",
            DELTA,
        )


def _register_server() -> None:
    from .. import vllm

    vllm.register()
