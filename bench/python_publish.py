"""What publishing costs the training thread, from Python: blocked time, memory, and what others pay.

Against the time of a plain `copy_` of the same bytes, in the same run, interleaved; and against the
published way of finding and coding changes on the host (TRL's: clone in bf16, compare, nonzero, gather,
save_file), rewritten from its description. Run with the module on PYTHONPATH:

    PYTHONPATH=build/release/python python bench/python_publish.py [--scale 1.0] [--rounds 7] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

import wisp

CHANGED = 0.005


def model(scale: float, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Qwen3-0.6B's shapes, in `scale` times its layers."""
    torch.manual_seed(0)
    shapes = {"embed": (151_936, 1024)}
    for layer in range(max(1, round(28 * scale))):
        for name, shape in {
            "q": (2048, 1024), "k": (1024, 1024), "v": (1024, 1024), "o": (1024, 2048),
            "gate": (3072, 1024), "up": (3072, 1024), "down": (1024, 3072), "norm": (1024,),
        }.items():  # fmt: skip
            shapes[f"layers.{layer:02}.{name}"] = shape
    tensors = {}
    for name, shape in shapes.items():
        flat = torch.randn(min(1 << 20, torch.Size(shape).numel()))
        repeats = -(-torch.Size(shape).numel() // flat.numel())
        tensors[name] = (
            flat.repeat(repeats)[: torch.Size(shape).numel()].mul_(0.02).to(dtype).reshape(shape)
        )
    return tensors


def take_step(tensors: dict[str, torch.Tensor]) -> None:
    """Moves one in 200 elements by about one bf16 step, as an optimizer would."""
    for tensor in tensors.values():
        flat = tensor.view(-1)
        at = torch.randint(flat.numel(), (max(1, int(flat.numel() * CHANGED)),))
        if tensor.dtype == torch.float32:
            flat[at] = flat[at] * (1 + 2**-7)
        else:
            flat.view(torch.int16)[at] ^= 1


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def trl_way(masters, snapshot, folder: Path) -> int:
    """BF16ChangeDetector's semantics and the sparse file: clone, compare, nonzero, gather, save_file."""
    sparse = {}
    for name, tensor in masters.items():
        now = tensor.detach().to(torch.bfloat16, copy=True)
        at = torch.nonzero((now != snapshot[name]).view(-1)).view(-1)
        if at.numel():
            sparse[f"{name}.indices"] = at.to(torch.int32)
            sparse[f"{name}.values"] = now.view(-1)[at]
        snapshot[name] = now
    path = folder / "delta.safetensors"
    save_file(sparse, path)
    return path.stat().st_size


def memory_kb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise KeyError(field)


def measure(scale: float, rounds: int, dtype: torch.dtype, folder: Path) -> dict:
    """Rounds of: a step, a copy, a publish. The medians, and the ratio round by round."""
    tensors = model(scale, dtype)
    buffers = {name: t.to(torch.bfloat16, copy=True) for name, t in tensors.items()}

    def copy() -> None:
        for name, tensor in tensors.items():
            buffers[name].copy_(tensor)

    snapshot = {name: t.to(torch.bfloat16, copy=True) for name, t in tensors.items()}
    rows = []
    with wisp.Publisher(folder / f"run-{dtype}", tensors, dtype=torch.bfloat16) as publisher:
        publisher.publish(0)
        for step in range(1, rounds + 1):
            take_step(tensors)
            publisher.flush()
            if step % 2:
                copied, blocked = seconds(copy), seconds(lambda: publisher.publish(step))
            else:
                blocked, copied = seconds(lambda: publisher.publish(step)), seconds(copy)
            committed = seconds(publisher.flush)
            trl_bytes = 0

            def theirs() -> None:
                nonlocal trl_bytes
                trl_bytes = trl_way(tensors, snapshot, folder)

            rows.append((copied, blocked, committed, seconds(theirs), trl_bytes))
        stats = publisher.stats[1:]
    middle = [statistics.median(row[i] for row in rows) for i in range(4)]
    return {
        "trained": str(dtype).removeprefix("torch."),
        "published_bytes": sum(b.nbytes for b in buffers.values()),
        "copy_s": round(middle[0], 4),
        "blocked_s": round(middle[1], 4),
        "blocked_to_copy": round(statistics.median(r[1] / r[0] for r in rows), 3),
        "committed_s": round(middle[1] + middle[2], 4),
        "delta_bytes": int(statistics.median(s.bytes for s in stats)),
        "trl_s": round(middle[3], 4),
        "trl_to_blocked": round(statistics.median(r[3] / r[1] for r in rows), 3),
        "trl_bytes": int(statistics.median(r[4] for r in rows)),
    }


def peak(scale: float, folder: Path) -> dict:
    """Anonymous memory beyond the model's own while four steps are published, in a fresh process."""
    tensors = model(scale, torch.bfloat16)
    before = memory_kb("RssAnon")
    highest = before
    done = False

    def watch() -> None:
        nonlocal highest
        while not done:
            highest = max(highest, memory_kb("RssAnon"))
            time.sleep(0.005)

    import threading

    watcher = threading.Thread(target=watch)
    watcher.start()
    with wisp.Publisher(folder / "peak", tensors, dtype=torch.bfloat16, anchor_every=2) as publisher:
        for step in range(4):
            publisher.publish(step)
            publisher.flush()
            take_step(tensors)
    done = True
    watcher.join()
    published = sum(t.nbytes for t in tensors.values())
    extra = (highest - before) * 1024
    return {
        "published_bytes": published,
        "peak_extra_bytes": extra,
        "beyond_baseline_bytes": extra - published,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="append the result here as a line")
    parser.add_argument("--peak", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(json.dumps(peak(arguments.scale, arguments.peak)))
        return
    folder = Path(tempfile.mkdtemp(prefix="wisp-bench-"))
    try:
        command = [sys.executable, __file__, "--scale", str(arguments.scale), "--peak", folder]
        memory = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        result = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "kernel": wisp.kernel_name(),
            "torch": torch.__version__,
            "memory": memory,
            "ways": [],
        }
        for dtype in (torch.bfloat16, torch.float32):
            way = measure(arguments.scale, arguments.rounds, dtype, folder)
            result["ways"].append(way)
            print(json.dumps(way))
        print(json.dumps(memory))
    finally:
        shutil.rmtree(folder)
    if arguments.out:
        with arguments.out.open("a") as out:
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
