"""What the ranks of a sharded trainer tell each other about one step: values in a key store."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _native
from ..errors import Error, exception_of
from ..json_messages import decode, decode_any, encode

__all__ = [
    "Committed",
    "PulledState",
    "RankFailure",
    "Refused",
    "ShardedReport",
    "StepBase",
    "StepCall",
    "StepReport",
    "Verdict",
    "parse_base",
    "parse_call",
    "parse_delivery",
    "parse_pulled",
    "parse_verdict",
    "write_delivery",
    "write_message",
]

_MANIFEST, _FAILURE = b"M", b"F"


@dataclass(frozen=True)
class StepCall:
    """Rank 0 calls all ranks to a step."""

    step: int
    #: As the library writes it: what the step stands on. None: a step is on its way still, and this
    #: one waits for its StepBase.
    call: str | None
    renew: bool  #: whether the group that exchanges pieces is broken, and made anew


@dataclass(frozen=True)
class StepBase:
    """What a step that had to wait stands on; None: it is part of a newer one."""

    call: str | None


@dataclass(frozen=True)
class RankFailure:
    """Why a rank has no part in a step."""

    error_kind: str
    text: str
    renew: bool = False  #: whether an exchange of pieces has broken off

    @staticmethod
    def of(error: Exception, *, renew: bool = False) -> RankFailure:
        """What other ranks are told of an exception."""
        kind = error.kind if isinstance(error, Error) else "internal"
        return RankFailure(kind, str(error), renew)

    def as_exception(self, prefix: str = "") -> Error:
        """What the other ranks raise."""
        return exception_of(self.error_kind, prefix + self.text)


@dataclass(frozen=True)
class StepReport:
    """A step that rank 0 has committed."""

    step: int
    seq: int
    epoch: int
    kind: str
    state: str
    changed: int
    total: int
    delta_bytes: int
    anchor_bytes: int

    @staticmethod
    def of(report: _native.PublishReport) -> StepReport:
        """What the ranks are told of the library's report."""
        return StepReport(
            report.step, report.seq, report.epoch, report.kind, report.state,
            report.changed_elements, report.total_elements, report.delta_bytes,
            report.anchor_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class ShardedReport(StepReport):
    """A committed step, the same on every rank, and what this rank had to do for it."""

    rank_changed: int
    rank_bytes: int
    blocked_seconds: float
    seconds: float


@dataclass(frozen=True)
class Committed:
    """The step is in the bucket."""

    report: StepReport
    anchor_call: str | None  #: a whole state that is due: what the ranks are called to for it


@dataclass(frozen=True)
class Refused:
    """The step was not committed, or nobody knows whether it was."""

    failure: RankFailure
    landing: str | None = None  #: the state that the run is at if it was


Verdict = Committed | Refused


@dataclass(frozen=True)
class PulledState:
    """The newest state of the run in a folder of this host; None: there is nothing to pull."""

    folder: str
    state: str | None


def write_message(message: StepCall | StepBase | Verdict | PulledState | RankFailure) -> bytes:
    """As it lies in the key store."""
    return encode(message)


def write_delivery(delivery: bytes | RankFailure) -> bytes:
    """A rank's shard manifest, or why there is none."""
    if isinstance(delivery, RankFailure):
        return _FAILURE + encode(delivery)
    return _MANIFEST + delivery


def parse_delivery(data: bytes) -> bytes | RankFailure:
    """What write_delivery() wrote."""
    return decode(data[1:], RankFailure) if data[:1] == _FAILURE else data[1:]


def parse_call(data: bytes) -> StepCall:
    """What rank 0 wrote for all."""
    return decode(data, StepCall)


def parse_base(data: bytes) -> StepBase:
    """What rank 0 wrote for all about a step that had to wait."""
    return decode(data, StepBase)


def parse_verdict(data: bytes) -> Verdict:
    """What became of a step."""
    verdict: Verdict = decode_any(data, Committed, Refused)
    return verdict


def parse_pulled(data: bytes) -> PulledState | RankFailure:
    """What the first rank of a host says of the state it pulled."""
    pulled: PulledState | RankFailure = decode_any(data, PulledState, RankFailure)
    return pulled
