"""Elementwise operators with two broadcast inputs: extremes, comparisons, logic, prelu.

maximum, minimum and squared_difference; equal, not_equal, less, less_equal, greater and
greater_equal of a and b, which give bool; logical_and, logical_or; prelu is x, or
alpha x if x is negative.

int8 and int16: maximum and minimum copy raw values, which must have equal quantization.
Comparisons requantize both values, shifted left by 8 bits, by their scales.
squared_difference converts both inputs to twice the larger scale, int8 with 7 more
bits. prelu requantizes x, or x times alpha if x is negative. All requantizations round
twice. int32 and int64 values are not quantized.

Deviations: both profiles have all int16 operators, of which TFLM has only
squared_difference, and LiteRT only the others. LiteRT compares raw int16 values,
whatever the scales. Its int16 prelu, which overflows, is not supported.
Semantics: TFLite's reference operators of these names.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import BOOL, INT8, INT16, INT32, UINT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, binary_expr, maximum, minimum, select
from firmwright.ops.elementwise import (
    ElementwiseKernel,
    binary_op,
    check_per_tensor,
    check_symmetric_int16,
    choose,
    compute_elements,
    subtract_zero_points,
)
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import (
    ArrayOrExpr,
    clamp,
    per_tensor_quant,
    requantize_twice,
    tensor_scales,
)

ArrayFunction: TypeAlias = Callable[[Array, Array], Array]


def _scaled(x: ArrayOrExpr, real: float) -> ArrayOrExpr:
    return requantize_twice(x, *quantize_multiplier(real))


def _quantized(call: OpCall) -> None:
    for kind in (call.input(0), call.input(1)):
        per_tensor_quant(kind)


def _check_same_quantization(call: OpCall) -> None:
    different: set[tuple[tuple[float, ...], tuple[int, ...]]] = set()
    for kind in (call.input(0), call.input(1), call.output):
        if kind.quantization is not None:
            quant = kind.quantization
            different.add((quant.scales, quant.zero_points))
    if len(different) > 1:
        raise NotSupportedError("inputs and output with different quantization")


def _extreme(
    pick: ArrayFunction, value: Callable[[ArithExpr, ArithExpr], ArithExpr]
) -> Mapping[str, ElementwiseKernel]:
    meaning = compute_elements(
        lambda call, a, b: pick(a, b),
        lambda call, a, b: value(a, b),
        _check_same_quantization,
    )
    return dict.fromkeys(
        ("int8", "uint8", "int16", "int32", "int64", "float32"), meaning
    )


def _logical(op: tir.BinaryOp, pick: ArrayFunction) -> ElementwiseKernel:
    return compute_elements(
        lambda call, a, b: pick(a, b), lambda call, a, b: binary_expr(op, a, b)
    )


_COMPARED_BITS = 8


def _check_scales_below_one(call: OpCall) -> None:
    _quantized(call)
    first = per_tensor_quant(call.input(0))
    second = per_tensor_quant(call.input(1))
    if max(first.scale, second.scale) >= 1:
        raise NotSupportedError(
            "a comparison of quantized values with a scale of 1 or more"
        )


def _comparison(
    op: tir.BinaryOp, pick: ArrayFunction
) -> Mapping[str, ElementwiseKernel]:
    def compared(call: OpCall, a: ArrayOrExpr, b: ArrayOrExpr) -> list[ArrayOrExpr]:
        scaled: list[ArrayOrExpr] = []
        for index, x in enumerate(subtract_zero_points(call, a, b)):
            scale = per_tensor_quant(call.input(index)).scale
            scaled.append(_scaled(x * (1 << _COMPARED_BITS), scale))
        return scaled

    unquantized = _logical(op, pick)
    scaled = compute_elements(
        lambda call, a, b: pick(*compared(call, a, b)),
        lambda call, a, b: binary_expr(op, *compared(call, a, b)),
        _check_scales_below_one,
    )
    kernels = {"int8": scaled}
    kernels |= dict.fromkeys(("int32", "int64", "float32"), unquantized)
    if op in ("eq", "ne"):
        return kernels | {"int16": scaled, "bool": unquantized}
    return kernels | {"int16": replace(unquantized, check=_check_same_quantization)}


_SQUARED_BITS = {INT8: 7, INT16: 0}


def _square_factors(call: OpCall) -> tuple[float, float, float]:
    a, b, y = tensor_scales(call)
    twice = 2 * max(a, b)
    bits = _SQUARED_BITS[call.output.dtype]
    return a / twice, b / twice, twice * twice / ((1 << (2 * bits)) * y)


def _squared_quantized(call: OpCall, a: ArrayOrExpr, b: ArrayOrExpr) -> ArrayOrExpr:
    first, second, last = _square_factors(call)
    kind = call.output.dtype
    a, b = subtract_zero_points(call, a, b)
    left = _scaled(a * (1 << _SQUARED_BITS[kind]), first)
    right = _scaled(b * (1 << _SQUARED_BITS[kind]), second)
    total = _scaled(_squared(call, left, right), last)
    zero_point = per_tensor_quant(call.output).zero_point
    return clamp(total + zero_point, kind.min, kind.max, kind)


def _squared(call: OpCall, a: ArrayOrExpr, b: ArrayOrExpr) -> ArrayOrExpr:
    difference: ArrayOrExpr = a - b
    return difference * difference


def _squared_int32(call: OpCall, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    difference = a.cast(UINT32) - b.cast(UINT32)
    return (difference * difference).cast(INT32)


def _prelu_factors(call: OpCall) -> tuple[float, float]:
    x, alpha, y = tensor_scales(call)
    return x / y, x * alpha / y


def _prelu_int8(call: OpCall, x: ArrayOrExpr, alpha: ArrayOrExpr) -> ArrayOrExpr:
    value, slope = subtract_zero_points(call, x, alpha)
    above, below = _prelu_factors(call)
    scaled = choose(value >= 0, _scaled(value, above), _scaled(value * slope, below))
    zero_point = per_tensor_quant(call.output).zero_point
    return clamp(scaled + zero_point, INT8.min, INT8.max, INT8)


_COMPARISONS: tuple[tuple[str, tir.BinaryOp, ArrayFunction], ...] = (
    ("equal", "eq", np.equal),
    ("greater", "gt", np.greater),
    ("greater_equal", "ge", np.greater_equal),
    ("less", "lt", np.less),
    ("less_equal", "le", np.less_equal),
    ("not_equal", "ne", np.not_equal),
)

OPDEFS: tuple[OpDef, ...] = (
    binary_op("maximum", **_extreme(np.maximum, maximum)),
    binary_op("minimum", **_extreme(np.minimum, minimum)),
    binary_op("logical_and", bool=_logical("and", np.logical_and)),
    binary_op("logical_or", bool=_logical("or", np.logical_or)),
    binary_op(
        "squared_difference",
        int8=compute_elements(_squared_quantized, _squared_quantized, check_per_tensor),
        int16=compute_elements(
            _squared_quantized, _squared_quantized, check_symmetric_int16
        ),
        int32=compute_elements(_squared, _squared_int32),
        float32=compute_elements(_squared, _squared),
    ),
    binary_op(
        "prelu",
        int8=compute_elements(_prelu_int8, _prelu_int8, check_per_tensor),
        float32=compute_elements(
            lambda call, x, alpha: np.where(x >= 0, x, x * alpha),
            lambda call, x, alpha: select(x >= 0.0, x, x * alpha),
        ),
    ),
    *(
        binary_op(name, "both", BOOL, **_comparison(op, pick))
        for name, op, pick in _COMPARISONS
    ),
)
