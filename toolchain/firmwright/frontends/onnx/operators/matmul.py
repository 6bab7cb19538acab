"""Gemm, MatMul, MatMulInteger, Einsum by fully_connected or reductions of products.

Det eliminates rows by the operators of elements.
"""

import math
from collections.abc import Mapping

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.quant import Quantization
from firmwright.base.resource_limits import RAISED_BY, scaled_limit
from firmwright.frontends.onnx.node_context import (
    CallEmitter,
    ConstantValue,
    Importer,
    NodeContext,
    OnnxValue,
)
from firmwright.frontends.onnx.operators.conv import subtract_zero_point
from firmwright.frontends.onnx.operators.elementwise import (
    float32_literal,
    require_float32,
)
from firmwright.ir.graph.attributes.layers import (
    FullyConnectedAttrs,
    HybridFullyConnectedAttrs,
)
from firmwright.ir.graph.attributes.movement import DynamicGatherAttrs
from firmwright.ir.graph.attributes.values import ArgMinMaxAttrs
from firmwright.ir.graph.nodes import Value

_DETERMINANT_ROWS_MAX = 32


def emit_fully_connected(
    emit: CallEmitter, x: OnnxValue, w: Array, name: str, bias: ConstantValue | None
) -> OnnxValue:
    """Emit the product of x [..., i] and the transpose of w [o, i], plus bias [o]."""
    weights = ConstantValue(np.ascontiguousarray(w), name)
    operands = (x, weights) if bias is None else (x, weights, bias)
    attrs = FullyConnectedAttrs(activation="none", keep_dims=True)
    return emit.call("fully_connected", *operands, attrs=attrs)


def _gemm(c: NodeContext) -> OnnxValue:
    emit = c.emit
    alpha = float(c.attr("alpha", 1.0))
    beta = float(c.attr("beta", 1.0))
    a = emit.transpose(c.input(0), (1, 0)) if c.attr("transA", 0) else c.input(0)
    b = c.input(1)
    bias = c.optional(2)
    transposed = c.attr("transB", 0)
    if isinstance(bias, ConstantValue) and bias.array.size == 0:
        bias = None
    outputs = c.shape(1)[0 if transposed else 1]
    is_float = a.type.dtype == FLOAT32
    if is_float and isinstance(b, ConstantValue) and _is_row(bias, outputs):
        w, row = b.array if transposed else b.array.T, None
        if isinstance(bias, ConstantValue):
            spread = np.broadcast_to(bias.array.reshape(-1), (outputs,))
            products = (spread * np.float32(beta)).astype(np.float32)
            row = ConstantValue(products, bias.name)
        scaled = w if alpha == 1 else (w * np.float32(alpha)).astype(np.float32)
        return emit_fully_connected(emit, a, scaled, b.name, row)
    y = emit_matmul(emit, a, emit.transpose(b, (1, 0)) if transposed else b)
    if alpha != 1:
        y = emit.expression(f"a * {float32_literal(alpha)}", y)
    if bias is None:
        return y
    formula = "a + b" if beta == 1 else f"a + b * {float32_literal(beta)}"
    return emit.expression(formula, y, bias)


def _is_row(bias: OnnxValue | None, outputs: int) -> bool:
    if bias is None:
        return True
    shape = bias.shape
    return (
        isinstance(bias, ConstantValue)
        and math.prod(shape) in (1, outputs)
        and (not shape or shape[-1] in (1, outputs))
        and math.prod(shape[:-1]) == 1
    )


def import_matmul(c: NodeContext) -> OnnxValue:
    a, b = c.input(0), c.input(1)
    is_layer = isinstance(a, Value) and a.type.dtype == FLOAT32 and len(a.shape) >= 2
    if is_layer and isinstance(b, ConstantValue) and b.array.ndim == 2:
        return emit_fully_connected(c.emit, a, b.array.T, b.name, None)
    return emit_matmul(c.emit, a, b)


