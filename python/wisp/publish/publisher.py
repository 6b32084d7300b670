"""Publishing a model's weights, step by step, from a training loop."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable
from typing import Any, Literal

from .. import _native, runs
from ..errors import Error, FencedError, InvalidError, WrongBaseError, kind_of
from ..forks import OfOneProcess
from ..metrics import MetricsRule, PublisherMetrics
from ..model.checkpoint_names import Naming, NamingRule
from ..model.model_files import QuantizeRule, SideFiles, quantizer_of
from ..reports import Table
from ..runs import Codec, TrustedKeys
from ..stores import RunAddress, location
from ..tensors import unwrapped
from .device_diff import DeviceDetector
from .exit_flush import ExitFlush
from .handed_changes import HandedChanges
from .optimizer_hooks import OptimizerHooks
from .publish_stats import STATS_COLUMNS, PublishStats, stats_of
from .schema_differences import differences
from .sources import DtypeRule, Source
from .staging import ModelTensors, Stager

__all__ = ["PublishStats", "Publisher"]

logger = logging.getLogger("wisp")

#: How many steps `Publisher.stats` remembers.
KEPT_STATS = 10_000
_CLOSING_TRIES = 3


class Publisher(OfOneProcess):
    """Publishes the weights of `model`, a torch module or a dict of tensors by name, to a run.

    Every publish compares the weights as they are with the last committed state, bit for bit, so
    any optimizer and any number of its steps in between are right. The call returns when what
    changed is known; encoding and uploading go on in the background. When uploads lag, steps that
    wait are folded into the newest.

    dtype: what followers get; None keeps each tensor's, `torch.bfloat16` rounds all floating-point
      tensors, a function (name, tensor) -> dtype decides for each (None keeps it).
    names: of a transformers model, "checkpoint" publishes what save_pretrained would write, which
      is what servers load, "module" the tensors as they are in memory. Of a model of peft, the
      first publishes the adapter, "merged" the weights with it merged in. For a dict of tensors
      with the names of a transformers model (fp32 masters), that model: as it would be saved.
    quantize: publish quantised weights: "fp8_block", "fp8_channel", "int8_channel", "mxfp8",
      "mxfp4", "nvfp4", a scheme of wisp.quantize, or a function (name, tensor) -> dict of tensors,
      None for those that stay as they are. A config.json among the side files gets to say so.
    every: publish at each Nth optimizer step, once attached.
    anchor_every: a full checkpoint every N published steps; "auto" when joining would cost one.
    codec: of a run that is started here, see `wisp.init`; InvalidError if the run has another.
    device_diff: compare where the weights are; takes as much memory there as the weights.
    on_error: "warn" logs what fails, once, and tries again with the next step; "raise" raises it at
      the next publish, and from close(). FencedError, another trainer owns the run now, is always
      raised.
    create: start the run if there is none.
    run_id: the identity of the run that must be there; another is ForkedError, and none is started.
    allow_schema_change: publish a model with other names, shapes or dtypes than the run's, in full.
    side_files: configuration, tokenizer and the like, beside each full checkpoint.
    scratch: a folder for files on their way out, on a disk with room for a checkpoint; its own, no
      other publisher or follower may use it (ConflictError).
    exit_timeout: seconds that the end of the interpreter may take, without close(), to commit what
      was published; what is not committed by then is named on stderr.
    metrics: for Prometheus: ":9400" or "127.0.0.1:9400" serves them (port 0: any that is free, see
      `metrics_url`), True or a registry of prometheus_client adds them to what the program serves.
    """

    def __init__(
        self,
        run: RunAddress,
        model: Any,
        *,
        dtype: DtypeRule = None,
        names: NamingRule = "checkpoint",
        quantize: QuantizeRule = None,
        every: int = 1,
        anchor_every: int | Literal["auto"] = "auto",
        codec: Codec | None = None,
        sign_key: str | os.PathLike[str] | None = None,
        certificate: str | os.PathLike[str] | None = None,
        trust: TrustedKeys = None,
        min_serial: int = 0,
        run_id: str | None = None,
        device_diff: bool = False,
        on_error: Literal["warn", "raise"] = "warn",
        side_files: Iterable[str | os.PathLike[str]] = (),
        create: bool = True,
        allow_schema_change: bool = False,
        scratch: str | os.PathLike[str] | None = None,
        expires_after: float | None = None,
        threads: int = 0,
        stager: Stager | None = None,
        exit_timeout: float = 30.0,
        metrics: MetricsRule | None = None,
    ) -> None:
        if every < 1 or (anchor_every != "auto" and anchor_every < 1):
            raise InvalidError("`every` and `anchor_every` count steps: they are at least 1")
        if on_error not in ("warn", "raise"):
            raise InvalidError('on_error is "warn" or "raise"')
        self._on_error = on_error
        self._allow_schema_change = allow_schema_change
        self._stager = stager or Stager()
        self._stats: list[PublishStats] = []
        self._submitted: dict[int, tuple[float, int]] = {}
        self._folding = 0
        self._failure: Exception | None = None
        self._failure_raised = True
        self._hooks = OptimizerHooks(every)
        self._every = every
        self._quantizer = quantizer_of(quantize)
        self._side_files = SideFiles()
        self._tensors = ModelTensors(Naming(unwrapped(model), names), dtype, self._quantizer)
        _, self._schema = self._tensors.look()
        place = location(run)
        self.url = place.url
        self._metrics = PublisherMetrics(self.url, metrics) if metrics else None
        keys = runs.WriterKeys(trust, min_serial, run_id, sign_key, certificate)
        if create:
            keys.start_if_missing(place, codec)
        self._session = _native.open_publish_session(
            place,
            0 if anchor_every == "auto" else anchor_every,
            keys.trust,
            sign_key,
            certificate,
            {"format": "pt", **self._tensors.aliases},
            self._side_files.with_quantization(side_files, self._quantizer),
            scratch,
            expires_after,
            threads,
            device_diff,
        )
        self._own(self._session)
        self._exit_flush = ExitFlush(self.url, self._session, float(exit_timeout))
        weakref.finalize(self, self._exit_flush.collected).atexit = False
        self._detector = DeviceDetector(self._session) if device_diff else None
        self._published = self._session.schema
        self._accepted: _native.Schema | None = None  # the one that `_published` lists
        self._next_step = int(self._session.next_step)
        self._require_schema(self._schema)

    def attach(self, optimizer: Any) -> Publisher:
        """Publishes after each `every` steps of a torch optimizer, until close().

        An empty run gets the weights as they are now first, so that followers can start. Of several
        optimizers that are attached (Muon and AdamW), all step before their weights are published.
        """
        if self._published is None:
            self.publish()
        self._hooks.hang_on(optimizer, self._publish_iteration)
        return self

    def _publish_iteration(self) -> None:
        self.publish(self._next_step + self._every - 1)

    def publish(self, step: int | None = None) -> int:
        """Publishes the weights as they are now, as `step`; one after the newest if None.

        Returns the step, which is committed in the background: flush() waits for that, `stats` has
        what became of it, and `failure` why it is not in the bucket yet. A step at or below the
        newest is a rewind: followers are told, and get a full checkpoint.
        """
        return self._publish(step, None)

    def publish_handed(self, weights: Iterable[tuple[str, Any]], step: int | None = None) -> int:
        """As publish(), for weights that somebody hands over one by one, once, in any order.

        They are what the model held when it was published last, under the same names. Each is
        compared with the last committed state before the next is asked for, and then let go of;
        what changed is kept. `weights` is read to its end in any case: other ranks may take part.
        WrongBaseError when there is no state to compare with: publish the model.
        """
        rule, quantizer = self._tensors.rule, self._quantizer
        handed = HandedChanges(self._session, self._schema, rule, quantizer, weights)
        try:
            return self._publish(step, handed)
        finally:
            handed.drain()

    def let_go_of_model(self) -> None:
        """Keeps none of the model's tensors until publish() looks at it again."""
        self._tensors.let_go()
        self._stager.let_go()

    def _publish(self, step: int | None, handed: HandedChanges | None) -> int:
        start = time.perf_counter()
        self._require_own()
        step = self._next_step if step is None else int(step)
        self._listen()
        self._raise_failure()
        try:
            sources, schema = self._tensors.look() if handed is None else ({}, self._schema)
            self._require_schema(schema)
        except Exception as error:
            # Raised here, and by flush() until a later step is committed.
            self._session.miss(step, kind_of(error), str(error))
            raise
        try:
            if handed is None:
                folded = self._submit(schema, sources, step)
            else:
                folded = bool(self._session.submit_changes(schema, handed.next, step))
        except Exception as error:  # a store written in Python raises what it likes
            self._listen()
            self._failure_raised = True
            if self._on_error == "raise" or isinstance(error, (FencedError, InvalidError)):
                if self._metrics is not None:
                    self._metrics.failed(error)
                raise
            self._note_failure(error)
            self._next_step = step + 1
            return step
        self._folding = self._folding + 1 if folded else 0
        self._submitted[step] = (time.perf_counter() - start, self._folding)
        if schema is not self._accepted:
            self._accepted = schema
            self._published = schema.tensors
        self._schema = schema
        self._next_step = step + 1
        self._listen()
        return step

    def flush(self) -> None:
        """Returns when all that was published is committed; raises which step is not, and why."""
        self._require_own()
        try:
            self._session.flush()
        except Exception as error:
            # What a store written in Python raised comes back as it was.
            note = f"step {self._session.uncommitted} of {self.url} is not committed"
            told = isinstance(error, Error) or note in getattr(error, "__notes__", [])
            if not told and hasattr(error, "add_note"):
                error.add_note(note)
            raise
        finally:
            self._listen()
            self._failure_raised = True

    def close(self) -> None:
        """Commits what is still under way, and lets go of optimizer and run. May be called twice.

        What cannot be committed, after three tries, is logged, or raised with on_error="raise".
        """
        self._require_own()
        behind = self._hooks.is_behind
        self._hooks.remove()
        if not self._exit_flush.alive:
            return
        try:
            if behind:
                self._publish_iteration()
            self._flush_patiently()
        except Exception as error:
            if self._on_error == "raise" or isinstance(error, FencedError):
                raise
            logger.error("the last steps are not in %s: %s", self.url, error)
        finally:
            self._exit_flush.stop()
            self._side_files.remove()
            if self._metrics is not None:
                self._metrics.close()

    def _flush_patiently(self) -> None:
        """What failed a moment ago may be on its second try."""
        for _ in range(_CLOSING_TRIES - 1):
            try:
                return self.flush()
            except FencedError:
                raise
            except Exception as error:
                self._note_failure(error)
        self.flush()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._is_inherited:
            return
        if kind is not None:
            self._hooks.remove()  # an iteration may be half done
        try:
            self.close()
        except Exception as error:
            if kind is None:
                raise
            # The exception under way says what went wrong first.
            logger.error("the last steps are not in %s: %s", self.url, error)

    @property
    def run(self) -> str:
        """The run's identity."""
        return str(self._session.run)

    @property
    def metrics_url(self) -> str | None:
        """Where the metrics are read, if they are served here."""
        return self._metrics.url if self._metrics is not None else None

    @property
    def next_step(self) -> int:
        """The step that publish() takes by default: one after the newest."""
        return self._next_step

    @property
    def stats(self) -> Table[PublishStats]:
        """Committed steps, oldest first."""
        self._require_own()
        self._listen()
        return Table(self._stats, STATS_COLUMNS, self.url)

    @property
    def failure(self) -> Exception | None:
        """Why the newest step is not in the bucket yet, if something went wrong."""
        self._require_own()
        self._listen()
        return self._failure

    def __repr__(self) -> str:
        last = f", {self._stats[-1]}" if self._stats else ""
        return f"<Publisher {self.url}{last}>"

    def _submit(self, schema: _native.Schema, sources: dict[str, Source], step: int) -> bool:
        if self._detector is not None and self._published is not None:
            try:
                self._detector.begin(schema, sources)
                return bool(self._session.submit_changes(schema, self._detector.next, step))
            except WrongBaseError:
                self._detector.forget()
        self._stager.begin(schema, sources)
        return bool(self._session.submit(schema, self._stager.next, self._stager.restart, step))

    def _require_schema(self, schema: _native.Schema) -> None:
        if self._published is None or schema is self._accepted or self._allow_schema_change:
            return
        if self._published == schema.tensors:
            self._accepted = schema
            return
        raise InvalidError(
            f"the model does not fit {self.url}: {differences(self._published, schema.tensors)}. "
            "Publish to a new run, or pass allow_schema_change=True to go on with a full checkpoint"
        )

    def _listen(self) -> None:
        """Takes in the news of the uploading thread."""
        for news in self._session.news():
            if isinstance(news, Exception):
                self._note_failure(news)
                continue
            if news.kind == "heartbeat":
                self._failure = None
                continue
            blocked, folded = self._submitted.pop(news.step, (0.0, 0))
            stats = stats_of(news, self._schema.total_bytes, blocked, folded)
            self._submitted = {s: v for s, v in self._submitted.items() if s > news.step}
            self._stats.append(stats)
            del self._stats[:-KEPT_STATS]
            if self._failure is not None:
                logger.info("%s is being published to again", self.url)
                self._failure = None
            if self._metrics is not None:
                self._metrics.published(stats)
            logger.info("%s", stats)
            if stats.anchor_failure is not None:
                logger.warning(
                    "step %s is in %s, but a full checkpoint of it, which is due, is not: %s. It "
                    "is tried again with the next step",
                    stats.step, self.url, stats.anchor_failure,
                )  # fmt: skip

    def _note_failure(self, error: Exception) -> None:
        news = self._failure is None or kind_of(self._failure) != kind_of(error)
        if news and isinstance(error, FencedError):
            logger.error("nothing more is published to %s: %s", self.url, error)
        elif news:
            logger.warning(
                "publishing to %s fails, training goes on and the next step brings what this one "
                "could not: %s",
                self.url,
                error,
            )
        self._failure = error
        self._failure_raised = False
        if self._metrics is not None:
            self._metrics.failed(error)

    def _raise_failure(self) -> None:
        if self._failure is None or self._failure_raised:
            return
        if self._on_error == "raise" or isinstance(self._failure, FencedError):
            self._failure_raised = True
            raise self._failure
