"""A real vLLM server as a process of this machine."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rank_processes import free_port


class VllmServer:
    """`vllm serve` of a folder, with weights by wisp. start() returns before it answers."""

    def __init__(self, model: Path, log: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model),
            "--host", "127.0.0.1", "--port", str(self.port), "--dtype", "bfloat16",
            "--max-model-len", "256", "--max-num-seqs", "8", "--enforce-eager",
            "--weight-transfer-config", '{"backend": "wisp"}', *options,
        ]  # fmt: skip

    def start(self) -> VllmServer:
        environment = {
            **os.environ,
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # Virtual machines may show AMX and then trap on it.
            "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        return self

    def wait_ready(self, timeout: float = 300) -> VllmServer:
        assert self._process is not None
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                self.get("/health")
                return self
            except (OSError, urllib.error.URLError):
                pass
            try:
                self._process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"vLLM ended:\n{self.tail()}")
        raise AssertionError(f"vLLM is not up after {timeout} s:\n{self.tail()}")

    def kill(self) -> None:
        """As if its machine had gone: no process of it says goodbye."""
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(self.url + path))

    def post(self, path: str, body: Any = None) -> Any:
        data = json.dumps(body or {}).encode()
        headers = {"Content-Type": "application/json"}
        return self._ask(urllib.request.Request(self.url + path, data, headers, method="POST"))

    def _ask(self, request: urllib.request.Request) -> Any:
        with urllib.request.urlopen(request, timeout=60) as response:
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return json.loads(text) if text and is_json else None

    @property
    def weight_version(self) -> str:
        return self.get("/weight_info")["weight_version"]

    def wait_version(self, step: int, timeout: float = 120) -> None:
        """Until it serves `step`."""
        deadline = time.monotonic() + timeout
        while (version := self.weight_version) != str(step):
            assert time.monotonic() < deadline, f"still at {version}, not {step}:\n{self.tail()}"
            time.sleep(0.1)

    def checksums(self) -> dict[str, str]:
        """By name of a parameter as vLLM has it, the SHA-256 of its bytes."""
        found = self.post("/weight_checker", {"action": "checksum"})["checksums"]
        return {name.rsplit(":", 1)[1]: digest for name, digest in found.items()}


def where_there_is(ask: Callable[[], Any]) -> Any:
    """What a server answers; None where its version of vLLM has no such route."""
    try:
        return ask()
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return None


_FUSED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


def expected_checksums(parameters: dict[str, torch.Tensor]) -> dict[str, str]:
    """What a server of one rank answers that holds these weights of a Llama or Qwen, in bf16."""
    left = {name: tensor.detach().bfloat16() for name, tensor in parameters.items()}
    runtime = {}
    for name in list(left):
        for fused, parts in _FUSED.items():
            if f".{parts[0]}." in name:
                names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
                runtime[name.replace(f".{parts[0]}.", f".{fused}.")] = torch.cat(
                    [left.pop(part) for part in names]
                )
    runtime.update(left)
    return {
        name: hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy()).hexdigest()
        for name, tensor in runtime.items()
    }
