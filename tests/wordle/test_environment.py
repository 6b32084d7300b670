"""The environment server: many sessions at once, and what it says to nonsense."""

from __future__ import annotations

import threading

import pytest
from game import TURNS, WORDS
from json_http import Asker, Refused


def play(asker: Asker, count: int, words: list[str]) -> None:
    games = asker("/games", {"count": count})["games"]
    for turn in range(TURNS):
        guesses = [{"game": game, "word": words[turn], "note": {"step": turn}} for game in games]
        answers = asker("/guesses", {"guesses": guesses})["answers"]
        games = [game for game, answer in zip(games, answers, strict=True) if not answer["over"]]
        if not games:
            return
    assert not games


def test_many_players_and_one_who_takes(environment):
    players = [
        threading.Thread(target=play, args=(Asker(environment), 10, list(WORDS[i : i + TURNS])))
        for i in range(12)
    ]
    for player in players:
        player.start()
    trainer, taken = Asker(environment), []
    while len(taken) < 120:
        taken += trainer("/finished", {"most": 50, "wait": 30})["games"]
    for player in players:
        player.join()
    assert len(taken) == 120
    for game in taken:
        assert [turn["note"]["step"] for turn in game] == list(range(len(game)))
        assert len(game) == TURNS or game[-1]["marks"] == "+++++"
    status = trainer("/status")
    assert (status["open"], status["waiting"], status["finished"]) == (0, 0, 120)


def test_nobody_waits_for_games_that_do_not_come(environment):
    assert Asker(environment)("/finished", {"most": 1, "wait": 0}) == {"games": []}


def test_a_client_too_far_ahead_is_told_so(start):
    address = start("environment.py", "--port", 0, "--backlog", 4).wait_for("address", 60)[
        "address"
    ]
    asker = Asker(address)
    play(asker, 4, ["zzzzz"] * TURNS)
    with pytest.raises(Refused, match="4 finished games wait") as refused:
        asker("/games", {"count": 1})
    assert refused.value.status == 503
    asker("/finished", {"most": 1})
    assert len(asker("/games", {"count": 1})["games"]) == 1


def test_forgotten_games_are_dropped(start):
    address = start("environment.py", "--port", 0, "--patience", 0).wait_for("address", 60)[
        "address"
    ]
    asker = Asker(address)
    (game,) = asker("/games", {"count": 1})["games"]
    assert asker("/status")["dropped"] == 1
    with pytest.raises(Refused, match="no such game"):
        asker("/guesses", {"guesses": [{"game": game, "word": "crane"}]})


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("/games", {}, 400),
        ("/games", {"count": 0}, 400),
        ("/games", {"count": True}, 400),
        ("/games", {"count": 10**9}, 400),
        ("/guesses", {"guesses": 3}, 400),
        ("/guesses", {"guesses": [3]}, 400),
        ("/guesses", {"guesses": [{"game": "x", "word": "toolong"}]}, 400),
        ("/guesses", {"guesses": [{"game": "x", "word": "crane"}]}, 404),
        ("/guesses", {"guesses": [{"game": ["x"], "word": "crane"}]}, 404),
        ("/finished", {"most": 1, "wait": "long"}, 400),
        ("/finished", {"most": 1, "wait": float("nan")}, 400),
        ("/elsewhere", {}, 404),
    ],
)
def test_nonsense_is_refused(environment, path, asked, status):
    asker = Asker(environment)
    with pytest.raises(Refused) as refused:
        asker(path, asked)
    assert refused.value.status == status
    assert asker("/status")["open"] == 0


def test_a_refused_request_changes_nothing(environment):
    asker = Asker(environment)
    first, second = asker("/games", {"count": 2})["games"]
    twice = [{"game": first, "word": "crane"}, {"game": first, "word": "crane"}]
    unknown = [{"game": second, "word": "crane"}, {"game": "nobody", "word": "crane"}]
    for guesses in (twice, unknown):
        with pytest.raises(Refused):
            asker("/guesses", {"guesses": guesses})
    asker("/guesses", {"guesses": [{"game": first, "word": "zzzzz"}]})
    for game, left in ((first, TURNS - 1), (second, TURNS)):
        for turn in range(left):
            answer = asker("/guesses", {"guesses": [{"game": game, "word": "zzzzz"}]})["answers"][0]
            assert answer["over"] == (turn == left - 1)
