"""What publishing many tiny tensors costs the training thread, against a loop of `copy_` over them.

Medians of interleaved rounds; one element in 200 changes, and at least one of every tensor. Run with the
module on PYTHONPATH:

    PYTHONPATH=build/release/python python bench/tiny_tensors.py [--tensors 20000] [--elements 256]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

import wisp


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(count: int, elements: int, rounds: int, folder: Path) -> dict:
    torch.manual_seed(0)
    names = [f"layers.{i // 8:05}.part.{i % 8}.weight" for i in range(count)]
    tensors = {name: torch.randn(elements).mul_(0.02).to(torch.bfloat16) for name in names}
    buffers = {name: tensor.clone() for name, tensor in tensors.items()}

    def copy() -> None:
        for name, tensor in tensors.items():
            buffers[name].copy_(tensor)

    def take_step() -> None:
        for tensor in tensors.values():
            at = torch.randint(elements, (max(1, elements // 200),))
            tensor.view(torch.int16)[at] ^= 1

    rows = []
    with wisp.Publisher(folder / "run", tensors) as publisher:
        publisher.publish(0)
        for step in range(1, rounds + 1):
            take_step()
            publisher.flush()
            if step % 2:
                copied, blocked = seconds(copy), seconds(lambda: publisher.publish(step))
            else:
                blocked, copied = seconds(lambda: publisher.publish(step)), seconds(copy)
            rows.append((copied, blocked, blocked + seconds(publisher.flush)))
    copied, blocked, committed = (statistics.median(row[i] for row in rows) for i in range(3))
    return {
        "tensors": count,
        "elements_each": elements,
        "kernel": wisp.kernel_name(),
        "copy_loop_s": round(copied, 4),
        "blocked_s": round(blocked, 4),
        "blocked_to_copy": round(statistics.median(row[1] / row[0] for row in rows), 2),
        "committed_s": round(committed, 4),
        "committed_to_copy": round(statistics.median(row[2] / row[0] for row in rows), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensors", type=int, default=20_000)
    parser.add_argument("--elements", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None, help="append the result here as a line")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="wisp-bench-"))
    try:
        result = measure(arguments.tensors, arguments.elements, arguments.rounds, folder)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(result))
    if arguments.out:
        with arguments.out.open("a") as out:
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