def emit_matmul(emit: CallEmitter, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Emit the product of matrices or stacks of matrices, like numpy's matmul."""
    a_shape, b_shape = a.shape, b.shape
    if not a_shape or not b_shape:
        raise NotSupportedError("a product of matrices with a scalar")
    a_wide = (1, *a_shape) if len(a_shape) == 1 else a_shape
    b_wide = (*b_shape, 1) if len(b_shape) == 1 else b_shape
    if a_wide[-1] != b_wide[-2]:
        raise NotSupportedError(
            f"shapes {list(a_shape)} and {list(b_shape)} do not fit each other"
        )
    left = emit.reshape(a, (*a_wide, 1))
    right = emit.reshape(b, (*b_wide[:-2], 1, *b_wide[-2:]))
    rank = max(len(a_wide), len(b_wide)) + 1
    y = emit.reduction("a * b", "add", (rank - 2,), left, right, keep=False)
    shape = list(y.shape)
    if len(a_shape) == 1:
        del shape[-2]
    if len(b_shape) == 1:
        del shape[-1]
    return emit.reshape(y, shape)


def _matmul_integer(c: NodeContext) -> OnnxValue:
    rows = None if c.optional(2) is None else len(c.shape(2))
    a = subtract_zero_point(c, c.input(0), c.optional(2), 2 if rows == 1 else 1)
    return emit_matmul(c.emit, a, subtract_zero_point(c, c.input(1), c.optional(3), 1))


def _dynamic_quantize_matmul(c: NodeContext) -> OnnxValue:
    """Emit the product of a tensor quantized at run time and constant int8 weights."""
    w = c.array(1, "weights")
    scales = c.array(2, "scales").astype(np.float32).reshape(-1)
    axis = 0 if len(scales) > 1 else None
    quantization = Quantization(tuple(map(float, scales)), (0,) * len(scales), axis)
    rows = np.ascontiguousarray(w.T)
    weights = ConstantValue(rows, f"{c.emit.stem}/weights", quantization)
    attrs = HybridFullyConnectedAttrs(
        activation="none", keep_dims=True, asymmetric=True, whole=True
    )
    return c.emit.call(
        "hybrid_fully_connected", c.input(0), weights, attrs=attrs, result=FLOAT32
    )


def _parse_equation(c: NodeContext) -> tuple[list[str], str]:
    text = c.attr("equation").replace(" ", "")
    operands, arrow, result = text.partition("->")
    terms = operands.split(",")
    if len(terms) != len(c.inputs):
        raise NotSupportedError(f"the equation {text!r} for {len(c.inputs)} inputs")
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in text]
    # The number of axes that each term's dots represent.
    counts = [len(c.shape(index)) - len(term) + 3 for index, term in enumerate(terms)]
    for term, n in zip(terms, counts, strict=True):
        if n < 0 or (n != 3 and "..." not in term):
            raise NotSupportedError(f"the equation {text!r} for these dimensions")
    sizes = {n for term, n in zip(terms, counts, strict=True) if "..." in term}
    if len(sizes) > 1:
        raise NotSupportedError(
            f"dots of different numbers of axes in the equation {text!r}"
        )
    dots = "".join(spare[: max(sizes, default=0)])
    full = [term.replace("...", dots) for term in terms]
    if not arrow:
        letters = "".join(terms)
        own = sorted(set(letters) - {"."})
        single = [letter for letter in own if letters.count(letter) == 1]
        result = "..." + "".join(single)
    return full, result.replace("...", dots)


def _einsum(c: NodeContext) -> OnnxValue:
    terms, result = _parse_equation(c)
    letters = dict.fromkeys("".join(terms))
    joined = [letter for letter in letters if letter not in result]
    order = result + "".join(joined)
    if len(set(result)) != len(result):
        raise NotSupportedError(f"the equation {c.attr('equation')!r}")
    operands: list[OnnxValue] = []
    for x, term in zip(c.all_inputs(), terms, strict=True):
        diagonal, labels = _diagonal(c, x, term)
        operands.append(_align_axes(c, diagonal, labels, order))
    formula = " * ".join("abcdefgh"[: len(operands)])
    if not joined:
        return c.emit.expression(formula, *operands)
    axes = range(len(result), len(order))
    return c.emit.reduction(formula, "add", axes, *operands, keep=False)


