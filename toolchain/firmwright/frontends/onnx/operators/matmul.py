"""Matrix products: fully_connected if the weights are constant, else a reduction of products.

Source of the semantics: ONNX's Gemm, MatMul, MatMulInteger, Einsum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.errors import NotSupportedError
from firmwright.frontends.onnx.call_emitter import (
    CallEmitter,
    ConstantValue,
    OnnxValue,
    dtype_of,
    shape_of,
)
from firmwright.frontends.onnx.node_context import Importer, NodeContext
from firmwright.frontends.onnx.operators.convolutions import subtract_zero_point
from firmwright.frontends.onnx.operators.elementwise import float32_literal
from firmwright.ir.core import Attr


def emit_fully_connected(
    emit: CallEmitter, x: OnnxValue, w: Array, name: str, bias: ConstantValue | None
) -> OnnxValue:
    """Emit x [..., i] times w [o, i], plus bias [o]."""
    operands: list[OnnxValue] = [x, ConstantValue(np.ascontiguousarray(w), name)]
    if bias is not None:
        operands.append(bias)
    attrs: dict[str, Attr] = {"activation": "none", "keep_dims": True}
    return emit.call("fully_connected", operands, attrs)


def _gemm(c: NodeContext) -> OnnxValue:
    emit = c.emit
    alpha, beta = float(c.attr("alpha", 1.0)), float(c.attr("beta", 1.0))
    a = emit.transpose(c.input(0), (1, 0)) if c.attr("transA", 0) else c.input(0)
    b = c.input(1)
    bias = c.optional(2)
    if isinstance(bias, ConstantValue) and bias.array.size == 0:
        bias = None
    outputs = c.shape(1)[0 if c.attr("transB", 0) else 1]
    if dtype_of(a) == FLOAT32 and isinstance(b, ConstantValue) and _is_row(bias, outputs):
        w = b.array if c.attr("transB", 0) else b.array.T
        row = None
        if isinstance(bias, ConstantValue):
            spread = np.broadcast_to(bias.array.reshape(-1), (outputs,))
            row = ConstantValue((spread * np.float32(beta)).astype(np.float32), bias.name)
        scaled = w if alpha == 1 else (w * np.float32(alpha)).astype(np.float32)
        return emit_fully_connected(emit, a, scaled, b.name, row)
    b = emit.transpose(b, (1, 0)) if c.attr("transB", 0) else b
    y = emit_matmul(emit, a, b)
    if alpha != 1:
        y = emit.expression(f"a * {float32_literal(alpha)}", y)
    if bias is None:
        return y
    return emit.expression("a + b" if beta == 1 else f"a + b * {float32_literal(beta)}", y, bias)


def _is_row(bias: OnnxValue | None, outputs: int) -> bool:
    if bias is None:
        return True
    shape = shape_of(bias)
    return (
        isinstance(bias, ConstantValue)
        and math.prod(shape) in (1, outputs)
        and (not shape or shape[-1] in (1, outputs))
        and math.prod(shape[:-1]) == 1
    )


def _matmul(c: NodeContext) -> OnnxValue:
    a, b = c.input(0), c.input(1)
    is_constant_matrix = (
        isinstance(b, ConstantValue) and len(shape_of(b)) == 2 and len(shape_of(a)) >= 2
    )
    if is_constant_matrix and dtype_of(a) == FLOAT32 and not isinstance(a, ConstantValue):
        assert isinstance(b, ConstantValue)
        return emit_fully_connected(c.emit, a, b.array.T, b.name, None)
    return emit_matmul(c.emit, a, b)


def emit_matmul(emit: CallEmitter, a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Emit the product of matrices or stacks of matrices, as defined by numpy's matmul."""
    a_shape, b_shape = shape_of(a), shape_of(b)
    if not a_shape or not b_shape:
        raise NotSupportedError("a product of matrices with a scalar")
    a_wide = (1, *a_shape) if len(a_shape) == 1 else a_shape
    b_wide = (*b_shape, 1) if len(b_shape) == 1 else b_shape
    if a_wide[-1] != b_wide[-2]:
        raise NotSupportedError(f"shapes {list(a_shape)} and {list(b_shape)} do not fit each other")
    left = emit.reshape(a, (*a_wide, 1))
    right = emit.reshape(b, (*b_wide[:-2], 1, *b_wide[-2:]))
    rank = max(len(a_wide), len(b_wide)) + 1
    y = emit_sum_of_products(emit, left, right, (rank - 2,))
    shape = list(shape_of(y))
    if len(a_shape) == 1:
        del shape[-2]
    if len(b_shape) == 1:
        del shape[-1]
    return emit.reshape(y, shape)


