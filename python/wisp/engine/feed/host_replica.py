"""The replica that the processes of a host share, read by one of them as whole tensors.

For engines that load tensors by name, through whatever a framework has for that: the feed of the
host fetches, proves and applies each step once, in shared memory, and every process reads there
what the steps since its last look have touched.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import NotFoundError, UnavailableError
from ...tensors import torch_dtype
from .feed_files import FeedSettings, MappedState, StateMovedError, turn
from .feed_link import FeedLink, FeedState

__all__ = ["HostReplica"]

_LOOK = 0.05  # seconds between two questions for a step that is on its way


class HostReplica:
    """What one process has taken of its host's replica. Closed with close()."""

    def __init__(self, settings: FeedSettings) -> None:
        self._run = settings.run
        self._link = FeedLink(replace(settings, whole=True))
        self._taken = ""  # the digest of the state that was read to its end

    @property
    def feed_process(self) -> int:
        """Of the feed that keeps the replica; 0: none is known yet."""
        return self._link.known.pid

    def wait_for(self, step: int | None, *, after: int = 0, timeout: float) -> FeedState:
        """The replica at `step`, or at any state (None), committed later than number `after`.

        NotFoundError when the run went on without that step: its trainer gave it up, or another
        one publishes there. UnavailableError after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            found = self._link.wait(lambda feed: _is_past(feed, after), _LOOK)
            if found is not None and found.at is not None:
                if step is None or found.at.step == step:
                    return found
                if found.at.step > step:
                    raise NotFoundError(
                        f"{self._run} has no step {step}: it went on to step {found.at.step}. The "
                        "trainer gave the step up, or another one publishes to the same run"
                    )
            if time.monotonic() > end:
                raise UnavailableError(self._delay(step, timeout))
            self._link.look()

    def _delay(self, step: int | None, timeout: float) -> str:
        known = self._link.known
        wanted = "a new state" if step is None else f"step {step}"
        at = "nothing" if known.at is None else f"step {known.at.step}"
        why = known.status.failure or (known.status.faults[-1] if known.status.faults else "")
        if not known.connected:
            why = "the feed of this host does not run"
        return (
            f"{wanted} of {self._run} did not come within {round(timeout, 1):g} s; "
            f"this host holds {at}" + (f" ({why})" if why else "")
        )

    def touched(self, feed: FeedState) -> list[str]:
        """The tensors that differ from what was read last; all of them at first."""
        names = [entry[0] for entry in feed.schema]
        moves = feed.chain_from(self._taken) if self._taken else None
        if moves is None:
            return names
        changed = {name for move in moves for name, _ in move.tensors}
        return [name for name in names if name in changed]

    def read(
        self, feed: FeedState, names: list[str], batch_bytes: int = 0
    ) -> Generator[list[tuple[str, Any]], None, None]:
        """The tensors as torch tensors, in batches of about so many bytes, one or more in each.

        A batch is valid until the next is asked for, and the replica stays as it is until the
        iterator ends or is closed. One that does not come to its end leaves everything to be read
        again. StateMovedError if the replica has moved on.
        """
        assert feed.at is not None
        with turn(self._link.folder) as held:
            if held.serial != feed.at.serial or feed.pid != self._link.known.pid:
                raise StateMovedError(f"the replica of {self._run} has moved on; read again")
            state = MappedState(self._link.folder, feed.file, feed.schema, private=True)
            shapes = {name: (dtype, shape) for name, dtype, shape in feed.schema}
            batch: list[tuple[str, Any]] = []
            size = 0
            for name in names:
                tensor = _as_torch(state.bits(name), *shapes[name])
                if batch and size + tensor.nbytes > batch_bytes:
                    yield batch
                    batch, size = [], 0
                batch.append((name, tensor))
                size += tensor.nbytes
            if batch:
                yield batch
            held.check()
        self._taken = feed.at.state

    def forget(self) -> None:
        """The next read begins anew, with all tensors."""
        self._taken = ""

    def close(self) -> None:
        """The feed ends by itself when nobody is left."""
        self._link.close()


def _as_torch(bits: np.ndarray, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    kind = torch_dtype(dtype)
    if bits.size == 0:
        return torch.empty(shape, dtype=kind)
    return torch.from_numpy(bits.view(f"i{bits.itemsize}")).view(kind).reshape(shape)


def _is_past(feed: FeedState, after: int) -> bool:
    return feed.connected and feed.at is not None and feed.at.seq > after
