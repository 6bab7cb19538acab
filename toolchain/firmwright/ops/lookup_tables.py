"""Functions as lookup tables.

byte_table looks up each int8 value in a table of 256 results (input 1) for values from -128 on.
Frontends create it for any chain of real functions between two quantized tensors.

An int16 function has a table of 513 entries with linear interpolation. Entry i is the function at
the lowest input plus i steps of 128, corrected by half of the interpolation error in the middle of
the step. Semantics: TFLite's LUTPopulate and LUTLookup for int16.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from firmwright.base.dtypes import INT8, INT16, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import OpCall, OpDef
from firmwright.ir.tir.builder import INDEX, ArithExpr, Builder
from firmwright.ops.kernel import Kernel
from firmwright.ops.row_windows import elementwise_row_window

_ENTRIES = 256


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, table = call.input(0), call.constant(1)
    if x.dtype != INT8 or table is None or (table.dtype, table.shape) != (INT8, (_ENTRIES,)):
        raise NotSupportedError("a lookup table other than 256 constant int8 values for int8")
    return (TensorType(x.shape, INT8, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(arrays[1][arrays[0].astype(np.int64) - INT8.min]),)


def lower(call: OpCall, b: Kernel) -> None:
    count, table = call.output.elements, b.input(1)
    with (
        b.view("in", b.input(0), 0, (count,)) as x,
        b.view("out", b.y, 0, (count,), access="w") as y,
        b.for_("i", count) as i,
    ):
        b.store(y, [i], b.load(table, [b.load(x, [i]).cast(INDEX) - INT8.min]))


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


OPDEF = OpDef(
    "byte_table", infer, reference, lower, {}, ("int8",), row_access=elementwise_row_window
)
