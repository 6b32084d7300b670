#!/usr/bin/env python3
"""How long a step stops vLLM: against a plain scatter, and against vLLM's own patch loader.

A model of the shape of SmolLM2-135M, or another, with random weights has a random share of its elements moved to a
neighbouring value per step, is published, and followed by a real vLLM engine in this process. The
pause is what the engine measures, from stopped to running. For each step the same positions are
also written by a plain index_copy_ per parameter, and the last step once more by
load_checkpoint_weight_patches. How long a commit takes until it is staged is held against one plain
compare of two such states. With --behind the engine is moved only every so many steps. One line of
JSON per run is added to bench/results/engines.jsonl.

usage: bench/engine_pause.py [--steps N] [--shape NAME] [--share F] [--codec NAME] [--behind N] [--out FILE]
needs build/torch-venv and PYTHONPATH=build/release/python
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1",
    VLLM_LOGGING_LEVEL="ERROR",
)  # fmt: skip
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch  # noqa: E402
import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402


SHAPES = {
    "SmolLM2-135M": {
        "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
    },
    "Qwen3-0.6B": {
        "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128,
    },
}  # fmt: skip


def change(model: Any, share: float, generator: torch.Generator) -> None:
    """What a small AdamW step does to bf16 weights: a share of them moves to a neighbour."""
    with torch.no_grad():
        for tensor in model.parameters():
            bits = tensor.data.view(torch.int16).view(-1)
            count = max(1, int(share * bits.numel()))
            places = torch.randint(0, bits.numel(), (count,), generator=generator)
            bits[places] ^= 1


def plain_scatter(stage: Any) -> float:
    """The same positions, by the plainest means, in the same process: writes what is there."""
    parts = [(s.flat, s.offsets, s.flat[s.offsets]) for s in stage._scatters.values()]
    began = time.perf_counter()
    for flat, offsets, values in parts:
        flat.index_copy_(0, offsets, values)
    return time.perf_counter() - began


def plain_compare(model: Any) -> float:
    """Reads two equal states once, on all cores, as fast as the C library can."""
    memcmp = ctypes.CDLL(None).memcmp
    memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    states = [(tensor.data, tensor.data.clone()) for tensor in model.parameters()]
    pairs = [
        (a.data_ptr() + at, b.data_ptr() + at, min(1 << 24, a.nbytes - at))
        for a, b in states
        for at in range(0, a.nbytes, 1 << 24)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        began = time.perf_counter()
        assert not any(threads.map(lambda pair: memcmp(*pair), pairs))
        return time.perf_counter() - began


def patch_loader(model: Any, changes: list[tuple[Any, ...]]) -> float:
    from vllm.model_executor.model_loader.checkpoint_weight_patch import (
        CheckpointWeightPatch,
        load_checkpoint_weight_patches,
    )

    patches = [
        CheckpointWeightPatch(name, shape, torch.bfloat16, values, places)
        for name, shape, places, values in changes
    ]
    began = time.perf_counter()
    load_checkpoint_weight_patches(model, patches)
    return time.perf_counter() - began


def changes_since(before: dict[str, torch.Tensor], model: Any) -> list[tuple[Any, ...]]:
    found = []
    for name, tensor in model.named_parameters():
        bits = tensor.data.view(torch.int16).view(-1)
        places = (bits != before[name]).nonzero().view(-1)
        values = bits[places].view(torch.bfloat16)
        found.append((name, tuple(tensor.shape), places, values))
    return found


#: From the time the commit is seen.
STAGING = ("fetched", "verified", "decoded", "staged")


def host_memory(link: Any) -> int:
    """What the feed's process has for itself, and what its folder in shared memory holds."""
    status = Path(f"/proc/{link.known.pid}/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    return own * 1024 + sum(p.stat().st_blocks * 512 for p in link.folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--shape", choices=SHAPES, default="SmolLM2-135M")
    parser.add_argument("--share", type=float, default=0.0045)
    parser.add_argument("--codec", choices=("compact", "swift"), default="compact")
    parser.add_argument("--behind", type=int, default=1, help="steps between two moves")
    parser.add_argument("--out", type=Path, default=Path("bench/results/engines.jsonl"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        measure(Path(folder), options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    from vllm import LLM

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(**SHAPES[options.shape], tie_word_embeddings=True, max_position_embeddings=512)
    ).to(torch.bfloat16)
    model.save_pretrained(folder / "served")
    publisher = wisp.Publisher(str(folder / "run"), model, codec=options.codec)
    publisher.publish(0)
    publisher.flush()
    llm = LLM(
        str(folder / "served"), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=256,
        enforce_eager=True, max_num_seqs=4, weight_transfer_config={"backend": "wisp"},
        additional_config={"wisp": {"run": str(folder / "run"), "poll": 0.2}},
    )  # fmt: skip
    worker = llm.llm_engine.model_executor.driver_worker.worker
    follower = worker.weight_transfer_engine._follower
    wisp.vllm.update(llm, 0, timeout=600)
    pauses, applies, plains, compares, phases, memory = [], [], [], [], [], []
    changed = 0
    before: dict[str, torch.Tensor] = {}
    for step in range(options.behind, (options.steps + 1) * options.behind, options.behind):
        for published in range(step - options.behind + 1, step + 1):
            if published == options.steps * options.behind:
                before = {
                    name: tensor.data.view(torch.int16).view(-1).clone()
                    for name, tensor in model.named_parameters()
                }
            change(model, options.share, generator)
            publisher.publish(published)
            publisher.flush()
        served = follower.wait_staged(lambda s, step=step: s.step == step, 600)
        memory.append(host_memory(follower.link))
        stage = follower._staged[served.key][1]
        changed = stage.elements
        compares.append(plain_compare(model))
        plains.append(min(plain_scatter(stage) for _ in range(3)))
        answer = wisp.vllm.update(llm, step, timeout=600)
        pauses.append(answer["pause_seconds"])
        applies.append(answer["phases"]["applied"])
        phases.append(answer["phases"])
    theirs = patch_loader(worker.model_runner.get_model(), changes_since(before, model))
    assert follower.verify() == 0
    total = sum(p.numel() for p in model.parameters())
    middle = statistics.median
    staging = middle([sum(p[name] for name in STAGING) for p in phases])
    result = {
        "bench": "engine_pause", "codec": options.codec, "shape": options.shape, "parameters": total, "changed": changed,
        "share": round(changed / total, 5), "steps": options.steps, "behind": options.behind,
        "pause_ms": round(1000 * middle(pauses), 3), "applied_ms": round(1000 * middle(applies), 3),
        "plain_scatter_ms": round(1000 * middle(plains), 3),
        "vllm_patch_loader_ms": round(1000 * theirs, 1),
        "times_plain": round(middle(pauses) / middle(plains), 2),
        "times_faster_than_patch_loader": round(theirs / middle(pauses), 1),
        "phases_ms": {
            name: round(1000 * middle([p[name] for p in phases]), 3) for name in phases[0]
        },
        "commit_to_staged_ms": round(1000 * staging, 1),
        "plain_compare_ms": round(1000 * middle(compares), 1),
        "staged_times_compare": round(staging / middle(compares), 2),
        "host_memory_mb": round(max(memory[len(memory) // 2 :]) / 1e6, 1),
        "weights_mb": round(total * 2 / 1e6, 1), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    publisher.close()
    print(json.dumps(result, indent=2))
    with options.out.open("a") as out:
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
