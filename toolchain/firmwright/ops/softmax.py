"""softmax: y_i = e^(beta x_i) / sum_j e^(beta x_j) over the last axis.

int8: differences from the row maximum are scaled to 5 integer bits. Their exponentials
(a table for all 256 differences, 0 integer bits) are summed with 12 integer bits. They
are multiplied by the reciprocal of the sum and shifted to the output scale 1/256 (int16
results: 1/65536); differences beyond 5 bits give zero.

int16: differences are scaled so that 65535 steps are 10; exponentials have 15 fraction
bits. The sum, normalized to 16 bits after its leading one, is looked up in a table of
reciprocals. Both profiles are identical. Semantics: TFLite's reference Softmax and
SoftmaxInt16.
"""

import math
from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import (
    MIN_SHIFT,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from firmwright.ir import tir
from firmwright.ir.graph import TensorType
from firmwright.ir.graph.attributes.values import SoftmaxAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    ExprLike,
    Register,
    call_intrinsic,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ops.fixed_point import exp_on_negative_values
from firmwright.ops.intrinsics import reciprocal
from firmwright.ops.kernel import Kernel
from firmwright.ops.lookup_tables import build_lut, lookup, lookup_array
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import clamp, per_tensor_quant

_INTEGER_BITS = 5
SUM_INTEGER_BITS = 12
_TABLE_SIZE = 256
_SHIFT = SUM_INTEGER_BITS + 31
"""Right shift of reciprocal * exponential, less headroom and output bits."""
_MAX_ELEMENTS = (1 << SUM_INTEGER_BITS) - 1
"""More elements could overflow the sum."""
_MIN_HEADROOM = 4
"""Sums with less headroom, 2^28 or more (512 elements), give a result of 0.

They need a shift by more than 31 bits, which the reference does not define; the
quotient is below half an output step.
"""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    kinds = {INT8: (INT8, INT16), INT16: (INT16,), FLOAT32: (FLOAT32,)}
    if y.dtype not in kinds.get(x.dtype, ()):
        raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
    if not x.shape or not x.elements:
        raise NotSupportedError(
            "a scalar or an empty tensor has no last axis to sum over"
        )
    if x.dtype == INT16:
        check_int16(call, softmax_beta(call))
    if x.dtype == INT8:
        check_int8_row(call)
        check_output(call, 2.0**-y.dtype.bits, y.dtype.min)
    return (TensorType(x.shape, y.dtype, y.quantization),)


def check_int8_row(call: OpCall) -> None:
    per_tensor_quant(call.input(0))
    if call.input(0).shape[-1] > _MAX_ELEMENTS:
        raise NotSupportedError(
            f"an int8 {call.op} over more than {_MAX_ELEMENTS} elements"
        )


def softmax_beta(call: OpCall) -> float:
    return call.attributes(SoftmaxAttrs).beta


def difference_scaling(call: OpCall, beta: float) -> tuple[int, int, int]:
    """Return the multiplier and shift of differences, and the greatest that fits."""
    scale = beta * per_tensor_quant(call.input(0)).scale
    factor = min(scale * (1 << (31 - _INTEGER_BITS)), (1 << 31) - 1.0)
    multiplier, left = quantize_multiplier(factor)
    radius = ((1 << _INTEGER_BITS) - 1) * (1 << (31 - _INTEGER_BITS)) / 2.0**left
    return multiplier, left, math.floor(radius)


def exponential_table(call: OpCall) -> Array:
    """Return e^-x, int32 with 0 integer bits, for distances x from the row maximum."""
    multiplier, left, reach = difference_scaling(call, softmax_beta(call))
    differences = -np.arange(_TABLE_SIZE, dtype=np.int64)
    inside = differences >= -reach
    scaled = multiply_by_quantized_multiplier(
        np.where(inside, differences, 0), multiplier, left, Rounding.TWICE
    )
    powers = np.where(inside, exp_on_negative_values(scaled, _INTEGER_BITS), 0)
    return powers.astype(np.int32)


def summed_exponentials(call: OpCall) -> Array:
    """Return the exponentials that a sum does not round to 0, and a 0 for others.

    What the sum rounds to 0 does not reach half a unit of the output either.
    """
    powers = exponential_table(call)
    return np.append(powers[powers >= 1 << (SUM_INTEGER_BITS - 1)], 0)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = arrays[0].reshape(-1, arrays[0].shape[-1])
    if call.input(0).dtype == FLOAT32:
        scaled = x.astype(np.float64) * softmax_beta(call)
        powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        y = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
        return (y.reshape(call.output.shape),)
    if call.input(0).dtype == INT16:
        y = reference_int16(call, x, softmax_beta(call))
        return (y.reshape(call.output.shape),)
    return (_reference_int8(call, x).reshape(call.output.shape),)


def _reference_int8(call: OpCall, x: Array) -> Array:
    table = exponential_table(call).astype(np.int64)
    powers = table[x.max(axis=1, keepdims=True).astype(np.int64) - x]
    total = rounding_divide_by_pot(powers, SUM_INTEGER_BITS).sum(axis=1, keepdims=True)
    headroom = np.vectorize(lambda value: 32 - int(value).bit_length())(total)
    inverse = reciprocal(total, headroom).astype(np.int64)
    kind = call.output.dtype
    if kind == INT8:
        inverse = np.where(headroom < _MIN_HEADROOM, 0, inverse)
    shift = np.minimum(_SHIFT - kind.bits - headroom, -MIN_SHIFT)
    product = saturating_rounding_doubling_high_mul(inverse, powers)
    y = np.clip(rounding_divide_by_pot(product, shift) + kind.min, kind.min, kind.max)
    return np.asarray(y.astype(kind.np))


def lower(call: OpCall, b: Kernel) -> None:
    depth = call.input(0).shape[-1]
    rows = call.input(0).elements // depth
    x, y = b.views("rows out", (rows, depth), b.input(0), b.y)
    with b.for_("row", rows) as row:
        if call.input(0).dtype == FLOAT32:
            _lower_float(b, x, y, row)
        elif call.input(0).dtype == INT16:
            lower_int16_row(b, x, y, row, softmax_beta(call))
        else:
            _lower_int8(b, x, y, row)


def lower_exponential_sum(
    b: Kernel, x: tir.Buffer, row: ArithExpr
) -> tuple[Register, Register, tir.Buffer]:
    """Emit the sum of exponentials; return registers of maximum and sum, and table."""
    table = b.constant("exponentials", summed_exponentials(b.call), INT32)
    highest, total = lower_row_maximum(b, x, row, INT32, INT8.min)
    with b.for_("i", x.shape[1]) as i:
        place = _distance_index(b, highest, x, row, i, table)
        power = b.let("power", b.load(table, [place]))
        # Half up equals half away from zero, since powers are not negative; adding the
        # half first could exceed 32 bits.
        rounded = (power >> SUM_INTEGER_BITS) + ((power >> (SUM_INTEGER_BITS - 1)) & 1)
        total.add(rounded)
    return highest, total, table


def _lower_pair(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr) -> bool:
    """Look up the results of two elements, if the smaller one determines both."""
    distances = np.arange(_TABLE_SIZE)
    pairs = np.stack([distances, 0 * distances], axis=1) + INT8.min
    more, less = _reference_int8(b.call, pairs.astype(np.int8)).T
    if (more != np.minimum(-less.astype(int), INT8.max)).any():
        return False
    varying = np.flatnonzero(less != less[-1])
    count = varying[-1] + 2 if varying.size else 1  # with beta 0, all results are equal
    table = b.constant("results", less[:count], y.dtype)
    first = b.let("a", b.load_i32(x, [row, 0]))
    second = b.let("b", b.load_i32(x, [row, 1]))
    distance = maximum(first, second) - minimum(first, second)
    place = clamp(distance, 0, table.elements - 1, INDEX)
    smaller = b.let("smaller", b.load_i32(table, [place]))
    larger = b.let("larger", minimum(0 - smaller, INT8.max))
    for i, is_first in enumerate((first >= second, second > first)):
        b.store(y, [row, i], select(is_first, larger, smaller).cast(y.dtype))
    return True


def _lower_int8(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr) -> None:
    if x.shape[1] == 2 and y.dtype == INT8 and _lower_pair(b, x, y, row):
        return
    highest, total, table = lower_exponential_sum(b, x, row)
    headroom = b.let("headroom", call_intrinsic("clz", [total.value], INT32))
    inverse, shift = bind_reciprocal(b, total.value, headroom, x.shape[1], y.dtype)
    with b.for_("i", x.shape[1]) as i:
        place = _distance_index(b, highest, x, row, i, table)
        step = [b.load(table, [place]), inverse, shift]
        value = call_intrinsic("requantize_twice", step, INT32) + y.dtype.min
        b.store(y, [row, i], clamp(value, y.dtype.min, y.dtype.max, y.dtype))


def bind_reciprocal(
    b: Kernel, total: ArithExpr, headroom: ArithExpr, depth: int, kind: DType
) -> tuple[ArithExpr, ArithExpr]:
    """Bind the reciprocal of `total` as multiplier and shift of the requantization."""
    inverse = call_intrinsic("reciprocal", [total, headroom], INT32)
    shift = headroom - (_SHIFT - kind.bits)
    if kind == INT8 and depth << (31 - SUM_INTEGER_BITS) >= 1 << (32 - _MIN_HEADROOM):
        inverse = select(headroom < _MIN_HEADROOM, 0, inverse)
        shift = maximum(shift, MIN_SHIFT)
    multiplier = b.let("inverse", inverse)
    return multiplier, b.let("shift", shift)


def _distance_index(
    b: Kernel,
    highest: Register,
    x: tir.Buffer,
    row: ArithExpr,
    i: ArithExpr,
    table: tir.Buffer,
) -> ArithExpr:
    """Return the place in the table; unsigned distances have one limit, not two."""
    distance = (highest.value - b.load_i32(x, [row, i])).cast(UINT32)
    return minimum(distance, table.elements - 1).cast(INDEX)


def _lower_float(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr) -> None:
    beta = softmax_beta(b.call)
    highest, total = lower_row_maximum(b, x, row, FLOAT32, b.load(x, [row, 0]))
    with b.for_("i", x.shape[1]) as i:
        scaled = (b.load(x, [row, i]) - highest.value) * beta
        power = b.let("power", call_intrinsic("exp_f32", [scaled], FLOAT32))
        b.store(y, [row, i], power)
        total.add(power)
    with b.for_("i", x.shape[1]) as i:
        b.store(y, [row, i], b.load(y, [row, i]) / total.value)


# ---- int16 ---------------------------------------------------------------------------

_INT16_STEP = 10 / 65535
_OUTPUT_RANGE = (-65536 / 65535, 65534 / 65535)
_MAX_SHIFT = 14
_MAX_INT16_ELEMENTS = 1 << 15
_CENTER = (1 << 15) + (1 << 16)


def check_int16(call: OpCall, beta: float) -> None:
    """Raise NotSupportedError if scales are not supported or numbers exceed 32 bits."""
    x = per_tensor_quant(call.input(0))
    if x.zero_point:
        raise NotSupportedError("an int16 softmax needs an input zero point of 0")
    check_output(call, 2.0**-15, 0)
    if difference_multiplier(x.scale, beta)[1] > _MAX_SHIFT:
        raise NotSupportedError(f"an int16 softmax with input scale {x.scale}")
    if call.input(0).shape[-1] > _MAX_INT16_ELEMENTS:
        raise NotSupportedError(
            f"an int16 softmax over more than {_MAX_INT16_ELEMENTS} elements"
        )


def check_output(call: OpCall, scale: float, zero_point: int) -> None:
    """Raise NotSupportedError unless the output has the given quantization.

    int16 outputs accept scales within 0.1 %, such as 1/65535 for 1/65536; the results
    are the same.
    """
    kind = call.output.dtype
    y = per_tensor_quant(call.output)
    tolerance = 1e-3 if kind == INT16 else 0.0
    if abs(y.scale - scale) > tolerance * scale or y.zero_point != zero_point:
        raise NotSupportedError(
            f"an {kind.name} result of {call.input(0).dtype.name} must have scale "
            f"1/{round(1 / scale)} and zero point {zero_point}"
        )


def difference_multiplier(scale: float, beta: float) -> tuple[int, int]:
    """Return the (multiplier, shift) from differences to steps of 10 / 65535."""
    return quantize_multiplier(scale * beta / _INT16_STEP)


def lookup_tables() -> tuple[Array, Array]:
    """Return the tables of e^x over [-10, 0] and of 1 / (1 + x) over [0, 1]."""
    return (
        build_lut(np.exp, (-10.0, 0.0), _OUTPUT_RANGE),
        build_lut(lambda x: 1 / (1 + x), (0.0, 1.0), _OUTPUT_RANGE),
    )


def reference_int16(call: OpCall, x: Array, beta: float) -> Array:
    exponentials, reciprocals = lookup_tables()
    scale = per_tensor_quant(call.input(0)).scale
    multiplier, shift = difference_multiplier(scale, beta)
    below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(below, multiplier, shift, Rounding.TWICE)
    places = np.clip(scaled + INT16.max, INT16.min, INT16.max)
    powers = lookup_array(exponentials, places)
    total = powers.sum(axis=1, keepdims=True)
    headroom = np.vectorize(lambda value: 32 - int(value).bit_length())(total)
    mantissa = ((total << (headroom - 1)) + (1 << 13)) >> 14
    positions = np.clip(mantissa - _CENTER, INT16.min, INT16.max)
    inverse = lookup_array(reciprocals, positions)
    right = 31 - headroom
    y = (powers * inverse + (np.int64(1) << (right - 1))) >> right
    return np.asarray(np.clip(y, 0, INT16.max), np.int16)


def lower_row_maximum(
    b: Kernel, x: tir.Buffer, row: ArithExpr, dtype: DType, start: ExprLike
) -> tuple[Register, Register]:
    """Emit a row's maximum; return its register and one that holds 0, for a sum."""
    highest = b.register("highest", dtype)
    total = b.register("total", dtype)
    highest.set(start)
    with b.for_("i", x.shape[1]) as i:
        highest.set(maximum(highest.value, b.load(x, [row, i]).cast(dtype)))
    total.set(0)
    return highest, total


def lower_int16_row(
    b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr, beta: float
) -> None:
    """Emit one row; the output holds the exponentials until their sum is known."""
    powers, inverses = lookup_tables()
    exponentials = b.constant("exponentials", powers, INT16)
    reciprocals = b.constant("reciprocals", inverses, INT16)
    scale = per_tensor_quant(b.call.input(0)).scale
    multiplier, shift = difference_multiplier(scale, beta)
    highest, total = lower_row_maximum(b, x, row, INT32, INT16.min)
    with b.for_("i", x.shape[1]) as i:
        below = b.load_i32(x, [row, i]) - highest.value
        scaled = call_intrinsic("requantize_twice", [below, multiplier, shift], INT32)
        index = b.let("index", _saturate(scaled + INT16.max))
        power = b.let("power", lookup(b, exponentials, index))
        b.store(y, [row, i], power.cast(INT16))
        total.add(power)
    headroom = b.let("headroom", call_intrinsic("clz", [total.value], INT32))
    mantissa = b.let("mantissa", total.value << (headroom - 1))
    position = b.let("position", _saturate((((mantissa >> 13) + 1) >> 1) - _CENTER))
    inverse = b.let("inverse", lookup(b, reciprocals, position))
    right = b.let("right", 31 - headroom)
    half = b.let("half", ArithExpr(immediate(1, INT32)) << (right - 1))
    with b.for_("i", x.shape[1]) as i:
        product = (b.load_i32(y, [row, i]) * inverse + half) >> right
        b.store(y, [row, i], clamp(product, 0, INT16.max, INT16))


def _saturate(value: ArithExpr) -> ArithExpr:
    return minimum(maximum(value, INT16.min), INT16.max)


OPDEF = OpDef("softmax", infer, reference, lower)
