"""reduce_prod: the product of x over some axes; attributes as in mean_and_sum.py.

Floats multiply in order; plain integers keep the low 32 bits. int8 and int16 with n factors: zero
points are subtracted, each partial product is scaled by input scale / (output scale)^(1/n) in 64
bits with one rounding (see int16x8.py) and keeps 32 bits; the last one is scaled once more.
Semantics: LiteRT's reference Reduce; TFLM has no products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, quantize_multiplier
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import NumericsSpec, OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, immediate, select
from firmwright.ops.axis_reduction import lower_reduction, reduced_shape
from firmwright.ops.int16x8 import reduce_multiplier, requantize_int64, requantize_int64_array
from firmwright.ops.kernel import Kernel
from firmwright.ops.mean_and_sum import reduced_count
from firmwright.ops.reduce_min_max_any_all import reduction_op
from firmwright.ops.requantize import clamp, tensor_quant


def _times(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    if a.expr.dtype == FLOAT32:
        return a * b
    return (a.cast(UINT32) * b.cast(UINT32)).cast(INT32)


_NONE = 1 << 32
"""Marks an empty product: products have 32 bits, and arithmetic on this value does not overflow."""
_PLAIN = reduction_op("reduce_prod", (INT32, FLOAT32), np.prod, lambda kind: 1, _times, ())


def _is_quantized(call: OpCall) -> bool:
    return call.input(0).dtype in (INT8, INT16)


def _factor(call: OpCall) -> tuple[int, int]:
    x, y = tensor_quant(call.input(0)).scale, tensor_quant(call.output).scale
    return reduce_multiplier(*quantize_multiplier(x / y ** (1.0 / reduced_count(call))))


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    x, axes, keep = call.input(0), call.ints_attr("axes"), bool(call.int_attr("keep_dims"))
    if not _is_quantized(call):
        return _PLAIN.infer(call)
    y = TensorType(reduced_shape(x.shape, axes, keep), call.output.dtype, call.output.quantization)
    if y.dtype != x.dtype or not x.elements:
        raise NotSupportedError(f"a product of {x.dtype.name} giving {y.dtype.name}")
    if x.dtype == INT16 and (tensor_quant(x).zero_point or tensor_quant(y).zero_point):
        raise NotSupportedError("int16 with a zero point other than 0")
    _factor(replace(call, outputs=(y,)))
    return (y,)


def _reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if not _is_quantized(call):
        return _PLAIN.reference(call, arrays)
    axes, y, factor = call.ints_attr("axes"), tensor_quant(call.output), _factor(call)
    offsets = arrays[0].astype(np.int64) - tensor_quant(call.input(0)).zero_point
    outer_axes = [axis for axis in range(offsets.ndim) if axis not in axes]
    rows = offsets.transpose(*outer_axes, *axes).reshape(-1, reduced_count(call))
    product = rows[:, 0]
    for column in range(1, rows.shape[1]):
        product = _in_32_bits(requantize_int64_array(product * rows[:, column], *factor))
    total = _in_32_bits(requantize_int64_array(product, *factor)) + y.zero_point
    kind = call.output.dtype
    return (np.clip(total, kind.min, kind.max).astype(kind.np).reshape(call.output.shape),)


def _in_32_bits(x: Array) -> Array:
    return np.asarray(x.astype(np.int32).astype(np.int64))


def _lower(call: OpCall, b: Kernel) -> None:
    """Emit the product; the accumulator is `_NONE` before the first quantized factor."""
    if not _is_quantized(call):
        _PLAIN.lower(call, b)
        return
    zero, y, kind = (
        tensor_quant(call.input(0)).zero_point,
        tensor_quant(call.output),
        call.output.dtype,
    )
    multiplier, right = (ArithExpr(immediate(value, INT32)) for value in _factor(call))

    def step(acc: ArithExpr, item: ArithExpr) -> ArithExpr:
        factor = (item.cast(INT32) - zero).cast(INT64)
        product = requantize_int64(acc * factor, multiplier, right).cast(INT64)
        return select(binary_expr("eq", acc, ArithExpr(immediate(_NONE, INT64))), factor, product)

    def end(acc: ArithExpr) -> ArithExpr:
        scaled = requantize_int64(acc, multiplier, right) + y.zero_point
        return clamp(scaled, kind.min, kind.max, kind)

    lower_reduction(call, b, ArithExpr(immediate(_NONE, INT64)), step, end)


OPDEF = replace(
    _PLAIN,
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=("int8", "int16", "int32", "float32"),
    numerics={
        "litert": NumericsSpec(
            Rounding.ONCE, "int8, int16 in int64; floats in order", "QuantizedReduceProd"
        )
    },
)
