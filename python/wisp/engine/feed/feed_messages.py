"""What a host's feed and its readers tell each other.

On their socket each is a line of JSON (wisp.json_messages). A reader gets a Snapshot first, then
what changes; it sends LookNow and RankSays. Where the feed keeps no weights (`relay_state`), ranks
also tell what they hold, are asked for parts of it, and ask for whole states and proofs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...json_messages import decode_any, encode
from ...tensors import TensorEntry

__all__ = [
    "Coming",
    "FeedMessage",
    "FeedPosition",
    "FollowStatus",
    "Gather",
    "Gathered",
    "LookNow",
    "Move",
    "Moved",
    "Part",
    "RankHolds",
    "RankReport",
    "RankSays",
    "RankState",
    "ReaderMessage",
    "Snapshot",
    "StatusChanged",
    "Verified",
    "VerifyState",
    "WantsState",
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
    base: str = ""  #: the digest of the state before
    has_old: bool = False  #: the file holds the bits before, too
    proven_by: tuple[str, ...] = ()  #: the ranks whose memory gave them, for which they are proven
    deltas: tuple[str, ...] = ()  #: in place of `file`: what each rank decodes and proves itself


@dataclass(frozen=True)
class FollowStatus:
    """How the feed's following goes."""

    head_seq: int = 0
    lag_steps: int = 0
    expired: bool = False  #: the newest commit is older than it should be
    passes: int = 0  #: how often it found nothing more to do
    failure: str | None = None  #: what ended it; it is tried again
    faults: tuple[str, ...] = ()  #: what went wrong and was worked around, the newest last
    fetched_bytes: int = 0  #: of anchors and deltas, since the feed began


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
    refused: bool = False  #: and it stays so, unless the run or the settings change
    replica: str = ""  #: the name under which `wisp status` is to show its server
    allowed: str = ""  #: the key of what may be without a counterpart, as the rank knows it
    missing: tuple[str, ...] = ()  #: what of the model the run does not write, as was allowed
    unused: tuple[str, ...] = ()  #: what of the run no rank holds, as was allowed
    ignored: tuple[str, ...] = ()  #: what the engine does not load of the served folder either
    draft: str = ""  #: whether what a draft model has of its own follows; empty: there is none
    unknown: tuple[str, ...] = ()  #: of the run, and unused if no other rank of the engine holds it

    def can_serve(self, key: str) -> bool:
        """Whether the rank serves this state, or has staged it."""
        return key in self.all_staged or (self.served is not None and self.served.key == key)

    def stands_at(self, state: str) -> bool:
        """Whether the rank holds the weights with this digest, or has staged them."""
        if self.served is not None and self.served.state == state:
            return True
        return any(key.partition(":")[2] == state for key in self.all_staged)


#: Elements of a tensor that a rank holds: the first, and (size, stride) of each dimension.
Part = tuple[int, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Coming:
    """A state of these tensors is about to be fetched: ranks are to say what they hold of it."""

    number: int
    schema: tuple[TensorEntry, ...]


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
    relay: bool = False  #: the ranks hold the weights; `file` has only those that they cannot give
    kept: tuple[str, ...] = ()  #: the tensors in `file`, if `relay`
    whole: str = ""  #: a checkpoint, as long as it is there
    whole_state: str = ""  #: the digest of what it holds
    whole_parts: dict[str, tuple[Part, ...]] | None = None  #: of that; the rest is holes; None: all
    coming: Coming | None = None


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


@dataclass(frozen=True)
class RankHolds:
    """What a rank can give back bit for bit: parts of the run's tensors."""

    label: str
    peers: int  #: ranks of its engine on this host, itself among them
    parts: dict[str, tuple[Part, ...]]
    opaque: tuple[str, ...] = ()  #: tensors that it holds otherwise, and needs whole from the feed
    twins: tuple[str, ...] = ()  #: tensors that it must see to be equal, in the same way
    number: int = 0  #: of the Coming that it answers
    decodes: bool = False  #: it holds every tensor without a gap, and so needs deltas alone


@dataclass(frozen=True)
class Gather:
    """Ranks with these labels are to put words of a state into a file in the feed's folder.

    Each of `tensors` is (name, first, words, offset). first < 0: at `offset` lie indices of 4 bytes
    each, padded to a multiple of 8, then the buffer; else the words follow each other from `first`
    on, and the buffer is at `offset`.
    """

    number: int
    state: str
    file: str
    labels: tuple[str, ...]
    tensors: tuple[tuple[str, int, int, int], ...]
    only_compare: bool = False  #: all of them have done so: does each hold what is there now?


@dataclass(frozen=True)
class Gathered:
    """A rank has done so with all that it holds, or says why not."""

    label: str
    number: int
    failure: str | None = None
    differing: int = 0  #: words that it holds otherwise


@dataclass(frozen=True)
class WantsState:
    """No move leads to the newest state from where a rank stands, nor does the whole it knows."""

    label: str
    known: str  #: the whole that it knows of
    why: str = ""  #: what went wrong, if anything did


@dataclass(frozen=True)
class VerifyState:
    """A rank asks for a proof that the ranks of its engine hold this state."""

    label: str
    state: str


@dataclass(frozen=True)
class Verified:
    """The answer: None if they do."""

    label: str
    state: str
    failure: str | None
    differs: bool = False  #: it was looked at, and is another state


FeedMessage = Snapshot | Coming | Moved | StatusChanged | RankSays | Gather | Verified
ReaderMessage = LookNow | RankSays | RankHolds | Gathered | WantsState | VerifyState


def line_of(message: FeedMessage | ReaderMessage) -> bytes:
    """As it travels."""
    return encode(message) + b"\n"


def parse_feed_message(line: bytes) -> FeedMessage:
    """What a feed told; ValueError if it is nothing that a feed says."""
    message: FeedMessage = decode_any(
        line, Snapshot, Coming, Moved, StatusChanged, RankSays, Gather, Verified
    )
    return message


def parse_reader_message(line: bytes) -> ReaderMessage:
    """What a reader told; ValueError if it is nothing that a reader says."""
    message: ReaderMessage = decode_any(
        line, LookNow, RankSays, RankHolds, Gathered, WantsState, VerifyState
    )
    return message
