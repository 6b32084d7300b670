"""Messages between processes: what is written is read back, and nothing else is."""

from __future__ import annotations

import json

import pytest

from wisp.engine.feed.feed_messages import (
    Coming,
    FeedPosition,
    FollowStatus,
    LookNow,
    Move,
    Moved,
    RankReport,
    RankSays,
    RankState,
    Snapshot,
    StatusChanged,
    line_of,
    parse_feed_message,
    parse_reader_message,
)

AT = FeedPosition(serial=3, step=14, seq=20, state="ab" * 16)
MOVE = Move(2, 3, 14, 20, "ab" * 16, "move-3", (("w", 7), ("v", 1)), {"decoded": 1.5})
RANK = RankReport(RankState(13, 19, "cd" * 16), RankState(14, 20, "ab" * 16), ("14:ab",), None)
MESSAGES = [
    Snapshot(
        41, "s3://bucket/run", AT, {"decoded": 1.0}, "state-1", (("w", "BF16", (4, 2)),), (MOVE,),
        FollowStatus(20, 1, True, 9, "why", ("one", "two")), {"rank": RANK},
    ),
    Snapshot(41, "run", None, {}, "", (), (), FollowStatus(), {}),
    Snapshot(
        41, "run", AT, {}, "", (("w", "BF16", (4, 2)),), (), FollowStatus(), {}, relay=True,
        whole="/w", whole_state="ab" * 16, whole_parts={"w": ((0, ((2, 2), (1, 1))),)},
        coming=Coming(7, (("w", "BF16", (4, 2)),)),
    ),
    Coming(7, (("w", "BF16", (4, 2)),)),
    Moved(AT, MOVE, FollowStatus(passes=2)),
    StatusChanged(FollowStatus(failure=None)),
    RankSays("rank", RANK),
    RankSays("rank", None),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_what_a_feed_tells_arrives_as_it_was(message: Snapshot) -> None:
    line = line_of(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert parse_feed_message(line) == message


def test_a_reader_says_two_things() -> None:
    for message in (LookNow(), RankSays("rank", RANK)):
        assert parse_reader_message(line_of(message)) == message
    with pytest.raises(ValueError, match="Moved"):
        parse_reader_message(line_of(Moved(AT, MOVE, FollowStatus())))


def changed(path: list[str], value: object) -> bytes:
    told = json.loads(line_of(MESSAGES[0]))
    inner = told
    for name in path[:-1]:
        inner = inner[name]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(told).encode()


@pytest.mark.parametrize(
    "path, value",
    [
        (["pid"], "41"),
        (["pid"], True),
        (["at", "serial"], 1.5),
        (["at", "step"], None),
        (["schema"], [["w", "BF16"]]),
        (["moves"], {}),
        (["status"], []),
        (["ranks"], {"rank": 3}),
        (["message"], "Unheard"),
    ],
)
def test_what_does_not_fit_is_refused(path: list[str], value: object) -> None:
    with pytest.raises(ValueError):
        parse_feed_message(changed(path, value))


def test_a_newer_writer_may_say_more() -> None:
    assert parse_feed_message(changed(["at", "colour"], "blue")) == MESSAGES[0]
