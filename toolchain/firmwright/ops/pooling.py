"""max_pool2d, average_pool2d and l2_pool2d (the root of the mean square, float only).

Attributes: `size`, `stride` (vertical, horizontal), `padding` (top, bottom, left,
right), `activation`. Taps outside the input are ignored. Input and output of a
quantized pool share scale and zero point; the mean of raw integers rounds half away
from zero. Both profiles agree. Semantics: TFLite's reference pooling.
"""

from collections.abc import Callable, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import (
    ActivationAttrs,
    AveragePoolAttrs,
    PoolAttrs,
)
from firmwright.ir.tir import builder
from firmwright.ir.tir.builder import ArithExpr, Builder, ExprLike
from firmwright.ops import conv_window, requantize
from firmwright.ops.kernel import Kernel
from firmwright.ops.libm_intrinsics import libm_function
from firmwright.ops.opdef import OpDef, RowReduction, RowWindow
from firmwright.ops.row_windows import sliding_row_window, sum_rows

DTYPES = ("int8", "int16", "float32")


def pool_window(call: OpCall) -> conv_window.ConvWindow:
    return conv_window.window_of(call, call.attributes(PoolAttrs).size)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    if len(x.shape) != 4:
        raise NotSupportedError(f"a pool over {len(x.shape)} dimensions")
    if x.dtype not in (INT8, INT16, FLOAT32):
        raise NotSupportedError(f"a pool of {x.dtype.name}")
    if x.dtype != FLOAT32:
        x_quant = requantize.per_tensor_quant(x)
        y_quant = requantize.per_tensor_quant(call.output)
        if (x_quant.scale, x_quant.zero_point) != (y_quant.scale, y_quant.zero_point):
            raise NotSupportedError(
                "a pool with different quantization of input and output"
            )
    window = pool_window(call)
    conv_window.check_window(window)
    rows, cols = window.size
    top, bottom, left, right = window.padding
    if max(top, bottom) >= rows or max(left, right) >= cols:
        raise NotSupportedError("a pool with windows outside of the input")
    shape = (x.shape[0], *window.output_size(*x.shape[1:3]), x.shape[3])
    return (TensorType(shape, x.dtype, call.output.quantization),)


def lower_pool(
    call: OpCall,
    b: Kernel,
    start: float,
    step: Callable[[ArithExpr, ArithExpr], ArithExpr],
    finish: Callable[[conv_window.OutputPosition, ArithExpr], ArithExpr],
) -> None:
    """Emit per output: acc = start; acc = step(acc, x) per tap; y = finish(acc)."""
    dtype: DType = FLOAT32 if call.input(0).dtype == FLOAT32 else INT32
    window = pool_window(call)
    positions = conv_window.output_positions(b, call.output.shape)
    with positions as at, b.for_("c", call.output.shape[3]) as c:
        acc = b.register("acc", dtype, start if dtype == FLOAT32 else int(start))
        with window.taps(b, at) as (_ky, _kx, iy, ix):
            x = b.load(b.input(0), [at.n, iy, ix, c]).cast(dtype)
            acc.set(step(acc.value, x))
        result = narrow_to_output(call, finish(at, acc.value))
        b.store(b.y, [at.n, at.oy, at.ox, c], result)


def narrow_to_output(
    call: OpCall, value: requantize.ArrayOrExpr
) -> requantize.ArrayOrExpr:
    """Clamp wide values, arrays or expressions, to the activation and convert them."""
    activation = call.attributes(ActivationAttrs).activation
    y = call.output
    if y.dtype == FLOAT32:
        return requantize.apply_activation(value, activation)
    low, high = requantize.quantized_activation_range(activation, y)
    return requantize.clamp(value, low, high, y.dtype)


def lowest(call: OpCall) -> float:
    """Return where a maximum starts: the least number that the input can have."""
    dtype = call.input(0).dtype
    return float(np.finfo(np.float32).min) if dtype == FLOAT32 else dtype.min


