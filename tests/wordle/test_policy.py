"""The policy: what transformers makes of the same checkpoint, and what a cache must not change."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import tokens  # noqa: E402
from policy import (  # noqa: E402
    Cache,
    Policy,
    Shape,
    from_config,
    letter_chances,
    load,
    save,
    write_guess,
)

SMALL = Shape(hidden_size=128, num_attention_heads=2, num_key_value_heads=2, intermediate_size=96)
GUESSES, ANSWERS = ["crane", "zzzzz", "slate"], ["-~+--", "?????", "+----"]


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(1)
    policy = Policy(SMALL)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(3)  # far from the start, where much is nearly zero
    save(policy, tmp_path)
    return tmp_path


def test_it_is_the_llama_that_transformers_loads(folder):
    transformers = pytest.importorskip("transformers")
    told = torch.tensor([tokens.of_game(GUESSES, ANSWERS)])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    words = transformers.AutoTokenizer.from_pretrained(folder)
    assert words(tokens.text_of(GUESSES, ANSWERS))["input_ids"] == told[0].tolist()
    with torch.no_grad():
        torch.testing.assert_close(load(folder)(told), theirs(told).logits, atol=1e-4, rtol=1e-4)


def test_a_cache_changes_nothing(folder):
    policy, told = load(folder), torch.tensor([tokens.of_game(GUESSES, ANSWERS)] * 3)
    cache = Cache()
    with torch.no_grad():
        pieces = [policy(told[:, :7], cache), policy(told[:, 7:8], cache)]
        cache.keep(torch.tensor([0, 2]))
        pieces = [piece[[0, 2]] for piece in pieces] + [policy(told[[0, 2], 8:], cache)]
        torch.testing.assert_close(torch.cat(pieces, 1), policy(told[[0, 2]]), atol=1e-4, rtol=1e-4)


def test_the_chances_of_a_guess_are_those_the_trainer_computes(folder):
    policy = load(folder)
    told = torch.tensor([tokens.of_game(GUESSES, ANSWERS)] * 4)
    letters, chances = write_guess(policy, told, Cache())
    with torch.no_grad():
        again = letter_chances(policy, torch.cat([told, letters], 1))[:, -letters.shape[1] :]
    torch.testing.assert_close(chances, again, atol=1e-4, rtol=1e-4)
    assert ((0 <= letters) & (letters < tokens.ALPHABET)).all()


def test_another_model_is_refused(folder):
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"qwen3"'))
    with pytest.raises(SystemExit, match="not a policy for this game"):
        from_config(folder)
