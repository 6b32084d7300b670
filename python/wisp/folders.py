"""Folders that other programs read and write: what a follower keeps, held at one step while it is
loaded, and checkpoints that a trainer writes, published one after the other."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _native, runs
from .errors import InvalidError, NoRunError
from .publish.publisher import Publisher
from .runs import TrustedKeys
from .stores import RunAddress, location

__all__ = [
    "FolderPublisher",
    "ReadFolder",
    "publish_distributed",
    "read_distributed",
    "reading",
]

logger = logging.getLogger("wisp")

Path = str | os.PathLike[str]


class ReadFolder(os.PathLike[str]):
    """A folder that stays at one step while `wisp.reading` holds it. A path, and its step."""

    def __init__(self, held: _native.HeldFolder) -> None:
        self.folder = held.folder
        self.step = held.step
        self.state = held.state

    def __fspath__(self) -> str:
        return self.folder

    def __str__(self) -> str:
        return self.folder

    def __repr__(self) -> str:
        return f"ReadFolder({self.folder!r}, step={self.step})"


@contextmanager
def reading(folder: Path, *, timeout: float = 300.0) -> Iterator[ReadFolder]:
    """Holds a folder of `wisp follow` at its step, so that a loader never meets a mixture of two.

    with wisp.reading("models/policy") as folder:
        model = AutoModelForCausalLM.from_pretrained(folder)

    `folder` is what a follower keeps, in place or one folder for each step, the link `current`, or
    the folder of a step. Load from the path that is handed out: links are resolved in it. Inside,
    the follower waits with the next step, or does not remove this one; it says so when that takes
    long. Loaders that map files rather than copy them (transformers on a CPU) read later: of a
    folder kept in place, hold it for as long as the model is used, copy the weights, or let the
    follower make a folder for each step, which never changes.

    timeout: seconds to wait for a step that is being written; UnavailableError after that.
    """
    held = _native.HeldFolder(os.fspath(folder), float(timeout))
    try:
        yield ReadFolder(held)
    finally:
        held.release()


class FolderPublisher:
    """Publishes checkpoints that lie on disk, as `wisp publish` does, from one process.

    baseline: a folder for the last published state; by default one in the user's cache,
      the same that `wisp publish` uses.
    The other options are those of wisp.Publisher.
    """

    def __init__(
        self,
        run: RunAddress,
        *,
        baseline: Path | None = None,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        sign_key: Path | None = None,
        certificate: Path | None = None,
        anchor_every: int = 0,
        create: bool = True,
        threads: int = 0,
    ) -> None:
        place = location(run)
        keys = runs.WriterKeys(trust, min_serial, run_id, sign_key, certificate)
        if create:
            keys.start_if_missing(place)
        self.url = place.url
        self._native = _native.CheckpointPublisher(
            place,
            baseline,
            keys.trust,
            sign_key,
            certificate,
            anchor_every,
            threads,
        )

    @property
    def step(self) -> int | None:
        """The newest step of the run; None before the first."""
        return self._native.step

    def publish(self, checkpoint: Path, step: int | None = None) -> _native.PublishReport:
        """Commits a safetensors file or a Hugging Face folder. A step that is not after the newest
        is a rewind: followers get a full checkpoint."""
        newest = self.step
        following = 0 if newest is None else newest + 1
        return self._native.publish(os.fspath(checkpoint), following if step is None else step)


def read_distributed(folder: Path, *, key: str = "model") -> dict[str, Any]:
    """The tensors of a folder that torch.distributed.checkpoint wrote, by name.

    Of a state dict that holds several things ({"model": …, "optimizer": …}) those under `key`,
    named as they are there. Torch reads the folder's index with pickle: only for folders of your
    own trainer.
    """
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    folder = os.fspath(folder)
    metadata = dcp.FileSystemReader(folder).read_metadata()
    paths = metadata.planner_data or {}
    nested = any(len(path) > 1 for path in paths.values())
    names: dict[str, str] = {}
    for flat, stored in metadata.state_dict_metadata.items():
        path = [str(part) for part in paths.get(flat, (flat,))]
        if not isinstance(stored, TensorStorageMetadata) or (nested and path[0] != key):
            continue
        names[flat] = ".".join(path[1:]) if nested else flat
    if not names:
        raise InvalidError(
            f"{folder} holds no tensors under {key!r}; name the part of the state dict that is the "
            "model with key="
        )
    state = {
        flat: torch.empty(stored.size, dtype=stored.properties.dtype)
        for flat, stored in metadata.state_dict_metadata.items()
        if flat in names
    }
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return {names[flat]: tensor for flat, tensor in state.items()}


def publish_distributed(
    run: RunAddress,
    watch: Path,
    *,
    ready: str = ".metadata",
    key: str = "model",
    once: bool = False,
    until_step: int | None = None,
    poll: float = 1.0,
    quiet_for: float = 5.0,
    **options: Any,
) -> int:
    """Publishes each folder that torch.distributed.checkpoint completes in `watch`, in order.

    `wisp publish --watch` for checkpoints whose index only torch can read. `watch` is a folder or a
    pattern ("out/step_{step}"), `key` the part of the state dict that is the model, `options` those
    of wisp.Publisher. Returns how many were published; without `once` or `until_step` it goes on
    until it is interrupted.
    """
    folders = _native.FolderWatch(os.fspath(watch), ready, quiet_for)
    publisher: Publisher | None = None
    tensors: dict[str, Any] = {}
    newest = _newest_step(run)
    count = 0
    try:
        while until_step is None or newest is None or newest < until_step:
            complete, passed_over, unfinished = folders.look(newest)
            for step, folder in passed_over:
                logger.warning("%s was never completed; step %d is left out", folder, step)
            for step, folder in complete:
                read = read_distributed(folder, key=key)
                if publisher is None:
                    tensors.update(read)
                    publisher = Publisher(run, tensors, on_error="raise", **options)
                else:
                    _replace(tensors, read, folder)
                publisher.publish(step)
                publisher.flush()
                newest = step
                count += 1
                if until_step is not None and step >= until_step:
                    return count
            if once and not complete and not unfinished:
                return count
            if not complete:
                time.sleep(poll)
    finally:
        if publisher is not None:
            publisher.close()
    return count


def _newest_step(run: RunAddress) -> int | None:
    try:
        head = runs.status(run).head
    except NoRunError:
        return None
    return None if head is None else int(head.step)


def _replace(tensors: dict[str, Any], read: dict[str, Any], folder: object) -> None:
    """In place: a publisher looks at the tensors that it was given."""
    if tensors.keys() != read.keys():
        raise InvalidError(f"{folder} holds other tensors than the folders before it")
    for name, tensor in read.items():
        tensors[name].copy_(tensor)
