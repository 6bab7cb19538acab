"""log_softmax over the last axis: y_i = x_i - max x - ln(sum_j e^(x_j - max x)).

int8: exponentials and their sum as in softmax.py; the logarithm (fixed_point_log.py) and the
differences have 5 integer bits. The result has scale 1/16 and zero point 127;
differences beyond 5 bits give the minimum.
Semantics: TFLite's reference LogSoftmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import (
    INT32_MIN,
    Rounding,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from firmwright.ir import tir
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall, OpDef, both_profiles
from firmwright.ir.tir.builder import ArithExpr, maximum
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops import softmax
from firmwright.ops.fixed_point_log import LOGARITHM, OUT_BITS
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.requantize import clamp, tensor_quant

_RIGHT = 31 - OUT_BITS - 4
OUTPUT_ZERO_POINT = 127


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    if x.dtype not in (INT8, FLOAT32) or y.dtype != x.dtype or not x.shape:
        raise NotSupportedError(f"{x.dtype.name} input with {y.dtype.name} output")
    if x.dtype == INT8:
        softmax.check_int8_row(call)
        quant = tensor_quant(y)
        if (quant.scale, quant.zero_point) != (1 / 16, OUTPUT_ZERO_POINT):
            raise NotSupportedError("an int8 result must have scale 1/16 and zero point 127")
    return (TensorType(x.shape, x.dtype, y.quantization),)


@dataclass(frozen=True, slots=True)
class _Scaling:
    """Multipliers and shifts to and from 5 integer bits; differences above `radius` do not fit."""

    multiplier: int
    shift: int
    back: tuple[int, int]
    radius: int


def _scaling(call: OpCall) -> _Scaling:
    multiplier, shift, radius = softmax.difference_scaling(call, 1.0)
    return _Scaling(
        multiplier, shift, quantize_multiplier(2.0 ** (31 - shift) / multiplier), radius
    )


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        values = arrays[0].astype(np.float64)
        below = values - values.max(axis=-1, keepdims=True)
        total = np.log(np.exp(below).sum(axis=-1, keepdims=True))
        return ((below - total).astype(np.float32),)
    x, by = arrays[0].astype(np.int64), _scaling(call)
    below = x - x.max(axis=-1, keepdims=True)
    powers = softmax.exponential_table(call).astype(np.int64)[-below]
    total = rounding_divide_by_pot(powers, softmax.SUM_INTEGER_BITS).sum(axis=-1, keepdims=True)
    logarithm = LOGARITHM.meaning(total).astype(np.int64)
    back = multiply_by_quantized_multiplier(logarithm + INT32_MIN, *by.back, Rounding.TWICE)
    is_near = below > np.maximum(-by.radius - 1, back)
    scaled = multiply_by_quantized_multiplier(
        np.where(is_near, below, 0), by.multiplier, by.shift, Rounding.TWICE
    )
    difference = np.where(is_near, scaled - logarithm, 0)
    y = np.where(is_near, rounding_divide_by_pot(difference, _RIGHT) + OUTPUT_ZERO_POINT, INT8.min)
    return (np.clip(y, INT8.min, INT8.max).astype(np.int8),)


def lower(call: OpCall, b: Kernel) -> None:
    depth = call.input(0).shape[-1]
    rows = call.input(0).elements // depth
    with (
        b.view("rows", b.input(0), 0, (rows, depth)) as x,
        b.view("out", b.y, 0, (rows, depth), access="w") as y,
        b.for_("row", rows) as row,
    ):
        if call.input(0).dtype == FLOAT32:
            _lower_float(b, x, y, row, depth)
        else:
            _lower_int8(call, b, x, y, row, depth)


def _lower_float(b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr, depth: int) -> None:
    highest, total = b.reg("highest", FLOAT32), b.reg("total", FLOAT32)
    b.store(highest, [0], b.load(x, [row, 0]))
    with b.for_("i", depth) as i:
        b.store(highest, [0], maximum(b.load(highest, [0]), b.load(x, [row, i])))
    b.store(total, [0], 0.0)
    with b.for_("i", depth) as i:
        below = b.load(x, [row, i]) - b.load(highest, [0])
        b.store(total, [0], b.load(total, [0]) + intrinsic("exp_f32", [below], FLOAT32))
    with (
        b.let("logarithm", libm_function("log")(b.load(total, [0]))) as logarithm,
        b.for_("i", depth) as i,
    ):
        b.store(y, [row, i], b.load(x, [row, i]) - b.load(highest, [0]) - logarithm)


def _lower_int8(
    call: OpCall, b: Kernel, x: tir.Buffer, y: tir.Buffer, row: ArithExpr, depth: int
) -> None:
    by = _scaling(call)
    highest, total, _ = softmax.lower_exponential_sum(call, b, x, row, depth)
    with b.let("logarithm", intrinsic("logarithm", [b.load(total, [0])], INT32)) as logarithm:
        lowest = logarithm + INT32_MIN
        back = intrinsic("requantize_twice", [lowest, *by.back], INT32)
        with (
            b.let("least", maximum(back, -by.radius - 1)) as lower_bound,
            b.for_("i", depth) as i,
            b.let("below", b.load_i32(x, [row, i]) - b.load(highest, [0])) as below,
        ):
            with b.if_(below > lower_bound):
                scaled = intrinsic("requantize_twice", [below, by.multiplier, by.shift], INT32)
                with b.let("difference", scaled - logarithm) as difference:
                    half = (1 << (_RIGHT - 1)) - (difference < 0).cast(INT32)
                    value = ((difference + half) >> _RIGHT) + OUTPUT_ZERO_POINT
                    b.store(y, [row, i], clamp(value, INT8.min, INT8.max, INT8))
            with b.else_():
                b.store(y, [row, i], INT8.min)


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 1)
    return ImportedCall("log_softmax", {"beta": 1.0}, (0,))


OPDEF = OpDef(
    name="log_softmax",
    infer=infer,
    reference=reference,
    lower=lower,
    imports={"tflite:LOG_SOFTMAX": import_tflite},
    dtypes=("int8", "float32"),
    numerics=both_profiles(
        Rounding.TWICE, "int32, 12 integer bits", "reference_integer_ops LogSoftmax"
    ),
    restrictions="last axis; int8 gives scale 1/16 around 127",
)
