"""A game as tokens: the letters of a guess, then each letter again with its mark, and so on.

    crane c-r~a+n-e- stark …      26 letters, 78 marked letters, what stands for a mark on no word

As text the spaces are left out. `write_tokenizer` says the same in Hugging Face's format.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase

from game import LETTERS, NO_WORD

MARKED = [letter + mark for letter in ascii_lowercase for mark in "-~+"]
VOCABULARY = [*ascii_lowercase, *MARKED, "??", "<start>", "<end>"]
ALPHABET = len(ascii_lowercase)
INDEX = {token: index for index, token in enumerate(VOCABULARY)}
START = INDEX["<start>"]
TURN = 2 * LETTERS  # tokens of a guess and its answer


def of_guess(word: str) -> list[int]:
    return [INDEX[letter] for letter in word]


def word_of(tokens: list[int]) -> str:
    """What these letters spell."""
    return "".join(VOCABULARY[token] for token in tokens)


def letters_of(turn: int) -> slice:
    """Where the guess of this turn stands among the tokens of a game."""
    first = 1 + turn * TURN
    return slice(first, first + LETTERS)


def of_answer(word: str, answer: str) -> list[int]:
    if answer == NO_WORD:
        return [INDEX["??"]] * LETTERS
    return [INDEX[letter + mark] for letter, mark in zip(word, answer, strict=True)]


def of_game(guesses: list[str], answers: list[str]) -> list[int]:
    tokens = [START]
    for word, answer in zip(guesses, answers, strict=True):
        tokens += of_guess(word) + of_answer(word, answer)
    return tokens


def text_of(guesses: list[str], answers: list[str]) -> str:
    return "".join(VOCABULARY[token] for token in of_game(guesses, answers)[1:])


def write_tokenizer(folder: Path) -> None:
    special = [
        {
            "id": INDEX[token],
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token in ("<start>", "<end>")
    ]
    start = [
        {"SpecialToken": {"id": "<start>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[a-z][-~+]|\?\?|[a-z]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": start,
            "pair": start,
            "special_tokens": {"<start>": {"id": "<start>", "ids": [START], "tokens": ["<start>"]}},
        },
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": INDEX, "unk_token": "??"},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<start>",
        "eos_token": "<end>",
        "pad_token": "<end>",
        "unk_token": "??",
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
