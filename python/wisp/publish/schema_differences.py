"""How the tensors of a model differ from those that a run holds."""

from __future__ import annotations

from ..tensors import TensorEntry

__all__ = ["differences"]

_SHOWN = 8


def differences(published: list[TensorEntry], model: list[TensorEntry]) -> str:
    """The first few, as text."""
    before = {name: (dtype, list(shape)) for name, dtype, shape in published}
    after = {name: (dtype, list(shape)) for name, dtype, shape in model}
    found = [f"'{name}' is missing" for name in before if name not in after]
    found += [f"'{name}' is new" for name in after if name not in before]
    for name in before.keys() & after.keys():
        if before[name] != after[name]:
            (old_dtype, old_shape), (dtype, shape) = before[name], after[name]
            found.append(f"'{name}' is {dtype} {shape}, there {old_dtype} {old_shape}")
    shown = "; ".join(sorted(found)[:_SHOWN])
    more = len(found) - _SHOWN
    return shown + (f"; and {more} more" if more > 0 else "")
