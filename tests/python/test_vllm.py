"""Real vLLM follows a real training: what it serves is, bit for bit, what the trainer published."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_server import ENVIRONMENT, Refused, Server

os.environ.update(ENVIRONMENT)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from transformers import (  # noqa: E402
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

BF16 = torch.bfloat16
PROMPT = [7, 11, 13, 17, 19]
SIZES = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256,
}  # fmt: skip
FUSED = {
    "q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj",
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


class Trainer:
    """AdamW on float32 weights; publishes in bf16 and remembers what it published."""

    def __init__(self, folder: Path, model: Any, codec: str) -> None:
        self.run = str(folder / "run")
        self.served = folder / "served"
        self.model = model
        self.kind = type(model)
        copy = self.kind(model.config)
        copy.load_state_dict(model.state_dict())
        copy.to(BF16).save_pretrained(self.served)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.publisher = wisp.Publisher(self.run, model, dtype=BF16, codec=codec)
        self.published: dict[str, dict[str, Any]] = {}
        # One sequence again and again: soon its continuation is no close call.
        torch.manual_seed(1)
        self.lesson = torch.cat([torch.tensor([PROMPT]), torch.randint(0, 300, (1, 40))], 1)

    def publish(self, step: int) -> None:
        self.publisher.publish(step)
        self.publisher.flush()
        self.published[str(step)] = self.state()

    def train(self, step: int) -> None:
        self.model(self.lesson, labels=self.lesson).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.publish(step)

    def state(self) -> dict[str, Any]:
        return {name: t.detach().to(BF16) for name, t in self.model.state_dict().items()}

    def reference(self, version: str) -> Any:
        model = self.kind(self.model.config).to(BF16)
        model.load_state_dict(self.published[version])
        return model.eval()

    def close(self) -> None:
        self.publisher.close()


def is_greedy(model: Any, tokens: list[int], start: int, end: int, slack: float = 0.15) -> bool:
    """Whether tokens[start:end] are the likeliest after those before, but for close calls."""
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].float()
    for at in range(start, end):
        row = logits[at - 1]
        if row.max() - row[tokens[at]] > slack:
            return False
    return True


@pytest.fixture(params=["compact", "swift"])
def codec(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def dense(tmp_path: Path, codec: str) -> Iterator[Trainer]:
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=True))
    made = Trainer(tmp_path, model, codec)
    yield made
    made.close()


@pytest.fixture
def mixture(tmp_path: Path, codec: str) -> Iterator[Trainer]:
    torch.manual_seed(0)
    config = Qwen3MoeConfig(**SIZES, **EXPERTS, tie_word_embeddings=False)
    made = Trainer(tmp_path, Qwen3MoeForCausalLM(config), codec)
    yield made
    made.close()


def runtime_bits(model: Any) -> dict[str, Any]:
    return {name: t.data.clone().view(torch.int16) for name, t in model.named_parameters()}


def fused_bits(state: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """What vLLM must hold of a dense Qwen3, put together here and without its loader."""
    held: dict[str, Any] = {}
    for name, tensor in state.items():
        if name == "lm_head.weight":
            continue  # tied
        for part, fused in FUSED.items():
            if f".{part}." in name:
                name = name.replace(part, fused)
                tensor = torch.cat([held[name], tensor]) if name in held else tensor
        held[name] = tensor
    embedding = held["model.embed_tokens.weight"]
    padding = torch.zeros(vocabulary - embedding.shape[0], embedding.shape[1], dtype=BF16)
    held["model.embed_tokens.weight"] = torch.cat([embedding, padding])
    return {name: tensor.contiguous().view(torch.int16) for name, tensor in held.items()}


def test_twenty_steps_of_training_are_served_bit_for_bit(dense: Trainer) -> None:
    from vllm import LLM, SamplingParams

    llm = LLM(
        str(dense.served), skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
        enforce_eager=True, max_num_seqs=4, weight_transfer_config={"backend": "wisp"},
        additional_config={"wisp": {"run": dense.run, "poll": 0.2}},
    )  # fmt: skip
    model = llm.llm_engine.model_executor.driver_worker.worker.model_runner.get_model()
    sampling = SamplingParams(temperature=0, max_tokens=24, detokenize=False, ignore_eos=True)
    rows = model.model.embed_tokens.weight.shape[0]
    tokens: list[int] = []
    dense.publish(0)
    for step in range(21):
        if step:
            dense.train(step)
        moved = wisp.vllm.update(llm, step, timeout=120)
        assert moved["served"] == step and llm.get_weight_version() == str(step)
        now, expected = runtime_bits(model), fused_bits(dense.published[str(step)], rows)
        assert set(now) == set(expected)
        for name, wanted in expected.items():
            assert torch.equal(now[name], wanted), (step, name)
        prompt = [{"prompt_token_ids": PROMPT}]
        answer = llm.generate(prompt, sampling, use_tqdm=False)[0].outputs[0]
        tokens = [*PROMPT, *answer.token_ids]
        reference = dense.reference(str(step))
        assert is_greedy(reference, tokens, len(PROMPT), len(tokens)), step
        assert [span.version for span in answer.weight_versions] == [str(step)]
    assert not is_greedy(dense.reference("3"), tokens, len(PROMPT), len(tokens)), "no test at all"
    exact = dense.reference("20").generate(
        torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )
    assert exact[0].tolist() == tokens
    # Behind by several steps: one move. Set back: back.
    for step in range(21, 25):
        dense.train(step)
    assert wisp.vllm.update(llm, None, timeout=120)["served"] == 24
    dense.train(22)
    assert wisp.vllm.update(llm, 22, timeout=120)["served"] == 22
    again = wisp.vllm.update(llm, 22, timeout=120)
    assert again["moved"] is False and again["pause_seconds"] == 0
    now, expected = runtime_bits(model), fused_bits(dense.published["22"], rows)
    assert all(torch.equal(now[name], wanted) for name, wanted in expected.items())
    status = wisp.vllm.status(llm)
    assert status["served"] == 22 and status["initialized"] and not status["faults"]
    # vLLM's own sequence does too.
    dense.train(23)
    llm.start_weight_update()
    llm.update_weights({"update_info": {"step": 23}})
    llm.finish_weight_update("23")
    now, expected = runtime_bits(model), fused_bits(dense.published["23"], rows)
    assert all(torch.equal(now[name], wanted) for name, wanted in expected.items())
    llm.llm_engine.engine_core.shutdown()


class Traffic:
    """Requests all the time, from several clients."""

    def __init__(self, server: Server, clients: int = 2) -> None:
        self.answers: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self._server = server
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self, number: int) -> None:
        prompt = [*PROMPT, 23 + number]
        while not self._over.is_set():
            try:
                answer = self._server.generate(prompt, 40)
                self.answers.append({**answer, "prompt": prompt})
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.failures.append(f"{type(error).__name__}: {error}")
            self._over.wait(0.1)  # the ranks never rest, and trainer and feed need a core as well

    def end(self) -> list[dict[str, Any]]:
        self._over.set()
        for thread in self._threads:
            thread.join(120)
        return self.answers


def assert_unmixed(trainer: Trainer, answers: list[dict[str, Any]]) -> set[str]:
    """Each token is what the version named for it says after all the tokens before."""
    models: dict[str, Any] = {}
    for answer in answers:
        tokens = [*answer["prompt"], *answer["token_ids"]]
        first = len(answer["prompt"])
        spans = answer["weight_versions"]
        assert spans[0]["start"] == 0 and spans[-1]["end"] == len(answer["token_ids"])
        for span in spans:
            version = span["version"]
            if version == "default":
                continue
            model = models.setdefault(version, trainer.reference(version))
            assert is_greedy(model, tokens, first + span["start"], first + span["end"]), answer
    return {span["version"] for answer in answers for span in answer["weight_versions"]}


def test_ranks_switch_together_under_load_and_survive_faults(
    mixture: Trainer, tmp_path: Path
) -> None:
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0|1" if (os.cpu_count() or 1) > 1 else "0|0"
    log = tmp_path / "server.log"
    two = ("-tp", "2", "--worker-extension-cls", "vllm_server.BreakableWorker")
    mixture.publish(0)
    server = Server(mixture.served, log, *two)
    try:
        with pytest.raises(Refused, match="409.*POST /wisp/init"):
            server.call("/wisp/update", {"step": 0})
        info = {"run": mixture.run, "poll": 0.2}
        assert server.call("/wisp/init", {"init_info": info})["initialized"]
        assert server.call("/wisp/init", {"init_info": info})["initialized"]  # once more
        with pytest.raises(Refused, match="409.*follows"):
            server.call("/wisp/init", {"init_info": {"run": mixture.run + "2"}})
        assert server.call("/wisp/update", {"step": 0, "timeout": 120})["served"] == 0

        traffic = Traffic(server)
        for step in range(1, 11):
            mixture.train(step)
            body = {"step": step, "timeout": 120, "recompute": step % 2 == 0}
            answer = server.call("/wisp/update", body)
            assert answer["served"] == step and answer["moved"]
            assert server.call("/wisp/verify", {}) == {"differing": 0, "ranks": 2}
            assert server.call("/weight_info") == {"weight_version": str(step)}

        # One rank fails: both stay at the step before, and say so.
        server.break_switches(1, "raise")
        mixture.train(11)
        with pytest.raises(Refused, match="rank 1: OSError: told to fail"):
            server.call("/wisp/update", {"step": 11, "timeout": 60})
        assert server.call("/wisp/status")["served"] == 10
        assert server.call("/weight_info") == {"weight_version": "10"}
        server.break_switches(1, "")
        assert server.call("/wisp/update", {"step": 11, "timeout": 60})["served"] == 11
        assert server.call("/wisp/verify", {})["differing"] == 0
        with pytest.raises(Refused, match="409.*newest step of the run is 11"):
            server.call("/wisp/update", {"step": 12, "timeout": 1})
        answers = traffic.end()
        assert not traffic.failures and len(answers) > 5
        versions = {span["version"] for answer in answers for span in answer["weight_versions"]}
        assert len(versions) > 3
        whole = [answer for answer in answers if len(answer["weight_versions"]) == 1]
        assert_unmixed(mixture, whole)

        # Requests under way go on over a switch; computed anew, they are the new version's own.
        traffic = Traffic(server)
        for step in range(12, 16):
            mixture.train(step)
            body = {"step": step, "timeout": 120, "recompute": True}
            server.call("/wisp/update", body)
        answers = traffic.end()
        assert not traffic.failures
        assert_unmixed(mixture, answers)

        # A rank dies in the middle of a switch, and with it the server.
        server.break_switches(1, "die")
        mixture.train(16)
        with pytest.raises((OSError, Refused)):
            server.call("/wisp/update", {"step": 16, "timeout": 60})
        server.process.wait(120)
    finally:
        server.close()

    # It comes back by itself, at the newest step; here with another number of ranks.
    settings = f'{{"wisp": {{"run": "{mixture.run}", "mode": "self", "poll": 0.2}}}}'
    server = Server(mixture.served, log, "--additional-config", settings)
    try:
        assert server.call("/wisp/status?step=16&wait=120")["head"] == 16
        mixture.train(17)
        traffic = Traffic(server, clients=1)
        mixture.train(18)
        while server.call("/wisp/status")["served"] != 18:
            server.call("/wisp/status?step=18&wait=1")
        assert server.call("/wisp/verify", {})["differing"] == 0
        traffic.end()
        assert not traffic.failures
        last = server.generate(PROMPT, 24)
        assert assert_unmixed(mixture, [{**last, "prompt": PROMPT}]) == {"18"}
    finally:
        server.close()
