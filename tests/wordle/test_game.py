"""The rules, and how a game is told in tokens."""

from __future__ import annotations

import pytest
import tokens
from game import LETTERS, NO_WORD, SOLVED, TURNS, WORDS, Game, marks


@pytest.mark.parametrize(
    ("guess", "secret", "answer"),
    [
        ("crane", "crane", "+++++"),
        ("abbey", "cabin", "~-+--"),  # the first b finds none left
        ("allow", "label", "~~~--"),
        ("eerie", "level", "~+---"),
        ("geese", "level", "-+~--"),
        ("speed", "erase", "~-~~-"),
        ("crane", "pilot", "-----"),
    ],
)
def test_marks(guess, secret, answer):
    assert marks(guess, secret) == answer


def test_every_word_is_one_and_none_is_there_twice():
    assert len(set(WORDS)) == len(WORDS) > 100
    assert all(len(word) == LETTERS and word.isascii() and word.islower() for word in WORDS)


def test_what_is_found_earns_once():
    secret = WORDS[0]
    game = Game(secret)
    assert game.guess("zzzzz") == NO_WORD and game.rewards[-1] == -0.1
    other = next(word for word in WORDS if "+" in marks(word, secret) and word != secret)
    game.guess(other)
    assert game.rewards[-1] >= 0.1
    game.guess(other)
    assert game.rewards[-1] == 0
    assert not game.over
    assert game.guess(secret) == SOLVED
    assert game.rewards[-1] >= 1 - 0.1 * 3
    assert game.over and game.solved


def test_a_game_ends_after_six_guesses():
    game = Game(WORDS[0])
    for turn in range(TURNS):
        assert not game.over
        game.guess("zzzzz" if turn % 2 else WORDS[1])
    assert game.over and not game.solved


def test_tokens_tell_all_of_a_game():
    told = tokens.of_game(["crane", "zzzzz"], ["-~+--", NO_WORD])
    assert told[0] == tokens.START
    assert [tokens.VOCABULARY[token] for token in told[1:]] == [
        *"crane",
        "c-",
        "r~",
        "a+",
        "n-",
        "e-",
        *"zzzzz",
        *["??"] * LETTERS,
    ]
    assert len(told) == 1 + 2 * tokens.TURN
