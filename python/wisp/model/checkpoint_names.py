"""A transformers model as `save_pretrained` would write it, without writing or copying it.

Transformers 5 keeps other tensors in memory than checkpoints have: experts are fused, prefixes
differ. Its own code for saving is run here on tensors without memory; what it does to them shows
where in the module each tensor of the checkpoint lies. Most are views (an expert is a slice of the
fused ones); what is computed is computed when it is read, a few tensors at a time.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import InvalidError, UnsupportedError
from ..tensors import entries_of, is_dtensor, is_torch, named_tensors
from .merged_adapter import MergedAdapter

__all__ = ["Naming", "NamingRule"]

#: How published tensors are named: as checkpoints have them, as the module has them, as checkpoints
#: of a model of peft have them once its adapter is merged, or as checkpoints of this transformers
#: model have them, whose names the dict that is published uses.
NamingRule = Literal["checkpoint", "module", "merged"] | Any

_CURE = 'names="module" takes the names in memory instead'


@dataclass(frozen=True)
class View:
    """A tensor of the checkpoint that lies in one of the module."""

    source: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # elements behind the first of the source

    @property
    def is_run(self) -> bool:
        """Whether its elements lie one after the other."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def of(self, tensor: Any) -> Any:
        """The view of the source as it is now."""
        if tuple(tensor.shape) == self.shape and tuple(tensor.stride()) == self.stride:
            return tensor
        inside = tensor.detach()
        return inside.as_strided(self.shape, self.stride, inside.storage_offset() + self.offset)


@dataclass(frozen=True)
class Computed:
    """A tensor of the checkpoint that transformers computes from some of the module."""

    sources: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: Any


class ComputedTensor:
    """A computed tensor of the model as it is now; value() computes it."""

    def __init__(self, plan: Computed, device: Any, compute: Callable[[], Any]) -> None:
        self.shape = plan.shape
        self.dtype = plan.dtype
        self.device = device
        self.value = compute


def is_transformers(model: object) -> bool:
    """Whether `model` is a model of transformers, without importing it."""
    library = sys.modules.get("transformers.modeling_utils")
    return library is not None and isinstance(model, library.PreTrainedModel)


def _saves_otherwise() -> bool:
    """Whether this transformers (5 and later) saves other tensors than its modules have."""
    return importlib.util.find_spec("transformers.core_model_loading") is not None


def is_adapted(model: object) -> bool:
    """Whether `model` is one of peft, whose adapters are what is trained."""
    library = sys.modules.get("peft.peft_model")
    return library is not None and isinstance(model, library.PeftModel)


