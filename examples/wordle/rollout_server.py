"""A rollout server: plays Wordle with the newest policy, and answers requests for a guess.

    python rollout_server.py RUN --environment http://127.0.0.1:8300 [--name a]

It is given the address of a run and nothing else: configuration, weights and every later step come
out of the bucket. New weights are fetched and proven while it plays, and put in place between two
guesses. Each guess is noted with the step that made it.

    POST /guess   {"guesses": ["crane"], "marks": ["-~+--"]}   {"word": "stark", "step": 41}
    GET  /status                                               {"step": 41, "state": "3f…", …}

Prints a line of JSON for its address, for each step it takes, and a last one when it is told to end
(SIGTERM): by then it has gone to the newest step and proven every byte of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import tokens
import torch
import wisp
from game import LETTERS, TURNS
from json_http import Asker, Refused, Server
from policy import Cache, Policy, from_config, write_guess
from programs import ended_by_signals, tell


def policy_of(run: str, ended: threading.Event) -> Policy:
    """A model of the run's configuration, which lies beside every full checkpoint."""
    while not ended.is_set():
        with tempfile.TemporaryDirectory() as folder:
            try:
                wisp.export(run, os.path.join(folder, "policy"))
                return from_config(Path(folder, "policy"))
            except (wisp.NoRunError, wisp.NotFoundError, wisp.UnavailableError):
                ended.wait(0.5)  # the trainer has yet to begin
    raise SystemExit(0)


class RolloutServer:
    def __init__(self, run: str, name: str, poll: float, ended: threading.Event) -> None:
        self.ended = ended
        self.games = self.steps = 0
        self.pauses: list[float] = []
        self.state = ""
        self.served: int | None = None
        self.policy = policy_of(run, ended)
        # The run is bf16, and that is what is proven; this machine computes in float32.
        self.follower = wisp.Follower(
            run,
            self.policy,
            cast=True,
            replica_id=name,
            poll=poll,
            heartbeat=5,
            on_step=self.on_step,
        )
        self.follower.sync()
        self.follower.start()

    def on_step(self, event: Any) -> None:
        self.steps += 1
        self.state = event.state
        tell(
            event=event.kind,
            step=event.step,
            state=event.state,
            lag=event.lag_steps,
            age=event.commit_age_ms / 1000,
            fetched=event.fetched_bytes,
        )

    def serve(self, step: int, waited: float) -> None:
        """Notes how long a new step kept the next guess waiting."""
        if step != self.served:
            self.served = step
            self.pauses.append(waited)
            del self.pauses[:-10_000]
            tell(event="served", step=step, pause=round(waited, 6))

    def play(self, environment: Asker, count: int) -> None:
        """`count` games side by side, from the first guess to the last."""
        games = environment("/games", {"count": count})["games"]
        cache, told = Cache(), torch.full((count, 1), tokens.START)
        while games and not self.ended.is_set():
            asked = time.perf_counter()
            with self.follower.hold() as step:
                self.serve(step, time.perf_counter() - asked)
                letters, chances = write_guess(self.policy, told, cache)
            words = [tokens.word_of(row) for row in letters.tolist()]
            notes = [
                {"step": step, "chances": [round(chance, 5) for chance in row]}
                for row in chances.tolist()
            ]
            answers = environment(
                "/guesses",
                {
                    "guesses": [
                        {"game": game, "word": word, "note": note}
                        for game, word, note in zip(games, words, notes, strict=True)
                    ]
                },
            )["answers"]
            heard = [
                tokens.of_answer(word, answer["marks"])
                for word, answer in zip(words, answers, strict=True)
            ]
            going = torch.tensor(
                [row for row, answer in enumerate(answers) if not answer["over"]], dtype=torch.long
            )
            told = torch.cat([letters[:, -1:], torch.tensor(heard)], 1)[going]
            cache.keep(going)
            self.games += len(games) - len(going)
            games = [games[row] for row in going]

    def play_on(self, environment: Asker, count: int) -> None:
        while not self.ended.is_set():
            try:
                self.play(environment, count)
            except Refused as refused:
                # 404: the environment is a new one; 503: it has enough for now.
                if refused.status not in (404, 503):
                    raise
                self.ended.wait(0.1)

    def guess(self, asked: dict[str, Any]) -> dict[str, Any]:
        guesses, answers = asked.get("guesses"), asked.get("marks")
        try:
            told = torch.tensor([tokens.of_game(guesses, answers)])
        except (TypeError, KeyError, ValueError):
            raise Refused(
                400, 'what was guessed and answered: {"guesses": ["crane"], "marks": ["-~+--"]}'
            ) from None
        if told.shape[1] > 1 + tokens.TURN * (TURNS - 1) or told.shape[1] % tokens.TURN != 1:
            raise Refused(
                400, f"at most {TURNS - 1} guesses of {LETTERS} letters come before the next"
            )
        with self.follower.hold() as step:
            letters, _ = write_guess(self.policy, told, Cache())
        return {"word": tokens.word_of(letters[0].tolist()), "step": step}

    def status(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "step": self.follower.step,
            "state": self.state,
            "games": self.games,
            "steps": self.steps,
            "pause": statistics.median_high(self.pauses) if self.pauses else None,
        }

    def close(self) -> dict[str, Any]:
        self.follower.stop()
        self.follower.sync()
        proven = self.follower.verify()
        self.follower.close()
        return {**self.status({}), "proven": proven}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a folder, s3://bucket/prefix, hf://buckets/…")
    parser.add_argument(
        "--environment", metavar="URL", help="whom to play with; without one it only answers"
    )
    parser.add_argument("--name", default="", help="the name that `wisp status` shows")
    parser.add_argument("--games", type=int, default=32, help="played side by side")
    parser.add_argument(
        "--poll", type=float, default=0.25, help="seconds between looks into the bucket"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="others than loopback are open to all who reach it"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument(
        "--seed", type=int, help="for the same choices again, given the same weights"
    )
    options = parser.parse_args()

    ended = ended_by_signals()
    torch.set_num_threads(1)  # a server of its own machine would take all it has
    if options.seed is not None:
        torch.manual_seed(options.seed)
    started = time.monotonic()
    rollout = RolloutServer(options.run, options.name, options.poll, ended)
    ways = {"POST /guess": rollout.guess, "GET /status": rollout.status}
    with Server(options.host, options.port, ways).start() as server:
        tell(
            address=server.address,
            step=rollout.follower.step,
            seconds=round(time.monotonic() - started, 3),
        )
        if options.environment:
            rollout.play_on(Asker(options.environment), options.games)
        ended.wait()
        server.shutdown()
    tell(event="ended", **rollout.close())


if __name__ == "__main__":
    main()
