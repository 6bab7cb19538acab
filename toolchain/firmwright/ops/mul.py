"""mul: y = x_0 * x_1 with broadcasting, activated.

Attribute: `activation`. Integers: the product of the values less their zero points, requantised by
scale_0 * scale_1 / y scale, in both profiles with both roundings; LiteRT computes that factor in
float32, TFLM in double.
Source of the semantics: TFLite's reference multiplication.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32
from firmwright.base.quant import Rounding
from firmwright.ir.graph.opdef import Array, ConformanceCase, NumericsSpec, OpCall, OpDef
from firmwright.ops import elementwise
from firmwright.ops.constant_requantize import store_requantized
from firmwright.ops.elementwise import infer
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import (
    Requantization,
    apply_activation,
    make_requantization,
    requantize_value,
    tensor_quant,
)
from firmwright.ops.row_windows import elementwise_row_window


def requantization_of(call: OpCall) -> Requantization:
    """How a product becomes the output."""
    a, b, y = (tensor_quant(kind).scale for kind in (call.input(0), call.input(1), call.output))
    if call.numerics == "litert":
        with np.errstate(over="ignore"):  # an infinite factor is refused by requant
            factor = float(np.float32(a) * np.float32(b) / np.float32(y))
    else:
        factor = a * b / y
    return make_requantization([factor], Rounding.TWICE, call.output, call.str_attr("activation"))


def _zero_points(call: OpCall) -> tuple[int, int]:
    return tensor_quant(call.input(0)).zero_point, tensor_quant(call.input(1)).zero_point


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    if call.input(0).dtype == FLOAT32:
        return elementwise.float_reference(call, arrays, lambda a, b: a * b)
    if call.input(0).dtype == INT32:
        return elementwise.int32_reference(arrays, lambda a, b: a * b)
    a, b = (
        array.astype(np.int64) - zero_point
        for array, zero_point in zip(arrays, _zero_points(call), strict=True)
    )
    return (requantization_of(call).apply(a * b, call.output.dtype),)


def lower(call: OpCall, b: Kernel) -> None:
    if call.input(0).dtype == FLOAT32:
        activation = call.str_attr("activation")
        elementwise.lower_elementwise(call, b, lambda x: apply_activation(x[0] * x[1], activation))
        return
    if call.input(0).dtype == INT32:
        elementwise.lower_int32(call, b, lambda left, right: left * right)
        return
    with elementwise.loop_over_elements(call, b) as (values, store):
        left, right = (
            value.cast(INT32) - zero_point
            for value, zero_point in zip(values, _zero_points(call), strict=True)
        )
        params = requantization_of(call)
        if call.input(0).dtype == INT16:  # products of 30 bits: the general step
            step = params.multipliers[0], params.shifts[0]
            store(requantize_value(left * right, *step, params, INT16))
        else:
            store_requantized(b, left * right, params, INT8, store)


def cases() -> Iterator[ConformanceCase]:
    yield from elementwise.binary_cases("MUL", lambda a, b, y: a * b * 60)


OPDEF = OpDef(
    name="mul",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=elementwise_row_window,
    imports={"tflite:MUL": elementwise.tflite_importer("mul")},
    cases=cases,
    dtypes=elementwise.DTYPES,
    numerics={
        profile: NumericsSpec(Rounding.TWICE, "int32", "reference_integer_ops Mul")
        for profile in ("litert", "tflm")
    },
)
