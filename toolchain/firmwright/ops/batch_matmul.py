"""batch_matmul: products of matrices on the last two axes; other axes broadcast.

`adj_x` and `adj_y` transpose a matrix. int8: the int32 sum is requantized by scale_0 *
scale_1 / output scale. int16: the sum has 64 bits and the multiplier is reduced to 16
bits (int16x8.py). hybrid_batch_matmul has float x and int8 y: each row of x is
quantized at run time (with `asymmetric` asymmetrically), multiplied in integers and
scaled back by its scale and that of y. Semantics: TFLite's reference BatchMatMul and
hybrid BatchMatMul.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, INT64, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph import OpCall, TensorType
from firmwright.ir.graph.attributes.layers import (
    BatchMatmulAttrs,
    HybridBatchMatmulAttrs,
)
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ops import int16x8, requantize
from firmwright.ops.double_requantize import requantization_in_float32
from firmwright.ops.dynamic_range import (
    FloatRow,
    check_hybrid,
    quantize_array,
    quantize_row,
)
from firmwright.ops.elementwise import broadcast_loops, broadcast_shape
from firmwright.ops.kernel import Kernel, Nest
from firmwright.ops.opdef import OpDef
from firmwright.ops.requantize import per_tensor_quant

_DTYPES = (INT8, INT16, FLOAT32)


def infer(call: OpCall) -> tuple[TensorType, ...]:
    x = call.input(0)
    y = call.input(1)
    z = call.output
    if x.dtype not in _DTYPES or (y.dtype, z.dtype) != (x.dtype, x.dtype):
        raise NotSupportedError(
            f"{x.dtype.name} times {y.dtype.name} giving {z.dtype.name}"
        )
    shape = output_shape(call)
    depth = matrix_shape(call, 0)[1]
    if x.dtype != FLOAT32:
        requantize.check_zero_points(x, y, z)
        if depth > _MOST_TERMS[x.dtype]:
            raise NotSupportedError(f"sums of {depth} products")
    return (TensorType(shape, x.dtype, z.quantization),)


def output_shape(call: OpCall) -> tuple[int, ...]:
    x, y = call.input(0), call.input(1)
    if min(len(x.shape), len(y.shape)) < 2:
        raise NotSupportedError(
            f"matrices of shapes {list(x.shape)} and {list(y.shape)}"
        )
    rows, depth = matrix_shape(call, 0)
    other, columns = matrix_shape(call, 1)
    if depth != other:
        raise NotSupportedError(f"{depth} columns times {other} rows")
    return (*broadcast_shape(x.shape[:-2], y.shape[:-2]), rows, columns)


_MOST_TERMS = {INT8: INT32.max // (255 * 255), INT16: 1 << 16}


def is_transposed(call: OpCall, index: int) -> bool:
    attrs = call.attributes(BatchMatmulAttrs)
    return (attrs.adj_x, attrs.adj_y)[index]


def matrix_shape(call: OpCall, index: int) -> tuple[int, int]:
    rows, columns = call.input(index).shape[-2:]
    return (columns, rows) if is_transposed(call, index) else (rows, columns)


def requantization_of(call: OpCall) -> requantize.Requantization:
    x, y, z = requantize.tensor_scales(call)
    if call.input(0).dtype == INT16:
        return int16x8.requant_with_16_bit_multiplier([x * y / z], call.output, "none")
    if call.numerics == "onnx":
        factor = float(np.float32(x) * np.float32(y) / np.float32(z))
        low, high = _sum_bounds(call)
        return requantization_in_float32([factor], low, high, call.output, "none")
    return requantize.make_requantization(
        [x * y / z], Rounding.TWICE, call.output, "none"
    )


def _sum_bounds(call: OpCall) -> tuple[Array, Array]:
    ends = np.array([INT8.min, INT8.max])
    left = ends - _zero_point(call, 0)
    right = ends - _zero_point(call, 1)
    products = np.multiply.outer(left, right) * matrix_shape(call, 0)[1]
    return products.min(keepdims=True)[0], products.max(keepdims=True)[0]


def _zero_point(call: OpCall, index: int) -> int:
    kind = call.input(index)
    return 0 if kind.dtype == FLOAT32 else requantize.per_tensor_quant(kind).zero_point


def _matrix(call: OpCall, arrays: Sequence[Array], index: int) -> Array:
    array = arrays[index]
    return np.swapaxes(array, -1, -2) if is_transposed(call, index) else array


def reference(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    kind = call.output.dtype
    wide = np.float64 if kind == FLOAT32 else np.int64
    x = _matrix(call, arrays, 0).astype(wide) - _zero_point(call, 0)
    y = _matrix(call, arrays, 1).astype(wide) - _zero_point(call, 1)
    total = x @ y
    if kind == FLOAT32:
        return (total.astype(np.float32),)
    return (int16x8.requantize_sums(requantization_of(call), total, kind),)


def lower(call: OpCall, b: Kernel, block: Sequence[int] = (1, 1)) -> None:
    """Emit a block of sums at a time; its rows and columns divide the output's."""
    rows, depth = matrix_shape(call, 0)
    columns = call.output.shape[-1]
    points = _zero_point(call, 0), _zero_point(call, 1)
    wide = {INT8: INT32, INT16: INT64, FLOAT32: FLOAT32}[call.input(0).dtype]
    narrow = FLOAT32 if wide == FLOAT32 else INT32
    loops = _batch_loops(call)
    with Nest() as enter:
        finish = None
        if wide != FLOAT32:
            step = requantization_of(call)
            finish = int16x8.requantize_epilogue(b, step, wide, call.output.dtype)
        x, y, z = (index_by_batch(b, loops, index) for index in (0, 1, 2))
        at = [enter(b.for_(f"n{k}", n)) for k, (n, _) in enumerate(loops)]
        own = [_indices_of_input(at, loops, 0), _indices_of_input(at, loops, 1)]
        row_step, column_step = block
        row = enter(b.for_("row", rows // row_step)) * row_step
        column = enter(b.for_("column", columns // column_step)) * column_step
        i = [row + k for k in range(row_step)]
        j = [column + k for k in range(column_step)]
        zero = 0.0 if wide == FLOAT32 else 0
        acc = [b.register("acc", wide, zero) for _ in product(i, j)]
        with b.for_("k", depth) as k:

            def factor(index: int, n: ArithExpr) -> ArithExpr:
                place = (k, n) if is_transposed(call, index) == (index == 0) else (n, k)
                value = b.load((x, y)[index], [*own[index], *place]).cast(narrow)
                if points[index]:
                    value = value - points[index]
                return b.let(("left", "right")[index], value)

            lefts = [factor(0, n) for n in i]
            rights = [factor(1, n) for n in j]
            pairs = product(lefts, rights)
            for total, (left, right) in zip(acc, pairs, strict=True):
                total.add((left * right).cast(wide))
        for total, place in zip(acc, product(i, j), strict=True):
            value = total.value if finish is None else finish(total.value, place[0])
            b.store(z, [*at, *place], value)


def _batch_loops(call: OpCall) -> list[tuple[int, set[int]]]:
    shapes = call.input(0).shape[:-2], call.input(1).shape[:-2]
    return broadcast_loops(shapes, call.output.shape[:-2])


def _indices_of_input(
    at: Sequence[ArithExpr], loops: Sequence[tuple[int, set[int]]], index: int
) -> list[ArithExpr]:
    """Return the variables of the batch loops in which an input advances."""
    own: list[ArithExpr] = []
    for variable, (_, moving) in zip(at, loops, strict=True):
        if index in moving:
            own.append(variable)
    return own


def index_by_batch(
    b: Kernel, loops: Sequence[tuple[int, set[int]]], index: int
) -> tir.Buffer:
    """View input `index` (2: output) with an axis per batch loop, then the matrix."""
    buffer = b.y if index == 2 else b.input(index)
    own = [n for n, moving in loops if index == 2 or index in moving]
    name = ("left", "right", "out")[index]
    access = "w" if index == 2 else "r"
    return b.view(name, buffer, 0, (*own, *buffer.shape[-2:]), access=access)  # type: ignore[arg-type]  # r or w


_MOST_HYBRID_TERMS = INT32.max // (255 * 128)


def infer_hybrid(call: OpCall) -> tuple[TensorType, ...]:
    check_hybrid(call, None)
    if matrix_shape(call, 0)[1] > _MOST_HYBRID_TERMS:
        raise NotSupportedError(f"sums of {matrix_shape(call, 0)[1]} products")
    if _has_several_batch_axes(call, 0) or _has_several_batch_axes(call, 1):
        raise NotSupportedError(
            "matrices with several batch dimensions: LiteRT scales a row by the factor "
            "of another; reshape them to one batch dimension"
        )
    return (TensorType(output_shape(call), FLOAT32),)


def _has_several_batch_axes(call: OpCall, index: int) -> bool:
    batches = [n for n in call.input(index).shape[:-2] if n > 1]
    return len(batches) > 1


def reference_hybrid(call: OpCall, arrays: Sequence[Array]) -> tuple[Array, ...]:
    x = _matrix(call, arrays, 0)
    y = _matrix(call, arrays, 1)
    steps = np.zeros(x.shape, np.int64)
    scales = np.zeros((*x.shape[:-1], 1), np.float32)
    for place in np.ndindex(*x.shape[:-1]):
        asymmetric = call.attributes(HybridBatchMatmulAttrs).asymmetric
        quantized, scale, offset = quantize_array(x[place], asymmetric=asymmetric)
        steps[place], scales[place] = quantized.astype(np.int64) - offset, scale
    sums = (steps @ y.astype(np.int64)).astype(np.float32)
    return (sums * (scales * np.float32(per_tensor_quant(call.input(1)).scale)),)


def lower_hybrid(call: OpCall, b: Kernel) -> None:
    (rows, depth), (columns,) = matrix_shape(call, 0), call.output.shape[-1:]
    loops = _batch_loops(call)
    with Nest() as enter:
        x, y, z = (index_by_batch(b, loops, index) for index in (0, 1, 2))
        at = [enter(b.for_(f"n{k}", n)) for k, (n, _) in enumerate(loops)]
        own = [_indices_of_input(at, loops, 0), _indices_of_input(at, loops, 1)]
        i = enter(b.for_("row", rows))
        values = b.allocate("values", FLOAT32, (depth,))
        quantized = b.allocate("quantized", INT8, (depth,))
        with b.for_("k", depth) as k:
            place = [*own[0], *([k, i] if is_transposed(call, 0) else [i, k])]
            b.store(values, [k], b.load(x, place))
        row = quantize_row(
            b,
            FloatRow(values, 0, depth),
            quantized,
            weight_scale=per_tensor_quant(call.input(1)).scale,
            asymmetric=call.attributes(HybridBatchMatmulAttrs).asymmetric,
        )
        j = enter(b.for_("column", columns))
        acc = b.register("acc", INT32, 0)
        with b.for_("k", depth) as k:
            place = [*own[1], *([j, k] if is_transposed(call, 1) else [k, j])]
            acc.add(row.load(b, quantized, [k]) * b.load_i32(y, place))
        b.store(z, [*at, i, j], acc.value.cast(FLOAT32) * row.scale.value)


OPDEFS = (
    OpDef("batch_matmul", infer, reference, lower),
    OpDef("hybrid_batch_matmul", infer_hybrid, reference_hybrid, lower_hybrid),
)
