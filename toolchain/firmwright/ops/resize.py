"""resize_bilinear: each output pixel is interpolated from the four nearest input pixels.

Tables hold, for each output row, the input rows above and below it and the weight of the row below;
likewise for columns. For integers, the step between outputs is rounded to a multiple of 1/1024, and
the weighted sum to nearest, halves away from zero. Semantics: TFLite's ResizeBilinear and
ResizeBilinearInteger.

resample: along `axis`, each output is a weighted sum of a few inputs. Inputs: x, constant
`positions` uint16 and `weights` float32, both [outputs, taps]. An interpolating resize is one such
call for each axis.
"""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, UINT16, Array, DType
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph import OpCall, OpDef, TensorType
from firmwright.ir.tir.builder import INDEX, ArithExpr, minimum
from firmwright.ops.image_layout import import_resize
from firmwright.ops.import_checks import importer
from firmwright.ops.kernel import Kernel
from firmwright.ops.strided_copy import narrowest_index_dtype

_UNIT_BITS = 10
_UNIT = 1 << _UNIT_BITS


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x, y, size = call.input(0), call.output, call.ints_attr("size")
    if x.dtype not in (INT8, INT16, FLOAT32) or y.dtype != x.dtype:
        raise NotSupportedError(f"{x.dtype.name} resized to {y.dtype.name}")
    if len(size) != 2 or min(size) < 1:
        raise NotSupportedError(f"an image size of {list(size)}")
    if call.int_attr("align_corners") and call.int_attr("half_pixel_centers"):
        raise NotSupportedError("both align_corners and half_pixel_centers")
    return (TensorType((x.shape[0], *size, x.shape[3]), x.dtype, y.quantization),)


