"""average_pool2d: y is the mean of the input elements inside the window.

Attributes as in pooling.py. int8: the int32 sum of the raw values is divided by the number of taps,
rounding half away from zero; the zero point is not needed. Both profiles agree.
Semantics: TFLite's reference integer pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.ir import tir
from firmwright.ir.graph.opdef import OpCall, OpDef, RowReduction, RowWindow, both_profiles
from firmwright.ir.tir.builder import (
    ArithExpr,
    Builder,
    ExprLike,
    as_expr,
    maximum,
    minimum,
    select,
)
from firmwright.ops.conv_window import ConvWindow, OutputPosition, im2col
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import (
    DTYPES,
    clip_to_activation,
    infer,
    lower_pool,
    narrow_to_output,
    pool_importer,
    pool_window,
)
from firmwright.ops.row_windows import sliding_row_window, sum_rows


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    x = arrays[0].astype(np.float64)
    total = window_sums(x, window)
    count = window_sums(np.ones_like(x), window)
    if call.input(0).dtype == FLOAT32:
        return (clip_to_activation(call, total / count),)
    half_away = np.trunc((total + np.sign(total) * (count // 2)) / count)
    return (clip_to_activation(call, half_away),)


def window_sums(x: Array, window: ConvWindow) -> Array:
    patches = im2col(x, window)
    total: Array = patches.reshape(*patches.shape[:3], -1, x.shape[3]).sum(axis=-2)
    return total


def row_access(call: OpCall) -> RowWindow | RowReduction | None:
    """Return the row window of an unpadded call, or the row reduction of a global pool."""
    window = pool_window(call)
    if any(window.padding[:2]):
        return None
    x = call.input(0)
    if window.size == window.input_size and not window.is_padded and x.shape[0] == 1:
        wide = FLOAT32 if x.dtype == FLOAT32 else INT32
        return RowReduction(wide, x.shape[3], sum_rows, _finish)
    return sliding_row_window(call, window, None)


def _finish(call: OpCall, b: Builder, acc: tir.Buffer, y: tir.Buffer) -> None:
    taps = ArithExpr(as_expr(call.input(0).shape[1] * call.input(0).shape[2]))
    with b.for_("c", call.output.shape[3]) as c:
        b.store(y, [0, 0, 0, c], narrow_to_output(call, rounded_mean(b.load(acc, [c]), taps)))


def lower(call: OpCall, b: Kernel) -> None:
    window = pool_window(call)

    def finish(at: OutputPosition, total: ArithExpr) -> ArithExpr:
        return rounded_mean(total, tap_count(window, at))

    lower_pool(call, b, 0, lambda acc, x: acc + x, finish)


def rounded_mean(total: ArithExpr, taps: ArithExpr | int) -> ArithExpr:
    count = ArithExpr(as_expr(taps)).cast(total.expr.dtype)
    if total.expr.dtype == FLOAT32:
        return total / count
    half = count / 2
    return select(total > 0, total + half, total - half) / count


def tap_count(window: ConvWindow, at: OutputPosition) -> ArithExpr:
    """Return the number of taps inside the input, a constant if no window crosses the border."""
    rows = _count_along(window, 0, at.oy)
    cols = _count_along(window, 1, at.ox)
    return ArithExpr(as_expr(rows)) * cols


def _count_along(window: ConvWindow, axis: int, out: ArithExpr) -> ExprLike:
    size, length = window.size[axis], window.input_size[axis]
    if not window.guarded(axis):
        return size
    first = out * window.stride[axis] - window.padding[2 * axis]
    return minimum(first + size, length) - maximum(first, 0)


OPDEF = OpDef(
    name="average_pool2d",
    infer=infer,
    reference=reference,
    lower=lower,
    row_access=row_access,
    imports={"tflite:AVERAGE_POOL_2D": pool_importer("average_pool2d")},
    dtypes=DTYPES,
    numerics=both_profiles(None, "int32", "reference_integer_ops AveragePool"),
)
