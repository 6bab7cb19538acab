"""cumulative: running sum or product along `axis`; add_n: sum of any number of tensors.

Attributes of cumulative: `step` (add, mul), `exclusive` (omit the element itself) and
`reverse`. Quantized int8, only in TFLM: each value minus the zero point is shifted left
by 20 bits and halved, and the wrapping 32-bit sum is requantized; both steps round
twice. Such sums start with a raw 0 whatever the zero point is. Other types are added
directly, in element order. Semantics: TFLite's reference CumSum and AddN, TFLM's for
int8, ONNX's CumProd.
"""

import math
from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding, quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.values import CumulativeAttrs
from firmwright.ir.tir.builder import ArithExpr, immediate
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.integer_arithmetic import wrapped_expr
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import (
    Requantization,
    make_requantization,
    per_tensor_quant,
)
from firmwright.ops.rescaled_sum import SumTerm
from firmwright.ops.row_windows import elementwise_row_window
from firmwright.ops.strided_copy import DTYPES

_LEFT_SHIFT = 20
_FITTING_TERMS = 8
"""Number of quantized inputs whose sum certainly fits 32 bits."""
_DTYPES = (INT8, INT32, FLOAT32)
_CUMULATIVE_DTYPES = tuple(kind for kind in DTYPES if kind.is_int or kind.is_float)


def _infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y = call.input(0), call.output
    kinds = [call.input(index) for index in range(len(call.inputs))]
    if x.dtype not in _DTYPES or {kind.dtype for kind in (*kinds, y)} != {x.dtype}:
        raise NotSupportedError(f"a {call.op} of {x.dtype.name} giving {y.dtype.name}")
    if {kind.shape for kind in kinds} != {x.shape}:
        raise NotSupportedError(f"a {call.op} of unequal shapes")
    if x.dtype == INT8:
        quants = map(per_tensor_quant, kinds)
        different = {(quant.scale, quant.zero_point) for quant in quants}
        if len(different) > 1:
            raise NotSupportedError(
                f"a {call.op} of inputs with different quantization"
            )
        if _output_requantization(call).shifts[0] > 0:
            raise NotSupportedError("an output scale too far below the input scale")
    return (TensorType(x.shape, x.dtype, y.quantization),)


def _output_requantization(call: OpCall) -> Requantization:
    twice = 2 * per_tensor_quant(call.input(0)).scale
    factor = twice / ((1 << _LEFT_SHIFT) * per_tensor_quant(call.output).scale)
    return make_requantization([factor], Rounding.TWICE, call.output, "none")


def _term(call: OpCall) -> SumTerm:
    zero_point = per_tensor_quant(call.input(0)).zero_point
    return SumTerm(zero_point, *quantize_multiplier(0.5))


def _initial_sum(call: OpCall) -> int:
    return int(_term(call).apply(np.array(0)))


def _lower_term(call: OpCall, x: ArithExpr) -> ArithExpr:
    """Multiply by 2^19: the terms' factor is a half."""
    offset = x.cast(INT32) - per_tensor_quant(call.input(0)).zero_point
    return offset * (1 << (_LEFT_SHIFT - 1))


def _lower_output(call: OpCall, total: ArithExpr) -> ArithExpr:
    return _output_requantization(call).lower(total, INT8)


def _to_output(call: OpCall, total: Array) -> Array:
    if call.input(0).dtype == FLOAT32:
        return total.astype(np.float32)
    wrapped = total.astype(np.int32)
    if call.input(0).dtype == INT32:
        return wrapped
    return _output_requantization(call).apply(wrapped, INT8)


def _is_quantized(call: OpCall) -> bool:
    return call.input(0).dtype == INT8 and call.input(0).quantization is not None


def _infer_cumulative(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(CumulativeAttrs)
    axis = attrs.axis
    x = call.input(0)
    step = attrs.step
    if x.dtype not in _CUMULATIVE_DTYPES or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"cumulative of {x.dtype.name} along axis {axis}")
    if step not in ("add", "mul") or (step == "mul" and _is_quantized(call)):
        raise NotSupportedError(f"cumulative of {x.dtype.name} by {step!r}")
    return _infer(call) if _is_quantized(call) else (TensorType(x.shape, x.dtype),)


def _cumulative_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(CumulativeAttrs)
    axis, reverse = attrs.axis, attrs.reverse
    is_sum = attrs.step == "add"
    quantized = _is_quantized(call)
    x = _term(call).apply(arrays[0]) if quantized else arrays[0]
    x = np.flip(x, axis) if reverse else x
    if attrs.exclusive:
        head = np.full_like(np.take(x, [0], axis=axis), 0 if is_sum else 1)
        rest = np.take(x, np.arange(x.shape[axis] - 1), axis=axis)
        x = np.concatenate([head, rest], axis=axis)
    accumulate = np.add.accumulate if is_sum else np.multiply.accumulate
    total = accumulate(x, axis=axis, dtype=x.dtype)
    total = np.flip(total, axis) if reverse else total
    if quantized:
        total = _to_output(call, total + _initial_sum(call))
    return (np.ascontiguousarray(total),)


def _cumulative_lower(call: OpCall, b: Kernel) -> None:
    attrs = call.attributes(CumulativeAttrs)
    shape = call.input(0).shape
    axis = attrs.axis
    count = call.input(0).shape[attrs.axis]
    before = math.prod(shape[:axis])
    after = math.prod(shape[axis + 1 :])
    quantized = _is_quantized(call)
    is_sum = attrs.step == "add"
    wide = INT32 if quantized else call.input(0).dtype
    join: tir.BinaryOp = "add" if is_sum else "mul"
    x, y = b.views("values sums", (before, count, after), b.input(0), b.y)
    with b.for_("outer", before) as outer, b.for_("inner", after) as inner:
        acc = b.register("acc", wide)
        start = 0 if is_sum else 1
        if quantized:
            start = _initial_sum(call)
        acc.set(ArithExpr(immediate(start, wide)))
        with b.for_("k", count) as k:
            at = [outer, count - 1 - k if attrs.reverse else k, inner]
            item = b.load(x, at)
            item = _lower_term(call, item) if quantized else item
            total = b.let("total", wrapped_expr(join, acc.value, item))
            result = acc.value if attrs.exclusive else total
            b.store(y, at, _lower_output(call, result) if quantized else result)
            acc.set(total)


def _add_n_reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    kind = call.input(0).dtype
    if kind == INT8:
        terms = [_term(call).apply(x) for x in arrays]
        return (_to_output(call, np.asarray(sum(terms) + _initial_sum(call))),)
    wide = np.float64 if kind == FLOAT32 else np.int64
    total = sum(x.astype(wide) for x in arrays)
    return (_to_output(call, np.asarray(total)),)


def _add_n_lower(call: OpCall, b: Kernel) -> None:
    quantized = call.input(0).dtype == INT8
    with loop_over_elements(b) as (values, store):
        terms = list(values)
        if quantized:
            terms = [_lower_term(call, x) for x in values]
        total, *others = terms
        if quantized and _initial_sum(call):
            others.append(ArithExpr(immediate(_initial_sum(call), INT32)))
        fits = quantized and len(terms) <= _FITTING_TERMS
        for term in others:
            total = total + term if fits else wrapped_expr("add", total, term)
        store(_lower_output(call, total) if quantized else total)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "cumulative",
        _infer_cumulative,
        _cumulative_reference,
        _cumulative_lower,
    ),
    OpDef(
        "add_n",
        _infer,
        _add_n_reference,
        _add_n_lower,
        row_access=elementwise_row_window,
    ),
)
