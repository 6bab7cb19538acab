"""Flat element indices of buffer accesses."""

from typing import Literal

from firmwright.base.dtypes import INT32
from firmwright.base.errors import InternalError
from firmwright.ir import tir


def flat_index(buffer: tir.Buffer, indices: tuple[tir.Expr, ...]) -> tir.Expr:
    """Return the flat element index with constants folded: `(y * 5 + x) * 64 + c`."""
    if len(indices) != len(buffer.shape):
        raise InternalError(f"{buffer.name} has {len(buffer.shape)} dimensions")
    if not indices:
        return tir.IntImm(0, INT32)
    total: tir.Expr = tir.IntImm(0, indices[0].dtype)
    if buffer.strides is None:
        for length, index in zip(buffer.shape, indices, strict=True):
            before = fold_index("mul", total, tir.IntImm(length, index.dtype))
            total = fold_index("add", before, index)
        return total
    for stride, index in zip(buffer.element_strides, indices, strict=True):
        own = fold_index("mul", index, tir.IntImm(stride, index.dtype))
        total = fold_index("add", total, own)
    return total


def fold_index(op: Literal["add", "mul"], a: tir.Expr, b: tir.Expr) -> tir.Expr:
    """Build `a + b` or `a * b`, with products expanded and constants at the end."""
    if isinstance(a, tir.IntImm):
        a, b = b, a
    if isinstance(a, tir.Binary) and a.op == "add" and isinstance(a.b, tir.IntImm):
        if op == "mul" and isinstance(b, tir.IntImm):
            first, second = fold_index("mul", a.a, b), fold_index("mul", a.b, b)
            return fold_index("add", first, second)
        if op == "add" and isinstance(b, tir.IntImm):
            return fold_index("add", a.a, tir.IntImm(a.b.value + b.value, a.b.dtype))
        if op == "add":
            return fold_index("add", fold_index("add", a.a, b), a.b)
    if not isinstance(b, tir.IntImm):
        return tir.Binary(op, a, b)
    if isinstance(a, tir.IntImm):
        result = a.value + b.value if op == "add" else a.value * b.value
        return tir.IntImm(result, a.dtype)
    if op == "mul" and b.value == 0:
        return b
    if b.value == (0 if op == "add" else 1):
        return a
    if op == "mul" and isinstance(a, tir.Binary) and a.op == "mul":
        factor = a.b
        if isinstance(factor, tir.IntImm):
            product = tir.IntImm(factor.value * b.value, b.dtype)
            return fold_index("mul", a.a, product)
    return tir.Binary(op, a, b)
