"""Where a rank's memory keeps the tensors of a run, proven by the folder that was loaded."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable

import torch

from ...errors import (
    Error,
    InvalidError,
    UnavailableError,
    UnsupportedError,
    WrongBaseError,
    text_of,
)
from ...tensors import TensorEntry, torch_dtype
from ..plan.coverage import STRICT, Allowed, Coverage, agree, listed
from ..plan.draft_loader import Draft, DraftLoader
from ..plan.element_function import is_steady
from ..plan.load_plan import Layout, Loader, LoadPlan, Schema, targets_of
from ..plan.load_recorder import LearningLoader, capture, learn
from ..plan.loader_guard import guarded
from ..plan.run_plan import plan_run
from ..plan.served_checkpoint import open_served
from ..stage.stage import Stage, Write
from .rank_vote import Share

__all__ = ["RankPlan"]

_log = logging.getLogger("wisp.engine")

_STAYS = "stay as loaded, so that fewer of its tokens may be accepted as training goes on"

#: Gives a tensor's bits, by its name.
Read = Callable[[str], torch.Tensor]


class RankPlan:
    """The plan of one rank: learned once from the served folder, made anew for each schema.

    The parameters are those of `RankFollower`.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        load: Loader | LearningLoader,
        *,
        label: str,
        checkpoint: str | None,
        layouts: dict[int, Layout] | None = None,
        share: Share | None = None,
        tied: bool = False,
        allowed: Allowed = STRICT,
        draft: Draft | None = None,
        consumed: re.Pattern[str] | None = None,
    ) -> None:
        self.draft = ""  #: whether what a draft model has of its own follows; empty: there is none
        self.current: LoadPlan | None = None  #: for the newest schema that fitted
        self.coverage = Coverage()  #: of that plan
        self.allowed = allowed
        self._label = label
        self._model = model
        self._load = load if isinstance(load, LearningLoader) else guarded(model, load)
        self._checkpoint = checkpoint
        self._layouts = layouts
        self._share = share
        self._tied = tied
        self._draft = draft
        self._consumed = consumed
        self._drafting: tuple[DraftLoader, LoadPlan] | None = None  # and the plan of its folder
        self._lock = threading.Lock()
        self._served: LoadPlan | None = None  # of the folder that was loaded
        self._read: Read | None = None
        self._proven: set[int] = set()
        self._unsteady: set[str] = set()  # functions whose kernels look at the place of an element
        self._schema: tuple[TensorEntry, ...] = ()
        self._refused: InvalidError | None = None  # for the run's schema, as it is known

    @property
    def is_learned(self) -> bool:
        """Whether memory was proven to hold the served folder."""
        return self._served is not None

    def allow(self, allowed: Allowed) -> bool:
        """From now on this may be without a counterpart. Whether that is new."""
        with self._lock:
            if allowed == self.allowed:
                return False
            self.allowed, self._schema, self._refused = allowed, (), None
            return True

    def learn(self) -> None:
        """Reads the served folder through the plan: memory must hold it bit for bit."""
        started = time.monotonic()
        schema, read = open_served(self._checkpoint)
        plan = learn(self._load, targets_of(self._model, self._layouts), schema)
        if self._consumed is not None:
            plan.consumed = {name for name in plan.absent() if self._consumed.search(name)}
        self._unsteady = _unsteady(plan, read)
        for name in self._unsteady:
            plan.forget_pieces(name)
        held = self._prove_pieces(plan, read)
        if plan.opaque:
            self._prove_opaque(plan, read)
            _log.warning(
                "%s: the model's loader computes with all of %s and %d tensors more, %.1f MB; each "
                "step that touches them reads them whole and runs it for them", self._label,
                next(iter(plan.opaque)), len(plan.opaque) - 1, plan.bytes_of(plan.opaque) / 1e6,
            )  # fmt: skip
        self._read = read
        if self._draft is not None:
            self._learn_draft(self._draft, plan, schema, read)
        self._served = plan
        _log.info(
            "%s: plan of %d tensors proven, %d elements in %d places, %.2f s", self._label,
            len(schema), held, len(plan.targets), time.monotonic() - started,
        )  # fmt: skip

    def _learn_draft(self, draft: Draft, served: LoadPlan, schema: Schema, read: Read) -> None:
        """A draft that cannot follow stays as it is, and that is said.

        Whatever the engine's own code raises here: the served model follows without its draft.
        """
        try:
            if draft.obstacle:
                raise UnsupportedError(draft.obstacle)
            loader = DraftLoader(self._load, draft, served.targets)
            schema, read = loader.add_folder(schema, read)
            plan = loader.learn_own(served, schema)
            plan.consumed = served.consumed
            for name in (self._unsteady | _unsteady(plan, read)) & set(plan.pieces):
                loader.refuse_own(plan, name)
                plan.forget_pieces(name)
            self._prove_pieces(plan, read)
        except Exception as error:
            if not isinstance(error, Error):
                _log.warning("%s: learning the draft failed", self._label, exc_info=True)
            self._tell_draft(f"{_STAYS}: {text_of(error)}")
            return
        self._drafting, self._read = (loader, plan), read

    def _tell_draft(self, text: str) -> None:
        if text != self.draft:
            self.draft = text
            _log.warning("%s: the draft model's own weights %s", self._label, text)

    def _prove_pieces(self, plan: LoadPlan, read: Read) -> int:
        proven: set[int] = set()
        held = 0
        for name, pieces in plan.pieces.items():
            bits = read(name)
            for piece, mask, _ in plan.differences(name, bits):
                if bool(mask.any()):
                    raise WrongBaseError(
                        f"'{name}' is not in '{plan.targets[piece.target].name}' as the model's "
                        "loader puts it there: the engine has packed or transformed it after "
                        "loading, or it was not loaded from this checkpoint; serve it unpacked and "
                        "unquantised"
                    )
                held += mask.numel()
            proven.update(piece.target for piece in pieces)
        self._proven.update(proven)
        return held

    def _prove_opaque(self, plan: LoadPlan, read: Read) -> None:
        for group in sorted(set(plan.opaque.values())):
            writes = self.captured(plan, read, group)
            stage = Stage(plan)
            stage.put_writes(writes)
            if stage.seal().elements:
                raise WrongBaseError(
                    f"'{group[0]}' is not in memory as the model's loader puts it there: the "
                    "engine has packed or quantised it after loading; serve it without that"
                )
            self._proven.update(index for index, _, _ in writes)

    def of(self, schema: tuple[TensorEntry, ...]) -> LoadPlan:
        """The plan for a run of these tensors. InvalidError: the model does not fit them."""
        with self._lock:
            if self._schema == schema and self._refused is not None:
                raise self._refused  # learned once, told to all who ask
            if self._schema == schema and self.current is not None:
                return self.current
            allowed, self._refused = self.allowed, None
        assert self._served is not None and self._read is not None
        entries: Schema = [(n, torch_dtype(d), s) for n, d, s in schema]
        load, served = self._load, self._served
        if self._drafting is not None:
            if self._drafting[0].is_in(entries):
                load, served = self._drafting
                self._tell_draft(f"follow the run, {self._drafting[0].own} tensors")
            else:
                self._tell_draft(f"{_STAYS}, since the run does not hold them")
        try:
            plan, coverage = plan_run(
                load, served, entries, allowed, self._proven, self._unsteady,
                tied=self._read if self._tied else None, alone=self._share is None,
            )  # fmt: skip
        except InvalidError as error:
            with self._lock:
                if allowed is self.allowed:
                    self._refused, self._schema = error, schema
            raise
        with self._lock:
            if allowed is not self.allowed:
                raise UnavailableError("other tensors are allowed than before; it is tried again")
            self.current, self.coverage, self._schema = plan, coverage, schema
        self._log_coverage()
        return plan

    def agree(self) -> None:
        """That each tensor of the run is held by some rank. All ranks come here together."""
        assert self._share is not None
        found, allowed = self.coverage, self.allowed
        said = self._share((found.said, allowed.key))
        if any(terms != allowed.key for _, terms in said):
            raise UnavailableError("the ranks were told of different allowed tensors; try again")
        try:
            agree(found, [one for one, _ in said], allowed)
        except InvalidError as error:
            with self._lock:
                self._refused = error
            raise
        self._log_coverage()

    def captured(
        self, plan: LoadPlan, read: Read, names: Iterable[str] | None = None
    ) -> list[Write]:
        """What the loader writes of these tensors, or of all that it computes with as a whole."""
        wanted = sorted(plan.opaque if names is None else names)
        if not wanted:
            return []
        whole = [(n, read(n).view(plan.dtypes[n]).view(plan.shapes[n])) for n in wanted]
        return capture(plan, self._load, whole)

    def written(self, stage: Stage) -> None:
        """Memory was written to: what is derived from it is stale."""
        if isinstance(self._load, LearningLoader):
            self._load.written(stage.touched)

    def _log_coverage(self) -> None:
        """Once it is known what other ranks hold."""
        found = self.coverage
        if not found.agreed:
            return
        for names, text in (
            (found.missing, "keeps %s as loaded, which the run does not write"),
            (found.unused, "does not hold %s of the run"),
            (found.ignored, "does not load %s, neither of the served folder nor of the run"),
        ):
            if names:
                _log.warning("%s: the model " + text, self._label, listed(names))


def _unsteady(plan: LoadPlan, read: Read) -> set[str]:
    """Tensors whose functions do not give what is in memory when elements are computed alone."""
    found = set()
    for name, pieces in plan.pieces.items():
        functions = {id(p.function): p.function for p in pieces if p.function is not None}
        if not functions:
            continue
        bits = read(name)
        values = bits.view(plan.dtypes[name])
        if not all(is_steady(function, values) for function in functions.values()) or any(
            bool(mask.any()) for _, mask, _ in plan.differences(name, bits)
        ):
            found.add(name)
    return found
