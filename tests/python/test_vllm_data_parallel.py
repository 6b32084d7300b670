"""A real vLLM of two data parallel engines: every engine's answer counts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_server import ENVIRONMENT, Refused, Server

os.environ.update(ENVIRONMENT)
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import wisp  # noqa: E402

TWO = ("--data-parallel-size", "2", "--worker-extension-cls", "vllm_server.BreakableWorker")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return save_tiny_qwen3(tmp_path / "model")


@pytest.fixture
def server(
    served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    # Four processes that generate or answer, on what may be two cores.
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Server(served, tmp_path / "vllm.log", *TWO)
    yield made
    made.close()


def wait_for_engines(server: Server, steps: dict[str, int]) -> None:
    """Ranks report after the switch, and each API process of the server hears it by itself."""
    for _ in range(5):
        while (status := server.call("/wisp/status"))["engines"] != steps:
            server.call("/wisp/status?step=1000&wait=0.1")
        assert status["served"] == min(steps.values()) and status["ranks"] == 2


def test_a_step_is_served_when_all_engines_serve_it(
    served: Path, server: Server, tmp_path: Path
) -> None:
    weights = load_file(served / "model.safetensors")
    with wisp.Publisher(tmp_path / "run", weights, on_error="raise") as publisher:

        def train(step: int) -> None:
            for tensor in weights.values():
                tensor.view(torch.int16).view(-1)[step::97] ^= 3
            publisher.publish(step)
            publisher.flush()

        train(1)
        server.call("/wisp/init", {"init_info": {"run": str(tmp_path / "run"), "poll": 0.2}})
        assert server.call("/wisp/update", {"step": 1, "timeout": 120})["served"] == 1
        assert server.call("/wisp/verify", {}) == {"differing": 0, "ranks": 2}
        wait_for_engines(server, {"0": 1, "1": 1})

        # The second engine fails; the first one, whose answer vLLM gives, does not.
        server.break_switches(0, "raise", of=1)
        train(2)
        with pytest.raises(Refused, match="409.*engine 1: rank 0: OSError: told to fail; engine 0"):
            server.call("/wisp/update", {"step": 2, "timeout": 60})
        wait_for_engines(server, {"0": 2, "1": 1})
        with pytest.raises(Refused, match="engine 1: .*update first"):
            server.call("/wisp/verify", {})

        server.break_switches(0, "", of=1)
        assert server.call("/wisp/update", {"step": 2, "timeout": 60})["served"] == 2
        assert server.call("/wisp/verify", {}) == {"differing": 0, "ranks": 2}
        wait_for_engines(server, {"0": 2, "1": 2})
        assert server.call("/weight_info") == {"weight_version": "2"}
