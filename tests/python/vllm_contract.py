"""What wisp needs of vLLM 0.32's weight transfer, as modules without vLLM.

Only the published contract: registries by name, init infos with a backend and a rank, sources that
are walked, engines that are made by trainer_init(). tests/python/test_vllm_trainer.py holds the
adapters against the real thing.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

T = TypeVar("T")
U = TypeVar("U")


@dataclass
class TrainerInitInfo:
    backend: ClassVar[str]
    rank: int = field(kw_only=True)

    @property
    def is_sender(self) -> bool:
        return self.rank == 0


class TrainerWeightTransferEngine(Generic[T]):
    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        self.client, self.source, self.is_sender = client, source, is_sender


class WeightSource:
    """Walked anew in each round."""


class ModuleSource(WeightSource):
    def __init__(self, module: Any) -> None:
        self._module = module

    def __iter__(self) -> Any:
        yield from self._module.named_parameters()


class _Factory:
    _registry: dict[str, Any]

    @classmethod
    def register_engine(cls, name: str, engine: Any, class_name: str | None = None) -> None:
        if name in cls._registry:
            raise ValueError(f"'{name}' is already registered")
        cls._registry[name] = (engine, class_name)

    @classmethod
    def engine_of(cls, name: str) -> Any:
        engine, class_name = cls._registry[name]
        if class_name is None:
            return engine
        __import__(engine)
        return getattr(sys.modules[engine], class_name)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts the modules where vLLM's would be; returns the trainers' factory."""
    factory = _module(monkeypatch, "vllm.distributed.weight_transfer.factory")
    factory.WeightTransferEngineFactory = type("Servers", (_Factory,), {"_registry": {}})

    class Trainers(_Factory):
        _registry: dict[str, Any] = {}

        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            made = cls.engine_of(init_info.backend)
            return made.trainer_init(init_info=init_info, client=client, source=source)

    factory.WeightTransferTrainerFactory = Trainers
    base = _module(monkeypatch, "vllm.distributed.weight_transfer.base")
    base.TrainerInitInfo = TrainerInitInfo
    base.TrainerWeightTransferEngine = TrainerWeightTransferEngine
    base.ModuleSource = ModuleSource
    transfer = _module(monkeypatch, "vllm.distributed.weight_transfer")
    transfer.WeightTransferEngineFactory = factory.WeightTransferEngineFactory
    _module(monkeypatch, "vllm.distributed")
    _module(monkeypatch, "vllm").__version__ = "0.99"
    for ours in ("wisp.vllm.trainer", "wisp.skyrl.delta_trainer"):
        # What was imported with these modules must not be found by tests with others.
        monkeypatch.setitem(sys.modules, ours, None)
        del sys.modules[ours]
    return Trainers


def _module(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    module = types.ModuleType(name)
    module.__path__ = []
    monkeypatch.setitem(sys.modules, name, module)
    return module


class RecordingClient:
    """vLLM's four methods; `acts` is what was called, in order."""

    def __init__(self, base_url: str | None = None) -> None:
        self.acts: list[tuple[Any, ...]] = []
        self.refusal: Exception | None = None  #: of the next updates
        if base_url is not None:
            self.base_url = base_url

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self.acts.append(("init", init_info))

    def start_weight_update(self) -> None:
        self.acts.append(("start",))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.acts.append(("update", update_info))
        if self.refusal is not None:
            raise self.refusal

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self.acts.append(("finish", weight_version))
