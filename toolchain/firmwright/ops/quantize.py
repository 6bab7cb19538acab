"""quantize: convert float32 or quantized values to the output's scale and zero point.

float32: round(x / y scale) + zero point in float32, halves away from zero, saturated
(the reference is undefined beyond 32 bits). Integers: x - zero point is requantized by
x scale / y scale with two roundings. Semantics: TFLite's AffineQuantize and Requantize.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    UINT8,
    UINT32,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ops import requantize
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.row_windows import elementwise_row_window

_FLOAT_OUTPUTS = (INT8, UINT8, INT16)
_INTEGER_OUTPUTS = {
    INT8: (INT8, UINT8, INT16, INT32),
    UINT8: (INT8, UINT8, INT16),
    INT16: (INT8, INT16, INT32),
    INT32: (INT8, INT16),
}
"""Integer input type -> output types that TFLite supports."""


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    outputs: tuple[DType, ...] = _FLOAT_OUTPUTS
    if x.dtype != FLOAT32:
        outputs = _INTEGER_OUTPUTS.get(x.dtype, ())
    if y.dtype not in outputs:
        raise NotSupportedError(f"{x.dtype.name} quantized to {y.dtype.name}")
    requantize.per_tensor_quant(y)
    if x.dtype != FLOAT32:
        requantize.per_tensor_quant(x)
    return (TensorType(x.shape, y.dtype, y.quantization),)


def requantization_of(call: OpCall) -> requantize.Requantization:
    x_scale = requantize.per_tensor_quant(call.input(0)).scale
    factor = x_scale / requantize.per_tensor_quant(call.output).scale
    return requantize.make_requantization([factor], Rounding.TWICE, call.output, "none")


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    y = call.output
    quant = requantize.per_tensor_quant(call.output)
    if call.input(0).dtype != FLOAT32:
        zero_point = requantize.per_tensor_quant(call.input(0)).zero_point
        x = arrays[0].astype(np.int64) - zero_point
        return (requantization_of(call).apply(x, y.dtype),)
    with np.errstate(over="ignore"):  # the float32 quotient becomes infinity
        steps = (arrays[0] / np.float32(quant.scale)).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    limited = np.clip(rounded + quant.zero_point, y.dtype.min, y.dtype.max)
    return (limited.astype(y.dtype.np),)


def lower(call: OpCall, b: Kernel) -> None:
    if call.input(0).dtype == FLOAT32:
        with loop_over_elements(b) as (values, store):
            store(_quantize_float(values[0], call.output))
        return
    if flips_sign_bits(call):
        _flip_sign_bits(b)
        return
    with loop_over_elements(b) as (values, store):
        zero_point = requantize.per_tensor_quant(call.input(0)).zero_point
        offset = values[0].cast(INT32) - zero_point
        params = requantization_of(call)
        kind = call.output.dtype
        if INT32 in (call.input(0).dtype, kind):
            step = [params.multipliers[0], params.shifts[0]]
            value = call_intrinsic("requantize_twice", [offset, *step], INT32)
            if params.zero_point:
                value = value + params.zero_point
            if kind != INT32:
                value = requantize.clamp(value, kind.min, kind.max, kind)
            store(value)
        else:
            store(params.lower(offset, kind))


def flips_sign_bits(call: OpCall) -> bool:
    """Whether results are the bytes with inverted sign bits, as from uint8 to int8."""
    if {call.input(0).dtype, call.output.dtype} != {INT8, UINT8}:
        return False
    x = requantize.per_tensor_quant(call.input(0))
    y = requantize.per_tensor_quant(call.output)
    return (x.scale, x.zero_point - y.zero_point) in ((y.scale, 128), (y.scale, -128))


def _flip_sign_bits(b: Kernel) -> None:
    """Invert the sign bits of words, then of the bytes left over."""
    for kind, lanes, first in ((UINT32, 4, 0), (UINT8, 1, b.y.elements // 4 * 4)):
        count = (b.y.elements - first) // lanes
        mask = 0x80808080 if lanes > 1 else 0x80
        if count:
            view = partial(
                b.view, offset=first, shape=(count,), dtype=kind, alignment=lanes
            )
            x = view("in", b.input(0))
            y = view("out", b.y, access="w")
            with b.unrolled("i", count, 4, 3, 2) as i:
                b.store(y, [i], binary_expr("xor", b.load(x, [i]), mask))


def _quantize_float(x: ArithExpr, kind: TensorType) -> ArithExpr:
    """Quantize a float; the bounds are exact in float32."""
    quant = requantize.per_tensor_quant(kind)
    dtype = kind.dtype
    if dtype in (INT8, UINT8):
        shift = dtype.min - INT8.min
        args = x / quant.scale, quant.zero_point - shift
        nearest = call_intrinsic("nearest_int8", args, INT32)
        return (nearest + shift if shift else nearest).cast(dtype)
    steps = call_intrinsic("round_f32", [x / quant.scale], FLOAT32)
    low = dtype.min - quant.zero_point
    high = dtype.max - quant.zero_point
    limited = minimum(maximum(steps, float(low)), float(high)).cast(INT32)
    return (limited + quant.zero_point).cast(dtype)


OPDEF = OpDef(
    "quantize",
    infer,
    reference,
    lower,
    row_access=elementwise_row_window,
)
