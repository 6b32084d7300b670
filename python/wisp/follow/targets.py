"""What a follower writes to: tensors in host memory or anywhere, a folder, or your own code."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native
from ..errors import InvalidError
from ..model.checkpoint_names import NamingRule, followed_tensors
from ..tensors import (
    TensorEntry,
    describe,
    dtype_text,
    host_entries,
    is_torch,
    shape_of,
    torch_dtype,
    unwrapped,
)

__all__ = ["Changes", "TensorChange"]

UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SHOWN = 5

#: One tensor of a move, as the library tells it: (name, dtype, shape, positions, new bits, old
#: bits).
MovedTensor = tuple[str, str, tuple[int, ...], bytearray, bytearray, bytearray]


@dataclass(frozen=True)
class TensorChange:
    """What changed in one tensor.

    `positions` index the flattened tensor and `bits` are the new elements there, as unsigned
    integers of the element's width; `positions` None means that `bits` is the whole tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    positions: np.ndarray | None
    bits: np.ndarray
    old_bits: np.ndarray | None = None


class Changes:
    """A step that is proven in full, tensor by tensor. Valid while your code is being called.

    `kind` is "joined" (whole tensors: the first state, or one after damage), "applied", or
    "rolled_back".
    """

    def __init__(self, kind: str, step: int, tensors: Callable[[], Iterator[TensorChange]]) -> None:
        self.kind = kind
        self.step = step
        self._tensors = tensors

    def __iter__(self) -> Iterator[TensorChange]:
        return self._tensors()

    def __repr__(self) -> str:
        return f"<Changes {self.kind}, step {self.step}>"


def element_width(dtype: str) -> int:
    """Bytes of an element of this dtype, as safetensors spells it."""
    if dtype in ("F64", "I64", "U64", "C64"):
        return 8
    if dtype in ("F32", "I32", "U32"):
        return 4
    return 2 if dtype in ("F16", "BF16", "I16", "U16") else 1


def _moved(entries: list[MovedTensor]) -> Iterator[TensorChange]:
    for name, dtype, shape, positions, bits, old_bits in entries:
        kind = UNSIGNED[element_width(dtype)]
        yield TensorChange(
            name,
            dtype,
            shape,
            np.frombuffer(positions, np.int64),
            np.frombuffer(bits, kind),
            np.frombuffer(old_bits, kind),
        )


def _whole(state: _native.TakenState) -> Iterator[TensorChange]:
    for index, (name, dtype, shape) in enumerate(state.schema):
        bits = np.frombuffer(state.tensor(index), UNSIGNED[element_width(dtype)])
        yield TensorChange(name, dtype, shape, None, bits)


class CodeTarget:
    """Hands each step to a function; what it raises undoes the step and comes out of sync()."""

    def __init__(self, function: Callable[[Changes], object]) -> None:
        self._function = function

    def adopt(self, state: _native.TakenState, step: int) -> None:
        """The target is to hold this whole state."""
        self._function(Changes("joined", step, lambda: _whole(state)))

    def move(self, entries: list[MovedTensor], step: int, back: bool) -> None:
        """The target is to change at these places."""
        kind = "rolled_back" if back else "applied"
        self._function(Changes(kind, step, lambda: _moved(entries)))


class TensorTarget(CodeTarget):
    """Torch tensors on any device, of the run's dtypes or, with `cast`, of others.

    Proof and history are a copy in host memory; what is proven is then written to the tensors,
    O(changed) per step, with operations that every device has.
    """

    def __init__(self, tensors: dict[str, Any], required: set[str], *, cast: bool) -> None:
        super().__init__(self._write)
        self._tensors = tensors
        self._required = required  # must be in the run, under one of their names
        self._cast = cast

    def _write(self, changes: Changes) -> None:
        import torch

        if changes.kind == "joined":
            self._check(changes)
        done: list[TensorChange] = []
        with torch.no_grad():
            try:
                for change in changes:
                    done.append(change)
                    self._put(change, change.bits)
            except BaseException:
                for change in done:
                    if change.old_bits is not None:
                        self._put(change, change.old_bits)
                raise

    def _check(self, changes: Changes) -> None:
        differences = []
        covered = set()
        for change in changes:
            tensor = self._tensors.get(change.name)
            if tensor is None:
                differences.append(f"'{change.name}' is in the run, not in the target")
                continue
            covered.add(_memory(tensor))
            mine = (dtype_text(tensor), shape_of(tensor))
            if mine[1] != change.shape or (mine[0] != change.dtype and not self._cast):
                differences.append(
                    f"'{change.name}' is {change.dtype} {list(change.shape)} in the run, "
                    f"{mine[0]} {list(mine[1])} in the target"
                )
        for name in sorted(self._required):
            if _memory(self._tensors[name]) not in covered:
                differences.append(f"'{name}' is in the target, not in the run")
        if differences:
            more = len(differences) - _SHOWN
            text = "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            hint = "; cast=True converts" if "in the run, F32" in text else ""
            raise InvalidError(f"the target is not the model of the run: {text}{hint}")

    def _put(self, change: TensorChange, bits: np.ndarray) -> None:
        import torch

        tensor = self._tensors[change.name].detach()
        if tensor.numel() == 0:
            return
        flat = tensor.reshape(-1)
        signed = torch.from_numpy(bits.view(f"i{bits.itemsize}"))
        if dtype_text(tensor) == change.dtype:
            views = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
            flat = flat.view(views[bits.itemsize])
            values = signed.view(views[bits.itemsize])
        else:
            values = signed.view(torch_dtype(change.dtype)).to(flat.dtype)
        values = values.to(flat.device)
        if change.positions is None:
            flat.copy_(values)
        else:
            flat.index_copy_(0, torch.from_numpy(change.positions).to(flat.device), values)


