"""A vLLM server that follows a run: how it is started, when it is ready, what it says of itself.

It starts from a checkpoint that is exported from the run, then fetches, proves and switches to
every new step by itself (mode "self"), so it needs nothing but the address of the run.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wisp

#: For a machine without GPU; others do not look at them.
ON_CPUS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Virtual machines may show AMX and then trap on it.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}
LONGEST = 1024  # tokens of a prompt and its answer


@dataclass(frozen=True)
class Status:
    """From GET /wisp/status. `state` is the digest that the weights were proven to have."""

    step: int
    state: str
    pause: float  # of the last switch
    age: float  # from the commit of the step until it was served

    @classmethod
    def of(cls, told: dict[str, Any]) -> Status | None:
        """None: the server serves no step of the run yet."""
        if told["served"] is None:
            return None
        return cls(told["served"], told["state"], told["pause_seconds"] or 0.0,
                   sum(told["last"].values()))  # fmt: skip


def checkpoint_of(run: str, folder: Path, patience: float = 300) -> int:
    """Exports the newest step into a new folder, and waits for a trainer to have made one."""
    end = time.monotonic() + patience
    while True:
        try:
            return wisp.export(run, folder).step
        except (wisp.NoRunError, wisp.NotFoundError, wisp.UnavailableError) as error:
            if time.monotonic() > end:
                raise SystemExit(f"{run} gives no step after {patience:g} s: {error}") from None
            time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(run: str, folder: Path, port: int, *, name: str = "", games: int = 32) -> list[str]:
    """`vllm serve` of the folder, with /inference/v1/generate, which names versions of tokens."""
    length = json.loads((folder / "config.json").read_text()).get(
        "max_position_embeddings", LONGEST
    )
    # A folder by its whole path: the feed of this host runs elsewhere.
    follow = {"run": run if "://" in run else os.path.abspath(run), "mode": "self", "poll": 0.25}
    if name:
        follow["replica_id"] = name
    return [
        "setpriv", "--pdeathsig", "KILL",  # it does not outlive who started it
        sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(folder),
        "--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16",
        "--max-model-len", str(min(length, LONGEST)), "--max-num-seqs", str(games),
        # Two servers with one seed would play alike.
        "--seed", str(secrets.randbelow(1 << 31)),
        "--enforce-eager", "--enable-scale-out", "--disable-uvicorn-access-log",
        "--weight-transfer-config", json.dumps({"backend": "wisp"}),
        "--additional-config", json.dumps({"wisp": follow}),
    ]  # fmt: skip


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """In the caller's process group: killing the group is pulling the plug of the machine."""
    quiet = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    # Lines of JSON on stdout are the caller's.
    return subprocess.Popen(command, env={**ON_CPUS, **quiet, **os.environ}, stdout=sys.stderr)
