"""A rollout server with vLLM: follows a run, and plays whole games against the environment.

    python vllm_rollouts.py RUN --environment http://127.0.0.1:8300 [--name a]

All it loads is what the run gives. vLLM fetches and proves every new step beside generating, and
stops only to write what changed. Every guess is noted with the step that made it, as vLLM reports
it for every token, and with its log-probabilities. A model with a chat template gets the rules in
words; our own policy gets the tokens of the game.

Prints a line of JSON for its address, for each step it takes, and a last one when it is told to
end (SIGTERM): by then it has gone to the newest step and compared every byte with the proven
state.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import aiohttp
import vllm_servers
import wisp
from guesses import Chat, Letters, speech_of
from programs import tell
from vllm_servers import Status

READY = 300  # seconds that vLLM has to begin


class Rollouts:
    """Plays groups of games, all games of a group a turn at a time."""

    def __init__(
        self, http: aiohttp.ClientSession, model: str, environment: str, speech: Letters | Chat
    ) -> None:
        self.http = http
        self.model = model
        self.environment = environment.rstrip("/")
        self.speech = speech
        self.games = 0
        self.status: Status | None = None
        self.pauses: list[float] = []

    async def post(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        async with self.http.post(url, json=body) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def play_on(self, count: int) -> None:
        while True:
            try:
                await self.play(count)
            except (aiohttp.ClientError, asyncio.TimeoutError) as error:
                # The environment has enough games for now, or is a new one and knows none of ours.
                known = getattr(error, "status", None) in (404, 503)
                if not known:
                    print(f"games are given up: {error!r}", file=sys.stderr, flush=True)
                await asyncio.sleep(0.1 if known else 2)

    async def play(self, count: int) -> None:
        opened = await self.post(f"{self.environment}/games", {"count": count})
        games: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in opened["games"]}
        while games:
            guesses = await asyncio.gather(
                *(self.guess(name, *turns) for name, turns in games.items())
            )
            told = await self.post(f"{self.environment}/guesses", {"guesses": guesses})
            for guess, answer in zip(guesses, told["answers"], strict=True):
                words, marks = games[guess["game"]]
                words.append(guess["word"])
                marks.append(answer["marks"])
                if answer["over"]:
                    del games[guess["game"]]
                    self.games += 1

    async def guess(self, game: str, words: list[str], marks: list[str]) -> dict[str, Any]:
        prompt = self.speech.prompt(words, marks)
        asked = {
            "token_ids": prompt,
            "sampling_params": {"temperature": 1, "logprobs": 0, **self.speech.sampling},
        }
        answer = (await self.post(f"{self.model}/inference/v1/generate", asked))["choices"][0]
        ids = answer["token_ids"]
        note = {
            # A switch may fall into a guess: its oldest token counts.
            "step": min(int(span["version"]) for span in answer["weight_versions"]),
            "prompt": prompt,
            "ids": ids,
            "logprobs": [round(token["logprob"], 5) for token in answer["logprobs"]["content"]],
        }
        return {"game": game, "word": self.speech.word(ids), "note": note}

    async def follow(self) -> None:
        """Tells of every step that is seen being served."""
        while True:
            await self.look()
            await asyncio.sleep(0.1)

    async def look(self) -> Status | None:
        async with self.http.get(f"{self.model}/wisp/status") as answer:
            now = Status.of(await answer.json())
        before, self.status = self.status, now
        if now is not None and (
            before is None or (now.step, now.state) != (before.step, before.state)
        ):
            self.pauses.append(now.pause)
            tell(
                event="applied" if before else "joined", step=now.step, state=now.state, age=now.age
            )
            tell(event="served", step=now.step, pause=now.pause)
        return now

    async def ready(self, process: Popen[bytes]) -> None:
        end = time.monotonic() + READY
        while True:
            try:
                if await self.look() is not None:
                    return
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, KeyError):
                pass  # nobody is there yet
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(
                    f"vLLM does not serve a step of the run; it ended with {process.returncode}"
                )
            await asyncio.sleep(0.5)

    async def last(self, run: str) -> dict[str, Any]:
        """Goes to the newest step, and has every byte of it read back."""
        newest = wisp.log(run, 1)[0].step
        async with asyncio.timeout(60):
            while (await self.look()).step != newest:
                await asyncio.sleep(0.1)
        found = await self.post(f"{self.model}/wisp/verify", {})
        return {"step": self.status.step, "state": self.status.state, "games": self.games,
                "steps": len(self.pauses), "pause": statistics.median(self.pauses),
                "proven": found["differing"] == 0}  # fmt: skip


async def work(
    options: argparse.Namespace, model: str, speech: Letters | Chat, process: Popen[bytes]
) -> None:
    started = time.monotonic()
    limits = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=limits[0], timeout=limits[1]) as http:
        rollouts = Rollouts(http, model, options.environment, speech)
        await rollouts.ready(process)
        tell(address=model, step=rollouts.status.step, seconds=round(time.monotonic() - started, 1))
        tasks = [
            asyncio.create_task(part)
            for part in (rollouts.play_on(options.games), rollouts.follow())
        ]
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: [task.cancel() for task in tasks]
            )
        try:
            await asyncio.gather(*tasks)
        except asyncio.CancelledError:
            await asyncio.gather(*tasks, return_exceptions=True)
            tell(event="ended", **await rollouts.last(options.run))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="a folder, s3://bucket/prefix, hf://buckets/…")
    parser.add_argument("--environment", metavar="URL", required=True, help="whom to play with")
    parser.add_argument(
        "--name", default="", help="the name that `wisp status` shows for this host"
    )
    parser.add_argument("--games", type=int, default=24, help="played side by side")
    parser.add_argument("--port", type=int, default=0, help="of vLLM; 0: any that is free")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until there is something to finish
    port = options.port or vllm_servers.free_port()
    with tempfile.TemporaryDirectory(prefix="wordle-") as room:
        folder = Path(room) / "model"
        vllm_servers.checkpoint_of(options.run, folder)
        process = vllm_servers.start(
            vllm_servers.command(options.run, folder, port, name=options.name, games=options.games)
        )
        try:
            asyncio.run(work(options, f"http://127.0.0.1:{port}", speech_of(folder), process))
        except KeyboardInterrupt:
            pass
        finally:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main()
