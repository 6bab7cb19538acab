"""int16 softmax: exponentials and the reciprocal of their sum from interpolated tables.

Differences from the row maximum are scaled so that 65535 steps are 10; exponentials have 15
fraction bits. The sum, normalized to 16 bits after its leading one, is looked up in a table of
reciprocals. Both profiles are identical. Semantics: TFLite's SoftmaxInt16.
"""

import numpy as np

from firmwright.base.dtypes import INT16, INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier, quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, ExprLike, Register, immediate, maximum, minimum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.kernel import Kernel
from firmwright.ops.lookup_tables import build_lut, lookup, lookup_array
from firmwright.ops.requantize import clamp, per_tensor_quant

_STEP = 10 / 65535
_OUTPUT_RANGE = (-65536 / 65535, 65534 / 65535)
_MAX_SHIFT = 14
_MAX_ELEMENTS = 1 << 15
_CENTER = (1 << 15) + (1 << 16)


def check_int16(call: OpCall, beta: float) -> None:
    """Raise NotSupportedError unless the scales are supported and all numbers fit 32 bits."""
    x = per_tensor_quant(call.input(0))
    if x.zero_point:
        raise NotSupportedError("an int16 softmax needs an input zero point of 0")
    check_output(call, 2.0**-15, 0)
    if difference_multiplier(x.scale, beta)[1] > _MAX_SHIFT:
        raise NotSupportedError(f"an int16 softmax with input scale {x.scale}")
    if call.input(0).shape[-1] > _MAX_ELEMENTS:
        raise NotSupportedError(f"an int16 softmax over more than {_MAX_ELEMENTS} elements")


def check_output(call: OpCall, scale: float, zero_point: int) -> None:
    """Raise NotSupportedError unless the output has the given quantization.

    int16 outputs accept scales within 0.1 %, such as 1/65535 for 1/65536; the results are the same.
    """
    kind, y = call.output.dtype, per_tensor_quant(call.output)
    tolerance = 1e-3 if kind == INT16 else 0.0
    if abs(y.scale - scale) > tolerance * scale or y.zero_point != zero_point:
        raise NotSupportedError(
            f"an {kind.name} result of {call.input(0).dtype.name} must have scale "
            f"1/{round(1 / scale)} and zero point {zero_point}"
        )


def difference_multiplier(scale: float, beta: float) -> tuple[int, int]:
    """Return the (multiplier, shift) that converts differences to steps of 10 / 65535."""
    return quantize_multiplier(scale * beta / _STEP)


def lookup_tables() -> tuple[Array, Array]:
    """Return the tables of e^x over [-10, 0] and of 1 / (1 + x) over [0, 1]."""
    return (
        build_lut(np.exp, (-10.0, 0.0), _OUTPUT_RANGE),
        build_lut(lambda x: 1 / (1 + x), (0.0, 1.0), _OUTPUT_RANGE),
    )


def reference(call: OpCall, x: Array, beta: float) -> Array:
    exponentials, reciprocals = lookup_tables()
    multiplier, shift = difference_multiplier(per_tensor_quant(call.input(0)).scale, beta)
    below = x.astype(np.int64) - x.max(axis=1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(below, multiplier, shift, Rounding.TWICE)
    powers = lookup_array(exponentials, np.clip(scaled + INT16.max, INT16.min, INT16.max))
    total = powers.sum(axis=1, keepdims=True)
    headroom = np.vectorize(lambda value: 32 - int(value).bit_length())(total)
    mantissa = ((total << (headroom - 1)) + (1 << 13)) >> 14
    inverse = lookup_array(reciprocals, np.clip(mantissa - _CENTER, INT16.min, INT16.max))
    right = 31 - headroom
    y = (powers * inverse + (np.int64(1) << (right - 1))) >> right
    return np.asarray(np.clip(y, 0, INT16.max), np.int16)


def lower_row_maximum(
    b: Kernel, x: tir.Buffer, row: ArithExpr, dtype: DType, start: ExprLike
) -> tuple[Register, Register]:
    """Emit the maximum of a row; return its register and one that holds 0, for a sum."""
    highest, total = b.register("highest", dtype), b.register("total", dtype)
    highest.set(start)
    with b.for_("i", x.shape[1]) as i:
        highest.set(maximum(highest.value, b.load(x, [row, i]).cast(dtype)))
    total.set(0)
    return highest, total


def lower_row(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr, beta: float) -> None:
    """Emit one row; the output holds the exponentials until their sum is known."""
    exponentials, reciprocals = (
        b.constant(name, table, INT16)
        for name, table in zip(("exponentials", "reciprocals"), lookup_tables(), strict=True)
    )
    multiplier, shift = difference_multiplier(per_tensor_quant(b.call.input(0)).scale, beta)
    highest, total = lower_row_maximum(b, x, row, INT32, INT16.min)
    with b.for_("i", x.shape[1]) as i:
        below = b.load_i32(x, [row, i]) - highest.value
        scaled = intrinsic("requantize_twice", [below, multiplier, shift], INT32)
        index = b.let("index", _saturate(scaled + INT16.max))
        power = b.let("power", lookup(b, exponentials, index))
        b.store(y, [row, i], power.cast(INT16))
        total.add(power)
    headroom = b.let("headroom", intrinsic("clz", [total.value], INT32))
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
