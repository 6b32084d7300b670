"""A real vLLM is told of runs that do not fit what it serves, and of one that does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_server import ENVIRONMENT

os.environ.update(ENVIRONMENT)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ["VLLM_LOGGING_LEVEL"] = "WARNING"

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from byte_model import save_tiny_qwen3, weights_of  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

import wisp  # noqa: E402
import wisp.vllm  # noqa: E402
from wisp.vllm.offline import verify_offline  # noqa: E402
from wisp.vllm.settings import InitInfo  # noqa: E402

HEAD, EMBED = "lm_head.weight", "model.embed_tokens.weight"
DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untied model with an index, and beside it a file that the index does not name."""
    folder = save_tiny_qwen3(tmp_path_factory.mktemp("zoo") / "served", tied=False)
    weights = weights_of(folder)
    stale = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    save_file({**stale, "left.behind": torch.zeros(3)}, folder / "stale.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


class Server:
    """One vLLM in this process, told of one run after the other."""

    def __init__(self, folder: Path) -> None:
        from vllm import LLM

        self.llm = LLM(
            str(folder), dtype="bfloat16", max_model_len=128, enforce_eager=True, max_num_seqs=4,
            weight_transfer_config={"backend": "wisp"},
        )  # fmt: skip
        self.weights = weights_of(folder)

    @property
    def engine(self) -> Any:
        return self.llm.llm_engine.model_executor.driver_worker.worker.weight_transfer_engine

    def refusal(self, run: Path, published: dict[str, Any], **settings: Any) -> str:
        with wisp.Publisher(str(run), published, on_error="raise") as publisher:
            publisher.publish(1)
        self.engine.init_transfer_engine(InitInfo(run=str(run), poll=0.1, **settings))
        try:
            with pytest.raises(wisp.InvalidError) as raised:
                wisp.vllm.update(self.llm, 1, timeout=120)
            assert wisp.vllm.status(self.llm)["faults"][-1] == str(raised.value)
            return str(raised.value)
        finally:
            self.engine.shutdown()


@pytest.fixture(scope="module")
def server(served: Path) -> Iterator[Server]:
    made = Server(served)
    yield made
    made.llm.llm_engine.engine_core.shutdown()


def without(tensors: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


def test_issue18_a_run_that_lacks_a_tensor_is_refused(server: Server, tmp_path: Path) -> None:
    text = server.refusal(tmp_path / "run", without(server.weights, DOWN))
    assert f"'{DOWN}'" in text and "allow_missing" in text


def test_issue18_a_tied_run_is_refused_by_an_untied_server(server: Server, tmp_path: Path) -> None:
    text = server.refusal(tmp_path / "run", without(server.weights, HEAD))
    assert f"'{HEAD}'" in text and "tie_word_embeddings true" in text


def test_issue18_resized_embeddings_are_told_with_both_shapes(
    server: Server, tmp_path: Path
) -> None:
    rows, columns = server.weights[EMBED].shape
    grown = {name: torch.zeros(rows + 8, columns, dtype=torch.bfloat16) for name in (EMBED, HEAD)}
    text = server.refusal(tmp_path / "run", {**server.weights, **grown})
    assert f"'{EMBED}' is [{rows + 8}, {columns}] in the run and [{rows}, {columns}]" in text
    assert "resized its embeddings" in text


def test_issue18_another_size_is_told_with_name_and_shapes(server: Server, tmp_path: Path) -> None:
    wide = {DOWN: torch.zeros(64, 192, dtype=torch.bfloat16)}
    text = server.refusal(tmp_path / "run", {**server.weights, **wide})
    assert f"'{DOWN}' is [64, 192] in the run and [64, 128] in the served folder" in text


def test_an_adapters_names_are_told_as_that(server: Server, tmp_path: Path) -> None:
    adapter = {"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": torch.zeros(4, 64)}
    text = server.refusal(tmp_path / "run", {**server.weights, **adapter})
    assert "adapter's names" in text and "lora_A" in text


def test_a_run_that_fits_is_followed_beside_a_file_outside_the_index(
    server: Server, tmp_path: Path
) -> None:
    weights = {name: tensor.clone() for name, tensor in server.weights.items()}
    extra = {"value_head.weight": torch.zeros(1, 64, dtype=torch.bfloat16)}
    run = str(tmp_path / "run")
    with wisp.Publisher(run, {**weights, **extra}, on_error="raise") as publisher:
        publisher.publish(0)
        info = InitInfo(run=run, poll=0.1, allow_unused=["value_head.weight"], replica_id="here")
        server.engine.init_transfer_engine(info)
        for step in (1, 2):
            for tensor in weights.values():
                tensor.view(torch.int16).view(-1)[step::97] ^= 3
            publisher.publish(step)
            publisher.flush()
            assert wisp.vllm.update(server.llm, step, timeout=120)["served"] == step
            assert verify_offline(server.llm) == 0
        status = wisp.vllm.status(server.llm)
        assert status["unused"] == ["value_head.weight"] and status["missing"] == []
    server.engine.shutdown()


def test_random_weights_are_told_as_such(server: Server, tmp_path: Path) -> None:
    load = server.engine.vllm_config.load_config
    before, load.load_format = load.load_format, "dummy"
    try:
        with pytest.raises(wisp.InvalidError, match="--load-format dummy"):
            server.engine.init_transfer_engine(InitInfo(run=str(tmp_path)))
    finally:
        load.load_format = before
