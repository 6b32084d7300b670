"""The trainer: learns from finished games by policy gradient, and publishes every step.

    python trainer.py RUN --model FOLDER --environment http://127.0.0.1:8300 [--minutes 5]

It takes games from the environment and puts weights into the bucket. Who plays, how many they are,
and whether they come and go, it never knows. Weights and AdamW's moments are float32; what is
published is bf16.

Prints a line of JSON for each step.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import tokens
import torch
import wisp
from game import NO_WORD, SOLVED, TURNS
from json_http import Asker
from policy import letter_chances, load
from programs import ended_by_signals, tell
from torch import Tensor

DISCOUNT = 0.5  # what later guesses earn counts for earlier ones, less and less
CLIP = 0.2  # a step goes no further on the word of one sample
MEMORY = 0.95  # of the running means

Turn = dict[str, Any]


def collect(
    environment: Asker, count: int, step: int, stalest: int, ended: threading.Event
) -> list[list[Turn]]:
    """`count` finished games, each guess of which is at most `stalest` steps old."""
    games: list[list[Turn]] = []
    while len(games) < count and not ended.is_set():
        found = environment("/finished", {"most": count - len(games), "wait": 5})["games"]
        games += [game for game in found if step - game[0]["note"]["step"] <= stalest]
    return games


class Critic:
    """What a guess earns more than others of its turn did of late, in units of the usual spread."""

    def __init__(self) -> None:
        self.usual = torch.zeros(TURNS)
        self.spread = 0.0

    def __call__(self, earned: Tensor, made: Tensor) -> Tensor:
        ahead = earned.clone()
        for turn in reversed(range(TURNS - 1)):
            ahead[:, turn] += DISCOUNT * ahead[:, turn + 1]
        mean = (ahead * made).sum(0) / made.sum(0).clamp(min=1)
        first = self.spread == 0
        self.usual = (
            mean
            if first
            else torch.where(made.any(0), MEMORY * self.usual + (1 - MEMORY) * mean, self.usual)
        )
        more = (ahead - self.usual) * made
        spread = more[made].std().item()
        self.spread = spread if first else MEMORY * self.spread + (1 - MEMORY) * spread
        return more / max(self.spread, 1e-6)


def batch_of(games: list[list[Turn]], critic: Critic) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens; of tokens 1, 2, … which are guessed letters, their chances then, their worth."""
    length = 1 + tokens.TURN * TURNS
    told = torch.zeros(len(games), length, dtype=torch.long)
    guessed = torch.zeros(len(games), length, dtype=torch.bool)
    chances, worth = torch.zeros(len(games), length), torch.zeros(len(games), length)
    earned, made = torch.zeros(len(games), TURNS), torch.zeros(len(games), TURNS, dtype=torch.bool)
    for row, game in enumerate(games):
        for turn, each in enumerate(game):
            earned[row, turn], made[row, turn] = each["reward"], True
    advantage = critic(earned, made)
    for row, game in enumerate(games):
        said = tokens.of_game([each["word"] for each in game], [each["marks"] for each in game])
        told[row, : len(said)] = torch.tensor(said)
        for turn, each in enumerate(game):
            letters = tokens.letters_of(turn)
            guessed[row, letters] = True
            chances[row, letters] = torch.tensor(each["note"]["chances"])
            worth[row, letters] = advantage[row, turn]
    return told, guessed[:, 1:], chances[:, 1:], worth[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a folder, s3://bucket/prefix, hf://buckets/…")
    parser.add_argument(
        "--model", type=Path, required=True, help="where to start: see warm_start.py"
    )
    parser.add_argument("--environment", metavar="URL", required=True)
    parser.add_argument("--learning-rate", type=float, default=3e-6)
    parser.add_argument("--games", type=int, default=24, help="for one step")
    parser.add_argument("--steps", type=int, default=1_000_000, help="end after so many")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    parser.add_argument(
        "--stalest", type=int, default=64, help="drop games that began more steps ago"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="the other core plays, on a machine with two"
    )
    options = parser.parse_args()

    ended = ended_by_signals()
    torch.set_num_threads(options.threads)
    policy, critic = load(options.model), Critic()
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=options.learning_rate, betas=(0.9, 0.99), eps=1e-12, weight_decay=0
    )
    environment = Asker(options.environment)
    beside = [path for path in sorted(options.model.iterdir()) if path.suffix == ".json"]
    with wisp.Publisher(options.run, policy, dtype=torch.bfloat16, side_files=beside) as publisher:
        publisher.attach(optimizer)  # from here on every optimizer.step() is published
        publisher.flush()
        first = wisp.status(options.run, count_objects=False).head.step
        step, start = first, time.monotonic()
        while step - first < options.steps and time.monotonic() - start < 60 * options.minutes:
            games = collect(environment, options.games, step, options.stalest, ended)
            if ended.is_set():
                break
            told, guessed, chances, worth = batch_of(games, critic)
            ratio = (letter_chances(policy, told) - chances).exp()
            gain = torch.minimum(ratio * worth, ratio.clamp(1 - CLIP, 1 + CLIP) * worth)
            loss = -gain[guessed].mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            guesses = [each for game in games for each in game]
            ages = [step - each["note"]["step"] for each in guesses]
            step += 1
            tell(
                step=step,
                reward=round(sum(each["reward"] for each in guesses) / len(games), 4),
                solved=sum(game[-1]["marks"] == SOLVED for game in games) / len(games),
                words=sum(each["marks"] != NO_WORD for each in guesses) / len(guesses),
                games=len(games),
                staleness=round(sum(ages) / len(ages), 2),
                staleness_max=max(ages),
                seconds=round(time.monotonic() - start, 2),
            )


if __name__ == "__main__":
    main()
