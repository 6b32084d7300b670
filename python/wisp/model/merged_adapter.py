"""A model of peft as it would be with its adapter merged in; nothing is merged where it trains.

Merging in place and taking it back would round the base anew at each step. Here each adapted layer
is copied when its weights are read, and the copy is merged by peft itself: what is published is
what merge_and_unload() would give, and takes the memory of one layer.
"""

from __future__ import annotations

import copy
from typing import Any

from ..errors import InvalidError, UnsupportedError
from ..tensors import entries_of

__all__ = ["MergedAdapter"]

_BASE = "base_layer."


class MergedAdapter:
    """The tensors of `model`, one of peft, under the names that its base has without adapters."""

    def __init__(self, model: Any) -> None:
        self._adapter = model.active_adapter
        if model.peft_config[self._adapter].is_prompt_learning:
            kind = type(model.peft_config[self._adapter]).__name__
            raise InvalidError(f"an adapter of {kind} has nothing that could be merged in")
        #: The model without its adapters.
        self.base = model.get_base_model()
        self._adapted: dict[int, tuple[Any, str]] = {}
        self._merged: tuple[Any, dict[str, Any]] | None = None

    def entries(self) -> dict[str, Any]:
        """The base's tensors as they are now, by name; value() knows those that are adapted."""
        from peft.tuners.tuners_utils import BaseTunerLayer
        from peft.utils.other import AuxiliaryTrainingWrapper

        kinds = (BaseTunerLayer, AuxiliaryTrainingWrapper)
        layers = {
            name.replace("_orig_mod.", ""): module
            for name, module in self.base.named_modules()
            if isinstance(module, kinds)
        }
        self._adapted, self._merged = {}, None
        found = {}
        for name, tensor in entries_of(self.base).items():
            parts = name.split(".")
            heads = (".".join(parts[:end]) for end in range(1, len(parts)))
            head = next((head for head in heads if head in layers), None)
            if head is None:
                found[name] = tensor
                continue
            layer, rest = layers[head], name.removeprefix(head + ".")
            kept = self._kept(head, layer, rest)
            if kept is not None:
                found[f"{head}.{kept}"] = tensor
                if isinstance(layer, BaseTunerLayer):
                    self._adapted[tensor.data_ptr()] = (layer, kept)
        return found

    def _kept(self, head: str, layer: Any, rest: str) -> str | None:
        """The name in the layer without adapter; None: it belongs to the adapter."""
        saved = getattr(layer, "modules_to_save", None)
        if saved is not None:  # trained as a whole, beside the original
            kept = f"modules_to_save.{self._adapter}."
            return rest.removeprefix(kept) if rest.startswith(kept) else None
        if not hasattr(layer, "base_layer") or rest.startswith(_BASE + _BASE):
            raise UnsupportedError(
                f"'{head}' is a {type(layer).__name__}, which wisp cannot merge; publish the "
                'adapter itself (names="checkpoint"), or what merge_and_unload() returns'
            )
        return rest.removeprefix(_BASE) if rest.startswith(_BASE) else None

    def adapts(self, tensor: Any) -> bool:
        """Whether a tensor of entries() is another one once the adapter is merged."""
        return tensor.data_ptr() in self._adapted

    def value(self, tensor: Any) -> Any:
        """The same, merged; of the layer that was asked for last it is remembered."""
        import torch

        layer, name = self._adapted[tensor.data_ptr()]
        if self._merged is None or self._merged[0] is not layer:
            self._merged = None
            with torch.no_grad():
                alone = copy.deepcopy(layer)
                alone.merge()
                self._merged = (layer, alone.get_base_layer().state_dict())
        made = self._merged[1][name]
        if made.stride() == tensor.stride():
            return made
        return torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=made.dtype, device=made.device
        ).copy_(made)