def emit_sum_of_products(
    emit: CallEmitter, a: OnnxValue, b: OnnxValue, axes: Sequence[int]
) -> OnnxValue:
    attrs: dict[str, Attr] = {
        "formula": "a * b", "step": "add", "axes": tuple(axes), "keep_dims": False,
    }  # fmt: skip
    return emit.call("reduction", [a, b], attrs)


def _matmul_integer(c: NodeContext) -> OnnxValue:
    rows = None if c.optional(2) is None else len(c.shape(2))
    a = subtract_zero_point(c, c.input(0), c.optional(2), 2 if rows == 1 else 1)
    return emit_matmul(c.emit, a, subtract_zero_point(c, c.input(1), c.optional(3), 1))


def _parse_equation(c: NodeContext) -> tuple[list[str], str]:
    text = c.attr("equation").replace(" ", "")
    operands, arrow, result = text.partition("->")
    terms = operands.split(",")
    if len(terms) != len(c.inputs):
        raise NotSupportedError(f"the equation {text!r} for {len(c.inputs)} inputs")
    spare = [letter for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if letter not in text]
    ranks = [len(c.shape(index)) for index in range(len(terms))]
    hidden = max(
        (rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "..." in term),
        default=0,
    )
    dots = "".join(spare[:hidden])
    full = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term) + 3
        full.append(term.replace("...", dots[hidden - count :] if count else ""))
    if not arrow:
        letters = sorted(set("".join(terms)) - set("."))
        result = "..." * ("..." in terms) + "".join(
            letter for letter in letters if "".join(terms).count(letter) == 1
        )
    return full, result.replace("...", dots)


def _einsum(c: NodeContext) -> OnnxValue:
    terms, result = _parse_equation(c)
    joined = [letter for letter in dict.fromkeys("".join(terms)) if letter not in result]
    order = result + "".join(joined)
    if len(set(result)) != len(result):
        raise NotSupportedError(f"the equation {c.attr('equation')!r}")
    operands = [
        _align_axes(c, _diagonal(c, c.input(index), term), order)
        for index, term in enumerate(terms)
    ]
    formula = " * ".join("abcdefgh"[: len(operands)])
    if not joined:
        return c.emit.expression(formula, *operands)
    attrs: dict[str, Attr] = {
        "formula": formula, "step": "add", "axes": tuple(range(len(result), len(order))),
        "keep_dims": False,
    }  # fmt: skip
    return c.emit.call("reduction", operands, attrs)


def _diagonal(c: NodeContext, x: OnnxValue, term: str) -> tuple[OnnxValue, str]:
    while len(set(term)) != len(term):
        label = next(letter for letter in term if term.count(letter) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        shape = shape_of(x)
        places = np.arange(math.prod(shape)).reshape(shape)
        diagonal = np.diagonal(places, axis1=first, axis2=second)
        flat = c.emit.reshape(x, (math.prod(shape),))
        attrs: dict[str, Attr] = {
            "axis": 0, "indices": tuple(int(n) for n in diagonal.reshape(-1)),
            "shape": diagonal.shape,
        }  # fmt: skip
        x = c.emit.call("gather", [flat], attrs)
        term = "".join(t for k, t in enumerate(term) if k not in (first, second)) + label
    return x, term


def _align_axes(c: NodeContext, labelled: tuple[OnnxValue, str], order: str) -> OnnxValue:
    """Return the operand with its axes in `order`, of size 1 for missing labels."""
    x, term = labelled
    perm = [term.index(letter) for letter in order if letter in term]
    moved = c.emit.transpose(x, perm)
    sizes = dict(zip(term, shape_of(x), strict=True))
    return c.emit.reshape(moved, [sizes.get(letter, 1) for letter in order])


IMPORTERS: Mapping[str, Importer] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MatMulInteger": _matmul_integer,
}
