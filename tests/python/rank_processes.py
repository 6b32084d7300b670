"""The ranks of a trainer as processes on this machine, with gloo between them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# ForkedError, so that torch is imported once; no thread of its own may be alive then.
torch.set_num_threads(1)
_CONTEXT = multiprocessing.get_context("fork")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _run(
    rank: int, world: int, port: int, work: Callable[..., Any], args: tuple[Any, ...], pipe: Any
) -> None:
    try:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", rank=rank, world_size=world, timeout=timedelta(seconds=60)
        )
        pipe.send((True, work(rank, world, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        # Rank 0 is where the others meet: nobody goes before all are done.
        pipe.poll(100)
        # Without waiting for peers that are gone.
        os._exit(0)


def run_ranks(
    world: int, work: Callable[..., Any], *args: Any, lost: tuple[int, ...] = ()
) -> list[Any]:
    """work(rank, world, *args) in `world` processes; what each returned, None for those `lost`."""
    port = free_port()
    ranks = []
    for rank in range(world):
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_run, args=(rank, world, port, work, args, theirs))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    results: list[Any] = []
    failures = []
    for rank, (_, pipe) in enumerate(ranks):
        try:
            good, value = pipe.recv() if pipe.poll(100) else (False, "no answer in 100 s")
        except EOFError:
            good, value = rank in lost, None if rank in lost else "died"
        results.append(value)
        if not good:
            failures.append(f"rank {rank}: {value}")
    for process, pipe in ranks:
        if failures:
            process.kill()
        elif process.is_alive():
            pipe.send(None)
        process.join()
    assert not failures, "\n".join(failures)
    return results
