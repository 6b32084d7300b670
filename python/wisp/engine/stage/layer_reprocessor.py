"""What an engine does to its weights after loading, done again while it serves.

The scratch model is of the same make, with parameters as the loader sees them. Its memory is not
touched but for the layer that is worked on. Sending the elements' numbers through a layer tells
whether it only moves them; then a step is a scatter all the same. A layer that computes (quantises,
absorbs, scales) is loaded and processed again there when a step touches it, and what differs from
the memory that is served is staged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ...errors import UnsupportedError
from ..plan.element_codes import CONSTANT
from ..plan.element_function import ElementFunction
from ..plan.element_map import factor
from ..plan.load_plan import (
    Layout,
    Loader,
    LoadPlan,
    Piece,
    Schema,
    Target,
    Write,
    add_targets,
    targets_of,
)
from ..plan.load_recorder import LearningLoader, capture, learn
from ..plan.loader_guard import guarded
from .held_tensors import objects_on, tensors_on
from .scratch_layer import Alone, ScratchLayer, bits_of, flat_bits, restore, state_of, trial_values

__all__ = ["LayerReprocessor", "ScratchLayer"]

_log = logging.getLogger("wisp.engine")
_SHIFT = 40


class LayerReprocessor(LearningLoader):
    """Learns and captures like load_recorder, through what comes after loading.

    served: the model that is served; scratch: one of the same make, its parameters in host memory
    of its own as the loader expects them; units: those of its layers that are processed; packed:
    tensors of which the engine holds another copy, and what makes that anew.
    """

    def __init__(
        self,
        served: torch.nn.Module,
        scratch: torch.nn.Module,
        load: Loader,
        units: list[ScratchLayer],
        layouts: dict[int, Layout] | None = None,
        packed: Sequence[tuple[list[torch.Tensor], Callable[[], object]]] = (),
    ) -> None:
        self._served, self._load = served, load
        self._held = {unit.path: tensors_on(served.get_submodule(unit.path)) for unit in units}
        loose = {f"{path}.{n}": t for path, held in self._held.items() for n, t in held.items()}
        self.targets = add_targets(targets_of(served, layouts), loose)
        self._units, self._scratch = units, scratch
        self._packed = [({self._target_of(t) for t in held}, again) for held, again in packed]
        self._inner = targets_of(scratch)
        #: The scratch model's targets that belong to a unit.
        self._where: dict[int, tuple[ScratchLayer, str]] = {}
        learned: dict[Any, dict[str, torch.Tensor] | None] = {}
        for unit in units:
            self._prepare(unit)
            kind = self._signature(unit)
            if kind not in learned:
                learned[kind] = self._moves(unit)
            unit.moves = learned[kind]
            self._refuse_hidden(unit)
        #: By name of a tensor, for what computes.
        self._recomputed: dict[str, list[ScratchLayer]] = {}
        self._goes_to: dict[str, set[int]] = {}  # the scratch model's targets, by name of a tensor
        self._lock = threading.Lock()  # one layer at a time
        self._direct: dict[int, int] = {}  # the scratch model's targets to those that are served

    def learn(self, targets: list[Target], schema: Schema) -> LoadPlan:
        """The plan of the served model, with what hangs on its layers among the targets.

        UnsupportedError names what no plan can be made of.
        """
        with self._lock:
            inner = learn(guarded(self._scratch, self._load), self._inner, schema)
        plan = LoadPlan(self.targets, dtypes=inner.dtypes, shapes=inner.shapes)
        plan.loaded, plan.written = inner.loaded, inner.written
        self._goes_to = _targets_by_name(inner)
        names: dict[str, list[str]] = {unit.path: [] for unit in self._units}
        for name, indices in self._goes_to.items():
            for path in {unit.path for i in indices if (unit := self._unit(i)) is not None}:
                names[path].append(name)
        computing = self._computing(inner, names)
        for unit in self._units:
            if unit.path in computing:
                self._recompute(plan, unit, names[unit.path])
        for name, pieces in inner.pieces.items():
            for piece in pieces if name not in plan.opaque else ():
                if self._unit(piece.target) is None:
                    moved = Piece(
                        self._same(piece.target), piece.source_offset, piece.target_offset,
                        piece.dims, piece.function,
                    )  # fmt: skip
                    plan.pieces.setdefault(name, []).append(moved)
        for name, group in inner.opaque.items():
            plan.opaque.setdefault(name, group)
        for unit in self._units:
            if unit.path not in computing:
                self._move(plan, inner, unit, names[unit.path])
        return plan

    def capture(self, plan: LoadPlan, tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Write]:
        """What the engine would hold of these tensors. Writes to the scratch model only."""
        with self._lock:
            return self._captured(dict(tensors))

    def _captured(self, given: dict[str, torch.Tensor]) -> list[Write]:
        writes: list[Write] = []
        units = {unit.path: unit for n in given for unit in self._recomputed.get(n, ())}
        rest = [(n, t) for n, t in given.items() if n not in self._recomputed]
        if rest:
            inner = LoadPlan(self._inner, computed=self._goes_to)
            for index, view, values in capture(inner, guarded(self._scratch, self._load), rest):
                same = self._same(index)
                flat = self.targets[same].flat
                writes.append((same, _seen(flat, view), values))
        for unit in units.values():
            started = time.monotonic()
            needed = [n for n in given if unit in self._recomputed.get(n, ())]
            made = self._run(unit, [(n, given[n]) for n in needed])
            for name, view in self._outputs(unit):
                values = made.get(name)
                if values is None or values.shape != view.shape:
                    raise UnsupportedError(unit.told(name, "is not made by loading it again"))
                writes.append((self._target_of(view), view, values))
            _log.debug("'%s' processed again in %.1f ms", unit.path,
                       1000 * (time.monotonic() - started))  # fmt: skip
        return writes

    def written(self, targets: set[int]) -> None:
        """Makes the copies of these anew that the engine serves from."""
        for held, again in self._packed:
            if held & targets:
                again()

    # One layer at a time.

    def _prepare(self, unit: ScratchLayer) -> None:
        module = self._scratch.get_submodule(unit.path)
        unit.inputs = dict(module.named_parameters())
        # What both models refer to is the process's own.
        shared = {id(held) for held in objects_on(self._served.get_submodule(unit.path))}
        own = [held for held in objects_on(module) if id(held) not in shared]
        unit.pristine = [(held, state_of(held)) for held in own]
        first = 1  # nothing is number 0, which is how padding looks
        for name, parameter in unit.inputs.items():
            unit.starts[name] = first
            first += parameter.untyped_storage().nbytes() // parameter.element_size()
        at = {p.untyped_storage().data_ptr(): name for name, p in unit.inputs.items()}
        for index, target in enumerate(self._inner):
            owner = at.get(target.flat.untyped_storage().data_ptr())
            if owner is not None:
                self._where[index] = (unit, owner)

    def _run(
        self, unit: ScratchLayer, tensors: list[tuple[str, torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        """What the layer serves from, if these tensors are loaded."""
        with torch.no_grad():
            self._load(iter(tensors))
            return self._processed(unit)

    def _processed(self, unit: ScratchLayer) -> dict[str, torch.Tensor]:
        module = self._scratch.get_submodule(unit.path)
        try:
            with Alone(unit):
                unit.process()
            return {name: tensor.detach() for name, tensor in tensors_on(module).items()}
        finally:
            for held, state in unit.pristine:
                restore(held, state)
            for parameter in unit.inputs.values():
                parameter.data = torch.empty_strided(
                    parameter.shape, parameter.stride(), dtype=parameter.dtype, device="cpu"
                )
            self._refresh(unit)

    def _refresh(self, unit: ScratchLayer) -> None:
        """The layer's parameters have other memory now."""
        for index, (owner, name) in self._where.items():
            if owner is unit:
                old, parameter = self._inner[index], unit.inputs[name]
                self._inner[index] = Target(old.name, old.dtype, flat_bits(parameter))

    def _moves(self, unit: ScratchLayer) -> dict[str, torch.Tensor] | None:
        """The number of the element that each element of each output is; None: it computes."""
        total = sum(flat_bits(p).numel() for p in unit.inputs.values())
        widths = {p.element_size() for p in unit.inputs.values()}
        bits = 6 if 1 in widths else 14  # no pattern of these is infinite or no number
        counted = torch.arange(total + 1)
        try:
            planes = [
                self._pass(unit, (counted >> shift) & ((1 << bits) - 1))
                for shift in range(0, total.bit_length(), bits)
            ]
            # What the numbers say must hold for other values as well.
            trials = [(v, self._pass(unit, v)) for v in trial_values(unit, total + 1, bits)]
        except UnsupportedError:
            raise
        except Exception as error:
            _log.debug("'%s' takes no numbers: %s", unit.path, error)
            return None
        found: dict[str, torch.Tensor] = {}
        for name, view in self._outputs(unit):
            seen = [made[name] for made in planes if name in made]
            others = [made[name] for _, made in trials if name in made]
            if len(others) < len(trials) or not seen or any(s.shape != view.shape for s in seen):
                return None
            if all(torch.equal(one, other) for one in seen for other in others):
                found[name] = torch.zeros_like(others[0])  # whatever is loaded
                continue
            came_from = _put_together(seen, bits)
            if view.element_size() not in widths or came_from is None:
                return None
            if bool((came_from > total).any()) or not all(
                torch.equal(made[name], values[came_from]) for values, made in trials
            ):
                return None
            found[name] = came_from
        return found

    def _pass(self, unit: ScratchLayer, values: torch.Tensor) -> dict[str, torch.Tensor]:
        """Bit patterns by number, through the layer: those that come out, as integers."""
        with torch.no_grad():
            for name, parameter in unit.inputs.items():
                flat, first = flat_bits(parameter), unit.starts[name]
                flat.copy_(values[first : first + flat.numel()].to(flat.dtype))
            made = self._processed(unit)
        return {n: bits_of(t).to(device="cpu", dtype=torch.int64) for n, t in made.items()}

    def _outputs(self, unit: ScratchLayer) -> list[tuple[str, torch.Tensor]]:
        """What the served layer holds, each memory once: the widest view of it."""
        views = sorted(self._held[unit.path].items(), key=lambda item: -item[1].numel())
        seen: set[int] = set()
        found = []
        for name, view in views:
            key = view.untyped_storage().data_ptr()
            if key not in seen:
                seen.add(key)
                found.append((name, view))
        return found

    def _refuse_hidden(self, unit: ScratchLayer) -> None:
        """Four bits at least of each weight must be in memory that is known."""
        held = sum(view.numel() * view.element_size() for _, view in self._outputs(unit))
        if 2 * held < sum(parameter.numel() for parameter in unit.inputs.values()):
            raise UnsupportedError(unit.told("", "keeps its weights where they cannot be seen"))

    def _signature(self, unit: ScratchLayer) -> Any:
        """The same for layers that are processed alike."""
        module = self._scratch.get_submodule(unit.path)
        method = type(getattr(module, "quant_method", None)).__name__
        shapes = [(n, tuple(p.shape), p.dtype, p.stride()) for n, p in unit.inputs.items()]
        outputs = tuple(name for name, _ in self._outputs(unit))
        return type(module).__name__, method, tuple(shapes), outputs

    # From the scratch model's parameters to what is served.

    def _unit(self, target: int) -> ScratchLayer | None:
        found = self._where.get(target)
        return found[0] if found else None

    def _computing(self, inner: LoadPlan, names: dict[str, list[str]]) -> set[str]:
        """Paths of layers that have to run again; a tensor of one of them makes others run, too."""
        computing = {unit.path for unit in self._units if unit.moves is None}
        while True:
            bound = {n for path in computing for n in names[path]} | set(inner.opaque)
            more = {p for p, of in names.items() if p not in computing and bound & set(of)}
            if not more:
                return computing
            computing |= more

    def _recompute(self, plan: LoadPlan, unit: ScratchLayer, names: list[str]) -> None:
        group = set(names).union(*(plan.opaque.get(name, ()) for name in names))
        for name in group:
            plan.opaque[name] = tuple(sorted(group))
            units = self._recomputed.setdefault(name, [])
            if unit not in units:
                units.append(unit)

    def _move(self, plan: LoadPlan, inner: LoadPlan, unit: ScratchLayer, names: list[str]) -> None:
        """Composes the loader's pieces with the way through the layer."""
        total = sum(flat_bits(p).numel() for p in unit.inputs.values()) + 1
        codes = torch.full((total,), CONSTANT)
        kinds: list[tuple[str, ElementFunction | None]] = []
        for name in names:
            for piece in inner.pieces.get(name, ()):
                found = self._where.get(piece.target)
                if found is None or found[0] is not unit:
                    continue
                kinds.append((name, piece.function))
                held = torch.tensor(((len(kinds) - 1) << _SHIFT) + piece.source_offset)
                for size, stride, _ in piece.dims:
                    held = held.unsqueeze(-1) + torch.arange(size) * stride
                first = unit.starts[found[1]] + piece.target_offset
                steps = [step for _, _, step in piece.dims]
                codes.as_strided([dim[0] for dim in piece.dims], steps, first).copy_(held)
        assert unit.moves is not None
        missing = codes >= 0
        for numbers in unit.moves.values():
            missing[numbers.reshape(-1)] = False
        if bool(missing.any()):
            name = kinds[int(codes[missing][0]) >> _SHIFT][0]
            raise UnsupportedError(unit.told("", f"does not hold all of '{name}' after loading"))
        for output, view in self._outputs(unit):
            came = codes[unit.moves[output].reshape(-1)]
            places = torch.tensor(view.storage_offset())
            for size, stride in zip(view.shape, view.stride(), strict=True):
                places = places.unsqueeze(-1) + torch.arange(size) * stride
            places, target = places.reshape(-1), self._target_of(view)
            for number in (came[came >= 0] >> _SHIFT).unique().tolist():
                mine = (came >> _SHIFT) == number
                name, function = kinds[number]
                parts = factor(came[mine] & ((1 << _SHIFT) - 1), places[mine])
                if parts is None:
                    raise UnsupportedError(unit.told(output, "is in an order without order"))
                plan.pieces.setdefault(name, []).extend(
                    Piece(target, source, place, dims, function) for source, place, dims in parts
                )

    def _same(self, index: int) -> int:
        """The served parameter that the loader's goes to as it is."""
        if index not in self._direct:
            name, flat = self._inner[index].name, self._inner[index].flat
            parameters = self._served.named_parameters(remove_duplicate=False)
            buffers = self._served.named_buffers(remove_duplicate=False)
            served = dict([*parameters, *buffers]).get(name)
            if served is None or flat_bits(served).numel() != flat.numel():
                raise UnsupportedError(
                    f"'{name}' is served in another form than it is loaded in, and nothing that "
                    "the engine does after loading is known to make it; publish what is served "
                    "(quantize= of the publisher), or reload it from an export of each step"
                )
            self._direct[index] = self._target_of(served)
        return self._direct[index]

    def _target_of(self, tensor: torch.Tensor) -> int:
        key = tensor.untyped_storage().data_ptr()
        return next(
            i for i, t in enumerate(self.targets) if t.flat.untyped_storage().data_ptr() == key
        )


def _put_together(planes: list[torch.Tensor], bits: int) -> torch.Tensor | None:
    """Numbers of which each plane has some bits; None if a plane has more than that."""
    found = torch.zeros_like(planes[0])
    for number, plane in enumerate(planes):
        if bool((plane >> bits).any()):
            return None
        found |= plane << (number * bits)
    return found


def _targets_by_name(plan: LoadPlan) -> dict[str, set[int]]:
    found = {name: {piece.target for piece in pieces} for name, pieces in plan.pieces.items()}
    for name, indices in plan.computed.items():
        found.setdefault(name, set()).update(indices)
    return found


def _seen(flat: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    return flat.view(view.dtype).as_strided(view.shape, view.stride(), view.storage_offset())
