"""resize_bilinear and resample: interpolation of images, and along one axis.

resize_bilinear: each output pixel is interpolated from the four nearest input pixels.

Tables hold, for each output row, the input rows above and below it and the weight of
the row below; likewise for columns. For integers, the step between outputs is rounded
to a multiple of 1/1024, and the weighted sum to nearest, halves away from zero.
Semantics: TFLite's ResizeBilinear and ResizeBilinearInteger.

resample: along `axis`, each output is a weighted sum of a few inputs. Inputs: x,
constant `positions` uint16 and `weights` float32, both [outputs, taps]. An
interpolating resize is one such call for each axis.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UINT32,
    Array,
    DType,
)
from firmwright.base.errors import NotSupportedError
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.movement import ResampleAttrs, ResizeAttrs
from firmwright.ir.tir.builder import INDEX, ArithExpr, binary_expr, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.opdef import OpDef
from firmwright.ops.strided_copy import narrowest_index_dtype

_UNIT_BITS = 10
_UNIT = 1 << _UNIT_BITS
HALF_BITS = 8
"""Weights with this number of bits keep sums of bytes in 16 bits."""
_ONES = 0x10001
_HALVES = 0xFF00FF
_SIGNS = 0x80808080


def infer(call: OpCall) -> tuple[TensorType, ...]:
    attrs = call.attributes(ResizeAttrs)
    x = call.input(0)
    y = call.output
    size = attrs.size
    if x.dtype not in (INT8, INT16, FLOAT32) or y.dtype != x.dtype:
        raise NotSupportedError(f"{x.dtype.name} resized to {y.dtype.name}")
    if len(size) != 2 or min(size) < 1:
        raise NotSupportedError(f"an image size of {list(size)}")
    if attrs.align_corners and attrs.half_pixel_centers:
        raise NotSupportedError("both align_corners and half_pixel_centers")
    return (TensorType((x.shape[0], *size, x.shape[3]), x.dtype, y.quantization),)


def _neighbor_tables(call: OpCall, axis: int) -> tuple[Array, Array, Array]:
    """Return (before, after, weight of after) for each output row or column."""
    attrs = call.attributes(ResizeAttrs)
    inputs = call.input(0).shape[1 + axis]
    outputs = attrs.size[axis]
    corners = attrs.align_corners and outputs > 1
    centers = attrs.half_pixel_centers
    outputs_range = np.arange(outputs)
    intervals = (inputs - 1, outputs - 1) if corners else (inputs, outputs)
    positions: Array
    if call.input(0).dtype == FLOAT32:
        step = np.float32(intervals[0]) / np.float32(intervals[1])
        half = np.float32(0.5 if centers else 0)
        positions = (outputs_range.astype(np.float32) + half) * step - half
        floor = np.floor(positions)
        ceiling = np.ceil(positions)
        share = positions - np.maximum(floor, 0)
    else:
        unit = (_UNIT * intervals[0] + intervals[1] // 2) // intervals[1]
        positions = outputs_range * unit + (unit // 2 - _UNIT // 2 if centers else 0)
        floor = positions // _UNIT
        ceiling = -(-positions // _UNIT)
        share = positions - np.maximum(floor, 0) * _UNIT
    before = np.maximum(floor, 0).astype(np.int64)
    after = np.minimum(ceiling, inputs - 1).astype(np.int64)
    before = np.minimum(before, inputs - 1)
    # Beyond the outermost row both neighbors are that row; the weight matters to float
    # rounding.
    is_float = call.input(0).dtype == FLOAT32
    weight = np.where(after > before, share, share * is_float)
    return before, np.maximum(after, before), weight


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    y0, y1, dy = _neighbor_tables(call, 0)
    x0, x1, dx = _neighbor_tables(call, 1)
    is_float = call.input(0).dtype == FLOAT32
    kind = np.dtype(np.float32 if is_float else np.int64)
    x = arrays[0].astype(kind)
    unit = kind.type(1 if is_float else _UNIT)
    down = dy[:, None, None].astype(kind)
    right = dx[:, None].astype(kind)
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


def share_bits(call: OpCall, *axes: int) -> int:
    """Return the bits of the fractions that weights along `axes` are, 0 for floats."""
    if call.input(0).dtype == FLOAT32:
        return 0
    bits = 0
    for axis in axes:
        # The lowest bit that any weight has set is the unit of the weights.
        shares = int(np.bitwise_or.reduce(_neighbor_tables(call, axis)[2]))
        unit = min(shares & -shares or _UNIT, _UNIT >> 1)
        bits += _UNIT_BITS - unit.bit_length() + 1
    return bits


def sum_dtype(call: OpCall) -> DType:
    x = call.input(0).dtype
    if x == FLOAT32:
        return FLOAT32
    return INT32 if 8 * x.size_bytes + share_bits(call, 0, 1) < 32 else INT64


def lower(call: OpCall, b: Kernel, lanes: int = 1, *, by_rows: bool = False) -> None:
    """Emit sums of two columns, each a sum of two rows.

    `by_rows` stores the columns of a whole row first.

    Floats are added in the reference's order: uint8 images are rounded after it. Four
    `lanes` are a word, of which each half adds 128 to its int8 so that it does not
    borrow from the other.
    """
    (images, rows, cols, _), (_, *size, depth) = call.output.shape, call.input(0).shape
    x = b.input(0)
    y = b.y
    last = sum_dtype(call)
    wide = FLOAT32 if last == FLOAT32 else INT32
    if lanes > 1:
        wide = UINT32
        last = UINT32
        depth = depth // lanes
        words = partial(b.view, offset=0, dtype=wide, alignment=4)
        x = words("words", x, shape=(images, *size, depth))
        y = words("out", y, shape=(images, rows, cols, depth), access="w")
    parts = range(1 if wide == INT32 else 2)
    stored: tir.Buffer | None = None
    if by_rows:
        stored = b.allocate("columns", wide, (size[1], depth, len(parts)))
    with b.loops("n oy", (images, rows)) as (n, oy), ExitStack() as stack:
        above, below, up, down = load_neighbors(b, 0, oy, wide)

        def column(ix: ArithExpr, c: ArithExpr) -> list[ArithExpr]:
            tops = _widened(b, b.load(x, [n, above, ix, c]), wide)
            lows = _widened(b, b.load(x, [n, below, ix, c]), wide)
            if wide == FLOAT32:
                return [tops[0] * up, lows[0] * down]
            pairs = zip(tops, lows, strict=True)
            return [top * up + low * down for top, low in pairs]

        if stored:
            with b.loops("x c", (size[1], depth)) as (ix, c):
                for part, value in enumerate(column(ix, c)):
                    b.store(stored, [ix, c, part], value)
        ox = stack.enter_context(b.for_("ox", cols))
        left, right, *shares = load_neighbors(b, 1, ox, last)
        c = stack.enter_context(b.for_("c", depth))
        terms: list[ArithExpr] = []
        for ix, share in zip((left, right), shares, strict=True):
            if stored:
                values = [b.load(stored, [ix, c, k]) for k in parts]
            else:
                values = column(ix, c)
            terms += [value.cast(last) * share for value in values]
        b.store(y, [n, oy, ox, c], _narrowed(b, terms).cast(y.dtype))


def _widened(b: Kernel, value: ArithExpr, dtype: DType) -> list[ArithExpr]:
    if dtype != UINT32:
        return [value.cast(dtype)]
    raised = b.let("raised", binary_expr("xor", value, _SIGNS))
    return [raised & _HALVES, raised >> 8 & _HALVES]


def _narrowed(b: Kernel, terms: Sequence[ArithExpr]) -> ArithExpr:
    """Return the rounded sum: half up, less 1 if negative, as its highest bit shows."""
    bits = share_bits(b.call, 0, 1)
    dtype = terms[0].expr.dtype
    if dtype == FLOAT32:
        return sum(terms[1:], terms[0])
    half = 1 << bits - 1
    if dtype != UINT32:
        total = b.let("total", terms[0] + terms[1])
        return (total + half - (total < 0).cast(dtype)) >> bits
    means = []
    for left, right in zip(terms[:2], terms[2:], strict=True):
        total = b.let("total", left + right + (half - 1) * _ONES)
        rounded = total + (total >> bits + 7 & _ONES)
        means.append(b.let("mean", rounded >> bits & _HALVES))
    return binary_expr("xor", means[0] + (means[1] << 8), _SIGNS)


def load_neighbors(
    b: Kernel, axis: int, out: ArithExpr, wide: DType
) -> list[ArithExpr]:
    """Load the rows or columns around that of an output, and their weights."""
    *index_tables, share = _neighbor_tables(b.call, axis)
    name = ("row", "column")[axis]
    last = b.call.input(0).shape[1 + axis] - 1
    neighbors: list[ArithExpr] = []
    for kind, values in zip(("before", "after"), index_tables, strict=True):
        dtype = narrowest_index_dtype(values.tolist())
        table = b.constant(f"{name}s_{kind}", values, dtype)
        neighbor = minimum(b.load(table, [out]).cast(INDEX), last)
        neighbors.append(b.let(f"{name}_{kind}", neighbor))
    bits = share_bits(b.call, axis)
    is_float = wide == FLOAT32
    values = share if is_float else share >> _UNIT_BITS - bits
    shares = b.constant(f"{name}_shares", values, FLOAT32 if is_float else INT16)
    after = b.let(f"{name}_share", b.load(shares, [out]).cast(wide))
    return [*neighbors, b.let(f"{name}_rest", (1 << bits) - after), after]


def infer_resample(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    axis = call.attributes(ResampleAttrs).axis
    positions = call.constant(1)
    weights = call.constant(2)
    if x.dtype != FLOAT32 or not 0 <= axis < len(x.shape):
        raise NotSupportedError(f"taps of {x.dtype.name} along axis {axis}")
    if positions is None or weights is None or positions.shape != weights.shape:
        raise NotSupportedError("taps that are not constant")
    if 0 in positions.shape:
        raise NotSupportedError("a tensor without elements")
    if positions.dtype != UINT16:
        raise NotSupportedError(f"tap positions of type {positions.dtype.name}")
    first = int(positions.array().min())
    last = int(positions.array().max())
    if not 0 <= first <= last < x.shape[axis]:
        raise NotSupportedError("taps outside of the input")
    shape = (*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :])
    return (TensorType(shape, FLOAT32),)


def reference_resample(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x, positions, weights = arrays
    axis = call.attributes(ResampleAttrs).axis
    line = [1] * x.ndim
    line[axis] = len(weights)
    total: Array = np.zeros(call.output.shape, np.float32)
    # Taps are added in the order of the loops.
    for places, shares in zip(positions.T, weights.T, strict=True):
        total += np.take(x, places, axis=axis) * shares.reshape(line)
    return (total,)


def lower_resample(call: OpCall, b: Kernel) -> None:
    x = b.input(0)
    positions = b.input(1)
    weights = b.input(2)
    axis, (_, taps) = call.attributes(ResampleAttrs).axis, call.input(1).shape
    with b.loops("i", b.y.shape) as index:
        acc = b.register("acc", FLOAT32, 0.0)
        with b.for_("tap", taps) as tap:
            place = b.load(positions, [index[axis], tap]).cast(INDEX)
            source = minimum(place, x.shape[axis] - 1)
            position = [*index[:axis], source, *index[axis + 1 :]]
            acc.add(b.load(x, position) * b.load(weights, [index[axis], tap]))
        b.store(b.y, index, acc.value)


OPDEFS: tuple[OpDef, ...] = (
    OpDef(
        "resize_bilinear",
        infer,
        reference,
        lower,
    ),
    OpDef("resample", infer_resample, reference_resample, lower_resample),
)
