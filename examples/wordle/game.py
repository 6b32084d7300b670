"""Wordle: guess a word of five letters in six turns.

Every guess is answered by five marks: "+" for a letter in its place, "~" for one that belongs
elsewhere, "-" for one that does not occur; "?????" for what is no word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LETTERS = 5
TURNS = 6
NO_WORD = "?" * LETTERS
SOLVED = "+" * LETTERS
WORDS = tuple((Path(__file__).parent / "words.txt").read_text().split())
_KNOWN = frozenset(WORDS)


def marks(guess: str, secret: str) -> str:
    """A letter that occurs twice in the guess is marked as often as the secret has it."""
    answer = ["+" if g == s else "-" for g, s in zip(guess, secret, strict=True)]
    left = [s for g, s in zip(guess, secret, strict=True) if g != s]
    for place, letter in enumerate(guess):
        if answer[place] == "-" and letter in left:
            answer[place] = "~"
            left.remove(letter)
    return "".join(answer)


@dataclass
class Game:
    """One secret, the guesses so far, and what each of them earned.

    A letter found earns 0.05, and again when its place is found; the word earns 1, less 0.1 for
    each turn before; what is no word costs 0.1.
    """

    secret: str
    guesses: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def solved(self) -> bool:
        return SOLVED in self.answers

    @property
    def over(self) -> bool:
        return self.solved or len(self.guesses) == TURNS

    def guess(self, word: str) -> str:
        answer = marks(word, self.secret) if word in _KNOWN else NO_WORD
        before = self._found()
        self.guesses.append(word)
        self.answers.append(answer)
        earned = 0.05 * (self._found() - before)
        if answer == NO_WORD:
            earned = -0.1
        elif answer == SOLVED:
            earned += 1 - 0.1 * (len(self.guesses) - 1)
        self.rewards.append(round(earned, 3))
        return answer

    def _found(self) -> int:
        """Letters known to occur, and places known."""
        letters, places = set(), set()
        for guess, answer in zip(self.guesses, self.answers, strict=True):
            for place, (letter, mark) in enumerate(zip(guess, answer, strict=True)):
                if mark in "+~":
                    letters.add(letter)
                if mark == "+":
                    places.add(place)
        return len(letters) + len(places)