class Naming:
    """The names under which tensors of `model` are published and followed.

    Plans are kept for as long as shapes and strides stay what they are; the tensors themselves are
    looked up anew each time.
    """

    def __init__(self, model: Any, rule: NamingRule = "checkpoint") -> None:
        if isinstance(rule, str) and rule not in ("checkpoint", "module", "merged"):
            raise InvalidError('names is "checkpoint", "module", "merged", or a transformers model')
        if rule == "merged" and not is_adapted(model):
            raise InvalidError(f'names="merged" is for models of peft, not {type(model).__name__}')
        if not isinstance(rule, str) and not is_transformers(rule):
            raise InvalidError(f"names={type(rule).__name__} is no transformers model")
        self._merged = MergedAdapter(model) if rule == "merged" else None
        model = model if self._merged is None else self._merged.base
        named_by = model if isinstance(rule, str) else rule
        self._model = model
        converted = is_transformers(named_by) and rule != "module" and _saves_otherwise()
        self._transformers = named_by if converted else None
        self._is_adapted = is_adapted(model) and rule == "checkpoint"
        self._planned_for: object = None
        self._plan: dict[str, View | Computed] = {}
        self._aliases: dict[str, str] = {}

    def entries(self) -> Mapping[str, Any]:
        """The tensors as the model has them now, tied ones under each of their names."""
        if self._merged is not None:
            return self._merged.entries()
        return entries_of(self._adapter() if self._is_adapted else self._model)

    def tensors(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Tensors (views, or ComputedTensor) by name, and further names of tied ones."""
        named = named_tensors(self.entries())
        if self._transformers is None:
            return {n: self._as_merged(t) for n, t in named.tensors.items()}, named.aliases
        for name, tensor in named.tensors.items():
            if is_dtensor(tensor):
                raise InvalidError(f"tensor '{name}' is sharded; use wisp.ShardedPublisher")
        everything = {**named.tensors, **{a: named.tensors[n] for a, n in named.aliases.items()}}
        seen = [
            (name, tuple(tensor.shape), _stride(tensor), str(tensor.dtype))
            for name, tensor in everything.items()
        ]
        if seen != self._planned_for:
            self._plan, self._aliases = _plan(self._transformers, named.tensors, named.aliases)
            self._planned_for = seen
        values: dict[tuple[str, ...], dict[str, Any]] = {}
        return (
            {n: self._tensor(n, p, everything, values) for n, p in self._plan.items()},
            self._aliases,
        )

    def _adapter(self) -> dict[str, Any]:
        """The active adapter as peft would save it; its base is not trained, and not published."""
        from peft import get_peft_model_state_dict

        adapter = self._model.active_adapter
        return dict(get_peft_model_state_dict(self._model, adapter_name=adapter))

    def _tensor(
        self,
        name: str,
        plan: View | Computed,
        tensors: Mapping[str, Any],
        values: dict[tuple[str, ...], dict[str, Any]],
    ) -> Any:
        if isinstance(plan, View):
            return self._as_merged(tensors[plan.source], plan)

        def compute() -> Any:
            # The tensors of a group are read one after the other: it is computed once, and lies in
            # memory until another is asked for.
            if plan.sources not in values:
                values.clear()
                group = {source: self._now(tensors[source]) for source in plan.sources}
                values[plan.sources] = _saved(self._transformers, group)
            return values[plan.sources][name]

        return ComputedTensor(plan, tensors[plan.sources[0]].device, compute)

    def _now(self, tensor: Any) -> Any:
        merged = self._merged
        if merged is not None and merged.adapts(tensor):
            return merged.value(tensor)
        return tensor.detach()

    def _as_merged(self, tensor: Any, view: View | None = None) -> Any:
        """The tensor or a view of it, as it is; of one that is adapted, what computes it merged."""
        merged = self._merged
        if merged is None or not merged.adapts(tensor):
            return tensor if view is None else view.of(tensor)
        shape = tuple(tensor.shape) if view is None else view.shape

        def compute() -> Any:
            made = merged.value(tensor)
            return made if view is None else view.of(made)

        return ComputedTensor(Computed((), shape, tensor.dtype), tensor.device, compute)


def _stride(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.stride()) if is_torch(tensor) else tuple(tensor.strides)


def _saved(model: Any, state: dict[str, Any]) -> dict[str, Any]:
    """What transformers makes of a state dict (or some of it) before it is written."""
    from transformers.core_model_loading import revert_weight_conversion

    saved: dict[str, Any] = revert_weight_conversion(model, state)
    return saved


def _stand_in(name: str, tensor: Any) -> Any:
    import torch

    if not is_torch(tensor):
        raise InvalidError(f"'{name}' is no torch tensor: names of a transformers model need them")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _kept_names(model: Any, tensors: dict[str, Any], aliases: dict[str, str]) -> dict[str, str]:
    """Which of the names of tied weights transformers saves them under, by the name we gave."""
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    stand_ins = {name: _stand_in(name, tensor) for name, tensor in tensors.items()}
    state = {**stand_ins, **{alias: stand_ins[name] for alias, name in aliases.items()}}
    try:
        kept = set(remove_tied_weights_from_state_dict(state, model)) if aliases else set(state)
    except (RuntimeError, AttributeError):
        kept = set(tensors)  # tied by the trainer, not by the model: transformers cannot tell
    chosen = {}
    for name in tensors:
        names = [name, *(alias for alias, of in aliases.items() if of == name)]
        chosen[name] = next((n for n in names if n in kept), name)
    return chosen


def _plan(
    model: Any, tensors: dict[str, Any], aliases: dict[str, str]
) -> tuple[dict[str, View | Computed], dict[str, str]]:
    chosen = _kept_names(model, tensors, aliases)
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    state = {
        chosen[name]: _stand_in(name, tensor)
        for name, tensor in tensors.items()
        if chosen[name] not in ignored
    }
    try:
        plan = _traced(model, state)
        own = {name: tuple(t.shape) for name, t in _saved(model, dict(state)).items()}
    except (UnsupportedError, InvalidError):
        raise
    except Exception as error:  # of transformers' own making
        raise UnsupportedError(
            f"transformers cannot tell how it would save a {type(model).__name__}: {error}; {_CURE}"
        ) from error
    _prove(type(model).__name__, plan, own)
    renamed = {view.source: name for name, view in plan.items() if isinstance(view, View)}
    return plan, _saved_aliases(model, tensors, aliases, chosen, renamed)


def _prove(model: str, plan: dict[str, View | Computed], own: dict[str, tuple[int, ...]]) -> None:
    """Names and shapes are those of the model's own save plan."""
    mine = {name: part.shape for name, part in plan.items()}
    if mine == own:
        return
    found = sorted(mine.items() ^ own.items())[:4]
    raise UnsupportedError(f"{model} would be saved otherwise than planned: {found}; {_CURE}")


def _saved_aliases(
    model: Any,
    tensors: dict[str, Any],
    aliases: dict[str, str],
    chosen: dict[str, str],
    renamed: dict[str, str],
) -> dict[str, str]:
    """Further names of tied weights, as a checkpoint would have them."""
    found = {}
    for name in tensors:
        names = {name, *(alias for alias, of in aliases.items() if of == name)}
        for alias in sorted(names - {chosen[name]}):
            saved = list(_saved(model, {alias: _stand_in(name, tensors[name])}))
            if len(saved) == 1 and chosen[name] in renamed and saved[0] not in renamed.values():
                found[saved[0]] = renamed[chosen[name]]
    return found


def _traced(model: Any, state: dict[str, Any]) -> dict[str, View | Computed]:
    """Runs transformers' code on tensors without memory, and sees what becomes of them."""
    from .conversion_trace import ConversionTrace

    trace = ConversionTrace(state)
    with trace:
        saved = _saved(model, dict(state))
    plan: dict[str, View | Computed] = {}
    for name, tensor in saved.items():
        source = trace.source_of(tensor)
        if source is not None:
            # A stand-in begins at offset 0 of its own storage.
            shape, stride = tuple(tensor.shape), tuple(tensor.stride())
            plan[name] = View(source, shape, stride, tensor.storage_offset())
            continue
        origins = trace.origins_of(tensor)
        if not origins:
            raise UnsupportedError(f"'{name}' comes from no tensor of the model; {_CURE}")
        plan[name] = Computed(origins, tuple(tensor.shape), tensor.dtype)
    return plan


def followed_tensors(model: Any, rule: NamingRule) -> tuple[dict[str, Any], dict[str, str]]:
    """What a follower writes to: each must lie in the module, to be written in place."""
    named, aliases = Naming(model, rule).tensors()
    for name, tensor in named.items():
        if isinstance(tensor, ComputedTensor):
            raise UnsupportedError(
                f"'{name}' has no place of its own in this {type(model).__name__}; follow into a "
                f"folder and load it with from_pretrained, or, if the run was published so, {_CURE}"
            )
    return named, aliases


def sharded_views(model: Any, rule: NamingRule) -> tuple[dict[str, View], dict[str, str]]:
    """Where each tensor of the checkpoint lies in a model spread over ranks, and aliases.

    Only runs of elements can be told apart on ranks that hold rows; others are refused.
    """
    if rule == "merged":
        raise InvalidError('names="merged" is for wisp.Publisher: gather the model for it')
    named = named_tensors(model)
    if rule == "module" or not is_transformers(model) or not _saves_otherwise():
        views = {
            name: View(name, tuple(tensor.shape), tuple(tensor.stride()), 0)
            for name, tensor in named.tensors.items()
        }
        return views, named.aliases
    plan, aliases = _plan(model, named.tensors, named.aliases)
    views = {}
    for name, part in plan.items():
        if not isinstance(part, View) or not part.is_run:
            raise UnsupportedError(
                f"'{name}' is not a run of elements of a tensor in this {type(model).__name__}, so "
                f"ranks that hold rows cannot publish it; {_CURE}"
            )
        views[name] = part
    return views, aliases