class SharedTarget(ABC):
    """Memory that other processes read: it is the replica, and every move of it is told."""

    @abstractmethod
    def memory(self, schema: list[TensorEntry]) -> _native.HostWeights:
        """Memory of this schema, for a whole state to be taken over."""

    @abstractmethod
    def enter(self) -> None:
        """The memory is about to be written to: keep readers away until the next event."""

    @abstractmethod
    def adopt(self, step: int, seq: int, state: str) -> None:
        """The memory holds this whole state."""

    @abstractmethod
    def move(self, move: _native.ToldMove, step: int, seq: int, state: str) -> None:
        """The memory has changed at these places."""


class RelayTarget(ABC):
    """Knows the holders of the weights: there is no replica, and each step asks them."""

    @abstractmethod
    def room(self, touched: list[tuple[int, int]]) -> np.ndarray:
        """Memory for so many words of each tensor (by its number): as wisp/relay.hpp says."""

    @abstractmethod
    def ask(self, state: str) -> None:
        """The indices are in the room: fill in the words of this state."""

    @abstractmethod
    def asked(self) -> str:
        """Who was asked last."""

    @abstractmethod
    def adopt(
        self, folder: str, schema: list[TensorEntry], step: int, seq: int, state: str
    ) -> None:
        """A whole state lies in this folder, which is yours; or what `held_of` said of it."""

    @abstractmethod
    def move(
        self, move: _native.ToldMove, step: int, seq: int, state: str, by: tuple[int, int]
    ) -> None:
        """A step is proven, and changes these places, and the digest of what is held."""

    @abstractmethod
    def held(self) -> _native.HeldSlices | None:
        """What is held of the tensors; None: all. Of sliced deltas no more is fetched."""

    def held_of(self, schema: list[TensorEntry]) -> _native.HeldSlices | None:
        """The same, of a state of these tensors that is about to be fetched."""
        return None

    def hand_over(self, deltas: list[str], step: int, seq: int, state: str) -> bool:
        """Whether the holders decode these files, which are yours then, each for itself."""
        return False


def _memory(tensor: Any) -> object:
    return tensor.data_ptr() if tensor.numel() else id(tensor)


def connect(
    session: _native.FollowSession,
    target: Any,
    *,
    cast: bool,
    own_copy: bool,
    strict: bool,
    device: Any,
    names: NamingRule,
    keep: int | None,
    mark: str,
) -> None:
    """Joins a native session to what the user calls a target."""
    path = os.fspath(target) if isinstance(target, (str, os.PathLike)) else None
    if path is not None and "{step" in path:
        session.into_steps(path, 3 if keep is None else keep, mark)
        return
    if keep is not None or mark:
        raise InvalidError("keep and mark are for a folder per step, as in 'models/step_{step}'")
    if path is not None:
        session.into_folder(path)
        return
    if isinstance(target, SharedTarget):
        session.into_shared(target.memory, target.enter, target.adopt, target.move)
        return
    if isinstance(target, RelayTarget):
        session.into_relay(
            target.room, target.ask, target.asked, target.adopt, target.move, target.held,
            target.held_of, target.hand_over,
        )  # fmt: skip
        return
    if callable(target) and not hasattr(target, "state_dict"):
        _into_code(session, CodeTarget(target))
        return
    tensors, aliases = followed_tensors(unwrapped(target), names)
    everything = dict(tensors)
    for alias, name in aliases.items():
        everything[alias] = tensors[name]
    _check_tensors(everything, device)
    torch_only = all(is_torch(tensor) for tensor in everything.values())
    on_host = all(not is_torch(t) or t.device.type == "cpu" for t in everything.values())
    if on_host and not cast and not own_copy:
        host = _native.HostWeights(host_entries(everything.items(), writable=True), True)
        session.into_host(host, strict)
        return
    if not torch_only:
        raise InvalidError(
            "cast and own_copy are for torch tensors; numpy arrays are followed in place"
        )
    required = set(tensors) if strict else set()
    _into_code(session, TensorTarget(everything, required, cast=cast))


def _into_code(session: _native.FollowSession, target: CodeTarget) -> None:
    session.into_code(target.adopt, target.move)


def _check_tensors(tensors: dict[str, Any], device: Any) -> None:
    for name, tensor in tensors.items():
        if not is_torch(tensor):
            continue
        import torch

        if tensor.is_meta:
            raise InvalidError(f"{describe(name, tensor)} has no memory yet; materialize it first")
        if not tensor.is_contiguous():
            raise InvalidError(
                f"{describe(name, tensor)} is not contiguous; a follower writes in place"
            )
        wanted = None if device is None else torch.device(device)
        if wanted is not None and (
            tensor.device.type != wanted.type or wanted.index not in (None, tensor.device.index)
        ):
            raise InvalidError(
                f"{describe(name, tensor)} is not on {wanted}, where it was said to be"
            )
