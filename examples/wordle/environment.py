"""The environment: a server that plays Wordle with anybody who asks, many games at a time.

    python environment.py [--port 8300] [--host 127.0.0.1]

Players open games and send guesses; what they note beside a guess is kept with it, unread. Finished
games wait until a trainer takes them. So players and trainer need not know of each other.

    POST /games      {"count": 2}
                     {"games": ["3fa0-1", "3fa0-2"]}
    POST /guesses    {"guesses": [{"game": "3fa0-1", "word": "crane", "note": {"step": 7}}]}
                     {"answers": [{"marks": "-~+--", "reward": 0.15, "over": false}]}
    POST /finished   {"most": 24, "wait": 10}
                     {"games": [[{"word": "crane", "marks": "-~+--", "reward": 0.15, "note": …}]]}
    GET  /status     {"open": 64, "waiting": 12, "opened": 512, "finished": 436, "dropped": 0}

Where too many finished games wait, /games answers 503: players would only get further ahead of the
trainer.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import threading
import time
from collections import deque
from typing import Any

from game import LETTERS, WORDS, Game
from json_http import Refused, Server
from programs import tell

MOST_GAMES = 1024  # in one request
MOST_OPEN = 65_536
LONGEST_WAIT = 60.0  # seconds


class Table:
    """All games: those being played, and those that are over and wait."""

    def __init__(self, backlog: int, patience: float, seed: int | None) -> None:
        self.backlog = backlog
        self.patience = patience
        self.chance = random.Random(seed)
        self.name = secrets.token_hex(2)  # a game of an earlier server is not one of ours
        self.open: dict[str, tuple[Game, list[dict[str, Any]]]] = {}
        self.heard: dict[str, float] = {}
        self.waiting: deque[list[dict[str, Any]]] = deque()
        self.opened = self.finished = self.dropped = 0
        self.change = threading.Condition()

    def start(self, asked: dict[str, Any]) -> dict[str, Any]:
        count = whole(asked, "count", 1, MOST_GAMES)
        with self.change:
            self.drop_forgotten()
            if len(self.waiting) >= self.backlog:
                raise Refused(
                    503, f"{len(self.waiting)} finished games wait for a trainer; come back"
                )
            if len(self.open) + count > MOST_OPEN:
                raise Refused(503, f"{len(self.open)} games are open already; finish some")
            names = []
            for _ in range(count):
                self.opened += 1
                names.append(f"{self.name}-{self.opened:x}")
                self.open[names[-1]] = Game(self.chance.choice(WORDS)), []
                self.heard[names[-1]] = time.monotonic()
            return {"games": names}

    def guess(self, asked: dict[str, Any]) -> dict[str, Any]:
        guesses = asked.get("guesses")
        if not isinstance(guesses, list) or len(guesses) > MOST_GAMES:
            raise Refused(400, f'"guesses" is a list of at most {MOST_GAMES}')
        with self.change:
            for each in guesses:  # all or none
                self.check(each)
            if len({each["game"] for each in guesses}) < len(guesses):
                raise Refused(400, "two guesses for one game in one request")
            return {"answers": [self.answer(each) for each in guesses]}

    def check(self, each: Any) -> None:
        if not isinstance(each, dict) or not isinstance(each.get("word"), str):
            raise Refused(400, 'a guess is {"game": …, "word": …}')
        if len(each["word"]) != LETTERS or not each["word"].isascii():
            raise Refused(400, f"a guess has {LETTERS} letters of a to z")
        if not isinstance(each.get("game"), str) or each["game"] not in self.open:
            raise Refused(404, "no such game, or it is over")

    def answer(self, each: dict[str, Any]) -> dict[str, Any]:
        name, word = each["game"], each["word"].lower()
        game, turns = self.open[name]
        marks = game.guess(word)
        turns.append(
            {"word": word, "marks": marks, "reward": game.rewards[-1], "note": each.get("note")}
        )
        self.heard[name] = time.monotonic()
        if game.over:
            del self.open[name], self.heard[name]
            self.waiting.append(turns)
            self.finished += 1
            self.change.notify_all()
        return {"marks": marks, "reward": game.rewards[-1], "over": game.over}

    def take(self, asked: dict[str, Any]) -> dict[str, Any]:
        """`most` games, or those that are there after `wait` seconds."""
        most = whole(asked, "most", 1, MOST_GAMES)
        wait = asked.get("wait", 0)
        if type(wait) not in (int, float) or not 0 <= wait <= LONGEST_WAIT:
            raise Refused(400, f'"wait" is a number of seconds from 0 to {LONGEST_WAIT:.0f}')
        with self.change:
            self.change.wait_for(lambda: len(self.waiting) >= most, wait)
            count = min(most, len(self.waiting))
            return {"games": [self.waiting.popleft() for _ in range(count)]}

    def status(self, _: dict[str, Any]) -> dict[str, Any]:
        with self.change:
            self.drop_forgotten()
            return {
                "open": len(self.open),
                "waiting": len(self.waiting),
                "opened": self.opened,
                "finished": self.finished,
                "dropped": self.dropped,
            }

    def drop_forgotten(self) -> None:
        """Games whose player has not been heard: it may have been killed."""
        late = time.monotonic() - self.patience
        for name in [name for name, heard in self.heard.items() if heard < late]:
            del self.open[name], self.heard[name]
            self.dropped += 1


def whole(asked: dict[str, Any], key: str, least: int, most: int) -> int:
    value = asked.get(key)
    if type(value) is not int or not least <= value <= most:
        raise Refused(400, f'"{key}" is a whole number from {least} to {most}')
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--host", default="127.0.0.1", help="others than loopback are open to all who reach it"
    )
    parser.add_argument("--port", type=int, default=8300, help="0: any that is free")
    parser.add_argument("--backlog", type=int, default=192, help="finished games that may wait")
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds until a silent player's game is dropped"
    )
    parser.add_argument("--seed", type=int, help="for the same secrets again")
    options = parser.parse_args()
    table = Table(options.backlog, options.patience, options.seed)
    ways = {
        "POST /games": table.start,
        "POST /guesses": table.guess,
        "POST /finished": table.take,
        "GET /status": table.status,
    }
    with Server(options.host, options.port, ways) as server:
        tell(address=server.address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
