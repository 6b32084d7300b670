"""What differs between the versions of vLLM that the plugin works with; nothing else knows of it.

| | 0.26 | 0.29 | 0.32 |
|---|---|---|---|
| weight version of the engine | none: `GET /wisp/status` tells the step | yes | yes |
| attention layers that compute after loading | by their classes | by a function | by a function |
| LoRA state to be made anew after an update | none | in the runner | in the runner |
| the trainer's side | another one, asked of the ranks' engines | as in 0.32 | yes |
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import UnsupportedError

__all__ = [
    "MADE_FOR",
    "EngineOfAnyVersion",
    "forget_adapters",
    "installed",
    "is_deferred_attention",
    "name_version",
    "trainer_classes",
]

#: Whose interfaces it was held against; `make test-all` has a test for each.
MADE_FOR = ("0.26", "0.29", "0.32")


class EngineOfAnyVersion:
    """What a version asks of the ranks' engines beyond what the newest does."""

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None:
        """0.26 has no engine for it without; it would be a trainer's call."""
        raise UnsupportedError(
            "trainers publish with wisp.Publisher, and drive servers with wisp.engine.Driver"
        )


def installed() -> str:
    """The version of vLLM in this process."""
    return str(getattr(sys.modules.get("vllm"), "__version__", "of no version"))


def name_version(core: Any, version: str) -> None:
    """Gives the weights that an engine core serves their name."""
    name = getattr(core, "set_weight_version", None)
    if name is not None:
        name(version)


def forget_adapters(worker: Any) -> None:
    """Adapters that were merged into, or computed from, the weights before."""
    forget = getattr(worker.model_runner, "reset_lora_state", None)
    if worker.vllm_config.lora_config is not None and forget is not None:
        forget()


def is_deferred_attention(layer: Any) -> bool:
    """Whether vLLM processes this layer after all others, as it does with attention."""
    from vllm.model_executor.layers import attention

    by_function = getattr(attention, "is_deferred_attention_layer", None)
    if by_function is not None:
        return bool(by_function(layer))
    kinds = tuple(
        getattr(attention, name) for name in ("Attention", "MLAAttention", "MMEncoderAttention")
    )
    return isinstance(layer, kinds) and hasattr(layer, "process_weights_after_loading")


def trainer_classes() -> tuple[Any, Any, Any]:
    """ModuleSource, TrainerInitInfo and the base of trainers' engines."""
    from vllm.distributed.weight_transfer import base

    try:
        engine = base.TrainerWeightTransferEngine
        if len(getattr(engine, "__parameters__", ())) != 1:
            raise AttributeError("its trainers' engines are of another make")
        return base.ModuleSource, base.TrainerInitInfo, engine
    except AttributeError as error:
        raise UnsupportedError(
            f"vLLM {installed()} has not the trainer's side that wisp knows ({error}); it works "
            "with 0.29 and 0.32. With others, publish with wisp.Publisher and drive the servers "
            "with wisp.engine.Driver"
        ) from error
