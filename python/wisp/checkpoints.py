"""Checkpoints and deltas without a bucket: diff, apply, merge, inspect, verify, digest.

Weights are a path (a .safetensors file or a Hugging Face folder), a torch module, a state dict, or
a dict of torch or numpy arrays in host memory. Arrays are seen in place, never copied.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import _native
from .errors import InvalidError
from .reports import give_repr, html_table, human_bytes, human_count
from .tensors import host_weights

__all__ = ["Delta", "apply", "diff", "digest", "inspect", "merge", "verify"]

PathLike = str | os.PathLike[str]


class Delta:
    """A delta file: where it lies and what it holds. Without a path of yours it is temporary."""

    def __init__(
        self,
        path: Path,
        facts: _native.DiffReport,
        folder: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.path = path
        self.facts = facts
        self._folder = folder  # removed with this object

    def save(self, path: PathLike) -> Path:
        """Copies the file to `path`, which gets its name when it is complete."""
        target = Path(path)
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
            try:
                with open(self.path, "rb") as source:
                    shutil.copyfileobj(source, part)
                part.flush()
                os.fsync(part.fileno())
                os.chmod(part.name, 0o644)
                os.replace(part.name, target)
            except BaseException:
                os.unlink(part.name)
                raise
        return target

    def __bytes__(self) -> bytes:
        return self.path.read_bytes()

    def __fspath__(self) -> str:
        return str(self.path)

    def _rows(self) -> list[tuple[str, str]]:
        facts = self.facts
        share = 100 * facts.changed_elements / max(facts.total_elements, 1)
        ratio = facts.checkpoint_bytes / max(facts.file_bytes, 1)
        return [
            ("step", str(facts.step)),
            ("changed", f"{human_count(facts.changed_elements)} elements ({share:.3g} %)"),
            ("size", f"{human_bytes(facts.file_bytes)}, {ratio:.3g}x smaller"),
            ("base", facts.base),
            ("result", facts.result),
        ]

    def __repr__(self) -> str:
        return f"<Delta {', '.join(f'{label} {text}' for label, text in self._rows()[:3])}>"

    def _repr_html_(self) -> str:
        return html_table("Delta", [], self._rows())


def weights_of(source: Any, *, writable: bool = False) -> _native.Weights:
    """A checkpoint on disk, or arrays in place."""
    if isinstance(source, _native.Weights):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _native.Checkpoint.open(os.fspath(source))
    return host_weights(source, writable=writable)


def diff(
    old: Any,
    new: Any,
    out: PathLike | None = None,
    *,
    codec: str = "compact",
    step: int | None = None,
    threads: int = 0,
) -> Delta:
    """What changed from `old` to `new`, bit for bit: a delta file at `out`, or a temporary one."""
    if out is not None:
        path = Path(out)
        facts = _native.diff(weights_of(old), weights_of(new), path, codec, step, threads)
        return Delta(path, facts)
    folder = tempfile.TemporaryDirectory(prefix="wisp-")
    path = Path(folder.name, "delta.safetensors")
    facts = _native.diff(weights_of(old), weights_of(new), path, codec, step, threads)
    return Delta(path, facts, folder)


def _paths(deltas: Any) -> list[str]:
    if isinstance(deltas, (str, os.PathLike)):
        return [os.fspath(deltas)]
    return [os.fspath(delta) for delta in deltas]


def apply(
    base: Any,
    deltas: Delta | PathLike | Iterable[Delta | PathLike],
    out: PathLike | None = None,
    *,
    quick: bool = False,
    threads: int = 0,
) -> _native.ApplyReport:
    """Applies consecutive deltas to `base`, all or none, proven before and after.

    A path is rewritten in place through a journal, or patched into `out`; a module, state dict or
    dict of arrays is overwritten in place. `quick` proves only what the deltas touch (paths only).
    """
    if isinstance(base, (str, os.PathLike)):
        output = None if out is None else os.fspath(out)
        return _native.apply(os.fspath(base), _paths(deltas), output, quick, threads)
    if out is not None:
        raise InvalidError(
            "arrays are overwritten where they lie; `out` is for checkpoints on disk"
        )
    return _native.apply_in_memory(host_weights(base, writable=True), _paths(deltas), threads)


def merge(
    base: PathLike,
    deltas: Sequence[Delta | PathLike],
    out: PathLike,
    *,
    codec: str = "compact",
    step: int | None = None,
    threads: int = 0,
) -> Delta:
    """Several consecutive deltas, the first standing on the checkpoint `base`, into one."""
    checkpoint = _native.Checkpoint.open(os.fspath(base))
    path = Path(out)
    return Delta(path, _native.merge(checkpoint, _paths(deltas), path, codec, step, threads))


def inspect(file: Delta | PathLike) -> _native.FileReport:
    """What a delta or a checkpoint file holds, by tensor. The seal of a delta is checked."""
    return _native.inspect(os.fspath(file))


def verify(
    file: Delta | PathLike, base: PathLike | None = None, *, threads: int = 0
) -> _native.VerifyReport:
    """Proves a delta or a checkpoint; with `base` decodes every block against it."""
    return _native.verify(os.fspath(file), None if base is None else os.fspath(base), threads)


def digest(weights: Any, *, threads: int = 0) -> str:
    """The state digest of weights anywhere: 32 hexadecimal digits, equal for equal bits."""
    return _native.digest_of(weights_of(weights), threads)


def _show_file(report: _native.FileReport) -> list[tuple[str, str]]:
    shown = [("kind", f"{report.codec} {report.kind}".strip())]
    if report.step is not None:
        shown.append(("step", str(report.step)))
    shown.append(("size", human_bytes(report.file_bytes)))
    if report.kind == "delta":
        changed = f"{human_count(report.changed_elements)} of {human_count(report.total_elements)}"
        shown.append(("changed", changed))
    shown.append(("tensors", str(len(report.tensors))))
    return shown


def _show_apply(report: _native.ApplyReport) -> list[tuple[str, str]]:
    proven = "proven" if report.base_proven and report.result_proven else "not proven"
    return [
        ("applied", str(report.deltas_applied)),
        ("skipped", str(report.deltas_skipped)),
        ("changed", human_count(report.changed_elements)),
        ("state", f"{report.result} ({proven})"),
    ]


give_repr(_native.FileReport, _show_file)
give_repr(_native.ApplyReport, _show_apply)
give_repr(
    _native.DiffReport,
    lambda r: [
        ("step", str(r.step)),
        ("changed", human_count(r.changed_elements)),
        ("size", human_bytes(r.file_bytes)),
    ],
)
give_repr(
    _native.TensorReport,
    lambda r: [
        ("", r.name),
        ("", f"{r.dtype} {list(r.shape)}"),
        ("changed", human_count(r.changed_elements)),
    ],
)
give_repr(
    _native.VerifyReport,
    lambda r: [("decoded", str(r.decoded)), ("state", str(r.state))],
)
