"""What differs between the versions of vLLM that the plugin works with; nothing else knows of it.

| | 0.26 | 0.29 | 0.32 |
|---|---|---|---|
| weight version of the engine | none: `GET /wisp/status` tells the step | yes | yes |
| attention layers that compute after loading | by their classes | by a function | by a function |
| LoRA state to be made anew after an update | none | in the runner | in the runner |
| the trainer's side | another one, asked of the ranks' engines | as in 0.32 | yes |

Each has two makes of model runners: the first keeps what drafts as `drafter`, the second (where
there is Triton) as `speculator`.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import UnsupportedError

__all__ = [
    "MADE_FOR",
    "EngineOfAnyVersion",
    "drafter_of",
    "drafts_here",
    "forget_adapters",
    "installed",
    "is_deferred_attention",
    "keeps_joined_copies",
    "name_version",
    "told_lack",
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


def told_lack(part: str, error: Exception) -> str:
    """That a part of the plugin has no place in this vLLM, in one line."""
    return (
        f"{part} of wisp cannot be had with vLLM {installed()}: {type(error).__name__}: {error}; "
        f"it is made for {', '.join(MADE_FOR)}"
    )


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


def drafter_of(runner: Any) -> Any:
    """What guesses tokens for a runner of models, whichever of its two makes it is; or None."""
    for name in ("drafter", "speculator"):
        found = getattr(runner, name, None)
        if found is not None:
            return found
    return None


def drafts_here() -> bool:
    """Whether this rank is the one that has the draft: the last of a pipeline."""
    from vllm.distributed.parallel_state import get_pp_group

    return bool(get_pp_group().is_last_rank)


def keeps_joined_copies(module: Any) -> bool:
    """Whether a layer of a draft computes with copies that it made of several weights."""
    return hasattr(module, "_build_fused_kv_buffers")


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
