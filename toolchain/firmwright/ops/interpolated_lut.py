"""int16 functions as lookup tables of 513 entries with linear interpolation.

Entry i is the function at the lowest input plus i steps of 128, corrected by half of the
interpolation error in the middle of the step.
Semantics: TFLite's LUTPopulate and LUTLookup for int16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from firmwright.base.dtypes import INT16, Array
from firmwright.ir import tir
from firmwright.ir.tir.builder import INDEX, ArithExpr, Builder

_STEPS = 512
_STEP_BITS = 7
_HALF = 1 << (_STEP_BITS - 1)
RealRange = tuple[float, float]
"""Real values of the lowest and the highest int16."""


def quantized_range(scale: float, zero_point: int) -> RealRange:
    return scale * (INT16.min - zero_point), scale * (INT16.max - zero_point)


def build_lut(
    function: Callable[[Array], Array],
    inputs: RealRange,
    outputs: RealRange,
    kind: type[np.floating] = np.float64,
) -> Array:
    """Return the entries for the real input and output ranges; every step is rounded to `kind`."""
    low, high, lowest, highest = (kind(value) for value in (*inputs, *outputs))
    step = (high - low) / kind(_STEPS)
    scale = kind(1 << 16) / (highest - lowest)
    steps = np.arange(_STEPS).astype(kind)

    def at(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.asarray(function(x.astype(np.float64)), kind) * scale)

    start, middle, end = (
        at(low + steps * step),
        at(low + steps * step + step / kind(2)),
        at(low + (steps + kind(1)) * step),
    )
    interpolated = _rounded((end + _rounded(start)) / kind(2))
    bias = _rounded((interpolated - _rounded(middle)) / kind(2))
    entries = np.append(_rounded(start) - bias, _rounded(at(np.array([high]))))
    return np.asarray(np.clip(entries, INT16.min, INT16.max), np.int64)


def _rounded(x: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x))


def lookup_array(table: Array, x: Array) -> Array:
    """Apply the function of the table to int16 values `x` (as int64)."""
    entry, part = (x >> _STEP_BITS) + _STEPS // 2, x & ((1 << _STEP_BITS) - 1)
    slope = table[entry + 1] - table[entry]
    return np.asarray(table[entry] + ((slope * part + _HALF) >> _STEP_BITS))


@contextmanager
def lookup(b: Builder, table: tir.Buffer, x: ArithExpr) -> Iterator[ArithExpr]:
    """Emit a lookup of `x`, an int32 within the int16 range, and yield the interpolated value."""
    entry = ((x >> _STEP_BITS) + _STEPS // 2).cast(INDEX)
    with b.let("entry", entry) as index, b.let("base", b.load_i32(table, [index])) as base:
        slope = b.load_i32(table, [index + 1]) - base
        part = x & ((1 << _STEP_BITS) - 1)
        yield base + ((slope * part + _HALF) >> _STEP_BITS)
