"""Finished games as TRL wants its rollouts: one sample for every guess.

TRL's own rollouts are chats: one prompt, a completion, tools that a chat template must know. A
game of Wordle is six completions with answers between them, and our policy has no chat template.
So AsyncGRPO gets a rollout worker of its own, which takes whole games from the environment.
"""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.request
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

GROUP = 24  # games that are compared with each other
DISCOUNT = 0.5  # what later guesses earn counts for earlier ones, less and less

Turn = dict[str, Any]


class Guess(NamedTuple):
    """A sample, and what the step's line of JSON is made of."""

    sample: RolloutSample
    marks: str
    game: float | None  # what the whole game earned, with its last guess


class FinishedGames:
    """TRL's `rollout_worker` and its queue: whatever is taken out, the environment is asked for."""

    def __init__(self, environment: str, stalest: int, ended: threading.Event) -> None:
        self.environment = environment.rstrip("/")
        self.stalest = stalest
        self.ended = ended
        self.rollout_buffer = self
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self.version = 0
        self.groups = self.dropped = 0
        self.heard = time.monotonic()
        self.games: list[list[Turn]] = []
        self.ready: deque[Guess] = deque()
        self.taken: deque[Guess] = deque()  # by TRL, which reads a step ahead

    def start(self) -> None:
        """Nothing: others play."""

    def stop(self) -> None:
        """Nothing."""

    def update_model_version(self, model_version: int) -> None:
        self.version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Called whenever there was no sample in time."""
        if self.ended.is_set():
            raise SystemExit(0)
        if time.monotonic() - self.heard > stale_after_s:
            raise SystemExit(f"{self.environment} has not answered for {stale_after_s:.0f} s")

    def qsize(self) -> int:
        return len(self.ready)

    def get(self, timeout: float | None = None) -> RolloutSample:
        """The next guess that is fresh enough; queue.Empty if there is none in time."""
        while not self.ended.is_set():
            if not self.ready:
                self.fetch(timeout or 5)
            guess = self.ready.popleft()
            if self.version - guess.sample.model_version <= self.stalest:
                self.taken.append(guess)
                return guess.sample
            self.dropped += 1
        raise queue.Empty

    def fetch(self, wait: float) -> None:
        asked = json.dumps({"most": GROUP - len(self.games), "wait": wait}).encode()
        try:
            with urllib.request.urlopen(
                f"{self.environment}/finished", asked, timeout=wait + 60
            ) as answer:
                self.games += json.load(answer)["games"]
            self.heard = time.monotonic()
        except OSError:
            time.sleep(0.5)  # it may be started again
        if len(self.games) < GROUP:
            raise queue.Empty
        group, self.games = self.games, []
        self.ready.extend(guesses_of(group, self.groups))
        self.groups += 1


def guesses_of(group: list[list[Turn]], number: int) -> list[Guess]:
    """The advantage of a guess: what came of it, less what came of that turn in other games."""
    ahead = [returns([turn["reward"] for turn in game]) for game in group]
    turns = range(max(map(len, ahead)))
    usual = [np.mean([game[turn] for game in ahead if turn < len(game)]) for turn in turns]
    more = [[gain - usual[turn] for turn, gain in enumerate(game)] for game in ahead]
    spread = np.std([gain for game in more for gain in game]) + 1e-6
    return [
        Guess(
            sample_of(turn["note"], gain / spread, number),
            turn["marks"],
            sum(each["reward"] for each in game) if turn is game[-1] else None,
        )
        for game, gains in zip(group, more, strict=True)
        for turn, gain in zip(game, gains, strict=True)
    ]


def returns(rewards: list[float]) -> list[float]:
    gains = list(rewards)
    for turn in reversed(range(len(gains) - 1)):
        gains[turn] += DISCOUNT * gains[turn + 1]
    return gains


def sample_of(note: dict[str, Any], advantage: float, group: int) -> RolloutSample:
    prompt, ids = note["prompt"], note["ids"]
    return RolloutSample(
        prompt=[],
        completion=[],
        input_ids=np.array(prompt + ids, np.int64),
        completion_mask=np.array([0] * len(prompt) + [1] * len(ids), np.int64),
        old_log_probs=np.array([0] * len(prompt) + note["logprobs"], np.float32),
        advantage=float(advantage),
        model_version=note["step"],
        group_id=group,
        metrics={},
    )
