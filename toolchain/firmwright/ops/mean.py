"""mean: y is the arithmetic mean of x over some of its axes.

Attributes: `axes` (increasing, counted from 0), `keep_dims` (reduced axes stay, of length 1).
int8: the int32 sum of x - zero point is requantised by one factor that holds both the scales'
quotient and the division: with (m, s) of input scale / output scale and 2^k <= n < 2^(k+1) for n
summands, the multiplier is floor(m * 2^k / n) and the shift s - k.
Source of the semantics: TFLite's reference quantised mean; both profiles round twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32
from firmwright.base.quant import MIN_SHIFT, Rounding, quantize_multiplier
from firmwright.ir.core import Attr
from firmwright.ir.graph.nodes import TensorType
from firmwright.ir.graph.opdef import (
    Array,
    Case,
    CaseTensor,
    ImportContext,
    Imported,
    NotSupportedError,
    NumericsCell,
    OpCall,
    OpDef,
    RowFold,
)
from firmwright.ir.tir.builder import Builder, E
from firmwright.ir.tir.nodes import Buffer
from firmwright.ops.arity import require_tensors
from firmwright.ops.case_tensors import constant_tensor
from firmwright.ops.fixed_point import Requant, per_tensor, requantized
from firmwright.ops.kernel import Kernel
from firmwright.ops.rows import accumulate_rows

_SHIFT_MAX = 32


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, axes = call.input(0), call.ints_attr("axes")
    if x.dtype not in (INT8, FLOAT32):
        raise NotSupportedError(f"a mean of {x.dtype.name}")
    if x.dtype == INT8:
        per_tensor(x)
        per_tensor(call.output)
        if summands(call) * 255 > INT32.max:
            raise NotSupportedError(f"a mean of {summands(call)} elements")
    keep = bool(call.int_attr("keep_dims"))
    shape = tuple(
        1 if axis in axes else length
        for axis, length in enumerate(x.shape)
        if keep or axis not in axes
    )
    return (TensorType(shape, x.dtype, call.output.quantization),)


def summands(call: OpCall) -> int:
    """How many elements of x make one of y."""
    return call.input(0).elements // call.output.elements


def requant_of(call: OpCall) -> Requant:
    """The factor of the module docstring, as parameters of a requantise."""
    x, y, count = per_tensor(call.input(0)), per_tensor(call.output), summands(call)
    multiplier, shift = quantize_multiplier(x.scale / y.scale)
    extra = min(count.bit_length() - 1, _SHIFT_MAX, shift - MIN_SHIFT)
    return Requant(
        ((multiplier << extra) // count,),
        (shift - extra,),
        Rounding.TWICE,
        y.zero_point,
        INT8.min,
        INT8.max,
    )


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    axes, shape = call.ints_attr("axes"), call.output.shape
    if call.input(0).dtype == FLOAT32:
        mean = np.asarray(arrays[0].astype(np.float64).mean(axis=axes))
        return (mean.astype(np.float32).reshape(shape),)
    shifted = arrays[0].astype(np.int64) - per_tensor(call.input(0)).zero_point
    total = np.asarray(shifted.sum(axis=axes))
    return (requant_of(call).apply(total, INT8).reshape(shape),)


def rows(call: OpCall) -> RowFold | None:
    """Row sums where all rows and columns, and nothing else, are summed up."""
    x = call.input(0)
    if len(x.shape) != 4 or x.shape[0] != 1 or call.ints_attr("axes") != (1, 2):
        return None
    return RowFold(INT32 if x.dtype == INT8 else FLOAT32, x.shape[3], accumulate_rows, _finish)


def _finish(call: OpCall, b: Builder, acc: Buffer, y: Buffer) -> None:
    """The output of all rows' sums, from which the zero points are still to be taken off."""
    x = call.input(0)
    offset = per_tensor(x).zero_point * summands(call) if x.dtype == INT8 else 0.0
    ones = [0] * (len(call.output.shape) - 1)
    with b.for_("c", x.shape[3]) as c:
        b.store(y, [*ones, c], _quotient(call, b.load(acc, [c]) - offset))


def _quotient(call: OpCall, total: E) -> E:
    """The mean, of the sum of all summands less their zero points."""
    if call.input(0).dtype != INT8:
        return total / float(summands(call))
    params = requant_of(call)
    return requantized(total, params.multipliers[0], params.shifts[0], params, INT8)


