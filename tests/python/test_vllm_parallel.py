"""Real vLLM of several ranks: by layers, by experts, and one engine over two hosts."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_hosts import Hosts, can_make_hosts
from vllm_server import ENVIRONMENT, Refused, Server, serve_command

os.environ.update(ENVIRONMENT)
torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM  # noqa: E402

import wisp  # noqa: E402

PROMPT = [7, 11, 13, 17, 19]
SIZES = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    # Several processes that compute, on what may be two cores.
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def save_mixture(folder: Path) -> Path:
    save_tiny_qwen3(folder)  # for its tokenizer
    torch.manual_seed(0)
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, tie_word_embeddings=False))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


class Training:
    """Turns some bits of every tensor at each step."""

    def __init__(
        self, served: Path, run: Path, codec: str, slices: int | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.served = served
        self.run = str(run)
        self.weights = load_file(served / "model.safetensors")
        self.weights |= extra or {}
        wisp.init(run, codec=codec, slices=slices)
        self.publisher = wisp.Publisher(run, self.weights, on_error="raise")
        self.step = 0

    def train(self) -> int:
        self.step += 1
        for tensor in self.weights.values():
            tensor.view(torch.int16).view(-1)[self.step :: 97] ^= 3
        self.publisher.publish(self.step)
        self.publisher.flush()
        return self.step

    def save(self, folder: Path) -> Path:
        """A checkpoint of the newest step, to be loaded afresh."""
        folder.mkdir()
        for file in self.served.iterdir():
            if file.suffix != ".safetensors":
                (folder / file.name).write_bytes(file.read_bytes())
        save_file(self.weights, folder / "model.safetensors", {"format": "pt"})
        return folder


def follow(server: Server, training: Training, steps: int = 3) -> None:
    """Brings the steps into service, each proven."""
    for _ in range(steps):
        step = training.train()
        assert server.call("/wisp/update", {"step": step, "timeout": 240}, 300)["served"] == step
        assert server.call("/wisp/verify", {}, 300)["differing"] == 0


@pytest.mark.parametrize("codec", ["compact", "swift"])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("dense", ("-pp", "2")),
        ("mixture", ("-tp", "2", "--enable-expert-parallel")),
    ],
    ids=["pipeline", "experts"],
)
def test_ranks_that_hold_layers_or_experts_follow(
    tmp_path: Path, kind: str, options: tuple[str, ...], codec: str
) -> None:
    make = save_tiny_qwen3 if kind == "dense" else save_mixture
    training = Training(make(tmp_path / "served"), tmp_path / "run", codec)
    training.train()
    server = Server(training.served, tmp_path / "vllm.log", *options)
    try:
        info = {"run": training.run, "poll": 0.2}
        server.call("/wisp/init", {"init_info": info})
        follow(server, training)
        assert server.call("/wisp/verify", {}) == {"differing": 0, "ranks": 2}
        assert "the model does not" not in server.log()
        # Outputs are not compared: vLLM-CPU 0.32 fails at the first token of either, without us, too.
    finally:
        server.close()
        training.publisher.close()


def test_what_no_rank_of_a_pipeline_holds_is_refused_when_it_is_told_of_the_run(
    tmp_path: Path,
) -> None:
    extra = {"value_head.weight": torch.zeros(1, 64, dtype=torch.bfloat16)}
    served = save_tiny_qwen3(tmp_path / "served")
    training = Training(served, tmp_path / "run", "swift", extra=extra)
    training.train()
    server = Server(served, tmp_path / "vllm.log", "-pp", "2")
    try:
        info = {"run": training.run, "poll": 0.2}
        with pytest.raises(Refused, match=r"value_head\.weight") as raised:
            for _ in range(60):  # an init waits five seconds for it, a busy machine may need more
                server.call("/wisp/init", {"init_info": info})
        assert raised.value.code == 409
        server.call("/wisp/init", {"init_info": {**info, "allow_unused": ["value_head.weight"]}})
        follow(server, training, steps=1)
        assert server.call("/wisp/status")["unused"] == ["value_head.weight"]
    finally:
        server.close()
        training.publisher.close()


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    if not can_make_hosts():
        pytest.skip("this machine does not let us make network namespaces")
    made = Hosts()
    yield made
    made.close()


class TwoHosts:
    """One engine of two ranks, each on a host of its own."""

    def __init__(self, hosts: Hosts, training: Training, folder: Path) -> None:
        self.hosts = hosts
        common = (
            "-tp", "2", "--nnodes", "2", "--master-addr", hosts.addresses[0],
            "--additional-config",
            f'{{"wisp": {{"run": "{training.run}", "poll": 0.2}}}}',
        )  # fmt: skip
        here = str(Path(__file__).parent)
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        self._log = open(folder / "second.log", "wb")
        command = serve_command(training.served, "--node-rank", "1", "--headless", *common)
        self.second = subprocess.Popen(
            hosts.command(1, *command),
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, "VLLM_HOST_IP": hosts.addresses[1],
                 "GLOO_SOCKET_IFNAME": "eth0"},
            stdout=self._log, stderr=self._log, start_new_session=True,
        )  # fmt: skip
        os.environ["VLLM_HOST_IP"] = hosts.addresses[0]
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        try:
            self.server = Server(
                training.served, folder / "first.log", "--node-rank", "0", "--host", "0.0.0.0",
                *common, address=hosts.addresses[0],
                on_host=lambda *command: hosts.command(0, *command),
            )  # fmt: skip
        except BaseException:
            self._end_second()
            raise
        finally:
            del os.environ["VLLM_HOST_IP"], os.environ["GLOO_SOCKET_IFNAME"]

    def feed_of(self, host: int) -> int:
        """The process that follows the run on that host."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.hosts.names[host]], capture_output=True, text=True
        )
        for process in found.stdout.split():
            command = Path(f"/proc/{process}/cmdline").read_bytes()
            if b"wisp.engine.feed.feed_process" in command:
                return int(process)
        raise AssertionError(f"host {host} has no feed")

    def _end_second(self) -> None:
        try:
            os.killpg(self.second.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.second.wait()
        self._log.close()

    def close(self) -> None:
        self.server.close()
        self._end_second()


@pytest.mark.parametrize("settings", [{"codec": "compact"}, {"codec": "swift", "slices": 4}])
def test_an_engine_over_two_hosts_switches_on_both_or_on_none(
    tmp_path: Path, hosts: Hosts, settings: dict[str, Any]
) -> None:
    training = Training(save_tiny_qwen3(tmp_path / "served"), tmp_path / "run", **settings)
    training.train()
    engine = TwoHosts(hosts, training, tmp_path)
    try:
        follow(engine.server, training)
        said = engine.server.generate(PROMPT, 24)["token_ids"]

        # The second host's feed stands still: nobody switches, and its rank is named.
        feed = engine.feed_of(1)
        os.kill(feed, signal.SIGSTOP)
        step = training.train()
        with pytest.raises(Refused, match=rf"rank 1: step {step} is not staged \(on host host-1\)"):
            engine.server.call("/wisp/update", {"step": step, "timeout": 5}, 300)
        assert engine.server.generate(PROMPT, 24)["token_ids"] == said
        os.kill(feed, signal.SIGCONT)
        assert engine.server.call("/wisp/update", {"step": step, "timeout": 240}, 300)["served"] == step
        assert engine.server.call("/wisp/verify", {}, 300)["differing"] == 0
        follow(engine.server, training, 1)
        said = engine.server.generate(PROMPT, 24)["token_ids"]
    finally:
        engine.close()
        training.publisher.close()
    fresh = Server(training.save(tmp_path / "fresh"), tmp_path / "fresh.log", "-tp", "2")
    try:
        assert fresh.generate(PROMPT, 24)["token_ids"] == said
    finally:
        fresh.close()


