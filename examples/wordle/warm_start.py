"""Teaches a new policy to imitate a mediocre player: where the run starts from.

    python warm_start.py FOLDER [--updates 200]

Supervised learning; writes a checkpoint of Hugging Face's layout. Two cores take about a minute.
"""

from __future__ import annotations

import argparse
import random
import time
from functools import cache
from pathlib import Path

import tokens
import torch
from game import TURNS, WORDS, Game, marks
from policy import Policy, Shape, save
from torch.nn import functional as F

GAMES = 16  # for one update
answer = cache(marks)


def imitated(chance: random.Random, care: float = 0.7) -> Game:
    """Of a player who heeds the answers in seven turns out of ten, and else guesses blindly."""
    game = Game(chance.choice(WORDS))
    fitting = list(WORDS)
    while not game.over:
        word = chance.choice(fitting if chance.random() < care else WORDS)
        marked = game.guess(word)
        fitting = [secret for secret in fitting if answer(word, secret) == marked]
    return game


def batch(chance: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and the letters that are to follow them; -1 where nothing is learnt."""
    told = torch.zeros(GAMES, 1 + tokens.TURN * TURNS, dtype=torch.long)
    wanted = torch.full_like(told, -1)
    for row in range(GAMES):
        game = imitated(chance)
        said = torch.tensor(tokens.of_game(game.guesses, game.answers))
        told[row, : len(said)] = said
        for turn in range(len(game.guesses)):
            letters = tokens.letters_of(turn)
            wanted[row, letters] = said[letters]
    return told[:, :-1], wanted[:, 1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--layers", type=int, default=Shape.num_hidden_layers)
    parser.add_argument("--width", type=int, default=Shape.hidden_size, help="a multiple of 64")
    options = parser.parse_args()

    torch.manual_seed(0)
    chance = random.Random(0)
    shape = Shape(
        hidden_size=options.width,
        intermediate_size=4 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.width // 64,
        num_key_value_heads=options.width // 64,
    )
    policy = Policy(shape)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1.5e-3, betas=(0.9, 0.98))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1, (done + 1) / 50, 1.6 * (1 - done / options.updates) + 0.02)
    )
    start = time.monotonic()
    for update in range(1, options.updates + 1):
        told, wanted = batch(chance)
        loss = F.cross_entropy(policy(told).flatten(0, 1), wanted.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if update % 50 == 0 or update == options.updates:
            print(
                f"{update} of {options.updates} updates, loss {loss.item():.2f}, "
                f"{time.monotonic() - start:.0f} s",
                flush=True,
            )
    save(policy, options.folder)
    count = sum(parameter.numel() for parameter in policy.parameters())
    print(f"{options.folder}: {count:,} parameters")


if __name__ == "__main__":
    main()
