"""Which tensors of a model another one came from, seen while code runs that makes it."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class ConversionTrace(TorchFunctionMode):  # type: ignore[misc]
    """Inside, copies that only tidy memory are left out, and every result remembers its origins.

    `named` are tensors on the meta device, each with a storage of its own.
    """

    def __init__(self, named: dict[str, Tensor]) -> None:
        super().__init__()
        self._names = {_storage(tensor): name for name, tensor in named.items()}
        self._named = named
        self._versions = {name: tensor._version for name, tensor in named.items()}
        self._origins = {_storage(tensor): {name} for name, tensor in named.items()}
        self._alive: list[Tensor] = []  # a storage that was freed would give its key to the next

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is Tensor.contiguous and not args[1:] and not kwargs:
            return args[0]
        result = function(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if made:
            given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            origins = set().union(*(self._origins.get(_storage(tensor), ()) for tensor in given))
            for tensor in made:
                self._origins.setdefault(_storage(tensor), set()).update(origins)
            self._alive += made
        return result

    def source_of(self, tensor: Tensor) -> str | None:
        """The named tensor that `tensor` is a view of; None if it is none."""
        name = self._names.get(_storage(tensor))
        if name is None or tensor.dtype != self._named[name].dtype:
            return None
        if tensor.is_conj() or tensor.is_neg() or tensor._version != self._versions[name]:
            return None
        return name

    def origins_of(self, tensor: Tensor) -> tuple[str, ...]:
        """All named tensors that `tensor` was made from."""
        return tuple(sorted(self._origins.get(_storage(tensor), ())))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
