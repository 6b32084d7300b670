"""The folder that an engine loaded its weights from: which files of it, and what they hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...errors import WrongBaseError
from ...tensors import torch_dtype
from .load_plan import Schema

__all__ = ["DRAFT_PREFIX", "open_served"]

#: In a run, of names of a draft model that was loaded from a folder of its own.
DRAFT_PREFIX = "draft."

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: Mistral's own layout comes before the other, as vLLM has it; the index of each.
_LAYOUTS = (
    ("consolidated*.safetensors", "consolidated.safetensors.index.json"),
    ("*.safetensors", "model.safetensors.index.json"),
)


def open_served(place: str | None) -> tuple[Schema, Callable[[str], torch.Tensor]]:
    """All tensors, and what reads one as a row of integers.

    WrongBaseError if there is nothing to read, or a file says something else than its index.
    """
    from safetensors import safe_open

    files = _files(Path(place)) if place and Path(place).is_dir() else []
    if not files:
        raise WrongBaseError(
            f"there are no safetensors in {place!r}, which the model was served from, to prove the "
            "plan of its memory with; serve a checkpoint folder (wisp export writes one)"
        )
    schema: Schema = []
    where: dict[str, tuple[Path, Any]] = {}
    for file in files:
        opened: Any = safe_open(file, framework="pt")
        for name in opened.keys():
            if name in where:
                raise WrongBaseError(
                    f"'{name}' is in {where[name][0].name} and in {file.name} of {place!r}, and "
                    "which of them was loaded cannot be known; remove one, or add an index"
                )
            part = opened.get_slice(name)
            schema.append((name, torch_dtype(part.get_dtype()), tuple(part.get_shape())))
            where[name] = (file, opened)

    def read(name: str) -> torch.Tensor:
        tensor = where[name][1].get_tensor(name).contiguous().reshape(-1)
        return tensor.view(_INTEGERS[tensor.element_size()])

    return schema, read


def _files(folder: Path) -> list[Path]:
    """Those that engines load: with an index, the files that it names, and no others."""
    for pattern, index in _LAYOUTS:
        files = sorted(folder.glob(pattern))
        if not files:
            continue
        try:
            named = set(json.loads((folder / index).read_text())["weight_map"].values())
        except FileNotFoundError:
            return files
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise WrongBaseError(f"{folder / index} is no index of safetensors: {error}") from error
        return [file for file in files if file.name in named]
    return []
