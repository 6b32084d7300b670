"""The trainer with TRL's AsyncGRPO: learns from finished games, and publishes every step to a run.

    python trainer_trl.py RUN --model FOLDER --environment http://127.0.0.1:8300 [--minutes 5]

The players are `vllm_rollouts.py`, as many as there are, wherever they are. Trainer and players
share the run and the environment, nothing else.

Every guess of a whole game is a sample: the game so far, the letters to learn from, and as
advantage what came of the guess, more than of the same turn in the games beside it. TRL packs
guesses of one game so that what they share is computed once. Weights are trained in float32 and
published in bfloat16.

Prints a line of JSON for each step:

    {"step": 12, "reward": 0.31, "solved": 0.12, "games": 24, "staleness": 1.3, …}

Step N is what N updates made of the model. Staleness counts the updates between the weights that
made a guess, as vLLM reports them, and those that learnt from it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import attention_on_cpus
import numpy as np
import torch
from datasets import Dataset
from finished_games import FinishedGames
from game import NO_WORD, SOLVED
from programs import ended_by_signals, tell
from transformers import PrinterCallback, TrainerCallback
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
from wisp.trl import BucketWeightTransfer


class Lines(TrainerCallback):
    """Tells of every step after it was published, and ends the training when it is time."""

    def __init__(self, trainer: AsyncGRPOTrainer, source: FinishedGames, minutes: float) -> None:
        self.trainer = trainer
        self.source = source
        self.minutes = minutes
        self.start: float | None = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """The first games are there: servers have begun to play."""
        self.start = self.start or time.monotonic()

    def on_step_end(self, args: AsyncGRPOConfig, state: Any, control: Any, **_: Any) -> None:
        step, seconds = self.trainer.model_version, time.monotonic() - self.start
        trained = [self.source.taken.popleft() for _ in range(args.per_device_train_batch_size)]
        ages = [step - 1 - guess.sample.model_version for guess in trained]
        last = [guess for guess in trained if guess.game is not None]
        line = {
            "step": step,
            "reward": mean(guess.game for guess in last),
            "solved": mean(guess.marks == SOLVED for guess in last),
            "words": mean(guess.marks != NO_WORD for guess in trained),
            "games": len(last),
            "guesses": len(trained),
            "staleness": mean(ages),
            "staleness_max": max(ages),
            "dropped": self.source.dropped,
            "seconds": round(seconds, 2),
        }
        tell(**line)
        if self.source.ended.is_set() or seconds > 60 * self.minutes:
            control.should_training_stop = True


def mean(values: Any) -> float:
    return round(float(np.mean([*values] or [0])), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a new one: a folder, s3://bucket/prefix, hf://buckets/…")
    parser.add_argument(
        "--model",
        required=True,
        help="where to start: warm_start.py's, or any with a chat template",
    )
    parser.add_argument("--environment", metavar="URL", required=True)
    parser.add_argument(
        "--server",
        metavar="URL",
        action="append",
        default=[],
        help="a vLLM server to tell when to switch; without any, servers do it by themselves",
    )
    parser.add_argument("--learning-rate", type=float, default=5e-6)
    parser.add_argument(
        "--guesses", type=int, default=128, help="for one step; games have up to six"
    )
    parser.add_argument("--steps", type=int, default=1_000_000, help="end after so many")
    parser.add_argument("--minutes", type=float, default=1e6, help="end after so long")
    parser.add_argument(
        "--stalest", type=int, default=8, help="drop guesses that are more steps old"
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="the other core plays, on a machine with two"
    )
    options = parser.parse_args()

    ended = ended_by_signals()
    torch.set_num_threads(options.threads)
    gpu = torch.cuda.is_available()
    games = FinishedGames(options.environment, options.stalest, ended)
    with tempfile.TemporaryDirectory(prefix="wordle-") as room, attention_on_cpus.answer_for_gpu():
        settings = AsyncGRPOConfig(
            output_dir=room, max_steps=options.steps, per_device_train_batch_size=options.guesses,
            dtype="float32", bf16=gpu, use_cpu=not gpu, gradient_checkpointing=gpu,
            learning_rate=options.learning_rate, adam_beta2=0.99, adam_epsilon=1e-12,
            weight_sync_steps=1, max_staleness=1 << 30,  # `games` sees to it
            token_budget=-1,  # a step is `guesses` samples, however long they are
            save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = AsyncGRPOTrainer(
            model=options.model, args=settings, rollout_worker=games,
            train_dataset=Dataset.from_dict({"prompt": [""]}),  # asked for, and never looked at
            weight_transfer=BucketWeightTransfer(options.run, servers=options.server),
        )  # fmt: skip
        if not gpu:
            attention_on_cpus.use_plain_attention()
        trainer.model_version = -1  # the first sync comes before the first update, and is step 0
        trainer.remove_callback(PrinterCallback)  # stdout is for our lines
        trainer.add_callback(
            Lines(trainer, games, options.minutes)
        )  # after TRL's own, so after the sync
        trainer.train()  # ends with every step in the bucket


if __name__ == "__main__":
    main()
