"""How a language model is asked for a guess, and how its answer is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import tokens
from game import LETTERS, NO_WORD, TURNS

RULES = f"""Guess a secret English word of {LETTERS} letters in at most {TURNS} turns.
After each guess every letter is marked: + right place, ~ elsewhere in the word, - not in it.
Answer with one word of {LETTERS} letters and nothing else."""


class Letters:
    """Our own policy: a game is a row of tokens, and a guess the next five."""

    sampling: dict[str, Any] = {
        "max_tokens": LETTERS,
        "allowed_token_ids": list(range(tokens.ALPHABET)),
    }

    def prompt(self, words: list[str], marks: list[str]) -> list[int]:
        return tokens.of_game(words, marks)

    def word(self, ids: list[int]) -> str:
        return tokens.word_of(ids)


class Chat:
    """Any model with a chat template: rules and game so far in words; the last word counts."""

    sampling: dict[str, Any] = {"max_tokens": 32}

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def prompt(self, words: list[str], marks: list[str]) -> list[int]:
        said = [RULES]
        for turn, (word, mark) in enumerate(zip(words, marks, strict=True), 1):
            shown = " ".join(letter + m for letter, m in zip(word, mark, strict=True))
            said.append(f"Guess {turn}: " + (f"{word} is no word." if mark == NO_WORD else shown))
        return self.tokenizer.apply_chat_template(
            [{"role": "user", "content": "\n".join(said)}],
            add_generation_prompt=True, return_dict=False, enable_thinking=False,
        )  # fmt: skip

    def word(self, ids: list[int]) -> str:
        text = self.tokenizer.decode(ids, skip_special_tokens=True).lower()
        found = re.findall(rf"\b[a-z]{{{LETTERS}}}\b", text)
        return found[-1] if found else NO_WORD


def speech_of(folder: Path) -> Letters | Chat:
    """The way to talk with the model in this folder."""
    if json.loads((folder / "config.json").read_text()).get("vocab_size") == len(tokens.VOCABULARY):
        return Letters()
    chat = Chat(folder)
    if chat.tokenizer.chat_template is None:
        raise SystemExit(
            f"{folder}: neither our policy nor a model with a chat template; name an instruct model"
        )
    return chat