def _neighbor_tables(call: OpCall, axis: int) -> tuple[Array, Array, Array]:
    """Return (before, after, weight of after) for each output row or column."""
    inputs, outputs = call.input(0).shape[1 + axis], call.ints_attr("size")[axis]
    corners = bool(call.int_attr("align_corners")) and outputs > 1
    centers = bool(call.int_attr("half_pixel_centers"))
    outputs_range = np.arange(outputs)
    intervals = (inputs - 1, outputs - 1) if corners else (inputs, outputs)
    positions: Array
    if call.input(0).dtype == FLOAT32:
        step = np.float32(intervals[0]) / np.float32(intervals[1])
        half = np.float32(0.5 if centers else 0)
        positions = (outputs_range.astype(np.float32) + half) * step - half
        floor, ceiling = np.floor(positions), np.ceil(positions)
        share = positions - np.maximum(floor, 0)
    else:
        unit = (_UNIT * intervals[0] + intervals[1] // 2) // intervals[1]
        positions = outputs_range * unit + (unit // 2 - _UNIT // 2 if centers else 0)
        floor, ceiling = positions // _UNIT, -(-positions // _UNIT)
        share = positions - np.maximum(floor, 0) * _UNIT
    before = np.maximum(floor, 0).astype(np.int64)
    after = np.minimum(ceiling, inputs - 1).astype(np.int64)
    before = np.minimum(before, inputs - 1)
    # Beyond the outermost row both neighbors are that row; the weight matters to float rounding.
    is_float = call.input(0).dtype == FLOAT32
    return before, np.maximum(after, before), np.where(after > before, share, share * is_float)


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    (y0, y1, dy), (x0, x1, dx) = (_neighbor_tables(call, axis) for axis in (0, 1))
    is_float = call.input(0).dtype == FLOAT32
    kind = np.dtype(np.float32 if is_float else np.int64)
    x, unit = arrays[0].astype(kind), kind.type(1 if is_float else _UNIT)
    down, right = dy[:, None, None].astype(kind), dx[:, None].astype(kind)
    total = (
        x[:, y0][:, :, x0] * (unit - down) * (unit - right)
        + x[:, y1][:, :, x0] * down * (unit - right)
        + x[:, y0][:, :, x1] * (unit - down) * right
        + x[:, y1][:, :, x1] * down * right
    )
    if is_float:
        return (total,)
    half = 1 << (2 * _UNIT_BITS - 1)
    rounded = np.sign(total) * ((np.abs(total) + half) >> (2 * _UNIT_BITS))
    return (rounded.astype(call.output.dtype.np),)


def share_bits(call: OpCall, axis: int) -> int:
    """Return the bits of the fractions that weights along `axis` are, 0 for floats."""
    if call.input(0).dtype == FLOAT32:
        return 0
    common = int(np.bitwise_or.reduce(_neighbor_tables(call, axis)[2])) | _UNIT >> 1
    return _UNIT_BITS + 1 - (common & -common).bit_length()


def sum_dtype(call: OpCall) -> DType:
    """Return the type of weighted sums, which 64 bits always hold."""
    x, bits = call.input(0).dtype, share_bits(call, 0) + share_bits(call, 1)
    return FLOAT32 if x == FLOAT32 else INT32 if 8 * x.size_bytes + bits < 32 else INT64


def lower(call: OpCall, b: Kernel) -> None:
    """Emit weighted sums; floats in the reference's order: uint8 images are rounded after it."""
    dtype = sum_dtype(call)
    n, rows, cols, depth = call.output.shape
    with ExitStack() as stack:
        image = stack.enter_context(b.for_("n", n))
        oy = stack.enter_context(b.for_("oy", rows))
        above, below, up, down = load_neighbors(b, 0, oy, dtype)
        ox = stack.enter_context(b.for_("ox", cols))
        left, right, to_left, to_right = load_neighbors(b, 1, ox, dtype)
        c = stack.enter_context(b.for_("c", depth))

        def at(row: ArithExpr, col: ArithExpr) -> ArithExpr:
            return b.load(b.input(0), [image, row, col, c]).cast(dtype)

        if dtype == FLOAT32:
            total = at(above, left) * up * to_left + at(below, left) * down * to_left
            total = total + at(above, right) * up * to_right
            total = total + at(below, right) * down * to_right
        else:
            upper = at(above, left) * to_left + at(above, right) * to_right
            lower = at(below, left) * to_left + at(below, right) * to_right
            total = rounded_sum(b, upper * up + lower * down)
        b.store(b.y, [image, oy, ox, c], total.cast(call.output.dtype))


def rounded_sum(b: Kernel, value: ArithExpr) -> ArithExpr:
    bits, total = share_bits(b.call, 0) + share_bits(b.call, 1), b.let("total", value)
    return (total + (1 << bits - 1) - (total < 0).cast(total.expr.dtype)) >> bits


def load_neighbors(
    b: Kernel, axis: int, out: ArithExpr, wide: DType
) -> tuple[ArithExpr, ArithExpr, ArithExpr, ArithExpr]:
    """Load the rows or columns before and after that of an output, and their weights."""
    *index_tables, share = _neighbor_tables(b.call, axis)
    name, last = ("row", "column")[axis], b.call.input(0).shape[1 + axis] - 1
    neighbors: list[ArithExpr] = []
    for kind, values in zip(("before", "after"), index_tables, strict=True):
        table = b.constant(f"{name}s_{kind}", values, narrowest_index_dtype(values.tolist()))
        neighbors.append(b.let(f"{name}_{kind}", minimum(b.load(table, [out]).cast(INDEX), last)))
    bits = share_bits(b.call, axis)
    if wide == FLOAT32:
        shares = b.constant(f"{name}_shares", share, FLOAT32)
    else:
        shares = b.constant(f"{name}_shares", share >> _UNIT_BITS - bits, INT16)
    after = b.let(f"{name}_share", b.load(shares, [out]).cast(wide))
    return *neighbors, b.let(f"{name}_rest", (1 << bits) - after), after  # type: ignore[return-value]  # two neighbors


def infer_resample(call: OpCall) -> tuple[TensorType, ...]:
    x, axis = call.input(0), call.int_attr("axis")
    positions, weights = call.constant(1), call.constant(2)
    if x.dtype != FLOAT32 or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"taps of {x.dtype.name} along axis {axis}")
    if positions is None or weights is None or positions.shape != weights.shape:
        raise NotSupportedError("taps that are not constant")
    if positions.dtype != UINT16:
        raise NotSupportedError(f"tap positions of type {positions.dtype.name}")
    if not 0 <= int(positions.array().min()) <= int(positions.array().max()) < x.shape[axis]:
        raise NotSupportedError("taps outside of the input")
    return (TensorType((*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]), FLOAT32),)


def reference_resample(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, positions, weights = arrays
    axis = call.int_attr("axis")
    gathered = np.take(x, positions, axis=axis)
    spread = [1] * gathered.ndim
    spread[axis], spread[axis + 1] = weights.shape
    return ((gathered * weights.reshape(spread)).sum(axis=axis + 1),)


def lower_resample(call: OpCall, b: Kernel) -> None:
    x, positions, weights = (b.input(k) for k in range(3))
    axis, (_, taps) = call.int_attr("axis"), call.input(1).shape
    with b.loops("i", b.y.shape) as index:
        acc = b.register("acc", FLOAT32, 0.0)
        with b.for_("tap", taps) as tap:
            source = minimum(b.load(positions, [index[axis], tap]).cast(INDEX), x.shape[axis] - 1)
            position = [*index[:axis], source, *index[axis + 1 :]]
            acc.add(b.load(x, position) * b.load(weights, [index[axis], tap]))
        b.store(b.y, index, acc.value)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "resize_bilinear", infer, reference, lower,
        {"tflite:RESIZE_BILINEAR": importer("resize_bilinear", 2, import_resize, (0,))},
    ),
    OpDef("resample", infer_resample, reference_resample, lower_resample),
)  # fmt: skip
