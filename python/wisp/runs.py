"""Starting a run, looking at it, and keeping its bucket small."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Literal

from . import _native
from .errors import IncapableError, InvalidError, NoRunError
from .reports import Table, give_repr, human_bytes, human_count, human_seconds
from .stores import RunAddress, location

__all__ = ["compact", "doctor", "export", "init", "log", "retain", "scrub", "status"]

Path = str | os.PathLike[str]
#: How deltas are coded.
Codec = Literal["compact", "swift"]
#: One public key or several, as text or as paths of files; none: whatever the run says of itself.
TrustedKeys = Path | Iterable[Path] | None


def trust_of(
    trust: TrustedKeys,
    min_serial: int = 0,
    run_id: str | None = None,
) -> _native.Trust:
    """Public keys, as text or as paths of files, however they were handed over, and which run."""
    keys = [trust] if isinstance(trust, (str, os.PathLike)) else list(trust or [])
    if not isinstance(min_serial, int) or min_serial < 0:
        raise InvalidError(f"min_serial is the number of a certificate, not {min_serial!r}")
    if run_id is not None and not re.fullmatch("[0-9a-fA-F]{32}", run_id):
        raise InvalidError(
            f"run_id is {run_id!r}; the identity of a run has 32 hexadecimal digits, and wisp.init "
            "and wisp.status tell it"
        )
    return _native.Trust([os.fspath(key) for key in keys], min_serial, (run_id or "").lower())


def init(
    run: RunAddress,
    *,
    single_writer: bool = False,
    branch_of: RunAddress | None = None,
    branch_step: int | None = None,
    trust: TrustedKeys = None,
    sign_key: Path | None = None,
    certificate: Path | None = None,
    roots: TrustedKeys = None,
    codec: Codec | None = None,
    slices: int | None = None,
) -> _native.InitReport:
    """Starts a run; ConflictError when there is one already.

    With `sign_key` or `roots` it is a signed run: nothing counts in it that the keys of `roots`,
    the signing key if None, have not signed or certified.
    `branch_of` starts it from another run of the same bucket, at `branch_step` (its newest if
    None), without copying. `single_writer` is for stores that cannot decide between racing writers.
    `codec` is of all that is written into the run. "swift": steps are in service soonest;
    "compact": a quarter less to send, and each step costs a walk over the model. None: that of
    `branch_of`, or else "swift".
    `slices`: swift deltas are cut into so many, so that a host of an engine that spans several
    fetches its share alone. None: as `branch_of`, or else 4 from 64 GiB of weights on, and none
    below.
    """
    place = location(run)
    if not (single_writer or place.creates_exclusively):
        raise IncapableError(
            f"{place.url} cannot decide between writers that race for a commit; use another store, "
            "or single_writer=True and take care that there is one"
        )
    return _native.init_run(
        place,
        single_writer,
        None if branch_of is None else location(branch_of),
        branch_step,
        trust_of(trust),
        sign_key,
        certificate,
        trust_of(roots),
        codec,
        slices,
    )


class WriterKeys:
    """Whom a publisher believes, by whose key it signs, and which run it means."""

    def __init__(
        self,
        trust: TrustedKeys,
        min_serial: int,
        run_id: str | None,
        sign_key: Path | None,
        certificate: Path | None,
    ) -> None:
        self.trust = trust_of(trust, min_serial, run_id)
        self._trusted = trust
        self._run_id = run_id
        self._sign_key = sign_key
        self._certificate = certificate

    def start_if_missing(self, place: _native.Location, codec: Codec | None = None) -> None:
        """What a publisher does with `create`: a run that is there is left alone."""
        try:
            kept = _native.read_codec(place, self.trust)
            if codec not in (None, kept):
                raise InvalidError(f"the run at {place.url} has the codec {kept}, and keeps it")
        except NoRunError:
            if self._run_id is not None:
                raise  # a new one would have another identity
            # Whom this publisher trusts, its readers shall trust.
            roots = self._trusted if self._sign_key is not None else None
            init(
                place,
                sign_key=self._sign_key,
                certificate=self._certificate,
                roots=roots,
                codec=codec,
            )


def status(
    run: RunAddress,
    *,
    count_objects: bool = True,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
) -> _native.RunStatus:
    """A run at a glance. `count_objects` lists the bucket for sizes; False where that is dear."""
    return _native.read_status(location(run), count_objects, trust_of(trust, min_serial, run_id))


def log(
    run: RunAddress,
    count: int = 20,
    *,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
) -> Table[_native.CommitSummary]:
    """The newest `count` commits that are still there, newest first."""
    place = location(run)
    columns: dict[str, Callable[[_native.CommitSummary], str]] = {
        "seq": lambda line: str(line.seq),
        "step": lambda line: str(line.step),
        "kind": lambda line: line.kind,
        "changed": lambda line: _share(line.changed_elements, line.total_elements),
        "delta": lambda line: human_bytes(line.delta_bytes) if line.delta_bytes else "",
        "anchor": lambda line: human_bytes(line.anchor_bytes) if line.anchor_bytes else "",
        "time": lambda line: _when(line.time_ms),
        "writer": lambda line: line.writer,
    }
    lines = _native.read_log(place, count, trust_of(trust, min_serial, run_id))
    return Table(lines, columns, place.url)


def export(
    run: RunAddress,
    output: Path,
    *,
    step: int | None = None,
    base: Path | None = None,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
    work: Path | None = None,
    threads: int = 0,
) -> _native.ExportReport:
    """Writes any retained step, the newest if None, as a checkpoint folder."""
    return _native.export_step(
        location(run), output, step, trust_of(trust, min_serial, run_id), work, base, threads
    )


def compact(
    run: RunAddress,
    *,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
    sign_key: Path | None = None,
    certificate: Path | None = None,
    base: Path | None = None,
    work: Path | None = None,
    threads: int = 0,
) -> _native.CompactReport:
    """Merges deltas, so that a late joiner reads O(log n) objects after an anchor."""
    believed = trust_of(trust, min_serial, run_id)
    return _native.compact_run(location(run), believed, sign_key, certificate, work, base, threads)


def retain(
    run: RunAddress,
    *,
    keep_anchors: int = 2,
    grace: float = 3600,
    orphan_age: float = 24 * 3600,
    dry_run: bool = False,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
    sign_key: Path | None = None,
    certificate: Path | None = None,
    base: Path | None = None,
    work: Path | None = None,
    release_branches: Iterable[str] = (),
) -> _native.RetainReport:
    """Removes what lies before the last `keep_anchors` anchors; times are in seconds.

    `release_branches` names, by their runs' identities, branches that were given up: what they
    needed of this run may go.
    """
    return _native.retain_run(
        location(run),
        keep_anchors,
        grace,
        orphan_age,
        dry_run,
        trust_of(trust, min_serial, run_id),
        sign_key,
        certificate,
        work,
        base,
        list(release_branches),
    )


def scrub(
    run: RunAddress,
    *,
    replay: bool = False,
    trust: TrustedKeys = None,
    min_serial: int = 0,
    run_id: str | None = None,
    base: Path | None = None,
    work: Path | None = None,
    threads: int = 0,
) -> _native.ScrubReport:
    """Reads every retained object again and proves it; `replay` also walks all states."""
    believed = trust_of(trust, min_serial, run_id)
    return _native.scrub_run(location(run), replay, believed, work, base, threads)


def doctor(where: RunAddress, *, quick: bool = False) -> _native.DoctorReport:
    """Finds out by trying whether a store keeps the promises that runs are built on."""
    return _native.examine(location(where), quick)


def _share(changed: int, total: int) -> str:
    return f"{100 * changed / total:.3g} %" if total and changed else ""


def _when(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _show_line(line: _native.CommitSummary) -> list[tuple[str, str]]:
    shown = [("seq", str(line.seq)), ("step", str(line.step)), ("kind", line.kind)]
    if line.changed_elements:
        shown.append(("changed", _share(line.changed_elements, line.total_elements)))
    if line.delta_bytes:
        shown.append(("delta", human_bytes(line.delta_bytes)))
    if line.anchor_bytes:
        shown.append(("anchor", human_bytes(line.anchor_bytes)))
    return shown


def _show_status(status: _native.RunStatus) -> list[tuple[str, str]]:
    shown = [
        ("run", status.run),
        ("verdict", f"{status.verdict.severity}: {status.verdict.text}"),
    ]
    if status.head is None:
        shown.append(("head", "nothing published yet"))
    else:
        age = human_seconds(max(status.head_age_ms, 0) / 1000)
        stale = ", expired" if status.expired else ""
        shown.append(("head", f"step {status.head.step}, seq {status.head.seq}, {age} ago{stale}"))
    mode = "single writer" if status.single_writer else "exclusive"
    shown.append(("writers", f"{mode}, {'signed' if status.is_signed else 'unsigned'}"))
    if status.stored is not None:
        count = human_count(status.stored.objects)
        shown.append(("stored", f"{human_bytes(status.stored.bytes)} in {count} objects"))
    if status.join is not None:
        read = f"{human_bytes(status.join.bytes)} in {status.join.objects} objects"
        shown.append(("joining", read))
    elif status.head is not None:
        shown.append(("joining", "cannot be done: no anchor leads to the newest step"))
    shown += [("anchor", f"step {a.step}, {human_bytes(a.bytes)}") for a in status.anchors]
    for replica in status.replicas:
        seen = human_seconds(max(replica.seen_ms, 0) / 1000)
        where = (
            f"step {replica.step}, {replica.lag_steps} behind, {replica.status}, seen {seen} ago"
        )
        shown.append(("replica", f"{replica.id}: {where}"))
    return shown + [("branch", branch) for branch in status.branches]


def _plain(*names: str) -> Callable[[object], list[tuple[str, str]]]:
    return lambda report: [(name, str(getattr(report, name))) for name in names]


def _show_findings(report: _native.DoctorReport) -> list[tuple[str, str]]:
    verdict = "healthy" if report.healthy else "not fit for runs"
    writers = "several writers" if report.exclusive_create else "one writer only"
    if report.healthy and report.undecided:
        verdict, writers = "undecided", "try again when the store answers"
    return [
        ("", f"{verdict}, {writers}"),
        *((f.verdict, f"{f.name}: {f.detail}") for f in report.findings),
    ]


give_repr(_native.DoctorReport, _show_findings)
give_repr(_native.Finding, _plain("name", "verdict", "detail", "cure"))
give_repr(_native.CommitSummary, _show_line)
give_repr(_native.RunStatus, _show_status)
give_repr(_native.RunVerdict, _plain("severity", "text"))
give_repr(_native.Concern, _plain("severity", "cause", "text"))
give_repr(_native.InitReport, _plain("run", "branch_step", "shared_bytes"))
give_repr(_native.ReplicaSummary, _plain("id", "step", "lag_steps", "status"))
give_repr(_native.AnchorSummary, _plain("seq", "step", "bytes"))
give_repr(_native.CompactReport, _plain("merged", "join_objects_before", "join_objects_after"))
give_repr(_native.RetainReport, _plain("floor_step", "removed_objects", "removed_bytes"))
give_repr(_native.ScrubReport, _plain("commits", "objects", "bytes", "states_proven", "findings"))
give_repr(_native.ScrubFinding, _plain("what", "problem", "cure"))
give_repr(_native.ExportReport, _plain("step", "seq", "state", "fetched_bytes"))
