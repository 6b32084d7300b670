"""A model's configuration and tokenizer as files, to lie beside full checkpoints."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any


class ModelFiles:
    """A temporary folder of what from_pretrained() needs beside the weights."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def write(self, model: Any, processing_class: Any, dtype: Any) -> list[str]:
        """Writes the files of `model`, published in `dtype`, and gives their paths."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="wisp-")
        folder = self._folder.name
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
    with open(config, encoding="utf-8") as file:
        settings = json.load(file)
    settings["dtype"] = str(dtype).removeprefix("torch.")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(settings, file, indent=2)
