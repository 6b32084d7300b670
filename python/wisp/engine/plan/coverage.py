"""What of a run has no place in a served model, and what of the model the run does not write.

Loading the served folder and loading the run write to the same memory, or one of them leaves some
out. Memory that only the folder's loading writes would keep old values under every new step; a
tensor of the run that no rank loads would never decide an output. Neither is served in silence:
see doc/engines.md, "Coverage".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
import torch

from ...errors import InvalidError
from .load_plan import LoadPlan, Region, Schema
from .served_checkpoint import DRAFT_PREFIX

__all__ = [
    "CACHE_SCALES",
    "STRICT",
    "Allowed",
    "Coverage",
    "PartedError",
    "agree",
    "check_shapes",
    "check_twins",
    "fold_tied",
    "hint_of",
    "judge",
    "listed",
    "region_of",
    "tied_of",
    "told_unused",
]

_SHOWN = 5
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output|output_layer|head)\.weight$")
#: Scales of a quantised KV cache, by the names that checkpoints have for them.
CACHE_SCALES = re.compile(r"\.(k|v|q|kv|prob)_scale$|\.[kv]_proj\.output_scale$")
_EMBEDDING = re.compile(r"(embed|wte|tok_embeddings)[^.]*(\.[^.]*)?\.weight$|(^|\.)shared\.weight$")


#: What a rank says to the others of its tensors: (absent, twins, ignored).
Said = tuple[Sequence[str], Sequence[str], Sequence[str]]


@dataclass(frozen=True)
class Allowed:
    """What an operator has said may be without a counterpart: names, or patterns of the shell."""

    missing: tuple[str, ...] = ()  #: of the served model, left as they were loaded
    unused: tuple[str, ...] = ()  #: of the run, held by no rank

    @property
    def key(self) -> str:
        """Tells two of them apart."""
        return " ".join([*self.missing, "|", *self.unused])

    def is_missing(self, name: str) -> bool:
        """Whether the run may lack it."""
        return any(fnmatchcase(name, pattern) for pattern in self.missing)

    def is_unused(self, name: str) -> bool:
        """Whether the model may do without it."""
        return any(fnmatchcase(name, pattern) for pattern in self.unused)


STRICT = Allowed()  #: nothing may


@dataclass
class Coverage:
    """Of one rank, until its engine's ranks have put theirs together."""

    missing: tuple[str, ...] = ()  #: tensors of the folder whose places the run does not write
    absent: tuple[str, ...] = ()  #: tensors of the run of which this rank holds nothing
    ignored: tuple[str, ...] = ()  #: absent, but the engine does not load the folder's own either
    #: Absent tensors that are another one by the served model's ties: they must stay equal.
    twins: dict[str, str] = field(default_factory=dict)
    unused: tuple[str, ...] = ()  #: held by no rank; known once `agreed`
    agreed: bool = False
    refusal: str = ""

    @property
    def said(self) -> Said:
        """What the other ranks have to know of it."""
        return self.absent, tuple(self.twins), self.ignored

    def unknown(self, allowed: Allowed) -> tuple[str, ...]:
        """What neither this rank nor the served folder accounts for: unused if no rank does."""
        known = {*self.twins, *self.ignored}
        names = () if self.agreed else sorted(n for n in self.absent if n not in known)
        return tuple(n for n in names if not allowed.is_unused(n))


def region_of(view: torch.Tensor) -> Region:
    """The bytes of a view within its storage: the first, and (size, stride) by falling stride."""
    width = view.element_size()
    dims = [(n, s * width) for n, s in zip(view.shape, view.stride(), strict=True) if n != 1]
    dims.append((width, 1))
    dims.sort(key=lambda dim: -dim[1])
    joined: list[tuple[int, int]] = []
    for size, stride in dims:
        if joined and joined[-1][1] == stride * size:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return view.storage_offset() * width, tuple(joined)


def _marks(regions: Iterable[Region], length: int) -> np.ndarray:
    marks = np.zeros(length, bool)
    for first, dims in regions:
        sizes, strides = [size for size, _ in dims], [stride for _, stride in dims]
        np.lib.stride_tricks.as_strided(marks[first:], sizes, strides)[...] = True
    return marks


