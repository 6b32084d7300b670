"""vLLM's trainer side (0.32): trainers written for its weight transfer use wisp by its name.

    info = TrainerInfo(rank=0, run="s3://bucket/run")
    engine = WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    engine.send_weights()                                # after each optimizer step, on every rank

The sender (rank 0) publishes what its source holds and brings the servers to it; the others take
part in the collectives of the source. See doc/frameworks/vllm_trainer.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Error, InvalidError, UnavailableError
from ..tensors import is_dtensor
from ..trl.bucket_transfer import BucketWeightTransfer
from .backend import BACKEND, register_trainer_engine
from .versions import trainer_classes

if TYPE_CHECKING:
    from vllm.distributed.weight_transfer.base import VLLMWeightSyncClient, WeightSource

__all__ = ["TrainerEngine", "TrainerInfo", "TrainerSettings"]

_ModuleSource, _InitInfo, _Engine = trainer_classes()


@dataclass
class TrainerInfo(_InitInfo):  # type: ignore[misc,valid-type]
    """Where a trainer publishes, and how its servers take the steps.

    servers: base URLs of the servers; those that the client knows if empty. They stage a step
      while serving and pause for the switch alone. A client that tells no URL is driven by its
      four methods: its servers then wait for the step inside `update_weights`.
    server_info: what else the servers are told of the run, as in POST /wisp/init (`scratch`,
      `allow_missing`, …).
    options: those of wisp.Publisher.
    The others are those of wisp.trl.BucketWeightTransfer.
    """

    backend: ClassVar[str] = BACKEND

    run: str
    servers: list[str] = field(default_factory=list)
    dtype: Any = "bfloat16"
    mode: str = "keep"
    timeout: float = 300.0
    patience: float = 600.0
    on_error: str = "raise"
    server_run: str | None = None
    api_key: str | None = None
    trust: list[str] = field(default_factory=list)
    min_serial: int = 0
    run_id: str | None = None
    server_info: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.run:
            raise InvalidError("a trainer publishes to a run: give its address as `run`")

    @property
    def told_servers(self) -> dict[str, Any]:
        """What `init_weight_transfer_engine` tells a server."""
        run = self.server_run or self.run
        told = {"run": run if "://" in run else os.path.abspath(run)}
        believed = {"trust": self.trust, "min_serial": self.min_serial, "run_id": self.run_id}
        return {**told, **{name: value for name, value in believed.items() if value},
                **self.server_info}  # fmt: skip


class TrainerSettings:
    """How an engine reads what it is given; a framework with settings of its own has another one.

    Set as `settings` of a subclass of TrainerEngine, which is registered under that framework's
    name for it. `wisp.skyrl` has an example.
    """

    def info_of(self, init_info: Any) -> TrainerInfo:
        """What the trainer is told, as settings of wisp; InvalidError if they are none."""
        if not isinstance(init_info, TrainerInfo):
            raise InvalidError(
                f"the backend wisp takes a wisp.vllm.TrainerInfo, not a {type(init_info).__name__}"
            )
        return init_info

    def urls_of(self, client: VLLMWeightSyncClient) -> list[str]:
        """The base URLs of a client's servers; empty: it does not tell."""
        url = getattr(client, "base_url", None)
        return [url] if isinstance(url, str) else []


class TrainerEngine(_Engine):  # type: ignore[misc,valid-type]
    """Publishes on the sender, and has the servers switch to what was published."""

    init_info_cls = TrainerInfo
    settings: ClassVar[TrainerSettings] = TrainerSettings()

    def __init__(
        self,
        *,
        client: VLLMWeightSyncClient,
        source: WeightSource,
        is_sender: bool = True,
        info: TrainerInfo,
    ) -> None:
        super().__init__(client=client, source=source, is_sender=is_sender)
        self.info = info
        urls = info.servers or self.settings.urls_of(client)
        #: What publishes and drives; on the sender alone.
        self.transfer: BucketWeightTransfer | None = None
        if is_sender:
            self.transfer = BucketWeightTransfer(
                info.run,
                urls,
                make_driver=None if urls else lambda run: _ClientDriver(client),
                dtype=info.dtype,
                mode=info.mode,  # type: ignore[arg-type]
                timeout=info.timeout,
                patience=info.patience,
                on_error=info.on_error,  # type: ignore[arg-type]
                server_run=info.server_run,
                api_key=info.api_key,
                trust=info.trust or None,
                min_serial=info.min_serial,
                run_id=info.run_id,
                **info.options,
            )

    @classmethod
    def trainer_init(
        cls,
        init_info: Any,
        *,
        client: VLLMWeightSyncClient,
        source: WeightSource | None = None,
    ) -> TrainerEngine:
        """Tells the servers which run to follow; the run itself may still be to come."""
        if source is None:
            raise InvalidError("wisp publishes what a WeightSource holds: give one as `source`")
        info = cls.settings.info_of(init_info)
        engine = cls(client=client, source=source, is_sender=init_info.is_sender, info=info)
        if engine.is_sender:
            engine._tell_servers()
        return engine

    def _tell_servers(self) -> None:
        try:
            self.client.init_weight_transfer_engine(self.info.told_servers)
        except Exception as error:
            raise UnavailableError(
                f"no server was told to follow {self.info.run}: {error}; start them with "
                '--weight-transfer-config \'{"backend": "wisp"}\' and VLLM_SERVER_DEV_MODE=1; '
                "their logs say more"
            ) from error

    def send_weights(self) -> None:
        """Returns when the step is committed and the servers serve it. On every rank."""
        module = _whole_module(self.source)
        if self.transfer is None:
            if module is None:
                for _ in self.source:
                    pass  # the collectives in it
        elif module is not None:
            self.transfer.send_module(module)
        else:
            self.transfer.send_weights(_walk(self.source))

    @property
    def step(self) -> int | None:
        """The newest step that is in the run; None on ranks that do not send."""
        return None if self.transfer is None else self.transfer.step

    def shutdown(self) -> None:
        """Lets go of run and servers, which serve on."""
        if self.transfer is not None:
            self.transfer.destroy()


def _whole_module(source: Any) -> Any:
    """The module of vLLM's own source, if all of its weights are here."""
    module = getattr(source, "_module", None)
    if type(source) is not _ModuleSource or module is None:
        return None
    return None if any(is_dtensor(p) for p in module.parameters()) else module


def _walk(source: Any) -> Iterator[tuple[str, Any]]:
    for name, tensor in source:
        if tensor is None:
            raise InvalidError(
                f"this trainer's rank 0 does not hold '{name}': the source is split over ranks; "
                "publish such a model with wisp.ShardedPublisher"
            )
        yield name, tensor


@dataclass(frozen=True)
class _Moved:
    """What a ServerSwitch reads of a wisp.engine.Report."""

    url: str
    served: int
    ok: bool = True
    error: str = ""
    error_kind: str = ""


class _ClientDriver:
    """A client's servers, by vLLM's own four methods; what they raise is the trainer's."""

    def __init__(self, client: VLLMWeightSyncClient) -> None:
        self._client = client

    def update(self, step: int, *, state: str = "") -> Sequence[Any]:
        self._client.start_weight_update()
        try:
            self._client.update_weights({"step": step})
        except Error:
            raise
        except Exception as error:
            raise UnavailableError(
                f"step {step} is published, and the servers do not take it: {error}; the next "
                "step brings them everything"
            ) from error
        self._client.finish_weight_update(weight_version=str(step))
        return [_Moved(type(self._client).__name__, step)]

    def close(self) -> None:
        """The client is the trainer's."""


register_trainer_engine(BACKEND, TrainerEngine)
