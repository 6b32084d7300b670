"""The delta formats of other projects, written anew from their published layouts.

Each format is a pair of functions: `encode_x` makes every file a sender would upload, headers and
checksums included, and `decode_x` rebuilds the new checkpoint from them and the old one. A size
counts only after the decoder has given back every bit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import zstandard

from tensor_file import Tensor, parse_tensors, write_tensors
from trace import Checkpoint, sparse_metadata

Payload = dict[str, bytes]


@dataclass(frozen=True)
class Pair:
    """Two checkpoints of one model; tensors in the order of the model."""

    old_step: int
    new_step: int
    old: Checkpoint
    new: Checkpoint

    @cached_property
    def positions(self) -> dict[str, np.ndarray]:
        """Flat positions that differ bit for bit; tensors that did not change are left out."""
        found = {n: np.flatnonzero(self.old[n] != self.new[n]) for n in self.old}
        return {name: where for name, where in found.items() if where.size}

    @cached_property
    def changed_count(self) -> int:
        """Elements that differ."""
        return sum(where.size for where in self.positions.values())

    @cached_property
    def element_count(self) -> int:
        """Elements of the whole model."""
        return sum(bits.size for bits in self.old.values())

    def old_values(self, name: str) -> np.ndarray:
        """Old bits at the changed positions."""
        return self.old[name].reshape(-1)[self.positions[name]]

    def new_values(self, name: str) -> np.ndarray:
        """New bits at the changed positions."""
        return self.new[name].reshape(-1)[self.positions[name]]


@dataclass(frozen=True)
class Format:
    """A named format with its two directions and one line on where the bytes come from."""

    name: str
    note: str
    encode: Callable[[Pair], Payload]
    decode: Callable[[Payload, Checkpoint], Checkpoint]


def payload_bytes(payload: Payload) -> int:
    """What has to cross the network."""
    return sum(len(data) for data in payload.values())


def _patched(old: Checkpoint, name: str, positions: np.ndarray, values: np.ndarray) -> np.ndarray:
    bits = old[name].copy()
    bits.reshape(-1)[positions] = values
    return bits


def _trl_metadata(pair: Pair) -> dict[str, str]:
    return sparse_metadata(
        pair.new_step, True, list(pair.positions), pair.changed_count, pair.element_count
    )


def encode_trl_raw(pair: Pair) -> Payload:
    """#5417: int32 positions and new bf16 values, nothing compressed."""
    tensors: dict[str, Tensor] = {}
    for name, where in pair.positions.items():
        tensors[f"{name}.indices"] = Tensor("I32", where.astype("<i4"))
        tensors[f"{name}.values"] = Tensor("BF16", pair.new_values(name))
    return {"delta.safetensors": write_tensors(tensors, _trl_metadata(pair))}


def decode_trl_raw(payload: Payload, old: Checkpoint) -> Checkpoint:
    """Scatters the values."""
    tensors, metadata = parse_tensors(payload["delta.safetensors"])
    new = dict(old)
    for name in json.loads(metadata["changed_params"]):
        where, values = tensors[f"{name}.indices"].bits, tensors[f"{name}.values"].bits
        new[name] = _patched(old, name, where, values)
    return new


def _gaps(where: np.ndarray) -> np.ndarray:
    """Unchanged elements before each change; u16, or u32 for the tensor if one does not fit."""
    gaps = np.diff(where, prepend=-1) - 1
    return gaps.astype("<u2" if gaps.max() <= 0xFFFF else "<u4")


def _positions_from_gaps(gaps: np.ndarray) -> np.ndarray:
    return np.cumsum(gaps.astype(np.int64) + 1) - 1


def encode_trl_gap(pair: Pair) -> Payload:
    """#5932: gaps in place of positions, still uncompressed."""
    tensors: dict[str, Tensor] = {}
    for name, where in pair.positions.items():
        gaps = _gaps(where)
        tensors[f"{name}.idx"] = Tensor("U16" if gaps.itemsize == 2 else "U32", gaps)
        tensors[f"{name}.val"] = Tensor("BF16", pair.new_values(name))
    metadata = _trl_metadata(pair) | {"encoding": "gap_delta"}
    del metadata["changed_params"]
    return {"delta.safetensors": write_tensors(tensors, metadata)}


def decode_trl_gap(payload: Payload, old: Checkpoint) -> Checkpoint:
    """Sums the gaps, scatters the values."""
    tensors, _ = parse_tensors(payload["delta.safetensors"])
    new = dict(old)
    for key, tensor in tensors.items():
        name, part = key.rsplit(".", 1)
        if part == "idx":
            where = _positions_from_gaps(tensor.bits)
            new[name] = _patched(old, name, where, tensors[f"{name}.val"].bits)
    return new


def _row_width(shape: tuple[int, ...]) -> int:
    """grail treats a vector as one element per row."""
    return int(np.prod(shape[1:])) if len(shape) > 1 else 1


