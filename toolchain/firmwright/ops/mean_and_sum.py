"""mean and sum over some axes; attributes as in axis_reduction.py.

int8, int16: the int32 sum of x - zero point is requantized by one factor that includes the
division. For n elements with 2^k <= n < 2^(k+1), and input scale / output scale = (m, s) as
multiplier and shift, a mean uses the multiplier floor(m * 2^k / n) and the shift s - k; a sum uses
m and s. Plain integers: sums keep the low 32 bits, means truncate toward zero.
Semantics: TFLite's reference quantized mean and TFLM's sum (LiteRT's int8 sum overflows: seven
times -128 gives -1); both profiles round twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import MIN_SHIFT, Rounding, quantize_multiplier
from firmwright.ir import tir
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.op_import import ImportContext, ImportedCall
from firmwright.ir.graph.opdef import OpCall, OpDef, RowReduction, both_profiles
from firmwright.ir.tir.builder import ArithExpr, Builder, immediate
from firmwright.ops.axis_reduction import lower_reduction, reduced_shape
from firmwright.ops.import_checks import require_tensors
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, requantize_value, tensor_quant
from firmwright.ops.row_windows import sum_rows

_SHIFT_MAX = 32
_DTYPES = (INT8, INT16, INT32, FLOAT32)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, axes = call.input(0), call.ints_attr("axes")
    if x.dtype not in _DTYPES or call.output.dtype != x.dtype:
        raise NotSupportedError(f"a {call.op} of {x.dtype.name}")
    if _is_quantized(call):
        zero_points = tensor_quant(x).zero_point, tensor_quant(call.output).zero_point
        if x.dtype == INT16 and any(zero_points):
            raise NotSupportedError("int16 with a zero point other than 0")
        if reduced_count(call) << x.dtype.bits > INT32.max:
            raise NotSupportedError(f"a {call.op} of {reduced_count(call)} elements")
    shape = reduced_shape(x.shape, axes, bool(call.int_attr("keep_dims")))
    return (TensorType(shape, x.dtype, call.output.quantization),)


def reduced_count(call: OpCall) -> int:
    """Return how many elements of x are reduced to one of y."""
    return call.input(0).elements // call.output.elements


def _is_quantized(call: OpCall) -> bool:
    return call.input(0).dtype in (INT8, INT16)


def _divisor(call: OpCall) -> int:
    return 1 if call.op == "sum" else reduced_count(call)


def _sum_dtype(call: OpCall) -> DType:
    kind = call.input(0).dtype
    if kind == INT32:
        return INT64 if call.op == "mean" else UINT32
    return FLOAT32 if kind == FLOAT32 else INT32


def requantization_of(call: OpCall) -> Requantization:
    x, y, count = tensor_quant(call.input(0)), tensor_quant(call.output), _divisor(call)
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


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axes, shape, kind = call.ints_attr("axes"), call.output.shape, call.output.dtype
    if kind == FLOAT32:
        total = np.asarray(arrays[0].astype(np.float64).sum(axis=axes))
        return ((total / _divisor(call)).astype(np.float32).reshape(shape),)
    zero_point = tensor_quant(call.input(0)).zero_point if _is_quantized(call) else 0
    total = np.asarray((arrays[0].astype(np.int64) - zero_point).sum(axis=axes))
    if kind == INT32:
        cut = np.sign(total) * (np.abs(total) // _divisor(call))
        return (cut.astype(np.int32).reshape(shape),)
    return (requantization_of(call).apply(total, kind).reshape(shape),)


def rows(call: OpCall) -> RowReduction | None:
    """Return the row reduction if exactly rows and columns are reduced, else None."""
    x = call.input(0)
    if len(x.shape) != 4 or x.shape[0] != 1 or call.ints_attr("axes") != (1, 2):
        return None
    if x.dtype == INT32:
        return None
    return RowReduction(_sum_dtype(call), x.shape[3], sum_rows, _finish_rows)


def _finish_rows(call: OpCall, b: Builder, acc: tir.Buffer, y: tir.Buffer) -> None:
    x = call.input(0)
    offset = tensor_quant(x).zero_point * reduced_count(call) if _is_quantized(call) else 0.0
    ones = [0] * (len(call.output.shape) - 1)
    with b.for_("c", x.shape[3]) as c:
        b.store(y, [*ones, c], _output_of_sum(call, b.load(acc, [c]) - offset))


def _output_of_sum(call: OpCall, total: ArithExpr) -> ArithExpr:
    kind = call.output.dtype
    if not _is_quantized(call):
        if call.op == "sum":
            return total.cast(kind)
        count = reduced_count(call)
        return total / float(count) if kind == FLOAT32 else (total / count).cast(kind)
    params = requantization_of(call)
    return requantize_value(total, params.multipliers[0], params.shifts[0], params, kind)


def lower(call: OpCall, b: Kernel) -> None:
    """Emit one output at a time; the sum starts at -(zero point * number of elements)."""
    dtype, start = _sum_dtype(call), 0
    if _is_quantized(call):
        start = -tensor_quant(call.input(0)).zero_point * reduced_count(call)
    lower_reduction(
        call,
        b,
        ArithExpr(immediate(start, dtype)),
        lambda acc, item: acc + item.cast(dtype),
        lambda acc: _output_of_sum(call, acc),
    )


def import_tflite(context: ImportContext) -> ImportedCall:
    require_tensors(context, 2)
    x, axes = context.inputs[0], context.constants[1]
    if x is None or axes is None:
        raise NotSupportedError("axes that are not constant")
    if axes.dtype.kind not in "iu":
        raise NotSupportedError(f"axes of type {axes.dtype}")
    rank = len(x.shape)
    listed = [int(axis) for axis in np.ravel(axes)]
    if any(not -rank <= axis < rank for axis in listed):
        raise NotSupportedError(f"axes {listed} of {rank} dimensions")
    attrs: dict[str, Attr] = {
        "axes": tuple(sorted({axis % rank for axis in listed})),
        "keep_dims": bool(context.node.options["keep_dims"]),
    }
    return ImportedCall(context.node.op.lower(), attrs, (0,))


OPDEFS: tuple[OpDef, ...] = tuple(
    OpDef(
        name=name,
        infer=infer,
        reference=reference,
        lower=lower,
        row_access=rows,
        imports={f"tflite:{name.upper()}": import_tflite},
        dtypes=tuple(kind.name for kind in _DTYPES),
        numerics=both_profiles(Rounding.TWICE, "int32", "reference_ops QuantizedMeanOrSum"),
    )
    for name in ("mean", "sum")
)
