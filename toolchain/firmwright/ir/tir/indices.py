"""Element indices: row-major, as a person writes them.

In: a buffer and one expression a dimension. Out: one expression, its constants combined and last,
products multiplied out: `(y * 5 + x) * 64 + c`.
"""

from __future__ import annotations

from typing import Literal

from firmwright.base.dtypes import INT32
from firmwright.base.errors import InternalError
from firmwright.ir.tir.nodes import Binary, Buffer, Expr, IntImm


def flat_index(buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
    """The row-major element index, constants folded: `(y * 5 + x) * 64 + c`."""
    if len(indices) != len(buffer.shape):
        raise InternalError(f"{buffer.name} has {len(buffer.shape)} dimensions")
    if not indices:
        return IntImm(0, INT32)
    total: Expr = IntImm(0, indices[0].dtype)
    if buffer.strides is None:
        for length, index in zip(buffer.shape, indices, strict=True):
            total = folded("add", folded("mul", total, IntImm(length, index.dtype)), index)
        return total
    for stride, index in zip(buffer.element_strides, indices, strict=True):
        total = folded("add", total, folded("mul", index, IntImm(stride, index.dtype)))
    return total


def folded(op: Literal["add", "mul"], a: Expr, b: Expr) -> Expr:
    """`a + b` or `a * b` of indices: constants combined and last, products multiplied out."""
    if isinstance(a, IntImm):
        a, b = b, a
    if isinstance(a, Binary) and a.op == "add" and isinstance(a.b, IntImm):
        if op == "mul" and isinstance(b, IntImm):
            return folded("add", folded("mul", a.a, b), folded("mul", a.b, b))
        if op == "add":
            return folded("add", folded("add", a.a, b), a.b) if _varies(b) else _sum(a.a, a.b, b)
    if not isinstance(b, IntImm):
        return Binary(op, a, b)
    if isinstance(a, IntImm):
        return IntImm(a.value + b.value if op == "add" else a.value * b.value, a.dtype)
    if op == "mul" and b.value == 0:
        return b
    if b.value == (0 if op == "add" else 1):
        return a
    if op == "mul" and isinstance(a, Binary) and a.op == "mul" and isinstance(a.b, IntImm):
        return folded("mul", a.a, IntImm(a.b.value * b.value, b.dtype))
    return Binary(op, a, b)


def _varies(node: Expr) -> bool:
    return not isinstance(node, IntImm)


def _sum(base: Expr, first: IntImm, second: Expr) -> Expr:
    """`base + first + second` of two literals."""
    assert isinstance(second, IntImm)
    return folded("add", base, IntImm(first.value + second.value, first.dtype))
