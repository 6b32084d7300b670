"""The game with a vLLM server and TRL's AsyncGRPO: two steps arrive, each guess has its step."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("vllm")

import tokens  # noqa: E402
import wisp  # noqa: E402
from policy import Policy, Shape, save  # noqa: E402

STEPS = 2


def always_crane(folder):
    """Knows which letter comes after which, and nothing else: mostly a word, and sometimes none."""
    policy = Policy(Shape(num_hidden_layers=1))
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.ndim == 2:
                parameter.zero_()
        policy.model.embed_tokens.weight.fill_diagonal_(1)
        starts = [tokens.START, *(tokens.INDEX[token] for token in ("e-", "e~", "e+", "??"))]
        word = tokens.of_guess("crane")
        for before, after in [*((start, word[0]) for start in starts), *pairwise(word)]:
            policy.lm_head.weight[after, before] = 0.4
    save(policy, folder)


def test_two_steps(start, environment, tmp_path):
    always_crane(tmp_path / "model")
    run = tmp_path / "run"
    trainer = start(
        "trainer_trl.py", run, "--model", tmp_path / "model", "--environment", environment,
        "--steps", STEPS, "--learning-rate", "1e-3",
    )  # fmt: skip
    server = start("vllm_rollouts.py", run, "--environment", environment, "--name", "a")
    first = server.wait_for("address", 300)
    assert first["step"] == 0
    assert trainer.wait(600) == 0, trainer.last_words()
    assert [line["step"] for line in trainer.lines] == [1, 2]
    for line in trainer.lines:
        assert line["games"] > 0 and 0 < line["words"] < 1 and -0.6 <= line["reward"] <= 1.5
        assert 0 <= line["staleness"] <= line["staleness_max"] <= line["step"]
    assert server.end(120) == 0
    ended = server.lines[-1]
    committed = {line.step: line.state for line in wisp.log(run) if line.kind != "fence"}
    assert ended["event"] == "ended" and ended["proven"] and ended["games"] > 0
    assert (ended["step"], ended["state"]) == (STEPS, committed[STEPS])
    held = {
        line["step"]: line["state"]
        for line in server.lines
        if line.get("event") in ("joined", "applied")
    }
    assert held.items() <= committed.items() and len(set(committed.values())) == STEPS + 1