def _reference_max(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    x = arrays[0].astype(np.float64)
    patches = conv_window.im2col(x, window, outside=lowest(call))
    taps = patches.reshape(*patches.shape[:3], -1, x.shape[3])
    highest = np.fmax.reduce(taps, axis=-2, initial=lowest(call))
    return (narrow_to_output(call, highest),)


def _reference_average(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    is_float = call.input(0).dtype == FLOAT32
    x = arrays[0].astype(np.float32 if is_float else np.float64)
    total = window_sums(x, window)  # of floats, in the order of the loops
    count = window_sums(np.ones_like(x), window)
    if is_float:
        return (narrow_to_output(call, total / count),)
    if call.attributes(AveragePoolAttrs).unsigned:
        return (narrow_to_output(call, np.floor((total + count // 2) / count)),)
    half_away = np.trunc((total + np.sign(total) * (count // 2)) / count)
    return (narrow_to_output(call, half_away),)


def window_sums(x: Array, window: conv_window.ConvWindow) -> Array:
    patches = conv_window.im2col(x, window)
    total: Array = patches.reshape(*patches.shape[:3], -1, x.shape[3]).sum(axis=-2)
    return total


def _average_row_access(call: OpCall) -> RowWindow | RowReduction | None:
    """Return an unpadded call's row window, or a global pool's row reduction."""
    window = pool_window(call)
    if any(window.padding[:2]):
        return None
    x = call.input(0)
    if window.size == window.input_size and not window.is_padded and x.shape[0] == 1:
        wide = FLOAT32 if x.dtype == FLOAT32 else INT32
        return RowReduction(wide, x.shape[3], sum_rows, _finish_average)
    return sliding_row_window(call, window, None)


def _finish_average(call: OpCall, b: Builder, acc: tir.Buffer, y: tir.Buffer) -> None:
    taps = ArithExpr(builder.as_expr(call.input(0).shape[1] * call.input(0).shape[2]))
    with b.for_("c", call.output.shape[3]) as c:
        mean = stored_mean(call, b.load(acc, [c]), taps)
        b.store(y, [0, 0, 0, c], narrow_to_output(call, mean))


def _lower_average(call: OpCall, b: Kernel) -> None:
    window = pool_window(call)

    def finish(at: conv_window.OutputPosition, total: ArithExpr) -> ArithExpr:
        return stored_mean(call, total, tap_count(window, at))

    lower_pool(call, b, 0, lambda acc, x: acc + x, finish)


def stored_mean(call: OpCall, total: ArithExpr, taps: ArithExpr | int) -> ArithExpr:
    """Return the mean of stored values.

    With `unsigned`, it is that of values 128 higher, lowered by 128 again.
    """
    if not call.attributes(AveragePoolAttrs).unsigned:
        return rounded_mean(total, taps)
    raised = total + ArithExpr(builder.as_expr(taps)).cast(INT32) * -INT8.min
    return rounded_mean(raised, taps) + INT8.min


def rounded_mean(total: ArithExpr, taps: ArithExpr | int) -> ArithExpr:
    """Return the mean; integers are rounded to nearest, halves away from zero.

    For a power of two, that is half up, less 1 for negative sums.
    """
    count = ArithExpr(builder.as_expr(taps)).cast(total.expr.dtype)
    if total.expr.dtype == FLOAT32:
        return total / count
    if isinstance(taps, int) and taps > 1 and taps & (taps - 1) == 0:
        below = (total < 0).cast(total.expr.dtype)
        return (total + (taps // 2) - below) >> (taps.bit_length() - 1)
    half = count / 2
    return builder.select(total > 0, total + half, total - half) / count


def tap_count(
    window: conv_window.ConvWindow, at: conv_window.OutputPosition
) -> ArithExpr:
    """Return the number of taps inside the input.

    It is a constant if no window crosses the border.
    """
    rows = _count_along(window, 0, at.oy)
    cols = _count_along(window, 1, at.ox)
    return ArithExpr(builder.as_expr(rows)) * cols


def _count_along(window: conv_window.ConvWindow, axis: int, out: ArithExpr) -> ExprLike:
    size, step = window.size[axis], window.dilation[axis]
    length = window.input_size[axis]
    if not window.guarded(axis):
        return size
    first = out * window.stride[axis] - window.padding[2 * axis]
    if step > 1:
        behind = builder.minimum((length - first + step - 1) / step, size)
        return behind - builder.maximum((step - 1 - first) / step, 0)
    return builder.minimum(first + size, length) - builder.maximum(first, 0)


def _infer_l2(call: OpCall) -> tuple[TensorType, ...]:
    if call.input(0).dtype != FLOAT32:
        raise NotSupportedError(f"an L2 pool of {call.input(0).dtype.name}")
    return infer(call)


def _reference_l2(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    window = pool_window(call)
    x = arrays[0].astype(np.float64)
    mean = window_sums(x * x, window) / window_sums(np.ones_like(x), window)
    return (narrow_to_output(call, np.sqrt(mean)),)


def _lower_l2(call: OpCall, b: Kernel) -> None:
    window = pool_window(call)

    def finish(at: conv_window.OutputPosition, total: ArithExpr) -> ArithExpr:
        return libm_function("sqrt")(rounded_mean(total, tap_count(window, at)))

    lower_pool(call, b, 0, lambda acc, x: acc + x * x, finish)


def _maximum(_: conv_window.OutputPosition, acc: ArithExpr) -> ArithExpr:
    return acc


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "max_pool2d",
        infer,
        _reference_max,
        lambda call, b: lower_pool(
            call, b, lowest(call), lambda acc, x: builder.maximum(x, acc), _maximum
        ),
        row_access=lambda call: sliding_row_window(
            call, pool_window(call), lowest(call)
        ),
    ),
    OpDef(
        "average_pool2d",
        infer,
        _reference_average,
        _lower_average,
        row_access=_average_row_access,
    ),
    OpDef(
        "l2_pool2d",
        _infer_l2,
        _reference_l2,
        _lower_l2,
    ),
)
