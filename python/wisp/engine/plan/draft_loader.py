"""A served model and the draft model beside it, as one that loads a run.

A draft guesses tokens that the served model accepts or not, so that old weights in it cost speed
and nothing else. What both share is the served model's. What the draft has of its own follows a run
that holds it: under the names of the served folder if it was loaded from there (layers that
predict further tokens), else under the names of its own folder with a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from ...errors import UnsupportedError
from .load_plan import Layout, Loader, LoadPlan, Schema, Target, Write, targets_of
from .load_recorder import LearningLoader, LoaderError, capture, learn
from .loader_guard import guarded
from .served_checkpoint import DRAFT_PREFIX, open_served

__all__ = ["Draft", "DraftLoader", "unreachable"]


@dataclass(frozen=True)
class Draft:
    """The model; where it was loaded from, None: from the served folder; and its memory's orders.

    obstacle: why it cannot follow, whatever the run holds.
    """

    model: torch.nn.Module
    load: Loader
    checkpoint: str | None = None
    layouts: dict[int, Layout] | None = None
    obstacle: str = ""


def unreachable(why: str) -> Draft:
    """A draft that an engine has and nobody here can get at."""

    def load(tensors: object) -> object:
        raise UnsupportedError(why)

    return Draft(torch.nn.Module(), load, obstacle=why)


class DraftLoader(LearningLoader):
    """Loads both. The draft's targets come after `served`, those of the served model."""

    def __init__(self, main: Loader | LearningLoader, draft: Draft, served: list[Target]) -> None:
        self._main, self._draft, self._served = main, draft, served
        self._load = guarded(draft.model, draft.load)
        self._targets = targets_of(draft.model, draft.layouts)
        self._prefix = DRAFT_PREFIX if draft.checkpoint is not None else ""
        self._own: set[str] = set()

    def add_folder(
        self, schema: Schema, read: Callable[[str], torch.Tensor]
    ) -> tuple[Schema, Callable[[str], torch.Tensor]]:
        """The served folder, and with it the draft's, under the names that a run has for it."""
        if self._draft.checkpoint is None:
            return schema, read
        names, read_own = open_served(self._draft.checkpoint)
        own = [(DRAFT_PREFIX + name, dtype, shape) for name, dtype, shape in names]

        def read_either(name: str) -> torch.Tensor:
            own = name.removeprefix(DRAFT_PREFIX)
            return read(name) if own == name else read_own(own)

        return [*schema, *own], read_either

    def learn_own(self, served: LoadPlan, schema: Schema) -> LoadPlan:
        """The plan of both for what they were loaded from; from then on `is_in` can tell.

        served: the plan of the served model alone. UnsupportedError: the draft cannot follow.
        """
        plan = self.learn(self._served, schema)
        own = {
            name for name, pieces in plan.pieces.items()
            if any(piece.target >= len(self._served) for piece in pieces)
        }  # fmt: skip
        self._own = own - set(served.pieces) - set(served.opaque)
        return plan

    def refuse_own(self, plan: LoadPlan, name: str) -> None:
        """UnsupportedError if the draft holds of a tensor whose loader has to run again."""
        if any(piece.target >= len(self._served) for piece in plan.pieces[name]):
            raise UnsupportedError(f"its loader computes with all of '{name}'")

    @property
    def own(self) -> int:
        """How many tensors only the draft holds."""
        return len(self._own)

    def is_in(self, schema: Iterable[tuple[str, object, object]]) -> bool:
        """Whether a run of these tensors has something of the draft's own."""
        return any(name in self._own for name, _, _ in schema)

    def learn(self, targets: list[Target], schema: Schema) -> LoadPlan:
        """The served model's plan, and behind it the draft's for memory that it has to itself."""
        ours = [entry for entry in schema if self._is_drafts(entry[0])]
        theirs = [e for e in schema if not self._prefix or not self._is_drafts(e[0])]
        plan = learn(self._main, self._served, theirs)
        cut = len(self._prefix)
        try:
            beside = learn(self._load, self._targets, [(n[cut:], d, s) for n, d, s in ours])
        except LoaderError as error:
            raise LoaderError(f"{self._prefix}{error.name}", error.cause) from error
        held = {t.flat.untyped_storage().data_ptr() for t in [*plan.targets, *plan.loaded]}
        free = {
            index for index, target in enumerate(self._targets)
            if target.flat.untyped_storage().data_ptr() not in held
        }  # fmt: skip
        computed = [n for n, indices in beside.computed.items() if indices & free]
        if computed:
            raise UnsupportedError(f"its loader computes with all of '{computed[0]}'")
        first, loaded = len(plan.targets), len(plan.loaded)
        plan.targets, plan.loaded = [*plan.targets, *self._targets], [*plan.loaded, *self._targets]
        for name, pieces in beside.pieces.items():
            own = [replace(p, target=p.target + first) for p in pieces if p.target in free]
            if own:
                plan.pieces.setdefault(self._prefix + name, []).extend(own)
            else:
                plan.shared.add(self._prefix + name)
        for index, regions in beside.written.items():
            if index in free:
                plan.written[index + loaded] = {
                    region: frozenset(self._prefix + name for name in names)
                    for region, names in regions.items()
                }
        for name, dtype, shape in ours:
            plan.dtypes[name], plan.shapes[name] = dtype, shape
        return plan

    def capture(self, plan: LoadPlan, tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Write]:
        """Of the served model: a draft that computes does not follow."""
        return capture(plan, self._main, tensors)

    def _is_drafts(self, name: str) -> bool:
        return name.startswith(self._prefix)
