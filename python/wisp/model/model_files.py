"""A model's configuration and tokenizer as files, to lie beside full checkpoints."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .checkpoint_names import is_adapted

if TYPE_CHECKING:
    from ..quantize.quantized_sources import Quantizer

#: What a user may say about quantisation.
QuantizeRule = Any


def quantizer_of(rule: QuantizeRule) -> Quantizer | None:
    """What turns a model's tensors into quantised ones; None if they stay as they are."""
    if rule is None:
        return None
    from ..quantize import scheme_of
    from ..quantize.quantized_sources import Quantizer

    return Quantizer(scheme_of(rule))


class SideFiles:
    """The files beside full checkpoints; copies of those that have to say more."""

    def __init__(self) -> None:
        self._folder: str | None = None

    def with_quantization(
        self, files: Iterable[str | os.PathLike[str]], quantizer: Quantizer | None
    ) -> list[str]:
        """The paths; config.json says how the weights are quantised."""
        paths = [os.fspath(path) for path in files]
        config = None if quantizer is None else quantizer.config
        if config is None:
            return paths
        return [self._told(p, config) if os.path.basename(p) == "config.json" else p for p in paths]

    def _told(self, path: str, quantization: dict[str, Any]) -> str:
        if self._folder is None:
            # Not removed with its publisher: what that has published may still be on its way.
            self._folder = tempfile.mkdtemp(prefix="wisp-")
            atexit.register(self.remove)
        copy = os.path.join(self._folder, "config.json")
        shutil.copyfile(path, copy)
        _change(copy, {"quantization_config": quantization})
        return copy

    def remove(self) -> None:
        """Removes the copies."""
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            atexit.unregister(self.remove)


class ModelFiles:
    """A temporary folder of what from_pretrained() needs beside the weights."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def write(
        self, model: Any, processing_class: Any, dtype: Any, names: Any = "checkpoint"
    ) -> list[str]:
        """Writes the files of `model`, published in `dtype` by `names`, and gives their paths."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="wisp-")
        folder = self._folder.name
        if is_adapted(model) and names == "merged":
            model = model.get_base_model()
        elif is_adapted(model):
            # Servers load an adapter by its own configuration; the base's would be a lie beside it.
            model.peft_config[model.active_adapter].save_pretrained(folder)
            model = None
        for part in (model, processing_class):
            saved = getattr(part, "config", part)
            if hasattr(saved, "save_pretrained"):
                saved.save_pretrained(folder)
        config = os.path.join(folder, "config.json")
        if os.path.exists(config):
            _set_dtype(config, dtype)
        files = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
        return [file for file in files if os.path.isfile(file)]

    def remove(self) -> None:
        """Removes them; write() makes new ones."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _set_dtype(config: str, dtype: Any) -> None:
    """Loaders take the dtype from the configuration: it must be the one that is published."""
    if dtype is None or not str(dtype).startswith("torch."):
        return
    _change(config, {"dtype": str(dtype).removeprefix("torch.")})


def _change(config: str, changes: dict[str, Any]) -> None:
    with open(config, encoding="utf-8") as file:
        settings = json.load(file)
    with open(config, "w", encoding="utf-8") as file:
        json.dump({**settings, **changes}, file, indent=2)