def unwritten(served: LoadPlan, plan: LoadPlan) -> list[str]:
    """Whose places loading the served folder writes, and loading the run does not."""
    found: set[str] = set()
    for index, before in served.written.items():
        now = plan.written.get(index, {})
        if before.keys() <= now.keys():
            continue
        target = served.loaded[index]
        length = target.flat.numel() * target.width
        left = _marks(before.keys() - now.keys(), length) & ~_marks(now, length)
        if left.any():
            touched = [
                names for region, names in before.items()
                if region not in now and bool((_marks([region], length) & left).any())
            ]  # fmt: skip
            found.update(set[str]().union(*touched) or {target.name})
    return sorted(found)


def judge(
    served: LoadPlan, plan: LoadPlan, allowed: Allowed, skipped: Sequence[str], *, alone: bool
) -> Coverage:
    """What one rank finds. skipped: tensors of the run that its loader was not shown.

    alone: no other rank holds what this one does not. InvalidError: something is missing.
    """
    missing = unwritten(served, plan)
    refused = [name for name in missing if not allowed.is_missing(name)]
    if refused:
        raise InvalidError(_told_missing(refused, plan, served))
    absent = [name for name in plan.absent() if name not in skipped]
    twins = {
        name: twin for name in absent if not allowed.is_unused(name) and name not in plan.shared
        if (twin := _twin(name, plan)) is not None
    }  # fmt: skip
    ignored = [
        n for n in absent if n not in twins and served.shapes.get(n) == plan.shapes[n]
        and not served.pieces.get(n) and n not in served.opaque and n not in served.consumed
    ]  # fmt: skip
    found = Coverage(tuple(missing), (*absent, *skipped), tuple(ignored), twins)
    if alone:
        agree(found, [found.said], allowed)
        partly = [n for n in plan.pieces if n not in served.shapes and _is_partly_held(plan, n)]
        if partly:
            raise InvalidError(
                f"the served model holds only a part of {listed(partly)} of the run; {_CURE_MODEL}"
            )
    return found


def agree(found: Coverage, said: Sequence[Said], allowed: Allowed) -> None:
    """Puts together what all ranks said. InvalidError: some tensors are held by none.

    It follows from `said` alone, so that all ranks come to the same: one that refuses what another
    goes on with would leave that one waiting.
    """
    nowhere = set(said[0][0]).intersection(*(absent for absent, _, _ in said))
    # Ranks without a draft model know nothing of its folder.
    objected = {
        name for absent, _, ignored in said
        for name in set(absent).difference(ignored) if not name.startswith(DRAFT_PREFIX)
    }  # fmt: skip
    ignored = set[str]().union(*(names for _, _, names in said)) & nowhere - objected
    nowhere.difference_update(*(twins for _, twins, _ in said), ignored)
    found.unused, found.ignored = tuple(sorted(nowhere)), tuple(sorted(ignored))
    refused = [name for name in found.unused if not allowed.is_unused(name)]
    if refused:
        found.refusal = told_unused(refused)
        raise InvalidError(found.refusal)
    found.agreed = True


def told_unused(names: Sequence[str]) -> str:
    """Why a run that has these is not followed, when no rank holds anything of them."""
    return (
        f"the run has {listed(names)}, of which the served model holds nothing: what is served "
        f"would not be what was trained; {hint_of(names)}, or name them in the setting allow_unused"
    )


def check_shapes(served: LoadPlan, schema: Schema) -> None:
    """InvalidError if a tensor of the run has another size than that of the served folder."""
    other = [
        (n, shape, served.shapes[n]) for n, _, shape in schema
        if n in served.shapes and np.prod(shape) != np.prod(served.shapes[n])
    ]  # fmt: skip
    if not other:
        return
    told = "; ".join(
        f"'{n}' is {list(run)} in the run and {list(held)} in the served folder"
        for n, run, held in other[:_SHOWN]
    )
    more = f"; and {len(other) - _SHOWN} more" if len(other) > _SHOWN else ""
    vocabulary = all(_EMBEDDING.search(n) or _HEAD.search(n) for n, _, _ in other)
    cure = (
        "the trainer has resized its embeddings: serve a folder with as many rows (wisp export "
        "writes one from the run), and with that vocab_size in its config.json"
        if vocabulary
        else f"another architecture or size; {_CURE_MODEL}"
    )
    raise InvalidError(f"{told}{more}: {cure}")


