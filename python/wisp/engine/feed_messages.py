"""What a host's feed and its readers tell each other.

On their socket each is a line of JSON (wisp.json_messages). A reader gets a Snapshot first, then
what changes; it sends LookNow and RankSays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..json_messages import decode_any, encode
from ..tensors import TensorEntry

__all__ = [
    "FeedMessage",
    "FeedPosition",
    "FollowStatus",
    "LookNow",
    "Move",
    "Moved",
    "RankReport",
    "RankSays",
    "RankState",
    "ReaderMessage",
    "Snapshot",
    "StatusChanged",
    "line_of",
    "parse_feed_message",
    "parse_reader_message",
    "state_key",
]


def state_key(step: int, state: str) -> str:
    """Names a state of a run: the same for the same weights under the same step, on any host."""
    return f"{step}:{state}"


@dataclass(frozen=True)
class FeedPosition:
    """The state that a feed holds."""

    serial: int  #: counts the states of this feed
    step: int
    seq: int
    state: str  #: the digest

    @property
    def key(self) -> str:
        """Names the state."""
        return state_key(self.step, self.state)


@dataclass(frozen=True)
class Move:
    """From one state to the next: what readers are told of it."""

    before: int  #: serial numbers of the states
    after: int
    step: int
    seq: int
    state: str
    file: str
    tensors: tuple[tuple[str, int], ...]  #: (name, how many elements changed), in the file's order
    times: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FollowStatus:
    """How the feed's following goes."""

    head_seq: int = 0
    lag_steps: int = 0
    expired: bool = False  #: the newest commit is older than it should be
    passes: int = 0  #: how often it found nothing more to do
    failure: str | None = None  #: what ended it; it is tried again
    faults: tuple[str, ...] = ()  #: what went wrong and was worked around, the newest last


@dataclass(frozen=True)
class RankState:
    """A state of the run that a rank serves or has staged."""

    step: int
    seq: int
    state: str
    times: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Names the state."""
        return state_key(self.step, self.state)


@dataclass(frozen=True)
class RankReport:
    """What a rank says of itself."""

    served: RankState | None = None
    staged: RankState | None = None  #: the newest, or what is served
    all_staged: tuple[str, ...] = ()  #: keys of all staged states
    failure: str | None = None  #: why there is nothing to switch to

    def can_serve(self, key: str) -> bool:
        """Whether the rank serves this state, or has staged it."""
        return key in self.all_staged or (self.served is not None and self.served.key == key)


@dataclass(frozen=True)
class Snapshot:
    """All that a feed knows, for a reader that has just come, or after a whole state."""

    pid: int
    run: str
    at: FeedPosition | None
    times: dict[str, float]
    file: str
    schema: tuple[TensorEntry, ...]
    moves: tuple[Move, ...]
    status: FollowStatus
    ranks: dict[str, RankReport]


@dataclass(frozen=True)
class Moved:
    """The state has moved by a delta."""

    at: FeedPosition
    move: Move
    status: FollowStatus


@dataclass(frozen=True)
class StatusChanged:
    """The state is the same; how following goes has changed."""

    status: FollowStatus


@dataclass(frozen=True)
class RankSays:
    """A rank's report, from the rank to the feed and from there to all; None: it has gone."""

    label: str
    report: RankReport | None


@dataclass(frozen=True)
class LookNow:
    """A reader knows of a new step and does not want to wait for the next look."""


FeedMessage = Snapshot | Moved | StatusChanged | RankSays
ReaderMessage = LookNow | RankSays


def line_of(message: FeedMessage | ReaderMessage) -> bytes:
    """As it travels."""
    return encode(message) + b"\n"


def parse_feed_message(line: bytes) -> FeedMessage:
    """What a feed told; ValueError if it is nothing that a feed says."""
    message: FeedMessage = decode_any(line, Snapshot, Moved, StatusChanged, RankSays)
    return message


def parse_reader_message(line: bytes) -> ReaderMessage:
    """What a reader told; ValueError if it is nothing that a reader says."""
    message: ReaderMessage = decode_any(line, LookNow, RankSays)
    return message