def _narrowest(values: np.ndarray, allowed: tuple[str, ...]) -> np.ndarray:
    for dtype in allowed:
        if values.max() <= np.iinfo(dtype).max:
            return values.astype(dtype)
    raise ValueError("value too large for every allowed type")


def encode_grail(pair: Pair) -> Payload:
    """v3.1: row steps, column steps (absolute in a new row) and values, one zstd-1 frame."""
    entries: list[dict[str, object]] = []
    body = b""
    for name in sorted(pair.positions):
        shape = pair.old[name].shape
        rows, columns = np.divmod(pair.positions[name], _row_width(shape))
        row_steps = np.diff(rows, prepend=0)
        same_row = np.concatenate([[False], row_steps[1:] == 0])
        column_steps = np.where(same_row, np.diff(columns, prepend=0), columns)
        row_part = _narrowest(row_steps, ("uint8", "uint16", "int32"))
        column_part = _narrowest(column_steps, ("uint16", "int32"))
        values = pair.new_values(name)
        index_bytes = row_part.nbytes + column_part.nbytes
        entries.append({
            "name": name,
            "shape": list(shape),
            "num_nonzero": int(rows.size),
            "value_dtype": "bfloat16",
            "row_dtype": row_part.dtype.name,
            "col_dtype": column_part.dtype.name,
            "indices_offset": len(body),
            "indices_size": index_bytes,
            "rows_size": row_part.nbytes,
            "cols_size": column_part.nbytes,
            "values_offset": len(body) + index_bytes,
            "values_size": values.nbytes,
        })
        body += row_part.tobytes() + column_part.tobytes() + values.tobytes()
    return {"delta.zst": _framed({"version": 31, "tensors": entries}, body)}


def _framed(header: object, body: bytes) -> bytes:
    """u32le header length | JSON | body, compressed as one zstd-1 frame."""
    head = json.dumps(header, separators=(",", ":")).encode()
    raw = len(head).to_bytes(4, "little") + head + body
    return zstandard.ZstdCompressor(level=1).compress(raw)


def _unframed(frame: bytes) -> tuple[dict, bytes]:
    raw = zstandard.ZstdDecompressor().decompress(frame)
    end = 4 + int.from_bytes(raw[:4], "little")
    return json.loads(raw[4:end]), raw[end:]


def decode_grail(payload: Payload, old: Checkpoint) -> Checkpoint:
    """Columns restart at each row, so the running sum loses what it had before the row began."""
    header, body = _unframed(payload["delta.zst"])
    new = dict(old)
    for entry in header["tensors"]:
        count, begin = entry["num_nonzero"], entry["indices_offset"]
        row_steps = np.frombuffer(body, entry["row_dtype"], count, begin).astype(np.int64)
        column_begin = begin + entry["rows_size"]
        steps = np.frombuffer(body, entry["col_dtype"], count, column_begin).astype(np.int64)
        values = np.frombuffer(body, "<u2", count, entry["values_offset"])
        starts = np.flatnonzero(np.concatenate([[True], row_steps[1:] != 0]))
        sums = np.cumsum(steps)
        before = np.repeat(sums[starts] - steps[starts], np.diff(starts, append=count))
        where = np.cumsum(row_steps) * _row_width(tuple(entry["shape"])) + sums - before
        new[entry["name"]] = _patched(old, entry["name"], where, values)
    return new


def _checksum(bits: np.ndarray) -> str:
    """Both XOR formats carry an xxh3-128 per tensor; any 128-bit digest costs the same bytes."""
    return hashlib.blake2b(np.ascontiguousarray(bits).tobytes(), digest_size=16).hexdigest()


def _xor_streams(pair: Pair, level: int) -> dict[str, Tensor]:
    """One zstd stream per changed tensor, of the XOR over its full length."""
    zstd = zstandard.ZstdCompressor(level=level)
    streams: dict[str, Tensor] = {}
    for name in pair.positions:
        frame = zstd.compress((pair.old[name] ^ pair.new[name]).tobytes())
        streams[name] = Tensor("U8", np.frombuffer(frame, np.uint8))
    return streams


def _apply_xor(streams: dict[str, Tensor], old: Checkpoint) -> Checkpoint:
    new = dict(old)
    for name, stream in streams.items():
        raw = zstandard.ZstdDecompressor().decompress(stream.bits.tobytes())
        new[name] = old[name] ^ np.frombuffer(raw, "<u2").reshape(old[name].shape)
    return new


