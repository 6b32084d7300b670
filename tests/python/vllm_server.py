"""A real `vllm serve` of a small model on a CPU, and a worker that fails when told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Some virtual machines report AMX and trap when oneDNN uses it.
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "HF_HUB_OFFLINE": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}


class BreakableWorker:
    """For --worker-extension-cls."""

    def break_switches(self, rank: int, how: str, of: int = 0) -> None:
        """From now on switches on this rank raise, kill the process, or ("") work again.

        of: which of several data parallel engines.
        """
        engine = self.weight_transfer_engine  # type: ignore[attr-defined]
        number = self.parallel_config.data_parallel_index  # type: ignore[attr-defined]
        if (number, self.rank) != (of, rank):  # type: ignore[attr-defined]
            return

        def during() -> None:
            if how == "raise":
                raise OSError("told to fail")
            if how == "die":
                os.kill(os.getpid(), signal.SIGKILL)

        engine.during = during


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


def serve_command(model: Path, *options: str) -> list[str | Path]:
    """As every server here is started."""
    return [
        Path(sys.executable).with_name("vllm"), "serve", model,
        "--dtype", "bfloat16", "--max-model-len", "256", "--max-num-seqs", "8",
        "--enforce-eager", "--enable-scale-out",
        "--weight-transfer-config", '{"backend": "wisp"}', *options,
    ]  # fmt: skip


class Server:
    """Up when made; ended by close().

    address, on_host: where it listens, if it is not here; and what starts a command there.
    port: to listen on, where another one has been; else any that is free.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *options: str,
        address: str = "127.0.0.1",
        on_host: Callable[..., Sequence[str | Path]] = lambda *command: command,
        port: int = 0,
    ) -> None:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            port = probe.getsockname()[1]
        self.port = port
        self.url = f"http://{address}:{port}"
        self.model = str(model)
        self._log = log
        here = str(Path(__file__).parent)
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                on_host(*serve_command(model, "--port", str(port), *options)),
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
                stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + 600
        while True:
            try:
                self.call("/health")
                return
            except (OSError, Refused):
                if self.process.poll() is not None or time.monotonic() > end:
                    self.close()
                    raise AssertionError(f"no server:\n{self.log()[-4000:]}") from None
                time.sleep(0.2)

    def call(self, path: str, body: dict[str, Any] | None = None, timeout: float = 120) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None
        return json.loads(raw) if raw else None

    def generate(self, prompt: list[int], count: int) -> dict[str, Any]:
        """{"token_ids": …, "weight_versions": [{"version", "start", "end"}, …]}"""
        sampling = {"max_tokens": count, "temperature": 0, "ignore_eos": True}
        answer = self.call(
            "/inference/v1/generate",
            {"model": self.model, "token_ids": prompt, "sampling_params": sampling},
        )
        return answer["choices"][0]

    def break_switches(self, rank: int, how: str, of: int = 0) -> None:
        self.call("/collective_rpc", {"method": "break_switches", "args": [rank, how, of]})

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """All its processes, at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                pass
        with_group = self.process.pid
        try:
            os.killpg(with_group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
