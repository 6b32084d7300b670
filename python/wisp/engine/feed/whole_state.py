"""A whole state of a run in safetensors files, read tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from ...follow.targets import UNSIGNED, element_width

__all__ = ["WholeState"]


class WholeState:
    """A checkpoint as arrays of unsigned integers. FileNotFoundError: it was removed."""

    def __init__(self, place: str) -> None:
        files = sorted(Path(place).glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(place)
        self._where: dict[str, tuple[np.ndarray, int, int, str]] = {}
        for file in files:
            data = np.memmap(file, np.uint8, "c")  # torch wants memory that it could write to
            start = 8 + int.from_bytes(data[:8].tobytes(), "little")
            for name, entry in json.loads(data[8:start].tobytes()).items():
                if name != "__metadata__":
                    first, end = entry["data_offsets"]
                    self._where[name] = (data, start + first, start + end, entry["dtype"])

    def bits(self, name: str) -> np.ndarray:
        """A tensor's elements, flattened; a copy where the file is not aligned to them."""
        data, first, end, dtype = self._where[name]
        width = element_width(dtype)
        found = data[first:end]
        if found.size and found.ctypes.data % width:
            found = found.copy()
        return found.view(UNSIGNED[width])