def _diagonal(c: NodeContext, x: OnnxValue, term: str) -> tuple[OnnxValue, str]:
    while len(set(term)) != len(term):
        label = next(letter for letter in term if term.count(letter) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        shape = x.shape
        places = np.arange(math.prod(shape)).reshape(shape)
        flat = c.emit.reshape(x, (math.prod(shape),))
        x = c.emit.gather(flat, 0, np.diagonal(places, axis1=first, axis2=second))
        others = [t for k, t in enumerate(term) if k not in (first, second)]
        term = "".join(others) + label
    return x, term


def _align_axes(c: NodeContext, x: OnnxValue, term: str, order: str) -> OnnxValue:
    """Return the operand with its axes in `order`; a missing label has size 1."""
    perm = [term.index(letter) for letter in order if letter in term]
    moved = c.emit.transpose(x, perm)
    sizes = dict(zip(term, x.shape, strict=True))
    return c.emit.reshape(moved, [sizes.get(letter, 1) for letter in order])


def _determinant(c: NodeContext) -> OnnxValue:
    """Eliminate the rows of [..., n, n] one by one, each time by the largest pivot."""
    require_float32(c)
    *batch, size, columns = c.shape(0)
    limit = scaled_limit(_DETERMINANT_ROWS_MAX)
    if size != columns or not 1 <= size <= limit:
        raise NotSupportedError(
            f"a determinant of {size} rows and {columns} columns; the most are "
            f"{limit} ({RAISED_BY})"
        )
    emit, count = c.emit, math.prod(batch)
    rest = emit.reshape(c.input(0), (count, size, size))
    result: OnnxValue = emit.const(np.ones((count, 1), np.float32), "one")
    for rows in range(size, 1, -1):
        column = emit.index_axis(rest, 2, 0)
        attrs = ArgMinMaxAttrs(axis=1, least=False, last=False)
        sizes = emit.expression("abs(a)", column)
        place = emit.call("arg_min_max", sizes, attrs=attrs, result=INT32)
        place = emit.reshape(place, (count, 1))
        slices = DynamicGatherAttrs(mode="slices", batch_dims=1)
        pivot_row = emit.call("dynamic_gather", rest, place, attrs=slices)
        pivot = emit.slice_axis(pivot_row, 1, 0, 1)
        formula = "where(c == 0, a * b, -(a * b))"
        result = emit.expression(formula, result, pivot, place)
        # The first row takes the place of the pivot's.
        below = emit.slice_axis(rest, 1, 1, rows - 1)
        numbers = emit.const(
            np.arange(1, rows, dtype=np.int32).reshape(1, rows - 1, 1), "rows"
        )
        taken = emit.reshape(place, (count, 1, 1))
        first = emit.slice_axis(rest, 1, 0, 1)
        below = emit.expression("where(c == d, b, a)", below, first, taken, numbers)
        wide = emit.reshape(pivot_row, (count, 1, rows))
        rest = emit.expression(
            "where(c == 0.0, a, a - d / c * b)",
            emit.slice_axis(below, 2, 1, rows - 1),
            emit.slice_axis(wide, 2, 1, rows - 1),
            emit.slice_axis(wide, 2, 0, 1),
            emit.slice_axis(below, 2, 0, 1),
        )
    last = emit.reshape(rest, (count, 1))
    return emit.reshape(emit.expression("a * b", result, last), batch)


IMPORTERS: Mapping[str, Importer] = {
    "Det": _determinant,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": import_matmul,
    "MatMulInteger": _matmul_integer,
    "com.microsoft:DynamicQuantizeMatMul": _dynamic_quantize_matmul,
}
