"""The published interfaces of frameworks, as small modules: what an adapter meets, and no more."""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any

import pytest


class Registry:
    """verl's CheckpointEngineRegistry."""

    def __init__(self) -> None:
        self.engines: dict[str, type] = {}

    def register(self, backend: str) -> Any:
        def wrapper(engine: type) -> type:
            self.engines[backend] = engine
            return engine

        return wrapper

    def new(self, backend: str, *args: Any, **kwargs: Any) -> Any:
        return self.engines[backend](*args, **kwargs)


class VerlEngine(ABC):
    """verl 0.9's CheckpointEngine."""

    wire_format = "named_tensors"

    @abstractmethod
    def prepare(self) -> Any: ...
    @classmethod
    @abstractmethod
    def build_topology(cls, actors: int, rollouts: int, metadata: Any) -> Any: ...
    @abstractmethod
    def init_process_group(self, **kwargs: Any) -> Any: ...
    @abstractmethod
    def finalize(self) -> Any: ...
    @abstractmethod
    async def send_weights(self, weights: Any, global_steps: Any = None) -> Any: ...
    @abstractmethod
    async def receive_weights(self, global_steps: Any = None) -> Any: ...


class VerlManager:
    """verl 0.9's CheckpointEngineManager, as far as subclasses use it."""

    def __init__(self, config: Any, actor_wg: Any, replicas: list[Any]) -> None:
        self.config, self.backend = config, config.backend
        self.actor_wg, self.replicas = actor_wg, replicas

    def add_replicas(self, replicas: list[Any]) -> None:
        self.replicas.extend(replicas)

    def remove_replicas(self, replicas: list[Any]) -> None:
        self.replicas = [r for r in self.replicas if r not in replicas]


class NemoEngine(ABC):
    """NeMo-RL's CheckpointEngine."""

    @abstractmethod
    def prepare(self) -> Any: ...
    @abstractmethod
    def init_policy_process_group(self, **kwargs: Any) -> None: ...
    @abstractmethod
    def init_rollout_process_group(self, **kwargs: Any) -> None: ...
    @abstractmethod
    def finalize(self) -> None: ...
    @abstractmethod
    async def send_weights(self, weights: Any) -> None: ...
    @abstractmethod
    async def receive_weight_batches(self) -> Any: ...


def install(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """A module of this name, with its parents, for the time of a test."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        path = ".".join(parts[:end])
        if path not in sys.modules or end == len(parts):
            module = ModuleType(path)
            module.__path__ = []
            monkeypatch.setitem(sys.modules, path, module)
    for key, value in contents.items():
        setattr(sys.modules[name], key, value)


def forget(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Has `name` imported anew, with what stands in now; and forgotten when the test is over."""
    for path in [p for p in sys.modules if p == name or p.startswith(name + ".")]:
        monkeypatch.delitem(sys.modules, path)


def install_verl(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()

    def auto_await(function: Any) -> Any:
        return lambda *args, **kwargs: asyncio.run(function(*args, **kwargs))

    install(monkeypatch, "verl.checkpoint_engine.base", CheckpointEngine=VerlEngine,
            CheckpointEngineRegistry=registry, CheckpointEngineManager=VerlManager)
    install(monkeypatch, "verl.utils.ray_utils", auto_await=auto_await)
    return registry


def install_nemo_rl(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "nemo_rl.utils.checkpoint_engines.base", CheckpointEngine=NemoEngine)