def hint_of(names: Sequence[str]) -> str:
    """What most likely is the matter with names that the model does not know."""
    if any("lora_" in n or n.startswith("base_model.model.") for n in names):
        return (
            "these are an adapter's names: publish the merged model (merge_and_unload), or serve "
            "the adapter as a LoRA"
        )
    if names and all(n.startswith(DRAFT_PREFIX) for n in names):
        return (
            "these are a draft model's: start the server with it (--speculative-config), of the "
            "same make, or publish without it; if it has one, `draft` of its status says why that "
            "cannot follow"
        )
    if names and all(CACHE_SCALES.search(n) for n in names):
        return (
            "the engine has made numbers of these scales of its quantised KV cache, which a step "
            "would not reach: publish without them, serve with --kv-cache-dtype auto"
        )
    if any(re.search(r"experts\.(gate_up_proj|down_proj)$", n) for n in names):
        return "these are the names in memory: publish those that save_pretrained writes"
    if names and all(_HEAD.search(n) for n in names):
        return (
            "the server has no head of its own: serve a folder that holds one, with "
            "tie_word_embeddings false in its config.json, or train them tied"
        )
    return _CURE_MODEL


def _told_missing(names: list[str], plan: LoadPlan, served: LoadPlan) -> str:
    text = f"the run does not write {listed(names)} of the served model, which would stay old"
    if all(_HEAD.search(n) for n in names):
        cure = (
            "the trainer ties its head to the embedding and this server holds one apart: serve a "
            "folder with tie_word_embeddings true in its config.json, or publish the head too"
        )
    elif not set(plan.shapes) & set(served.shapes):
        cure = f"run and folder have no name in common; {hint_of(list(plan.shapes))}"
    else:
        beyond = sorted(plan.shapes.keys() - served.shapes.keys())
        cure = "publish all weights of the model" + (f"; {hint_of(beyond)}" if beyond else "")
    return f"{text}: {cure}, or name them in the setting allow_missing"


def fold_tied(plan: LoadPlan, heads: dict[str, str]) -> None:
    """The embedding's elements go to the places of a head that the run lacks, too."""
    for name, embedding in heads.items():
        plan.pieces.setdefault(embedding, []).extend(plan.pieces.pop(name, []))
        del plan.shapes[name], plan.dtypes[name]


def tied_of(
    served: LoadPlan, schema: Schema, read: Callable[[str], torch.Tensor]
) -> dict[str, str]:
    """Heads that the run lacks and the folder has, each equal to an embedding that the run has."""
    names = {name for name, _, _ in schema}
    found: dict[str, str] = {}
    for name in served.shapes:
        if name in names or not _HEAD.search(name) or name not in served.pieces:
            continue
        for twin in served.pieces:
            if twin in names and _EMBEDDING.search(twin) and _is_alike(served, name, twin):
                if torch.equal(read(name), read(twin)):
                    found[name] = twin
                    break
    return found


def _is_alike(plan: LoadPlan, one: str, other: str) -> bool:
    return plan.shapes[one] == plan.shapes[other] and plan.dtypes[one] == plan.dtypes[other]


def _twin(name: str, plan: LoadPlan) -> str | None:
    """The embedding that serves in place of an absent head or second embedding."""
    if len(plan.shapes[name]) != 2 or not (_HEAD.search(name) or _EMBEDDING.search(name)):
        return None
    fitting = [
        other for other in [*plan.pieces, *plan.opaque]
        if _EMBEDDING.search(other) and _is_alike(plan, name, other)
    ]  # fmt: skip
    return fitting[0] if len(fitting) == 1 else None


class PartedError(InvalidError):
    """A tensor is no longer equal to the one that is served in its place."""


def check_twins(twins: dict[str, str], bits: Callable[[str], np.ndarray]) -> None:
    """PartedError if a tensor differs from the one that is served in its place."""
    for name, twin in twins.items():
        differing = int(np.count_nonzero(bits(name) != bits(twin)))
        if differing:
            raise PartedError(
                f"'{name}' of the run has parted from '{twin}' in {differing} elements, and this "
                "server serves one for both: serve a folder that holds both, with "
                f"tie_word_embeddings false in its config.json, or name '{name}' in the setting "
                "allow_unused"
            )


def _is_partly_held(plan: LoadPlan, name: str) -> bool:
    pieces = plan.pieces[name]
    parts = {(p.source_offset, tuple(dim[:2] for dim in p.dims)): p.count for p in pieces}
    return sum(parts.values()) < int(np.prod(plan.shapes[name], dtype=np.int64))


def listed(names: Sequence[str]) -> str:
    """The first of them, quoted, and how many more."""
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


_CURE_MODEL = "serve the model that is trained"