def encode_slime(pair: Pair) -> Payload:
    """A Hugging Face folder: one safetensors file of zstd-1 streams, and its index."""
    streams = _xor_streams(pair, level=1)
    sums = {name: _checksum(pair.new[name]) for name in streams}
    file = "model-00000-of-00001.safetensors"
    index = {
        "metadata": {
            "version": f"{pair.new_step:06d}",
            "base_version": f"{pair.old_step:06d}",
            "delta_encoding": "xor",
            "compression_format": "zstd",
            "checksum_format": "xxh3-128",
        },
        "weight_map": {name: file for name in streams},
    }
    return {
        file: write_tensors(streams, sums),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


def decode_slime(payload: Payload, old: Checkpoint) -> Checkpoint:
    """XORs every stream into its tensor."""
    index = json.loads(payload["model.safetensors.index.json"])
    (file,) = set(index["weight_map"].values())
    return _apply_xor(parse_tensors(payload[file])[0], old)


def encode_skyrl(pair: Pair) -> Payload:
    """A manifest with a record per tensor, and one safetensors file of zstd-3 streams."""
    streams = _xor_streams(pair, level=3)
    file = "payload-00000.safetensors"
    records = [
        {
            "name": name,
            "dtype": "bfloat16",
            "shape": list(pair.old[name].shape),
            "uncompressed_num_bytes": pair.old[name].nbytes,
            "compressed_num_bytes": stream.bits.nbytes,
            "payload_file": file,
            "payload_key": name,
            "checksum": _checksum(pair.new[name]),
            "checksum_algorithm": "xxh3-128",
        }
        for name, stream in streams.items()
    ]
    manifest = {
        "version": pair.new_step,
        "base_version": pair.old_step,
        "tensors": records,
        "total_uncompressed_num_bytes": sum(pair.old[name].nbytes for name in streams),
        "total_compressed_num_bytes": sum(s.bits.nbytes for s in streams.values()),
        "payload_files": [file],
    }
    return {"manifest.json": json.dumps(manifest).encode(), file: write_tensors(streams, {})}


def decode_skyrl(payload: Payload, old: Checkpoint) -> Checkpoint:
    """XORs every stream the manifest names into its tensor."""
    manifest = json.loads(payload["manifest.json"])
    (file,) = manifest["payload_files"]
    tensors, _ = parse_tensors(payload[file])
    return _apply_xor({r["name"]: tensors[r["payload_key"]] for r in manifest["tensors"]}, old)


def encode_nemo(pair: Pair) -> Payload:
    """All gaps, then all XOR values, in one zstd-1 frame; JSON stands in for their pickled list."""
    entries: list[dict[str, object]] = []
    locations, values = b"", b""
    for name, where in pair.positions.items():
        is_range = int(where[-1] - where[0]) + 1 == where.size
        part = b"" if is_range else _gaps(where).tobytes()
        xor = (pair.old_values(name) ^ pair.new_values(name)).tobytes()
        entry = {
            "name": name,
            "shape": pair.old[name].shape,
            "dtype": "bfloat16",
            "operation": "xor",
            "index_start": len(locations),
            "index_end": len(locations) + len(part),
            "value_group": 0,
            "value_start": len(values) // 2,
            "value_end": (len(values) + len(xor)) // 2,
            "index_encoding": "range" if is_range else "deltas",
        }
        entries.append(entry | ({"range_start": int(where[0])} if is_range else {}))
        locations, values = locations + part, values + xor
    header = {"items": entries, "locations": len(locations)}
    return {"delta.zst": _framed(header, locations + values)}


def decode_nemo(payload: Payload, old: Checkpoint) -> Checkpoint:
    """The width of a gap is what its bytes divided by their count say."""
    header, body = _unframed(payload["delta.zst"])
    values = np.frombuffer(body, "<u2", offset=header["locations"])
    new = dict(old)
    for item in header["items"]:
        xor = values[item["value_start"] : item["value_end"]]
        if item["index_encoding"] == "range":
            where = np.arange(item["range_start"], item["range_start"] + xor.size)
        else:
            raw = body[item["index_start"] : item["index_end"]]
            where = _positions_from_gaps(np.frombuffer(raw, f"<u{len(raw) // xor.size}"))
        name = item["name"]
        new[name] = _patched(old, name, where, old[name].reshape(-1)[where] ^ xor)
    return new


REWRITTEN = "rewritten from the published layout; "
FORMATS = [
    Format("TRL raw (#5417)", REWRITTEN + "one safetensors file, int32 + bf16",
           encode_trl_raw, decode_trl_raw),
    Format("TRL gap_delta (#5932)", REWRITTEN + "one safetensors file, u16/u32 gaps + bf16",
           encode_trl_gap, decode_trl_gap),
    Format("grail v3.1 (PULSE)", REWRITTEN + "row and column steps + bf16, one zstd-1 frame",
           encode_grail, decode_grail),
    Format("slime, miles", REWRITTEN + "full XOR, zstd-1 per tensor, file and index",
           encode_slime, decode_slime),
    Format("SkyRL", REWRITTEN + "full XOR, zstd-3 per tensor, file and manifest",
           encode_skyrl, decode_skyrl),
    Format("NeMo-RL", REWRITTEN + "u16/u32 gaps + XOR, one zstd-1 frame, JSON for torch.save",
           encode_nemo, decode_nemo),
]
