"""Means, sums, extremes, products and logic over some axes of a tensor.

The operators are mean, sum, reduce_max, reduce_min, reduce_any, reduce_all and
reduce_prod.

Attributes: `axes` (increasing, counted from 0) and `keep_dims` (reduced axes remain
with length 1). Plain integers keep their low bits; means truncate toward zero.

mean and sum of int8 and int16: the int32 sum of x - zero point is requantized by one
factor, with two roundings. For n elements with 2^k <= n < 2^(k+1), and input scale /
output scale = (m, s) as multiplier and shift, a mean uses the multiplier floor(m * 2^k
/ n) and the shift s - k; a sum uses m and s.

reduce_prod of n int8 or int16 factors: each partial product of x - zero point is scaled
by input scale / (output scale)^(1/n) in 64 bits with one rounding (int16x8.py) and
keeps 32 bits; the last one is scaled once more. Float products multiply in order.
Semantics: TFLite's reference Reduce and quantized mean; for int8 sums TFLM's, because
LiteRT's overflow. TFLM has no products.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

from firmwright.base.dtypes import (
    BOOL,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import MIN_SHIFT, Rounding, quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.graph import TensorType
from firmwright.ir.graph.attributes.values import AxesAttrs, ReductionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    Builder,
    binary_expr,
    immediate,
    maximum,
    minimum,
    select,
)
from firmwright.ops.double_requantize import requantization_in_float32
from firmwright.ops.float_sum_order import TieTest, lower_result, reference_results
from firmwright.ops.int16x8 import (
    reduce_multiplier,
    requantize_int64,
    requantize_int64_array,
)
from firmwright.ops.integer_arithmetic import wrapped_expr
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef, RowReduction
from firmwright.ops.requantize import (
    Requantization,
    check_zero_points,
    clamp,
    per_tensor_quant,
)
from firmwright.ops.row_windows import sum_rows


def reduced_shape(
    shape: Sequence[int], axes: Sequence[int], keep_dims: bool
) -> tuple[int, ...]:
    reduced: list[int] = []
    for axis, length in enumerate(shape):
        if axis not in axes:
            reduced.append(length)
        elif keep_dims:
            reduced.append(1)
    return tuple(reduced)


def output_index(
    attrs: AxesAttrs | ReductionAttrs, index: Mapping[int, ArithExpr | int]
) -> list[ArithExpr | int]:
    position: list[ArithExpr | int] = []
    for axis in range(len(index)):
        if axis not in attrs.axes:
            position.append(index[axis])
        elif attrs.keep_dims:
            position.append(0)
    return position


def lower_reduction(
    call: OpCall,
    b: Kernel,
    start: ArithExpr,
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
    finish: Callable[[ArithExpr, Mapping[int, ArithExpr | int]], ArithExpr],
) -> None:
    """Emit for each output: acc = start; acc = step(acc, x); y = finish(acc, kept).

    `kept` holds the indices of the axes that are not reduced.
    """
    x = call.input(0)
    axes = call.attributes(AxesAttrs).axes
    index: dict[int, ArithExpr | int] = {}
    with ExitStack() as outer:
        for axis, length in enumerate(x.shape):
            if axis not in axes:
                index[axis] = outer.enter_context(b.for_(f"i{axis}", length))
        acc = b.register("acc", start.expr.dtype, start)
        kept = dict(index)
        with ExitStack() as inner:
            for axis in axes:
                index[axis] = inner.enter_context(b.for_(f"k{axis}", x.shape[axis]))
            item = b.load(b.input(0), [index[axis] for axis in range(len(x.shape))])
            acc.set(step(acc.value, item))
        position = output_index(call.attributes(AxesAttrs), index)
        b.store(b.y, position, finish(acc.value, kept))


_SHIFT_MAX = 32
_PLAIN_INTEGERS = {INT32: UINT32, INT64: UINT64}
"""Types without a scale, and those of their sums, which wrap."""


def _infer_mean(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(AxesAttrs)
    x, axes = call.input(0), attrs.axes
    if x.dtype not in _ALL or call.output.dtype != x.dtype:
        raise NotSupportedError(f"a {call.op} of {x.dtype.name}")
    if _is_quantized(call):
        check_zero_points(x, call.output)
        if reduced_count(call) << x.dtype.bits > INT32.max:
            raise NotSupportedError(f"a {call.op} of {reduced_count(call)} elements")
        if call.attributes(AxesAttrs).float_order:
            TieTest.of(call)
    shape = reduced_shape(x.shape, axes, attrs.keep_dims)
    return (TensorType(shape, x.dtype, call.output.quantization),)


def reduced_count(call: OpCall) -> int:
    return call.input(0).elements // call.output.elements


def _is_quantized(call: OpCall) -> bool:
    return call.input(0).dtype in (INT8, INT16)


def _divisor(call: OpCall) -> int:
    return 1 if call.op == "sum" else reduced_count(call)


def _sum_dtype(call: OpCall) -> DType:
    kind = call.input(0).dtype
    if kind in _PLAIN_INTEGERS:
        is_wide = kind == INT32 and call.op == "mean"
        return INT64 if is_wide else _PLAIN_INTEGERS[kind]
    return FLOAT32 if kind == FLOAT32 else INT32


def mean_requantization(call: OpCall) -> Requantization:
    """Return how the sum of elements relative to the zero point becomes an output."""
    x = per_tensor_quant(call.input(0))
    y = per_tensor_quant(call.output)
    count = _divisor(call)
    if call.numerics == "onnx":
        factor = np.float32(x.scale) / (np.float32(y.scale) * np.float32(count))
        reach = np.array([reduced_count(call) << call.input(0).dtype.bits])
        return requantization_in_float32(
            [float(factor)], -reach, reach, call.output, "none"
        )
    multiplier, shift = quantize_multiplier(x.scale / y.scale)
    extra = min(count.bit_length() - 1, _SHIFT_MAX, shift - MIN_SHIFT)
    return Requantization(
        ((multiplier << extra) // count,),
        (shift - extra,),
        Rounding.TWICE,
        y.zero_point,
        call.output.dtype.min,
        call.output.dtype.max,
    )


def _reference_mean(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axes = call.attributes(AxesAttrs).axes
    shape = call.output.shape
    kind = call.output.dtype
    if call.attributes(AxesAttrs).float_order:
        return (reference_results(call, arrays[0]),)
    if kind == FLOAT32:
        total = np.asarray(arrays[0].astype(np.float64).sum(axis=axes))
        return ((total / _divisor(call)).astype(np.float32).reshape(shape),)
    offsets = arrays[0].astype(np.int64)
    if _is_quantized(call):
        offsets = offsets - per_tensor_quant(call.input(0)).zero_point
    total = np.asarray(offsets.sum(axis=axes))
    if kind in _PLAIN_INTEGERS:
        down, rest = np.divmod(total, _divisor(call))
        cut = down + ((total < 0) & (rest != 0))
        return (cut.astype(kind.np).reshape(shape),)
    return (mean_requantization(call).apply(total, kind).reshape(shape),)


def _row_reduction(call: OpCall) -> RowReduction | None:
    x = call.input(0)
    attrs = call.attributes(AxesAttrs)
    if len(x.shape) != 4 or x.shape[0] != 1 or attrs.axes != (1, 2):
        return None
    if x.dtype in _PLAIN_INTEGERS or attrs.float_order:
        return None
    return RowReduction(_sum_dtype(call), x.shape[3], sum_rows, finish_sums)


def finish_sums(call: OpCall, b: Builder, acc: tir.Buffer, y: tir.Buffer) -> None:
    """Store the outputs of plain sums of elements, one for each channel."""
    x = call.input(0)
    offset = 0.0
    if _is_quantized(call):
        offset = per_tensor_quant(x).zero_point * reduced_count(call)
    ones = [0] * (len(call.output.shape) - 1)
    with b.for_("c", x.shape[-1]) as c:
        b.store(y, [*ones, c], _output_of_sum(call, b.load(acc, [c]) - offset))


def _output_of_sum(call: OpCall, total: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    if not _is_quantized(call):
        if call.op == "sum":
            return total.cast(kind)
        count = reduced_count(call)
        if kind == FLOAT32:
            return total / float(count)
        return (total.cast(INT64) / count).cast(kind)
    return mean_requantization(call).lower(total, kind)


def _lower_mean(call: OpCall, b: Kernel) -> None:
    """Emit one output at a time; the sum starts at -(zero point * element count)."""
    dtype, start = _sum_dtype(call), 0

    def finish(acc: ArithExpr, kept: Mapping[int, ArithExpr | int]) -> ArithExpr:
        if call.attributes(AxesAttrs).float_order:
            return lower_result(call, b, acc, kept)
        return _output_of_sum(call, acc)

    if _is_quantized(call):
        start = -per_tensor_quant(call.input(0)).zero_point * reduced_count(call)
    lower_reduction(
        call,
        b,
        ArithExpr(immediate(start, dtype)),
        lambda acc, item: acc + item.cast(dtype),
        finish,
    )


def _lowest(kind: DType) -> float:
    return float(np.finfo(np.float32).min) if kind == FLOAT32 else kind.min


def _greatest(kind: DType) -> float:
    return float(np.finfo(np.float32).max) if kind == FLOAT32 else kind.max


def reduction_op(
    name: str,
    dtypes: Sequence[DType],
    meaning: np.ufunc,
    start: Callable[[DType], float],
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
) -> OpDef:
    """Build an operator that folds elements into `start`, by `meaning` in numpy."""

    def infer(call: OpCall) -> tuple[TensorType, ...]:
        attrs = call.attributes(AxesAttrs)
        x = call.input(0)
        axes = attrs.axes
        keep = attrs.keep_dims
        if x.dtype not in dtypes or x.quantization != call.output.quantization:
            raise NotSupportedError(
                f"a {name} of {x.dtype.name} or with requantization"
            )
        shape = reduced_shape(x.shape, axes, keep)
        return (TensorType(shape, x.dtype, call.output.quantization),)

    def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
        wide = np.float64 if arrays[0].dtype == np.float32 else np.int64
        reduced = arrays[0].astype(wide)
        for axis in call.attributes(AxesAttrs).axes:
            first = start(call.output.dtype)
            reduced = meaning.reduce(reduced, axis, keepdims=True, initial=first)
        return (reduced.astype(call.output.dtype.np).reshape(call.output.shape),)

    def lower(call: OpCall, b: Kernel) -> None:
        kind = call.input(0).dtype
        first = ArithExpr(immediate(start(kind), kind))
        lower_reduction(call, b, first, step, lambda acc, kept: acc)

    return OpDef(name, infer, reference, lower)


_ALL = (INT8, INT16, INT32, INT64, FLOAT32)


_NONE = 1 << 32
"""Marks an empty product: no product reaches it, and arithmetic does not overflow."""
_PLAIN = reduction_op(
    "reduce_prod",
    (INT32, INT64, FLOAT32),
    np.multiply,
    lambda kind: 1,
    partial(wrapped_expr, "mul"),
)


def _prod_factor(call: OpCall) -> tuple[int, int]:
    x = per_tensor_quant(call.input(0)).scale
    y = per_tensor_quant(call.output).scale
    return reduce_multiplier(*quantize_multiplier(x / y ** (1.0 / reduced_count(call))))


def _infer_prod(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(AxesAttrs)
    x = call.input(0)
    axes = attrs.axes
    keep = attrs.keep_dims
    if not _is_quantized(call):
        return _PLAIN.infer(call)
    shape = reduced_shape(x.shape, axes, keep)
    y = TensorType(shape, call.output.dtype, call.output.quantization)
    if y.dtype != x.dtype or not x.elements:
        raise NotSupportedError(f"a product of {x.dtype.name} giving {y.dtype.name}")
    if x.dtype == INT16:
        has_zero = per_tensor_quant(x).zero_point or per_tensor_quant(y).zero_point
        if has_zero:
            raise NotSupportedError("int16 with a zero point other than 0")
    _prod_factor(replace(call, outputs=(y,)))
    return (y,)


def _reference_prod(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    attrs = call.attributes(AxesAttrs)
    if not _is_quantized(call):
        return _PLAIN.reference(call, arrays)
    axes = attrs.axes
    y = per_tensor_quant(call.output)
    factor = _prod_factor(call)
    offsets = arrays[0].astype(np.int64) - per_tensor_quant(call.input(0)).zero_point
    outer_axes = [axis for axis in range(offsets.ndim) if axis not in axes]
    rows = offsets.transpose(*outer_axes, *axes).reshape(-1, reduced_count(call))
    product = rows[:, 0]
    for column in range(1, rows.shape[1]):
        product = requantize_int64_array(product * rows[:, column], *factor)
    total = requantize_int64_array(product, *factor) + y.zero_point
    kind = call.output.dtype
    limited = np.clip(total, kind.min, kind.max).astype(kind.np)
    return (limited.reshape(call.output.shape),)


def _lower_prod(call: OpCall, b: Kernel) -> None:
    """Emit the product; quantized accumulators are `_NONE` before the first factor."""
    if not _is_quantized(call):
        _PLAIN.lower(call, b)
        return
    zero = per_tensor_quant(call.input(0)).zero_point
    y = per_tensor_quant(call.output)
    kind = call.output.dtype
    none = ArithExpr(immediate(_NONE, INT64))
    factor, shift = _prod_factor(call)
    multiplier = ArithExpr(immediate(factor, INT32))
    right = ArithExpr(immediate(shift, INT32))

    def step(acc: ArithExpr, item: ArithExpr) -> ArithExpr:
        factor = (item.cast(INT32) - zero).cast(INT64)
        product = requantize_int64(acc * factor, multiplier, right).cast(INT64)
        return select(binary_expr("eq", acc, none), factor, product)

    def end(acc: ArithExpr, kept: Mapping[int, ArithExpr | int]) -> ArithExpr:
        scaled = requantize_int64(acc, multiplier, right) + y.zero_point
        return clamp(scaled, kind.min, kind.max, kind)

    lower_reduction(call, b, none, step, end)


def _litert_gap_of_sum(call: OpCall) -> str:
    kind = call.input(0).dtype
    if kind not in (INT8, INT16):
        return ""
    return f"LiteRT's reference kernel of SUM does not compute sums of {kind.name}"


_MEAN = OpDef(
    "mean", _infer_mean, _reference_mean, _lower_mean, row_access=_row_reduction
)
OPDEFS: tuple[OpDef, ...] = (
    _MEAN,
    replace(_MEAN, name="sum", litert_gap=_litert_gap_of_sum),
    reduction_op(
        "reduce_max", _ALL, np.fmax, _lowest, lambda acc, item: maximum(item, acc)
    ),
    reduction_op(
        "reduce_min", _ALL, np.fmin, _greatest, lambda acc, item: minimum(item, acc)
    ),
    reduction_op(
        "reduce_any", (BOOL,), np.logical_or, lambda _: 0, partial(binary_expr, "or")
    ),
    reduction_op(
        "reduce_all", (BOOL,), np.logical_and, lambda _: 1, partial(binary_expr, "and")
    ),
    replace(_PLAIN, infer=_infer_prod, reference=_reference_prod, lower=_lower_prod),
)
