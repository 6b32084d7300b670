"""From a run's tensors to a rank's plan: each has its place, or it is said which has none."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...errors import InvalidError
from .coverage import Allowed, Coverage, check_shapes, fold_tied, hint_of, judge, tied_of
from .load_plan import Loader, LoadPlan, Schema, check_covers
from .load_recorder import LearningLoader, LoaderError, learn
from .served_checkpoint import DRAFT_PREFIX

__all__ = ["plan_run"]

_LONGEST = 200  # characters quoted of a loader's complaint


def plan_run(
    load: Loader | LearningLoader,
    served: LoadPlan,
    schema: Schema,
    allowed: Allowed,
    proven: set[int],
    unsteady: set[str],
    *,
    tied: Callable[[str], torch.Tensor] | None,
    alone: bool,
) -> tuple[LoadPlan, Coverage]:
    """The plan for a run, and what has no counterpart in it.

    served: the plan of the folder that the engine loaded; `proven`, the targets that it reached.
    unsteady: tensors whose functions have to run on all of them.
    tied: reads a tensor of that folder, if its configuration ties the head to the embedding.
    InvalidError: run and model do not fit.
    """
    known = set(served.shapes)
    check_shapes(served, schema)
    heads = tied_of(served, schema, tied) if tied is not None else {}
    # A loader may refuse a name that it does not know: it is not shown those that may be unused,
    # nor those of a draft model, which another rank may hold.
    skipped = [
        name for name, _, _ in schema
        if name not in known and (allowed.is_unused(name) or name.startswith(DRAFT_PREFIX))
    ]  # fmt: skip
    shown = [entry for entry in schema if entry[0] not in skipped]
    shown += [(name, served.dtypes[name], served.shapes[name]) for name in heads]
    try:
        plan = learn(load, served.targets, shown)
    except LoaderError as error:
        raise InvalidError(_told_failure(error, served, schema)) from error
    for name in unsteady & set(plan.pieces):
        plan.forget_pieces(name)
    for name, dtype, shape in schema:
        plan.dtypes[name], plan.shapes[name] = dtype, shape
    if len(plan.absent()) == len(plan.shapes):
        raise InvalidError(
            f"the run has no tensor that the served model knows: '{next(iter(plan.shapes), '')}' "
            f"is its first, '{next(iter(served.shapes), '')}' the folder's; another architecture, "
            f"or other names: {hint_of(list(plan.shapes))}"
        )
    fold_tied(plan, heads)
    check_covers(plan, proven)
    return plan, judge(served, plan, allowed, skipped, alone=alone)


def _told_failure(error: LoaderError, served: LoadPlan, schema: Schema) -> str:
    shapes = {name: shape for name, _, shape in schema}
    name = error.name or ""
    place = f"'{name}'"
    if name in shapes:
        place += f", which is {list(shapes[name])} in the run"
        held = served.shapes.get(name)
        place += f" and {list(held)} in the served folder" if held else " and not in the folder"
    extra = [n for n in shapes if n not in served.shapes]
    lacking = [n for n in served.shapes if n not in shapes]
    told = f"; the folder does not have '{extra[0]}'" if extra else ""
    told += f" and {len(extra) - 1} more of the run" if len(extra) > 1 else ""
    told += f"; the run does not have '{lacking[0]}'" if lacking else ""
    told += f" and {len(lacking) - 1} more of the folder" if len(lacking) > 1 else ""
    cause = f"{type(error.cause).__name__}: {error.cause}".rstrip(": ")
    if len(cause) > _LONGEST:  # vLLM lists all parameters that it knows
        cause = cause[:_LONGEST] + "…"
    other = "" if set(shapes) & set(served.shapes) else "another architecture, or other names: "
    allow = ", or name them in the setting allow_unused" if extra else ""
    return (
        f"the served model's loader fails with the run's tensors, at {place} ({cause}){told}: "
        f"{other}{hint_of(extra or [name])}{allow}"
    )
