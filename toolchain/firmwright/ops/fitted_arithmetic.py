"""table_sum and fitted_product: int8 sums and products with fitted coefficients.

    table_sum       v = a * multiplier + table[b + 128]           in 32 bits
    fitted_product  v = (a - a zero) * (b - b zero) * multiplier + addend   in 64 bits
    y = clamp((v + window * ((v >> shift) & 1)) >> shift, low, high)

The window moves the upper end of odd results down: with 1, halves round to even.
Frontends fit the coefficients (attributes) to a definition in floats
(frontends/onnx/qdq_arithmetic.py).
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import (
    FittedAttrs,
    FittedProductAttrs,
    TableSumAttrs,
)
from firmwright.ir.tir.builder import INDEX, ArithExpr, immediate
from firmwright.ops.elementwise import (
    broadcast_shape,
    loop_over_elements,
    subtract_zero_points,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import ArrayOrExpr, clamp
from firmwright.ops.row_windows import elementwise_row_window


def infer(call: OpCall) -> tuple[TensorType, ...]:
    a, b = call.input(0), call.input(1)
    if not a.dtype == b.dtype == call.output.dtype == INT8:
        raise NotSupportedError(f"a {call.op} of other tensors than int8")
    shape = broadcast_shape(a.shape, b.shape)
    return (TensorType(shape, INT8, call.output.quantization),)


def _narrowed(call: OpCall, v: ArrayOrExpr, dtype: DType) -> ArrayOrExpr:
    attrs = call.attributes(FittedAttrs)
    shift, window = attrs.shift, attrs.window
    low, high = attrs.low, attrs.high
    if not isinstance(v, ArithExpr):
        whole = (v + window * ((v >> shift) & 1)) >> shift
        return np.asarray(np.clip(whole, low, high), np.int8)
    if window:
        v = v + ((v >> shift) & 1) * ArithExpr(immediate(window, dtype))
    return clamp((v >> shift).cast(INT32), low, high, INT8)


def table_sum(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(TableSumAttrs)
    a, b = (x.astype(np.int64) for x in arrays)
    table = np.array(attrs.table, np.int64)
    return (_narrowed(call, a * attrs.multiplier + table[b - INT8.min], INT32),)


def lower_table_sum(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(TableSumAttrs)
    table = b.constant("table", np.array(attrs.table), INT32)
    with loop_over_elements(b) as (values, store):
        entry = b.load(table, [values[1].cast(INDEX) - INT8.min])
        v = b.let("v", values[0].cast(INT32) * attrs.multiplier + entry)
        store(_narrowed(call, v, INT32))


def fitted_product(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(FittedProductAttrs)
    a, b = subtract_zero_points(call, *arrays)
    v = a * b * attrs.multiplier + attrs.addend
    return (_narrowed(call, v, INT64),)


def lower_fitted_product(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(FittedProductAttrs)
    multiplier = ArithExpr(immediate(attrs.multiplier, INT64))
    addend = ArithExpr(immediate(attrs.addend, INT64))
    with loop_over_elements(b) as (values, store):
        left, right = subtract_zero_points(call, *values)
        v = b.let("v", (left * right).cast(INT64) * multiplier + addend)
        store(_narrowed(call, v, INT64))


def _opdef(
    name: str,
    reference: Callable[[OpCall, Sequence[Array]], tuple[Array, ...]],
    lower: Callable[[OpCall, Kernel], None],
) -> OpDef:
    return OpDef(name, infer, reference, lower, row_access=elementwise_row_window)


OPDEFS: tuple[OpDef, ...] = (
    _opdef("fitted_product", fitted_product, lower_fitted_product),
    _opdef("table_sum", table_sum, lower_table_sum),
)
