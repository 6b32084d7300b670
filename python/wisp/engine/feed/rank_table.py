"""What a feed knows of its ranks: where each stands, and what it can give back of the weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...tensors import TensorEntry
from .feed_messages import Gathered, Part, RankHolds, RankReport

__all__ = ["EngineRanks", "RankTable"]

_ALONE = 10.0  # seconds in which somebody must come who could answer


@dataclass(frozen=True)
class EngineRanks:
    """The ranks of one engine on this host, all of which stand at the same state."""

    labels: tuple[str, ...]
    covered: frozenset[str]  #: the tensors of which they hold every element


class RankTable:
    """Told by the threads that hear ranks, asked by the one that follows."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._reports: dict[str, RankReport] = {}
        self._holds: dict[str, RankHolds] = {}
        self._answers: dict[str, Gathered] = {}
        self._covered: dict[tuple[int, ...], frozenset[str]] = {}  # by identities of RankHolds

    def report(self, label: str, report: RankReport) -> None:
        """A rank says where it stands."""
        with self.changed:
            self._reports[label] = report
            self.changed.notify_all()

    def hold(self, holds: RankHolds) -> None:
        """A rank says what it holds."""
        with self.changed:
            self._holds[holds.label] = holds
            self._covered.clear()
            self.changed.notify_all()

    def answer(self, answer: Gathered) -> None:
        """A rank has gathered, or not."""
        with self.changed:
            self._answers[answer.label] = answer
            self.changed.notify_all()

    def leave(self, label: str) -> None:
        """A rank has gone."""
        with self.changed:
            for known in (self._reports, self._holds, self._answers):
                known.pop(label, None)
            self._covered.clear()
            self.changed.notify_all()

    def groups_at(
        self,
        state: str,
        schema: Sequence[TensorEntry],
        sliced: Mapping[str, frozenset[Part]] | None = None,
    ) -> list[EngineRanks]:
        """Engines all of whose ranks stand at this state; those that hold most come first.

        sliced: of these tensors such parts are all that is wanted.
        """
        with self.changed:
            standing = [
                ranks for ranks in self._engines().values()
                if len(ranks) >= max(rank.peers for rank in ranks)
                and all(self._stands_at(rank.label, state) for rank in ranks)
            ]  # fmt: skip
            found = [self._group(ranks, schema, sliced or {}) for ranks in standing]
            return sorted(found, key=lambda group: (-len(group.covered), group.labels))

    def _stands_at(self, label: str, state: str) -> bool:
        report = self._reports.get(label)
        return report is not None and report.stands_at(state)

    def _group(
        self,
        ranks: list[RankHolds],
        schema: Sequence[TensorEntry],
        sliced: Mapping[str, frozenset[Part]],
    ) -> EngineRanks:
        labels = tuple(sorted(rank.label for rank in ranks))
        return EngineRanks(labels, self._coverage(ranks, schema, sliced))

    def _coverage(
        self,
        ranks: list[RankHolds],
        schema: Sequence[TensorEntry],
        sliced: Mapping[str, frozenset[Part]],
    ) -> frozenset[str]:
        key = (*sorted(id(rank) for rank in ranks), id(sliced) if sliced else 0)
        if key not in self._covered:
            names = [
                n for n, _, shape in schema
                if (sliced[n] <= _parts(ranks, n) if n in sliced else _covers(ranks, n, shape))
            ]  # fmt: skip
            self._covered[key] = frozenset(names)
        return self._covered[key]

    def parts(self) -> dict[str, frozenset[Part]]:
        """What all ranks hold together."""
        with self.changed:
            ranks = list(self._holds.values())
            names = {name for rank in ranks for name in rank.parts}
            return {name: _parts(ranks, name) for name in names}

    def covered(self, schema: Sequence[TensorEntry]) -> set[str]:
        """The tensors of which the ranks of some engine hold every element."""
        with self.changed:
            found = (self._coverage(ranks, schema, {}) for ranks in self._engines().values())
            return set().union(*found)

    def all_decode(self) -> bool:
        """Whether there are ranks, and each that follows needs nothing but deltas."""
        with self.changed:
            following = [
                label for label, report in self._reports.items()
                if report.failure is None or label in self._holds
            ]  # fmt: skip
            holds = [self._holds.get(label) for label in following]
            return bool(holds) and all(rank is not None and rank.decodes for rank in holds)

    def opaque(self) -> set[str]:
        """Tensors that some rank needs whole."""
        with self.changed:
            return {name for holds in self._holds.values() for name in holds.opaque}

    def needed_whole(self) -> set[str]:
        """The same, and those that some rank must see to be equal."""
        with self.changed:
            twins = {name for holds in self._holds.values() for name in holds.twins}
            return self.opaque() | twins

    def _engines(self) -> dict[str, list[RankHolds]]:
        engines: dict[str, list[RankHolds]] = {}
        for label, holds in self._holds.items():
            engines.setdefault(label.rpartition("/")[0], []).append(holds)
        return engines

    def wait_holds(self, number: int, go_on: Callable[[], object], patience: float) -> str | None:
        """None when all ranks have said what they hold of a state that comes; else who has not.

        Ranks that fail are not waited for, nor anybody if there are none for a while.
        """
        end = time.monotonic() + patience
        alone_since = time.monotonic()
        with self.changed:
            while True:
                late = self._late(number)
                said = any(holds.number == number for holds in self._holds.values())
                if said and not late:
                    return None
                now = time.monotonic()
                if said or late:
                    alone_since = now
                if now > end:
                    return f"rank {', '.join(late)} does not say what it will hold"
                if now - alone_since > _ALONE:
                    return "there is no rank that could say what it will hold"
                go_on()
                self.changed.wait(0.2)

    def _late(self, number: int) -> list[str]:
        """Ranks that may still say what they hold."""
        found = [
            label for label, report in self._reports.items()
            if report.failure is None
            and ((holds := self._holds.get(label)) is None or holds.number != number)
        ]  # fmt: skip
        for engine, ranks in self._engines().items():
            there = [label for label in self._reports if label.rpartition("/")[0] == engine]
            missing = max(rank.peers for rank in ranks) - len(there)
            if missing > 0:
                found.append(f"{engine}/… ({missing} more)")
        return found

    def has_candidates(self) -> bool:
        """Whether there is a rank that may yet come to stand somewhere."""
        with self.changed:
            return any(report.failure is None for report in self._reports.values())

    def all_past(self, states: set[str], *, served: bool = False) -> bool:
        """Whether every rank that does not fail stands at one of these (or serves it)."""
        with self.changed:
            for report in self._reports.values():
                if report.failure is not None:
                    continue
                if served:
                    if report.served is None or report.served.state not in states:
                        return False
                elif not any(report.stands_at(state) for state in states):
                    return False
            return True

    def differing(self, labels: Sequence[str]) -> dict[str, int]:
        """Which of these ranks said last that they hold words otherwise, and how many."""
        with self.changed:
            answers = {label: self._answers.get(label) for label in labels}
            return {label: a.differing for label, a in answers.items() if a and a.differing}

    def wait_answers(
        self,
        number: int,
        labels: Sequence[str],
        go_on: Callable[[], object],
        patience: float | None,
        silent: set[str],
    ) -> str | None:
        """None when all have gathered; else why they have not. `go_on` may raise.

        patience: seconds after which those that have not answered are put into `silent`.
        """
        end = None if patience is None else time.monotonic() + patience
        with self.changed:
            while True:
                waiting: list[str] = []
                for label in labels:
                    if label not in self._holds:
                        return f"rank {label} has gone"
                    answer = self._answers.get(label)
                    if answer is None or answer.number != number:
                        waiting.append(label)
                    elif answer.failure:
                        return f"rank {label}: {answer.failure}"
                if not waiting:
                    return None
                if end is not None and time.monotonic() > end:
                    silent.update(waiting)
                    return f"rank {', '.join(waiting)} does not answer"
                go_on()
                self.changed.wait(0.2)


def _parts(ranks: list[RankHolds], name: str) -> frozenset[Part]:
    """Those that several ranks hold count once."""
    return frozenset(part for rank in ranks for part in rank.parts.get(name, ()))


def _covers(ranks: list[RankHolds], name: str, shape: tuple[int, ...]) -> bool:
    parts = _parts(ranks, name)
    held = sum(int(np.prod([n for n, _ in dims], dtype=np.int64)) for _, dims in parts)
    elements = int(np.prod(shape, dtype=np.int64))
    if held <= elements:
        return held == elements  # slices of one engine are apart
    seen = np.zeros(elements, bool)
    for first, dims in parts:
        sizes = [size for size, _ in dims]
        strides = [stride for _, stride in dims]  # of elements of one byte
        np.lib.stride_tricks.as_strided(seen[first:], sizes, strides)[...] = True
    return bool(seen.all())
