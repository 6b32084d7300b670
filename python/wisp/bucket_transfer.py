"""What TRL asks of a weight transfer, by way of a bucket: publish, then have servers switch."""

from __future__ import annotations

import inspect
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from .errors import Fenced, Invalid, Unavailable
from .model_files import write_model_files
from .passing_weights import PassingWeights
from .publisher import Publisher
from .staging import DtypeRule
from .stores import RunAddress
from .tensors import is_dtensor

logger = logging.getLogger("wisp")

#: Between two tries when no server takes a step.
_RETRY_SECONDS = 2.0


class BucketWeightTransfer:
    """`weight_transfer` for AsyncGRPOTrainer and AsyncDistillationTrainer, through a bucket.

    A sync publishes the weights, waits for the commit, and has every server switch to it. Servers
    fetch and prove the step while they generate; each stands still for the switch alone.
    The published step is TRL's `model_version`, and so is the servers' weight version: a sample
    tagged N was asked for when step N was being served.

    A server that is dead or too slow is named in the log and left behind; training goes on as long
    as one server takes the step. Once it is back it is brought up to date, between syncs too.

    servers: base URLs of vLLM servers; `sglang`: of SGLang servers. Without any, the commit is all
      that is waited for, and servers follow the run by themselves; samples may then carry a version
      that their server did not have yet.
    dtype: what the servers get: a torch dtype or its name, None for each tensor's own, or a
      function (name, tensor) -> dtype.
    mode: what becomes of requests under way: "keep", "wait" or "abort".
    timeout: seconds that one server may take for a step.
    patience: seconds to wait for one server to take the step if none does; then Unavailable is
      raised. 0 raises at once, math.inf waits for ever.
    on_error: "warn": a step that cannot be published is logged, and the next brings everything;
      until then TRL's model_version is ahead of the servers. "raise": it ends the training.
    server_run: the run's address as the servers see it, if it is another.
    api_key: what the servers were given as --api-key.
    trust: public keys that trainer and servers prove the run's signatures with; `min_serial` and
      `run_id` are for both, too.
    Other options are those of wisp.Publisher.
    """

    def __init__(
        self,
        run: RunAddress,
        servers: Sequence[str] = (),
        *,
        sglang: Sequence[str] = (),
        dtype: DtypeRule | str = "bfloat16",
        mode: Literal["keep", "wait", "abort"] = "keep",
        timeout: float = 300.0,
        patience: float = 600.0,
        on_error: Literal["warn", "raise"] = "warn",
        server_run: str | None = None,
        api_key: str | None = None,
        trust: Any = None,
        **options: Any,
    ) -> None:
        if isinstance(servers, str) or isinstance(sglang, str):
            raise Invalid("servers is a list of base URLs, also of one")
        if on_error not in ("warn", "raise"):
            raise Invalid('on_error is "warn" or "raise"')
        if mode not in ("keep", "wait", "abort"):
            raise Invalid('mode is "keep", "wait" or "abort"')
        self._run = run
        self.servers = list(servers)
        self.sglang = list(sglang)
        self._dtype = _dtype_of(dtype)
        self._mode = mode
        self._timeout = float(timeout)
        self._patience = float(patience)
        self._on_error = on_error
        self._server_run = server_run
        self._api_key = api_key
        self._options = {"trust": trust, **options}
        self._weights: PassingWeights | None = None
        self._side_files: tempfile.TemporaryDirectory[str] | None = None
        self._driver: Any = None
        self._behind: dict[str, str] = {}
        #: The publisher, from the first sync on.
        self.publisher: Any = None
        #: The newest step that is in the bucket.
        self.step: int | None = None
        self._state = ""
        #: What became of the newest step on each server: a list of wisp.engines.Report.
        self.reports: list[Any] = []

    # --- what TRL calls, on its main process

    def init_weight_transfer(self) -> None:
        """Nothing yet: a server may even be started after the first publish."""

    def pause(self) -> None:
        """Returns at once: each server pauses by itself, once it has everything at hand."""

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Publishes what the iterator gives, and brings the servers to it."""
        sender = sender_of(iterator)
        if self._weights is None:
            self._weights = PassingWeights(self._dtype, keep=_keeps_still(sender))
        self._weights.take(iterator)
        step = _version_of(sender)
        if self.publisher is None:
            self.publisher = self._open(sender)
            self._warn_of_rewind(step)
        if self._publish(step):
            self._drive()

    def resume(self) -> None:
        """Nothing: the servers have gone on already."""

    def destroy(self) -> None:
        """Lets go of run and servers; the servers go on serving. A later sync opens them again."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()
        self._close_publisher()
        self._weights = None
        if self._side_files is not None:
            self._side_files.cleanup()
            self._side_files = None

    # --- publishing

    def _open(self, sender: Any) -> Publisher:
        assert self._weights is not None
        options = self._with_side_files(sender)
        return Publisher(self._run, self._weights.tensors, dtype=self._weights.rule, **options)

    def _warn_of_rewind(self, step: int | None) -> None:
        """A resumed training does this, and one that was given another training's run."""
        newest = self.publisher._next_step - 1
        if step is not None and step <= newest:
            logger.warning(
                "%s is at step %s, and this training goes on with step %s: the run is rewound, and its "
                "servers go back with it. Unless it was resumed, give each training a new run",
                self.publisher.url, newest, step,
            )  # fmt: skip

    def _publish(self, step: int | None) -> bool:
        """Whether the weights are in the bucket now, as `self.step`."""
        try:
            self.publisher.publish(step)
            self.publisher.flush()
        except (Fenced, Invalid):
            raise
        except Exception as error:  # a store written in Python raises what it likes
            return self._not_published(step, error)
        if self.publisher.failure is not None:
            return self._not_published(step, self.publisher.failure)
        self._note_commit(self.publisher.stats[-1])
        return True

    def _note_commit(self, report: Any) -> None:
        self.step = report.step
        self._state = report.state

    def _not_published(self, step: int | None, error: Exception) -> bool:
        if self._on_error == "raise":
            raise error
        logger.warning(
            "step %s is not in %s, and the servers stay at step %s: %s. Training goes on; the next "
            "sync brings everything",
            step, self.publisher.url, self.step, error,
        )  # fmt: skip
        return False

    def _close_publisher(self) -> None:
        publisher, self.publisher = self.publisher, None
        if publisher is not None:
            publisher.close()

    def _with_side_files(self, sender: Any) -> dict[str, Any]:
        """Configuration and tokenizer beside full checkpoints, unless the user named files."""
        model = getattr(sender, "model", None)
        if "side_files" in self._options or model is None:
            return self._options
        model = sender.accelerator.unwrap_model(model)
        if self._side_files is None:
            self._side_files = tempfile.TemporaryDirectory(prefix="wisp-")
        files = write_model_files(
            self._side_files.name, model, getattr(sender, "processing_class", None), self._dtype
        )
        return {**self._options, "side_files": files}

    # --- the servers

    def _drive(self) -> None:
        """Brings the servers to the newest step; returns when they are there, or left behind."""
        if not (self.servers or self.sglang):
            return
        if self._driver is None:
            self._driver = self._connect()
        deadline = time.monotonic() + self._patience
        waiting = False
        while True:
            self.reports = self._driver.update(self.step, state=self._state)
            for report in self.reports:
                self._hear(report)
            if any(report.ok for report in self.reports):
                return
            left = deadline - time.monotonic()
            if left <= 0:
                causes = "; ".join(f"{r.url}: {r.error}" for r in self.reports)
                raise Unavailable(
                    f"no server took step {self.step} within {self._patience:g} s ({causes}). "
                    "Start one, or let the training wait longer for it with patience="
                )
            if not waiting:
                logger.warning("no server takes step %s; training waits for one", self.step)
                waiting = True
            threading.Event().wait(min(left, _RETRY_SECONDS))

    def _connect(self) -> Any:
        from .engines import Driver

        address = self._server_run or self.publisher.url
        return Driver(
            # A folder by its whole path: the servers run elsewhere.
            address if "://" in address else os.path.abspath(address),
            self.servers,
            sglang=self.sglang,
            mode=self._mode,
            timeout=self._timeout,
            trust=self._options["trust"],
            min_serial=self._options.get("min_serial", 0),
            run_id=self._options.get("run_id"),
            api_key=self._api_key,
            on_report=self._hear,
        )

    def _hear(self, report: Any) -> None:
        """Says once that a server is behind, and once that it is back."""
        cause = self._behind.get(report.url)
        if report.ok:
            if self._behind.pop(report.url, None) is not None:
                logger.warning("%s is back and serves step %s", report.url, report.served)
        elif cause != report.error_kind:
            self._behind[report.url] = report.error_kind
            logger.warning(
                "%s does not serve step %s: %s. It is brought up to date when it is back",
                report.url, self.step, report.error,
            )  # fmt: skip


def _dtype_of(dtype: DtypeRule | str) -> DtypeRule:
    if not isinstance(dtype, str):
        return dtype
    import torch

    named = getattr(torch, dtype, None)
    if not isinstance(named, torch.dtype):
        raise Invalid(f"torch has no dtype {dtype!r}")
    return named


def sender_of(iterator: Any) -> Any:
    """The object whose method made the generator: TRL hands over no more than that."""
    if not inspect.isgenerator(iterator):
        return None
    return inspect.getgeneratorlocals(iterator).get("self")


def _version_of(sender: Any) -> int | None:
    """The version that TRL gives the weights it is about to send; None where it does not count."""
    version = getattr(sender, "model_version", None)
    return version + 1 if isinstance(version, int) else None


def _keeps_still(sender: Any) -> bool:
    """Whether the tensors that are handed over are the model's own, until the sync is over."""
    if _version_of(sender) is None:
        return False
    return not any(is_dtensor(p) for p in sender.model.parameters())
