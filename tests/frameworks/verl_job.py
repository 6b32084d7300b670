"""A verl job without a GPU: an actor of two ranks, and rollouts whose engines keep what they get."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ray
import torch
from safetensors.torch import load_file
from verl.checkpoint_engine.base import CheckpointEngineRegistry, CheckpointEngineWorker
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.utils.import_utils import import_external_libs
from verl.workers.rollout import BaseRollout
from vllm_server import ENVIRONMENT


class KeepingRollout(BaseRollout):
    """A server adapter that keeps the tensors."""

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}
        self.yielded: list[str] = []
        self.replica_rank, self.is_leader_rank = 0, True

    async def resume(self, tags: list[str]) -> None: ...
    async def release(self) -> None: ...

    async def update_weights(self, weights: Any, **_: Any) -> None:
        self.yielded = []
        async for name, tensor in weights:
            self.kept[name] = tensor.clone()
            self.yielded.append(name)


class VllmRollout(KeepingRollout):
    """A server adapter around a real vLLM in this process, which loads what it gets by name."""

    def __init__(self, model: str) -> None:
        super().__init__()
        os.environ.update(ENVIRONMENT | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
        from vllm import LLM

        llm = LLM(model=model, dtype="bfloat16", max_model_len=256, max_num_seqs=4,
                  enforce_eager=True)  # fmt: skip
        self.llm = llm
        self.model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()

    @property
    def kept(self) -> dict[str, torch.Tensor]:
        """What the engine has in memory, under its own names: some are several tensors in one."""
        return dict(self.model.named_parameters())

    @kept.setter
    def kept(self, _: Any) -> None: ...

    async def update_weights(self, weights: Any, **_: Any) -> None:
        self.yielded = []
        async for name, tensor in weights:
            self.model.load_weights([(name, tensor)])
            self.yielded.append(name)


class RolloutWorker(CheckpointEngineWorker):
    """verl's own worker, around one of these adapters."""

    def __init__(self, rollout_config: Any, model: str = "") -> None:
        adapter = VllmRollout(model) if model else KeepingRollout()
        super().__init__(rollout_config, None, adapter)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def holds(self) -> tuple[dict[str, bytes], list[str]]:
        kept = self.server_adapter.kept
        return {n: bits(t.detach()) for n, t in kept.items()}, self.server_adapter.yielded

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def generate(self, prompt: list[int]) -> list[int]:
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        (answer,) = self.server_adapter.llm.generate({"prompt_token_ids": prompt}, greedy)
        return list(answer.outputs[0].token_ids)


class ActorWorker(Worker):
    """What verl's ActorRolloutRefWorker does with a checkpoint engine, around a model on disk."""

    def __init__(self, config: Any, model: str) -> None:
        super().__init__()
        import_external_libs(config.custom_backend_module)
        self.engine = CheckpointEngineRegistry.new(
            config.backend, is_master=self.rank == 0,
            bucket_size=config.update_weights_bucket_megabytes << 20,
            **config.engine_kwargs[config.backend],
        )
        self.weights = load_file(Path(model) / "model.safetensors")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def train(self, seed: int, share: float) -> None:
        """The same on every rank: a step that moves a share of the elements."""
        torch.manual_seed(seed)
        for tensor in self.weights.values():
            moved = torch.rand(tensor.shape) < share
            tensor[moved] = (tensor[moved].float() * 1.01 + 0.001).to(tensor.dtype)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def holds(self) -> dict[str, bytes]:
        return {name: bits(tensor) for name, tensor in self.weights.items()}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps: int | None = None, mode: str = "auto") -> Any:
        handed = ((name, tensor) for name, tensor in self.weights.items())
        return await self.engine.send_weights(handed, global_steps=global_steps)

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.engine, method)(*args, **kwargs)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def as_vllm_holds(weights: dict[str, bytes]) -> dict[str, bytes]:
    """The weights of a tied Qwen3 as vLLM keeps them: projections that it stacks lie together."""
    stacked = {"q_proj": ("qkv_proj", "q_proj k_proj v_proj"), "k_proj": None, "v_proj": None,
               "gate_proj": ("gate_up_proj", "gate_proj up_proj"), "up_proj": None}  # fmt: skip
    held: dict[str, bytes] = {}
    for name, data in weights.items():
        part = name.split(".")[-2] if name.count(".") > 1 else ""
        if part not in stacked:
            held[name] = data
        elif (together := stacked[part]) is not None:
            target, parts = together
            held[name.replace(part, target)] = b"".join(
                weights[name.replace(part, each)] for each in parts.split()
            )
    return held


def group(worker: type, ranks: int, *args: Any) -> RayWorkerGroup:
    pool = RayResourcePool(process_on_nodes=[ranks], use_gpu=False, max_colocate_count=1)
    made = RayClassWithInitArgs(ray.remote(worker), *args)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=made, device_name="cpu")


class Replica:
    """verl's RolloutReplica, as far as its manager uses one without a server."""

    def __init__(self, workers: RayWorkerGroup | None = None, address: str = "") -> None:
        self.group = workers
        self.workers = workers.workers if workers else []
        self.server_address = address
        self.servers: list[Any] = []

    async def abort_all_requests(self, **_: Any) -> None: ...
    async def resume_generation(self) -> None: ...
    async def release_kv_cache(self) -> None: ...
    async def resume_kv_cache(self) -> None: ...
