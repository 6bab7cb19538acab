"""Functions as lookup tables.

byte_table looks up each int8 value in a table of 256 results (input 1), the first for
-128. It replaces chains of real functions between two quantized tensors.

An int16 function has a table of 513 entries with linear interpolation. Entry i is the
function at the lowest input plus i steps of 128, corrected by half of the interpolation
error in the middle of the step. Semantics: TFLite's LUTPopulate and LUTLookup for
int16.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import INDEX, ArithExpr, Builder
from firmwright.ops import elementwise
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import per_tensor_quant
from firmwright.ops.row_windows import elementwise_row_window

_ENTRIES = 256
_UNROLL = (4, 3, 2)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, table = call.input(0), call.constant(1)
    is_table = table is not None and (table.dtype, table.shape) == (INT8, (_ENTRIES,))
    if x.dtype != INT8 or not is_table:
        raise NotSupportedError(
            "a lookup table other than 256 constant int8 values for int8"
        )
    return (TensorType(x.shape, INT8, call.output.quantization),)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    return (np.asarray(arrays[1][arrays[0].astype(np.int64) - INT8.min]),)


def lower(call: OpCall, b: Kernel) -> None:
    count = call.output.elements
    table = b.input(1)
    x, y = b.views("in out", (count,), b.input(0), b.y)
    with b.unrolled("i", count, *_UNROLL) as i:
        b.store(y, [i], b.load(table, [b.load(x, [i]).cast(INDEX) - INT8.min]))


_STEPS = 512
_STEP_BITS = 7
_HALF = 1 << (_STEP_BITS - 1)
RealRange = tuple[float, float]
"""Real values of the lowest and the highest int16."""


def build_lut(
    function: Callable[[Array], Array],
    inputs: RealRange,
    outputs: RealRange,
    kind: type[np.floating] = np.float64,
) -> Array:
    """Return the entries for real ranges; every operation rounds to `kind`."""
    low = kind(inputs[0])
    high = kind(inputs[1])
    with np.errstate(over="ignore"):  # ranges beyond float32
        lowest = kind(outputs[0])
        highest = kind(outputs[1])
    step = (high - low) / kind(_STEPS)
    scale = kind(1 << 16) / (highest - lowest)
    steps = np.arange(_STEPS).astype(kind)

    def at(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.asarray(function(x.astype(np.float64)), kind) * scale)

    start = at(low + steps * step)
    middle = at(low + steps * step + step / kind(2))
    end = at(low + (steps + kind(1)) * step)
    with np.errstate(invalid="ignore"):  # infinite values, as of exp
        interpolated = _rounded((end + _rounded(start)) / kind(2))
        bias = _rounded((interpolated - _rounded(middle)) / kind(2))
        entries = np.append(_rounded(start) - bias, _rounded(at(np.array([high]))))
        return np.asarray(np.clip(entries, INT16.min, INT16.max), np.int64)


def _rounded(x: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x))


def lookup_array(table: Array, x: Array) -> Array:
    """Interpolate the table at int16 values `x`, which are stored as int64."""
    entry = (x >> _STEP_BITS) + _STEPS // 2
    part = x & ((1 << _STEP_BITS) - 1)
    slope = (table[entry + 1] - table[entry]).astype(np.int16).astype(np.int64)
    return np.asarray(table[entry] + ((slope * part + _HALF) >> _STEP_BITS))


def lookup(
    b: Builder, table: tir.Buffer, x: ArithExpr, *, slope_wraps: bool = False
) -> ArithExpr:
    """Emit the interpolated value at `x`, an int32 within the int16 range.

    LiteRT's slopes are int16: with `slope_wraps`, a slope of the table exceeds them.
    """
    index = b.let("entry", ((x >> _STEP_BITS) + _STEPS // 2).cast(INDEX))
    base = b.let("base", b.load_i32(table, [index]))
    slope = b.load_i32(table, [index + 1]) - base
    slope = slope.cast(INT16).cast(INT32) if slope_wraps else slope
    part = x & ((1 << _STEP_BITS) - 1)
    return base + ((slope * part + _HALF) >> _STEP_BITS)


def lookup_int8(
    reference: Callable[[OpCall, Array], Array],
    check: Callable[[OpCall], None] = lambda call: None,
) -> elementwise.ElementwiseKernel:
    """Implement int8 as a table of the reference's results."""

    def lower(call: OpCall, b: Kernel) -> None:
        values = np.arange(INT8.min, INT8.max + 1).astype(np.int8)
        table = b.constant("table", reference(call, values), call.output.dtype)
        with elementwise.loop_over_elements(b, *_UNROLL) as (loaded, store):
            store(b.load(table, [loaded[0].cast(INDEX) - INT8.min]))

    def check_all(call: OpCall) -> None:
        elementwise.check_per_tensor(call)
        check(call)

    return elementwise.ElementwiseKernel(reference, lower, check_all)


def lookup_int8_float32(
    exact: Callable[[OpCall, Array], Array],
) -> elementwise.ElementwiseKernel:
    """Implement int8 as a table of `exact`, correctly rounded to float32."""

    def reference(call: OpCall, x: Array) -> Array:
        return evaluate_int8_lut(call, x, round_to_float32(partial(exact, call)))

    return lookup_int8(reference)


def _real_range(kind: TensorType) -> RealRange:
    scale = per_tensor_quant(kind).scale
    return (scale * INT16.min, scale * INT16.max)


def interpolate_int16(
    function: Callable[[OpCall, Array], Array], kind: type[np.floating] = np.float64
) -> elementwise.ElementwiseKernel:
    """Implement int16 by linear interpolation in a table of 513 entries."""

    def table(call: OpCall) -> Array:
        inputs = _real_range(call.input(0))
        outputs = _real_range(call.output)
        return build_lut(lambda real: function(call, real), inputs, outputs, kind)

    def reference(call: OpCall, x: Array) -> Array:
        return lookup_array(table(call), x.astype(np.int64)).astype(np.int16)

    def lower(call: OpCall, b: Kernel) -> None:
        entries = table(call)
        lut = b.constant("table", entries, INT16)
        slope_wraps = int(np.abs(np.diff(entries)).max()) > INT16.max
        with elementwise.loop_over_elements(b) as (values, store):
            value = b.let("value", values[0].cast(INT32))
            store(lookup(b, lut, value, slope_wraps=slope_wraps).cast(INT16))

    return elementwise.ElementwiseKernel(
        reference, lower, elementwise.check_symmetric_int16
    )


def evaluate_int8_lut(
    call: OpCall, x: Array, function: Callable[[Array], Array]
) -> Array:
    """Evaluate a float32 function on int8 values as LiteRT does for its tables."""
    kind = call.output.dtype
    quant = per_tensor_quant(call.output)
    x_quant = per_tensor_quant(call.input(0))
    inverse = np.float32(1) / np.float32(quant.scale)
    steps = (x.astype(np.int64) - x_quant.zero_point).astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        scaled = function(np.float32(x_quant.scale) * steps) * inverse
    whole = np.copysign(np.floor(np.abs(scaled.astype(np.float64)) + 0.5), scaled)
    shifted = whole.astype(np.float32) + np.float32(quant.zero_point)
    shifted = shifted.astype(np.float64)
    limited: Array = np.clip(shifted, kind.min, kind.max).astype(kind.np)
    return limited


def round_to_float32(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Wrap `function`, computed in double, as a correctly rounded float32 function."""

    def run(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64))).astype(np.float32)

    return run


OPDEF = OpDef("byte_table", infer, reference, lower, row_access=elementwise_row_window)
