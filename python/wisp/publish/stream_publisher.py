"""Publishing weights that are never in memory all at once: frameworks hand them over one by one."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidError, UnavailableError, WrongBaseError, kind_of
from ..stores import RunAddress, location
from ..tensors import is_dtensor, is_torch
from .publisher import Publisher, PublishStats
from .sources import DtypeRule, Source, dtype_named, numpy_dtype, published_dtype

__all__ = ["StreamPublisher"]

logger = logging.getLogger("wisp")

_ALIGNED = 64


class StreamPublisher:
    """Publishes states that a trainer hands over tensor by tensor, each of them once.

    There is no second copy of the model in memory beside the publisher's baseline: a tensor is
    compared as it comes, and let go of. Only the first state that this process hands over, whose
    names nobody knows yet, is written to `scratch` and published from there.

    dtype: what followers get, as of wisp.Publisher; also by the name of a torch dtype.
    patience: seconds to wait for a store that is away before publish() raises. It is tried on even
      then, and the next step brings what is missing.
    Other options are those of wisp.Publisher.
    """

    def __init__(
        self,
        run: RunAddress,
        *,
        dtype: DtypeRule | str = None,
        scratch: str | os.PathLike[str] | None = None,
        patience: float = 60.0,
        **options: Any,
    ) -> None:
        self._place = location(run)
        self.url = self._place.url
        self._rule = dtype_named(dtype)
        self._scratch = scratch
        self._patience = patience
        self._options = {**options, "dtype": self._rule, "on_error": "raise"}
        if scratch is not None:
            self._options["scratch"] = os.path.join(scratch, "publisher")  # its own
        self._publisher: Publisher | None = None
        self._tensors: dict[str, Any] = {}
        self._must_spool = True

    @property
    def next_step(self) -> int | None:
        """The step that publish() takes by default; None before the first one."""
        return None if self._publisher is None else self._publisher.next_step

    def publish(self, weights: Iterable[tuple[str, Any]], step: int | None = None) -> PublishStats:
        """Returns when the state is committed. `weights` is read to its end, whatever happens."""
        if self._publisher is None or self._must_spool:
            return self._publish_spooled(weights, step)
        try:
            self._publisher.publish_handed(weights, step)
        except WrongBaseError as error:
            self._must_spool = True  # there is nothing to compare with
            raise WrongBaseError(f"{error}; the next step is published whole") from error
        return self._committed(self._publisher)

    def _publish_spooled(
        self, weights: Iterable[tuple[str, Any]], step: int | None
    ) -> PublishStats:
        handed = iter(weights)
        with Spool(self._scratch) as spool:
            try:
                for name, tensor in handed:
                    spool.add(name, tensor, self._rule)
            finally:
                for _ in handed:
                    pass
            self._tensors.clear()
            self._tensors.update(spool.tensors())
            try:
                if self._publisher is None:
                    self._publisher = Publisher(self._place, self._tensors, **self._options)
                self._warn_of_rewind(step)
                self._publisher.publish(step)
                stats = self._committed(self._publisher)
            finally:
                self._tensors.clear()
                if self._publisher is not None:
                    self._publisher.let_go_of_model()
        self._must_spool = False
        return stats

    def _warn_of_rewind(self, step: int | None) -> None:
        assert self._publisher is not None
        newest = self._publisher.next_step - 1
        if step is not None and step <= newest:
            logger.warning(
                "%s is at step %s, and this training goes on with step %s: the run is rewound, and "
                "its rollouts go back with it. Unless it was resumed, give each training a new run",
                self.url, newest, step,
            )  # fmt: skip

    def _committed(self, publisher: Publisher) -> PublishStats:
        end = time.monotonic() + self._patience
        while True:
            try:
                publisher.flush()
                break
            except Exception as error:  # a store written in Python raises what it likes
                if kind_of(error) != UnavailableError.kind or time.monotonic() > end:
                    raise
        if publisher.failure is not None:
            raise publisher.failure
        return publisher.stats[-1]

    def close(self) -> None:
        """Lets go of the run. May be called twice."""
        publisher, self._publisher = self._publisher, None
        self._must_spool = True
        if publisher is None:
            return
        try:
            publisher.close()
        except Exception as error:  # publish() has raised it
            logger.warning("the last step handed over is not in %s: %s", self.url, error)


class Spool:
    """Tensors in a file, mapped instead of held; the file goes with the last of them."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.mkdtemp(prefix="wisp-spool-", dir=folder)
        self._end = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file = open(Path(self._folder, "weights"), "wb")
        self._entries: dict[str, tuple[int, int, tuple[int, ...], Any]] = {}

    def add(self, name: str, tensor: Any, rule: DtypeRule) -> None:
        """Writes a tensor, in the dtype that it is published in."""
        if name in self._entries:
            raise InvalidError(f"the trainer hands over '{name}' twice in one state")
        if is_dtensor(tensor):
            raise InvalidError(f"'{name}' is sharded; gather it before it is handed over")
        dtype = published_dtype(name, tensor, rule)
        if is_torch(tensor):
            import torch

            flat = tensor.detach().to(device="cpu", dtype=dtype).contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy() if flat.numel() else np.empty(0, np.uint8)
        else:
            dtype = numpy_dtype(Source(name, tensor, dtype))
            data = np.ascontiguousarray(tensor).astype(dtype, copy=False).reshape(-1)
            data = data.view(np.uint8)
        start = self._file.tell()
        self._file.write(data.data)
        self._file.write(bytes(-data.size % _ALIGNED))
        self._entries[name] = (start, data.size, tuple(tensor.shape), dtype)

    def tensors(self) -> dict[str, Any]:
        """All of them, where they lie in the file."""
        self._file.flush()
        if self._file.tell() == 0:
            return {name: _empty(shape, dtype) for name, (_, _, shape, dtype) in
                    self._entries.items()}  # fmt: skip
        memory = np.memmap(self._file.name, np.uint8, "c")
        found: dict[str, Any] = {}
        for name, (start, size, shape, dtype) in self._entries.items():
            part = memory[start : start + size]
            if size == 0:
                found[name] = _empty(shape, dtype)
            elif isinstance(dtype, np.dtype):
                found[name] = np.asarray(part).view(dtype).reshape(shape)
            else:
                import torch

                found[name] = torch.from_numpy(part).view(dtype).reshape(shape)
        return found

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._end()


def _empty(shape: tuple[int, ...], dtype: Any) -> Any:
    if isinstance(dtype, np.dtype):
        return np.empty(shape, dtype)
    import torch

    return torch.empty(shape, dtype=dtype)
