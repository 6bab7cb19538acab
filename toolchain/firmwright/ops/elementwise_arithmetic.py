"""add, sub and mul with broadcasting and a fused `activation`.

rescaled_sum.py defines quantized sums and differences. Quantized products are taken after
subtracting the zero points and requantized by scale_0 * scale_1 / y scale, which LiteRT computes in
float32 and TFLM in double. All requantizations round twice.
Semantics: TFLite's reference addition, subtraction and multiplication.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array
from firmwright.base.quant import Rounding
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import NumericsSpec, OpCall, OpDef, both_profiles
from firmwright.ops import elementwise, rescaled_sum
from firmwright.ops.constant_requantize import store_requantized
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    make_requantization,
    requantize_value,
    tensor_quant,
)
from firmwright.ops.row_windows import elementwise_row_window


@dataclass(frozen=True, slots=True)
class _QuantizedImplementation:
    check: Callable[[OpCall], None]
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]]
    lower: Callable[[OpCall, Kernel], None]


def product_requantization(call: OpCall) -> Requantization:
    a, b, y = (tensor_quant(kind).scale for kind in (call.input(0), call.input(1), call.output))
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # make_requantization rejects an infinite factor
            factor = float(np.float32(a) * np.float32(b) / np.float32(y))
    else:
        factor = a * b / y
    return make_requantization([factor], Rounding.TWICE, call.output, call.str_attr("activation"))


def _zero_points(call: OpCall) -> tuple[int, int]:
    return tensor_quant(call.input(0)).zero_point, tensor_quant(call.input(1)).zero_point


def _product_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    a, b = (
        array.astype(np.int64) - zero_point
        for array, zero_point in zip(arrays, _zero_points(call), strict=True)
    )
    return (product_requantization(call).apply(a * b, call.output.dtype),)


def _lower_product(call: OpCall, b: Kernel) -> None:
    params = product_requantization(call)
    with elementwise.loop_over_elements(call, b) as (values, store):
        left, right = (
            value.cast(INT32) - zero_point
            for value, zero_point in zip(values, _zero_points(call), strict=True)
        )
        if call.input(0).dtype == INT16:  # 30-bit products need the general step
            step = params.multipliers[0], params.shifts[0]
            store(requantize_value(left * right, *step, params, INT16))
        else:
            store_requantized(b, left * right, params, INT8, store)


def _sum(sign: int) -> _QuantizedImplementation:
    return _QuantizedImplementation(
        rescaled_sum.check,
        lambda call, arrays: rescaled_sum.reference(call, arrays, sign),
        lambda call, b: rescaled_sum.lower(call, b, sign),
    )


def _arithmetic_op(
    name: str,
    compute: Callable[[Any, Any], Any],
    quantized: _QuantizedImplementation,
    numerics: Mapping[str, NumericsSpec],
) -> OpDef:

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        types = elementwise.infer_binary(call)
        quantized.check(call)
        return types

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if call.input(0).dtype == FLOAT32:
            return elementwise.float_reference(call, arrays, compute)
        if call.input(0).dtype == INT32:
            return elementwise.int32_reference(arrays, compute)
        return quantized.reference(call, arrays)

    def lower(call: OpCall, b: Kernel) -> None:
        if call.input(0).dtype == FLOAT32:
            activate = partial(apply_activation, activation=call.str_attr("activation"))
            elementwise.lower_elementwise(call, b, lambda x: activate(compute(x[0], x[1])))
        elif call.input(0).dtype == INT32:
            elementwise.lower_int32(call, b, compute)
        else:
            quantized.lower(call, b)

    return OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        imports={f"tflite:{name.upper()}": elementwise.tflite_importer(name)},
        dtypes=elementwise.DTYPES,
        numerics=numerics,
        row_access=elementwise_row_window,
    )


_SUM_ACCUMULATOR = "int32, inputs << 20 (int16: 15)"
_PRODUCT = _QuantizedImplementation(lambda call: None, _product_reference, _lower_product)

OPDEFS = (
    _arithmetic_op(
        "add",
        operator.add,
        _sum(1),
        both_profiles(Rounding.TWICE, _SUM_ACCUMULATOR, "reference_integer_ops Add"),
    ),
    _arithmetic_op(
        "sub",
        operator.sub,
        _sum(-1),
        both_profiles(Rounding.TWICE, _SUM_ACCUMULATOR, "reference_ops Sub"),
    ),
    _arithmetic_op(
        "mul",
        operator.mul,
        _PRODUCT,
        both_profiles(Rounding.TWICE, "int32", "reference_integer_ops Mul"),
    ),
)
