"""What TRL asks of a weight transfer, by way of a bucket: publish, then have servers switch."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..engine import Driver, Report
from ..errors import FencedError, InvalidError
from ..frameworks.server_switch import ServerDriver, ServerSwitch
from ..model.model_files import ModelFiles
from ..publish.publisher import Publisher, PublishStats
from ..publish.sources import DtypeRule, dtype_named
from ..runs import TrustedKeys
from ..stores import RunAddress
from ..tensors import is_dtensor
from .handed_weights import HandedWeights

if TYPE_CHECKING:
    from ..sharded import ShardedPublisher, ShardedReport

logger = logging.getLogger("wisp")


@dataclass(frozen=True)
class PublishHooks:
    """How a transfer publishes. Another way to publish is another set of these, not a subclass."""

    #: Makes the publisher, at the first sync; gets the trainer that sends.
    open: Callable[[Any], Publisher | ShardedPublisher]
    #: Publishes the weights as this step (None: the next) and returns once it is committed.
    commit: Callable[[int | None], PublishStats | ShardedReport]
    #: Lets go of the publisher.
    close: Callable[[], None]


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
    patience: seconds to wait for one server to take the step if none does; then UnavailableError is
      raised. 0 raises at once, math.inf waits for ever.
    on_error: "warn": a step that cannot be published is logged, and the next brings everything;
      until then TRL's model_version is ahead of the servers. "raise": it ends the training.
    server_run: the run's address as the servers see it, if it is another.
    api_key: what the servers were given as --api-key.
    trust: public keys that trainer and servers prove the run's signatures with; `min_serial` and
      `run_id` are for both, too.
    make_driver: makes what moves the servers, of the run's address, in the place of a
      wisp.engine.Driver of `servers`.
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
        trust: TrustedKeys = None,
        make_driver: Callable[[str], ServerDriver] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(servers, str) or isinstance(sglang, str):
            raise InvalidError("servers is a list of base URLs, also of one")
        if on_error not in ("warn", "raise"):
            raise InvalidError('on_error is "warn" or "raise"')
        if mode not in ("keep", "wait", "abort"):
            raise InvalidError('mode is "keep", "wait" or "abort"')
        self._run = run
        self.servers = list(servers)
        self.sglang = list(sglang)
        self._dtype = dtype_named(dtype)
        self._mode = mode
        self._timeout = float(timeout)
        self._on_error = on_error
        self._server_run = server_run
        self._api_key = api_key
        self._options = {"trust": trust, **options}
        self._weights: HandedWeights | None = None
        self._module: Any = None
        self._model_files = ModelFiles()
        self._has_servers = bool(servers or sglang or make_driver)
        self.server_switch = ServerSwitch(
            make_driver or self._make_driver, patience=float(patience)
        )
        self._hooks = PublishHooks(self._open_whole, self._commit_whole, self._close_whole)
        #: The publisher, from the first sync on.
        self.publisher: Publisher | ShardedPublisher | None = None
        #: The newest step that is in the bucket.
        self.step: int | None = None
        self._state = ""

    @property
    def reports(self) -> list[Report]:
        """What became of the newest step on each server."""
        return self.server_switch.reports

    # --- what TRL calls, on its main process

    def init_weight_transfer(self) -> None:
        """Nothing yet: a server may even be started after the first publish."""

    def pause(self) -> None:
        """Returns at once: each server pauses by itself, once it has everything at hand."""

    def send_weights(self, iterator: Iterable[tuple[str, Any]]) -> None:
        """Publishes what the iterator gives, and brings the servers to it."""
        sender = sender_of(iterator)
        if self._weights is None:
            self._weights = HandedWeights(self._dtype, keep=_keeps_still(sender))
        self._weights.take(iterator)
        self._sync(sender, _version_of(sender))

    def send_module(self, module: Any, step: int | None = None) -> None:
        """As send_weights(), of a torch module whose weights are all here: nothing is copied."""
        self._module = module
        self._sync(None, step)

    def _sync(self, sender: Any, step: int | None) -> None:
        self._open(sender, step)
        if self._publish(step):
            self._drive()

    def resume(self) -> None:
        """Nothing: the servers have gone on already."""

    def destroy(self) -> None:
        """Lets go of run and servers; the servers go on serving. A later sync opens them again."""
        self.server_switch.close()
        if self.publisher is not None:
            self._hooks.close()
            self.publisher = None
        self._weights = self._module = None
        self._model_files.remove()

    # --- publishing

    def _open(self, sender: Any, step: int | None) -> None:
        if self.publisher is not None:
            return
        self.publisher = self._hooks.open(sender)
        newest = self.publisher.next_step - 1
        # A resumed training does this, and one that was given another training's run.
        if step is not None and step <= newest:
            logger.warning(
                "%s is at step %s, and this training goes on with step %s: the run is rewound, and "
                "its servers go back with it. Unless it was resumed, give each training a new run",
                self.publisher.url, newest, step,
            )  # fmt: skip

    def _publish(self, step: int | None) -> bool:
        """Whether the weights are in the bucket now, as `self.step`."""
        assert self.publisher is not None
        try:
            report = self._hooks.commit(step)
        except (FencedError, InvalidError):
            raise
        except Exception as error:  # a store written in Python raises what it likes
            if self._on_error == "raise":
                raise
            logger.warning(
                "step %s is not in %s, and the servers stay at step %s: %s. Training goes on; the "
                "next sync brings everything",
                step, self.publisher.url, self.step, error,
            )  # fmt: skip
            return False
        self.step, self._state = report.step, report.state
        return True

    def _open_whole(self, sender: Any) -> Publisher:
        options = self._with_side_files(sender)
        if self._module is not None:
            return Publisher(self._run, self._module, dtype=self._dtype, **options)
        assert self._weights is not None
        return Publisher(self._run, self._weights.tensors, dtype=self._weights.rule, **options)

    def _commit_whole(self, step: int | None) -> PublishStats:
        assert isinstance(self.publisher, Publisher)
        self.publisher.publish(step)
        self.publisher.flush()
        if self.publisher.failure is not None:
            raise self.publisher.failure
        return self.publisher.stats[-1]

    def _close_whole(self) -> None:
        assert self.publisher is not None
        self.publisher.close()

    def _with_side_files(self, sender: Any) -> dict[str, Any]:
        """Configuration and tokenizer beside full checkpoints, unless the user named files."""
        if "side_files" in self._options:
            return self._options
        if self._module is not None:
            names = self._options.get("names", "checkpoint")
            files = self._model_files.write(self._module, None, self._dtype, names)
            return {**self._options, "side_files": files}
        model = getattr(sender, "model", None)
        if model is None:
            return self._options
        model = sender.accelerator.unwrap_model(model)
        processing_class = getattr(sender, "processing_class", None)
        files = self._model_files.write(model, processing_class, self._dtype)
        return {**self._options, "side_files": files}

    # --- the servers

    def _drive(self) -> None:
        """Brings the servers to the newest step; returns when they are there, or left behind."""
        if not self._has_servers:
            return
        assert self.publisher is not None and self.step is not None
        self.server_switch.switch_to(self._server_run or self.publisher.url, self.step, self._state)

    def _make_driver(self, run: str) -> Driver:
        return Driver(
            run,
            self.servers,
            sglang=self.sglang,
            mode=self._mode,
            timeout=self._timeout,
            trust=self._options["trust"],
            min_serial=self._options.get("min_serial", 0),
            run_id=self._options.get("run_id"),
            api_key=self._api_key,
            on_report=self.server_switch.note,
        )


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
