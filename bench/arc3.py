"""Fireworks ARC3, made by its own PyPI package.

Its sender races several coders and keeps the smallest that finished in time, so its output depends
on the load of the machine. The time limit is lifted here through the package's own setting: every
coder finishes, which makes the size repeatable and is the best the package can do.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import warnings
from pathlib import Path

from formats import Format, Pair, Payload
from tensor_file import parse_tensors
from trace import Checkpoint

FORMAT_NAME = "arc_v3"
FILE = "delta.safetensors"


def is_installed() -> bool:
    """Whether the package can run; torch is optional."""
    needed = ("fireworks_delta_compression", "safetensors", "zstd")
    return all(importlib.util.find_spec(name) for name in needed)


def has_torch() -> bool:
    """Whether the real torch takes part."""
    return importlib.util.find_spec("torch") is not None


def load_format() -> Format:
    """Imports the package, with torch when there is one, and wraps it as a `Format`."""
    os.environ["ARC3_CANDIDATE_WAIT_MULTIPLIER"] = "1e6"
    stand_in = not has_torch()
    if stand_in:
        import numpy_torch

        numpy_torch.install()
    import fireworks_delta_compression as arc
    import torch

    # Its fallback decoder reads torch tensors out of immutable bytes; it never writes to them.
    warnings.filterwarnings("ignore", message="The given buffer is not writable")

    def wrap(checkpoint: Checkpoint) -> dict:
        # A writable copy: torch warns about arrays that are views of a read-only file.
        bits = {name: torch.from_numpy(bits.copy()) for name, bits in checkpoint.items()}
        return {name: tensor.view(torch.bfloat16) for name, tensor in bits.items()}

    def encode(pair: Pair) -> Payload:
        """The file its sender uploads: a stream per tensor, checksums as metadata."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / FILE
            arc.delta_compress_dicts_to_file(
                src=wrap(pair.old), dst=wrap(pair.new), diff_file=str(path),
                compression_format=FORMAT_NAME,
            )
            return {FILE: path.read_bytes()}

    def decode(payload: Payload, old: Checkpoint) -> Checkpoint:
        """The package's own receiver. It unpickles: only ever give it what `encode` made."""
        streams, checksums = parse_tensors(payload[FILE])
        new: Checkpoint = {}
        for name, src in wrap(old).items():
            restored = arc.delta_decompress(
                src=src,
                compressed_diff=torch.from_numpy(streams[name].bits.copy()),
                checksum=checksums[name],
                compression_format=FORMAT_NAME,
            )
            new[name] = restored.view(torch.uint16).numpy()
        return new

    holder = "numpy in place of torch" if stand_in else f"torch {torch.__version__}"
    note = f"the real package, {holder}, every candidate allowed to finish"
    return Format("Fireworks ARC3", note, encode, decode)
