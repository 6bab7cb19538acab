"""softmax of int16 rows: exponentials and the reciprocal of their sum from interpolated tables.

Differences to the row's maximum are scaled so that 65535 steps are 10; their exponentials have 15
fraction bits. The sum, shifted to 16 bits beyond its first one, is looked up in a table of 1 / x,
and each exponential multiplied by that. Both profiles alike.
Source of the semantics: TFLite's SoftmaxInt16.
"""

from __future__ import annotations

import numpy as np

from firmwright.base.dtypes import INT16, INT32
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier, quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array, NotSupportedError, OpCall
from firmwright.ir.tir.builder import ArithExpr, immediate, maximum, minimum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.interpolated_lut import build_lut, lookup, lookup_array
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import clamp, tensor_quant

_STEP = 10 / 65535
_RESULTS = (-65536 / 65535, 65534 / 65535)
_MOST_SHIFT = 14
_MOST_ELEMENTS = 1 << 15
_CENTRE = (1 << 15) + (1 << 16)


def check_int16(call: OpCall, beta: float) -> None:
    """What the definition asks of scales, and what keeps its numbers in 32 bits."""
    x, y = tensor_quant(call.input(0)), tensor_quant(call.output)
    if x.zero_point or (y.scale, y.zero_point) != (2.0**-15, 0):
        raise NotSupportedError("an int16 result must have scale 2^-15, and zero points be 0")
    if difference_multiplier(x.scale, beta)[1] > _MOST_SHIFT:
        raise NotSupportedError(f"an int16 softmax of an input of scale {x.scale}")
    if call.input(0).shape[-1] > _MOST_ELEMENTS:
        raise NotSupportedError(f"an int16 softmax over more than {_MOST_ELEMENTS} elements")


def difference_multiplier(scale: float, beta: float) -> tuple[int, int]:
    """What brings differences to steps of 10 / 65535."""
    return quantize_multiplier(scale * beta / _STEP)


def lookup_tables() -> tuple[Array, Array]:
    """Exponentials of [-10, 0] and reciprocals of 1 + [0, 1]."""
    return (
        build_lut(np.exp, (-10.0, 0.0), _RESULTS),
        build_lut(lambda x: 1 / (1 + x), (0.0, 1.0), _RESULTS),
    )


def reference(call: OpCall, x: Array, beta: float) -> Array:
    """Rows of `x`, two-dimensional."""
    exponentials, reciprocals = lookup_tables()
    multiplier, shift = difference_multiplier(tensor_quant(call.input(0)).scale, beta)
    below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(below, multiplier, shift, Rounding.TWICE)
    powers = lookup_array(exponentials, np.clip(scaled + INT16.max, INT16.min, INT16.max))
    total = powers.sum(axis=1, keepdims=True)
    headroom = np.vectorize(lambda value: 32 - int(value).bit_length())(total)
    mantissa = ((total << (headroom - 1)) + (1 << 13)) >> 14
    inverse = lookup_array(reciprocals, np.clip(mantissa - _CENTRE, INT16.min, INT16.max))
    right = 31 - headroom
    y = (powers * inverse + (np.int64(1) << (right - 1))) >> right
    return np.asarray(np.clip(y, 0, INT16.max), np.int16)


def lower_row(
    call: OpCall, b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr, depth: int, beta: float
) -> None:
    """The output holds the exponentials until their sum is known."""
    exponentials, reciprocals = (
        b.constant(name, table, INT16)
        for name, table in zip(("exponentials", "reciprocals"), lookup_tables(), strict=True)
    )
    multiplier, shift = difference_multiplier(tensor_quant(call.input(0)).scale, beta)
    highest, total = b.reg("highest", INT32), b.reg("total", INT32)
    b.store(highest, [0], INT16.min)
    with b.for_("i", depth) as i:
        b.store(highest, [0], maximum(b.load(highest, [0]), b.load_i32(x, [row, i])))
    b.store(total, [0], 0)
    with b.for_("i", depth) as i:
        below = b.load_i32(x, [row, i]) - b.load(highest, [0])
        scaled = intrinsic("requantize_twice", [below, multiplier, shift], INT32)
        with (
            b.let("at", _in_range(scaled + INT16.max)) as at,
            lookup(b, exponentials, at) as value,
            b.let("power", value) as power,
        ):
            b.store(y, [row, i], power.cast(INT16))
            b.store(total, [0], b.load(total, [0]) + power)
    with (
        b.let("headroom", intrinsic("clz", [b.load(total, [0])], INT32)) as headroom,
        b.let("mantissa", b.load(total, [0]) << (headroom - 1)) as mantissa,
        b.let("place", _in_range((((mantissa >> 13) + 1) >> 1) - _CENTRE)) as place,
        lookup(b, reciprocals, place) as value,
        b.let("inverse", value) as inverse,
        b.let("right", 31 - headroom) as right,
        b.let("half", ArithExpr(immediate(1, INT32)) << (right - 1)) as half,
        b.for_("i", depth) as i,
    ):
        product = (b.load_i32(y, [row, i]) * inverse + half) >> right
        b.store(y, [row, i], clamp(product, 0, INT16.max, INT16))


def _in_range(value: ArithExpr) -> ArithExpr:
    return minimum(maximum(value, INT16.min), INT16.max)
