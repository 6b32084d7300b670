"""Publishing a model whose weights are spread over ranks of torch.distributed, without a gather.

Each rank codes and uploads the rows it holds; rank 0 commits. What lands in the bucket is byte for
byte what a trainer with all weights in one place would have written.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable
from typing import Any, Literal

import torch.distributed as dist

from .. import _native, runs
from ..errors import Error, FencedError, InvalidError, exception_of
from ..forks import OfOneProcess
from ..publish.exit_flush import finish_at_exit, warn_at_exit
from ..publish.optimizer_hooks import OptimizerHooks
from ..publish.sources import DtypeRule
from ..runs import Codec, TrustedKeys
from ..stores import RunAddress, location
from ..tensors import unwrapped
from .rank_group import RankGroup
from .round_messages import ShardedReport
from .rounds import ShardRounds
from .step_queue import Round, StepQueue

__all__ = ["ShardedPublisher", "ShardedReport"]

logger = logging.getLogger("wisp")

#: Tests of small models make it smaller, or a tensor would be one block.
_LOG2_BLOCK_ELEMENTS = _native.LOG2_BLOCK_ELEMENTS


class ShardedPublisher(OfOneProcess):
    """Publishes a model of DTensors (FSDP2, HSDP, tensor parallel), replicated and plain tensors.

    All ranks of `group` make one, and call publish() for the same steps. publish() returns when
    what changed is known; coding and uploading go on in the background. With a step still on its
    way there, the weights are copied, and a newer step takes the place of one that waits: what is
    committed holds it.

    A rank that dies or hangs costs the step: after `timeout` seconds all others get
    UnavailableError, which names it. Nothing is lost; the next step that all ranks deliver holds
    everything. A rank that was late once and has given no sign of life since is given five seconds,
    not the whole time again.

    dtype: what followers get; None keeps each tensor's, `torch.bfloat16` rounds all floating-point
      tensors, a function (name, tensor) -> dtype decides for each (None keeps it).
    names, codec: as of Publisher.
    group: the ranks that hold the model; all if None.
    timeout: seconds that a rank may take for its part of a step.
    open_timeout: seconds for taking the newest state from the bucket at the start.
    background: False: publish() waits until the step is committed, and returns its report.
    on_error: "warn" logs what fails and goes on with the next step; "raise" raises it at the next
      publish. FencedError, another trainer owns the run now, and InvalidError are always raised.
    exit_timeout: seconds that the end of the interpreter may take, without close(), for the step
      under way; what is not known to be committed by then is named on stderr.
    """

    def __init__(
        self,
        run: RunAddress,
        model: Any,
        *,
        dtype: DtypeRule = None,
        names: Literal["checkpoint", "module"] = "checkpoint",
        group: Any = None,
        timeout: float = 600.0,
        open_timeout: float = 3600.0,
        background: bool = True,
        every: int = 1,
        anchor_every: int | Literal["auto"] = "auto",
        codec: Codec | None = None,
        on_error: Literal["warn", "raise"] = "warn",
        create: bool = True,
        allow_schema_change: bool = False,
        side_files: Iterable[str | os.PathLike[str]] = (),
        sign_key: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        scratch: str | os.PathLike[str] | None = None,
        expires_after: float | None = None,
        threads: int = 0,
        exit_timeout: float = 30.0,
    ) -> None:
        if not dist.is_initialized():
            raise InvalidError("torch.distributed is not initialized; a sharded model needs it")
        self._place = location(run)
        self.url = self._place.url
        self._timeout = float(timeout)
        self._exit_timeout = float(exit_timeout)
        self._background = background
        self._on_error = on_error
        self._hooks = OptimizerHooks(every)
        self._every = every
        self._round = 0
        self._queue = StepQueue(self._finish_quietly)
        self._handed = False  # whether anything was, since the queue was last waited for
        self._outcome = threading.Lock()  # around the two below
        self._failure: Error | None = None
        self._missing: tuple[int, Error] | None = None  # the newest round that is not committed

        keys = runs.WriterKeys(trust, min_serial, run_id, sign_key, certificate)
        folder = None if scratch is None else os.fspath(scratch)
        log2 = _LOG2_BLOCK_ELEMENTS
        self._ranks = RankGroup(unwrapped(model), dtype, names, group, self._timeout, log2)
        self.rank = self._ranks.rank
        schema = [local.entry for local in self._ranks.locals]
        writer = _native.open_shard_writer(
            self._place, schema, self.rank, self._ranks.plan.spans, folder, threads, log2
        )
        self._committer: _native.ShardCommitter | None = None

        def open_run() -> tuple[bool, int]:
            if self.rank != 0:
                return (False, 0)
            if create:
                keys.start_if_missing(self._place, codec)
            self._committer = _native.open_shard_committer(
                self._place,
                schema,
                0 if anchor_every == "auto" else anchor_every,
                keys.trust,
                sign_key,
                certificate,
                {"format": "pt", **self._ranks.aliases},
                [os.fspath(path) for path in side_files],
                None,
                expires_after,
            )
            return (self._committer.has_state, self._committer.next_step)

        def pull(into: str) -> str | None:
            return _native.pull_head(self._place, into, keys.trust, threads)

        def adopt(taken: str, state: str) -> None:
            try:
                writer.adopt(taken, state)
            except InvalidError:
                if not allow_schema_change:
                    raise

        has_state, self._next_step = self._ranks.agree(open_run)[0]
        # One rank of each host takes the newest state from the bucket; all take their blocks.
        standing = has_state and self._ranks.share_state(pull, adopt, folder, float(open_timeout))
        self._rounds = ShardRounds(
            self._ranks,
            writer,
            self._committer,
            pull,
            self._queue,
            timeout=self._timeout,
            log2=log2,
            scratch=folder,
            whole=has_state and not standing,
        )
        self._own(writer, self._committer)
        finish_at_exit(self)

    @property
    def next_step(self) -> int:
        """The step that publish() takes by default: one after the newest."""
        return self._next_step

    @property
    def stats(self) -> list[ShardedReport]:
        """What became of every step that was committed."""
        return self._rounds.stats

    def attach(self, optimizer: Any) -> ShardedPublisher:
        """Publishes after each `every` steps of a torch optimizer, until close()."""
        if self._next_step == 0:
            self.publish()
        self._hooks.hang_on(optimizer, lambda: self.publish(self._next_step + self._every - 1))
        return self

    def publish(self, step: int | None = None) -> ShardedReport | None:
        """Publishes the weights as they are now, as `step`; one after the newest if None.

        All ranks call it. Returns the step's report with background=False, once it is committed.
        Returns None while that goes on in the background (flush() waits for it, `stats` has the
        reports), and where the step has failed with on_error="warn". Raises what is
        known by then to have gone wrong with a step before (see `on_error`).
        """
        started = time.monotonic()
        self._require_own()
        if not self._background:
            self._queue.join()
        self._raise_failure(raising=self._on_error == "raise")
        step = self._next_step if step is None else int(step)
        self._next_step = step + 1
        number = self._round
        self._round += 1
        try:
            round_ = self._rounds.begin(number, step, started)
        except Error as error:
            self._note_failure(number, step, error)
            return None
        round_.blocked = time.monotonic() - started
        if self._background:
            self._handed = True
            self._queue.put(round_)
            return None
        try:
            report = self._rounds.finish(round_)
        except Error as error:
            self._note_failure(number, step, error)
            return None
        self._note_commit(number)
        return report

    def flush(self) -> None:
        """Returns when the newest step is committed; raises why it is not."""
        self._require_own()
        self._queue.join()
        self._handed = False
        self._raise_failure(raising=self._on_error == "raise" or self._missing is not None)
        if self._missing is not None:
            raise self._missing[1]

    def close(self) -> None:
        """Detaches, and waits as flush() does. All ranks call it."""
        self._require_own()
        self._hooks.remove()
        try:
            self.flush()
        finally:
            self._wait_for_ranks(self._timeout)

    def _wait_for_ranks(self, seconds: float) -> None:
        """Rank 0, where the ranks meet, stays until all others have heard the last verdict."""
        keys = self._ranks.keys
        if self.rank != 0:
            keys.put(f"left/{self.rank}", b"")
            return
        silent = self._rounds.silent_ranks()
        others = [f"left/{r}" for r in range(1, len(self._ranks.world)) if r not in silent]
        keys.wait(others, time.monotonic() + seconds)

    def finish_at_exit(self, began: float) -> None:
        """Called when the interpreter ends and close() was not called: waits `exit_timeout`."""
        if self._is_inherited or not self._handed:
            return
        end = began + self._exit_timeout
        try:
            if not self._queue.join(max(0.0, end - time.monotonic())):
                warn_at_exit(f"{self.url}: step {self._next_step - 1} is not known to be committed")
            else:
                self.flush()
                self._wait_for_ranks(max(0.0, end - time.monotonic()))
        except Exception as error:
            warn_at_exit(f"{self.url}: {error}")

    def heartbeat(self) -> None:
        """Says that the trainer lives; rank 0 alone does something."""
        self._require_own()
        self._queue.join()
        self._raise_failure(raising=False)
        if self._committer is not None:
            self._committer.heartbeat()

    def __enter__(self) -> ShardedPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_inherited:
            self.close()

    def _note_failure(self, number: int, step: int, error: Error) -> None:
        self._note_missing(number, _not_committed(step, error))
        if self._on_error == "raise" or isinstance(error, (FencedError, InvalidError)):
            raise error
        logger.warning("wisp: %s", error)

    def _note_missing(self, number: int, why: Error) -> None:
        with self._outcome:
            if self._missing is None or self._missing[0] <= number:
                self._missing = (number, why)

    def _note_commit(self, number: int) -> None:
        with self._outcome:
            if self._missing is not None and self._missing[0] <= number:
                self._missing = None

    def _raise_failure(self, *, raising: bool) -> None:
        """What went wrong in the background, once."""
        with self._outcome:
            failure, self._failure = self._failure, None
        if failure is None:
            return
        if raising or isinstance(failure, (FencedError, InvalidError)):
            raise failure
        logger.warning("wisp: %s", failure)

    def _finish_quietly(self, round_: Round) -> None:
        try:
            if self._rounds.finish(round_) is not None:
                self._note_commit(round_.number)
        except Exception as error:  # nothing may end a training's thread unseen
            if not isinstance(error, Error):
                error = exception_of("internal", f"{type(error).__name__}: {error}")
            failure = _not_committed(round_.step, error)
            self._note_missing(round_.number, failure)
            with self._outcome:
                self._failure = failure


def _not_committed(step: int, why: Error) -> Error:
    return exception_of(why.kind, f"step {step} is not committed: {why}", why.retry_after_ms)
