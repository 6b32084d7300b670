"""Entropies of a change, in bits: how far a coder with a given knowledge could go.

They cost no header and no table, so no file reaches them; they say what is left to gain.
"""

from __future__ import annotations

import numpy as np

from formats import Pair


def _mask_bits(changed: np.ndarray, total: np.ndarray) -> float:
    """Sum over classes of n * H(k / n): what it costs to say which elements changed."""
    changed, total = changed.astype(float), total.astype(float)
    bits = 0.0
    for part in (changed, total - changed):
        live = part > 0
        bits -= float(np.sum(part[live] * np.log2(part[live] / total[live])))
    return bits


def _symbol_bits(symbols: np.ndarray) -> float:
    """n * H of the empirical distribution of `symbols`."""
    _, counts = np.unique(symbols, return_counts=True)
    return float(-np.sum(counts * np.log2(counts / counts.sum())))


def _ordered(bits: np.ndarray) -> np.ndarray:
    """bf16 patterns as integers in the order of the numbers, so that one ULP is one."""
    wide = bits.astype(np.int32)
    return np.where(wide & 0x8000, -(wide & 0x7FFF) - 1, wide)


def _ulp_steps(pair: Pair, name: str) -> np.ndarray:
    """Signed ULP steps away from zero: growing is positive whatever the sign of the weight.

    A weight that crosses zero keeps its plain distance; the map stays one to one.
    """
    old = pair.old_values(name)
    steps = _ordered(pair.new_values(name)) - _ordered(old)
    return np.where(old & 0x8000, -steps, steps)


def _exponents(bits: np.ndarray) -> np.ndarray:
    return (bits.reshape(-1) >> 7) & 0xFF


def order0_bits(pair: Pair) -> float:
    """One rate of change and one distribution of ULP steps for the whole model."""
    mask = _mask_bits(np.array([pair.changed_count]), np.array([pair.element_count]))
    return mask + _symbol_bits(np.concatenate([_ulp_steps(pair, n) for n in pair.positions]))


def conditional_bits(pair: Pair) -> float:
    """Per tensor, given the exponent of the old value, which the receiver holds already."""
    bits = 0.0
    for name in pair.positions:
        total = np.bincount(_exponents(pair.old[name]), minlength=256)
        exponents = _exponents(pair.old_values(name))
        bits += _mask_bits(np.bincount(exponents, minlength=256), total)
        steps = _ulp_steps(pair, name)
        for exponent in np.unique(exponents):
            bits += _symbol_bits(steps[exponents == exponent])
    return bits


BOUNDS = {
    "bound, order 0": ("entropy, one class: positions + ULP steps", order0_bits),
    "bound, given exponent": (
        "entropy per tensor: H(mask | old exponent) + H(ULP | old exponent)", conditional_bits),
}
