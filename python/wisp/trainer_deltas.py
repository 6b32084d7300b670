"""Deltas in the format that slime and miles write, put together to the whole checkpoint.

A folder `weight_v000012` of theirs holds, for each tensor that changed, its bytes XOR those before,
or positions and new bytes, compressed by zstd; in the files' metadata stand checksums of the
tensors as they are after it. `base_version` of the index is the folder before, and 0 the checkpoint
that the trainer began with.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .errors import CorruptError, InvalidError, NotFoundError, UnsupportedError

__all__ = ["WholeCheckpoint", "default_folder", "is_delta"]

INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it


def is_delta(folder: Path) -> bool:
    """Whether a folder holds what changed, and no checkpoint."""
    return "delta_encoding" in _metadata(folder).get("metadata", {})


def _metadata(folder: Path) -> dict[str, Any]:
    try:
        read = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CorruptError(f"{folder / INDEX} is no JSON: {error}") from error
    return read if isinstance(read, dict) else {}


class WholeCheckpoint:
    """A checkpoint that is brought from one version to the next, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkpoint"
        self._note = folder / "version"

    @property
    def version(self) -> int | None:
        """The one that it holds; None: none, or a change of it was interrupted."""
        try:
            return int(self._note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None

    def forget(self) -> None:
        """The next version is put together from the checkpoint that the trainer began with."""
        self._note.unlink(missing_ok=True)

    def bring_to(self, delta: Path, version: int, base: Path) -> None:
        """Applies `delta`, and those beside it that are lacking; `base` is version 0."""
        at = self.version
        if at is None or at > version:
            at = self._begin(base)
        for step in range(at + 1, version + 1):
            folder = delta.with_name(f"weight_v{step:06}")
            if not is_delta(folder):
                raise NotFoundError(
                    f"version {version} builds on {folder}, which holds no delta; start the "
                    "training again, or set --update-weight-mode full"
                )
            self._apply(folder, step)

    def _begin(self, base: Path) -> int:
        if not any(base.glob("*.safetensors")):
            raise InvalidError(
                f"{base} holds no safetensors; --hf-checkpoint must be a folder on this host"
            )
        self.forget()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for file in base.iterdir():
            if file.is_file():
                shutil.copyfile(file, self.folder / file.name)
        return 0

    def _apply(self, folder: Path, version: int) -> None:
        index = _metadata(folder)
        told = index["metadata"]
        if (told.get("version"), told.get("base_version")) != (
            f"{version:06}",
            f"{version - 1:06}",
        ):
            raise CorruptError(f"{folder} says that it is version {told.get('version')}")
        decompress, patch = _decompressor(told), _patch_of(told)
        places = dict(_tensors_in(self.folder))
        self.forget()  # until all of it is done
        for name in sorted(set(index["weight_map"].values())):
            metadata, tensors = _header(folder / Path(name).name)
            for tensor, (first, size) in tensors.items():
                if tensor not in places:
                    raise InvalidError(f"{folder} changes '{tensor}', which {self.folder} lacks")
                path, offset, length = places[tensor]
                packed = np.memmap(folder / Path(name).name, np.uint8, "r", first, (size,))
                held = np.memmap(path, np.uint8, "r+", offset, (length,))
                patch(held, decompress(packed, 5 * length + 4), tensor)
                if _checksum(told, held) != metadata.get(tensor):
                    raise CorruptError(
                        f"'{tensor}' is not what the trainer has after {folder}; the next version "
                        "is put together from the beginning"
                    )
                held.flush()
        self._note.write_text(str(version), encoding="utf-8")


def _header(file: Path) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Of a safetensors file: its metadata, and (first byte, bytes) of each tensor."""
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        raise NotFoundError(
            f"{file} is not there: all ranks of the trainer must write where the first one reads"
        ) from None
    with opened:
        size = file.stat().st_size
        (length,) = struct.unpack("<Q", opened.read(8).ljust(8, b"\xff"))
        try:
            if length > min(_LONGEST_HEADER, size - 8):
                raise ValueError("its header is longer than the file")
            header = json.loads(opened.read(length))
        except ValueError as error:
            raise CorruptError(f"{file} is no safetensors file: {error}") from error
    metadata = header.pop("__metadata__", {})
    start = 8 + length
    tensors = {}
    for name, told in header.items():
        begin, end = told["data_offsets"]
        if not 0 <= begin <= end <= size - start:
            raise CorruptError(f"'{name}' lies beyond the end of {file}")
        if end > begin:
            tensors[name] = (start + begin, end - begin)
    return metadata, tensors


def _tensors_in(folder: Path) -> Iterator[tuple[str, tuple[Path, int, int]]]:
    for file in folder.glob("*.safetensors"):
        for name, (first, size) in _header(file)[1].items():
            yield name, (file, first, size)


def _decompressor(told: dict[str, Any]) -> Callable[[Any, int], np.ndarray]:
    if told.get("compression_format") != "zstd":
        raise UnsupportedError(
            f"deltas compressed by {told.get('compression_format')!r}: zstd is known"
        )
    try:
        import zstandard
    except ImportError as error:
        raise UnsupportedError("deltas of the trainer's own need the package zstandard") from error

    def decompress(packed: Any, most: int) -> np.ndarray:
        reader = zstandard.ZstdDecompressor().stream_reader(packed.tobytes())
        return np.frombuffer(reader.read(most + 1), np.uint8)

    return decompress


def _patch_of(told: dict[str, Any]) -> Callable[[np.ndarray, np.ndarray, str], None]:
    known = {"xor": _xor, "overwrite": _overwrite}
    encoding = told.get("delta_encoding")
    if encoding not in known:
        raise UnsupportedError(f"deltas by {encoding!r}: {', '.join(known)} are known")
    return known[encoding]


def _xor(held: np.ndarray, delta: np.ndarray, name: str) -> None:
    if delta.size != held.size:
        raise CorruptError(f"'{name}' has {held.size} bytes, and its delta {delta.size}")
    held ^= delta


def _overwrite(held: np.ndarray, delta: np.ndarray, name: str) -> None:
    count = int(delta[:4].view("<u4")[0]) if delta.size >= 4 else -1
    if delta.size != 4 + 5 * count:
        raise CorruptError(f"the delta of '{name}' has {delta.size} bytes for {count} positions")
    positions = delta[4 : 4 + 4 * count].view("<u4")
    if count and int(positions.max()) >= held.size:
        raise CorruptError(f"the delta of '{name}' goes beyond its end")
    held[positions] = delta[4 + 4 * count :]


def _checksum(told: dict[str, Any], held: np.ndarray) -> str:
    kind = told.get("checksum_format")
    try:
        if kind == "xxh3-128":
            import xxhash

            return str(xxhash.xxh3_128(held).hexdigest())
        if kind == "blake3":
            import blake3

            return str(blake3.blake3(held).hexdigest())
    except ImportError as error:
        raise UnsupportedError(f"checksums of {kind} need the package {error.name}") from error
    if kind == "adler32":
        return f"{zlib.adler32(held.data):08x}"
    raise UnsupportedError(f"checksums by {kind!r}: xxh3-128, blake3 and adler32 are known")


def default_folder(run: str) -> Path:
    """Where the checkpoint of a run lies, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "wisp" / "whole" / hashlib.sha256(run.encode()).hexdigest()[:16]