def lower(call: OpCall, b: Kernel) -> None:
    """One output at a time; the zero points are taken off at once, before the first summand."""
    x, axes, count = call.input(0), call.ints_attr("axes"), summands(call)
    keep = bool(call.int_attr("keep_dims"))
    quantized = x.dtype == INT8
    wide = INT32 if quantized else FLOAT32
    index: dict[int, E] = {}
    with ExitStack() as outer:
        for axis, length in enumerate(x.shape):
            if axis not in axes:
                index[axis] = outer.enter_context(b.for_(f"i{axis}", length))
        acc = b.reg("acc", wide)
        b.store(acc, [0], -per_tensor(x).zero_point * count if quantized else 0.0)
        with ExitStack() as inner:
            for axis in axes:
                index[axis] = inner.enter_context(b.for_(f"k{axis}", x.shape[axis]))
            item = b.load(b.input(0), [index[axis] for axis in range(len(x.shape))])
            b.store(acc, [0], b.load(acc, [0]) + item.cast(wide))
        value = _quotient(call, b.load(acc, [0]))
        place = [
            0 if axis in axes else index[axis]
            for axis in range(len(x.shape))
            if keep or axis not in axes
        ]
        b.store(b.y, place, value)


def from_tflite(context: ImportContext) -> Imported:
    require_tensors(context, 2)
    x, axes = context.inputs[0], context.constants[1]
    if x is None or axes is None:
        raise NotSupportedError("the axes are not constant")
    rank = len(x.shape)
    given = [int(axis) for axis in np.ravel(axes)]
    if any(not -rank <= axis < rank for axis in given):
        raise NotSupportedError(f"axes {given} of {rank} dimensions")
    attrs: dict[str, Attr] = {
        "axes": tuple(sorted({axis % rank for axis in given})),
        "keep_dims": bool(context.node.options["keep_dims"]),
    }
    return Imported("mean", attrs, (0,))


_CASES = (
    # name, shape, axes, keep_dims, (input scale, zero point), (output scale, zero point)
    ("spatial", (1, 5, 3, 4), (1, 2), False, (0.02, -128), (0.02, -128)),
    ("spatial_kept", (2, 4, 4, 3), (1, 2), True, (0.05, 4), (0.031, -7)),
    ("swapped", (1, 5, 7, 3), (2, 1), True, (0.05, 127), (0.07, 0)),
    ("last", (3, 5), (-1,), False, (0.1, -3), (0.05, 20)),
    ("last_kept", (2, 3, 7), (2,), True, (0.1, -3), (0.1, -3)),
    ("first_and_last", (3, 4, 5), (0, 2), False, (1.5, 10), (0.4, -50)),
    ("one_summand", (2, 1, 3), (1,), False, (0.3, 1), (0.4, 2)),
    ("many", (1, 33, 31, 2), (1, 2), False, (0.02, -100), (0.0008, 5)),
)


def cases() -> Iterator[Case]:
    for name, shape, axes, keep, x_quant, y_quant in _CASES:
        reduced = {axis % len(shape) for axis in axes}
        y_shape = tuple(
            1 if axis in reduced else length
            for axis, length in enumerate(shape)
            if keep or axis not in reduced
        )
        for dtype in ("int8", "float32"):
            x, y = (
                CaseTensor(kind, dtype, (float(np.float32(scale)),), (zero_point,))
                if dtype == "int8"
                else CaseTensor(kind, dtype)
                for kind, (scale, zero_point) in ((shape, x_quant), (y_shape, y_quant))
            )
            inputs = (x, constant_tensor(np.array(axes, np.int32)))
            yield Case(f"{name}_{dtype}", "MEAN", inputs, (y,), {"keep_dims": keep})


OPDEF = OpDef(
    name="mean",
    infer=infer,
    reference=reference,
    lower=lower,
    rows=rows,
    imports={"tflite:MEAN": from_tflite},
    cases=cases,
    dtypes=("int8", "float32"),
    numerics={
        "litert": NumericsCell(Rounding.TWICE, "int32", "reference_ops QuantizedMeanOrSum"),
        "tflm": NumericsCell(Rounding.TWICE, "int32", "reference_ops QuantizedMeanOrSum"),
    },
)
