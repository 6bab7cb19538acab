"""Parts of registers and sums of them, as expressions of instruction semantics."""

from collections.abc import Sequence

from firmwright.base.dtypes import INT8, INT16, INT32, INT64, UINT8, UINT32, DType
from firmwright.ir.tir.builder import (
    ArithExpr,
    as_expr,
    binary_expr,
    maximum,
    minimum,
)


def low(word: ArithExpr) -> ArithExpr:
    """Return the low half of a word as a signed number."""
    return word.cast(INT16).cast(INT32)


def high(word: ArithExpr) -> ArithExpr:
    """Return the high half of a word as a signed number."""
    return shift_right(word.cast(UINT32), 16).cast(INT16).cast(INT32)


def byte(word: ArithExpr, index: int) -> ArithExpr:
    """Return byte `index` of a word, the lowest is 0, as a signed number."""
    return shift_right(word, 8 * index).cast(INT8).cast(INT32)


def unsigned_byte(word: ArithExpr, index: int) -> ArithExpr:
    return shift_right(word, 8 * index).cast(UINT8).cast(UINT32)


def join_halves(lower: ArithExpr, upper: ArithExpr) -> ArithExpr:
    """Return a word of the 16 low bits of two numbers."""
    right = lower.cast(UINT32) & constant(0xFFFF, UINT32)
    return bit_or(right, shift_left(upper.cast(UINT32), 16))


def constant(value: int, dtype: DType) -> ArithExpr:
    return ArithExpr(as_expr(value, dtype))


def shift_right(value: ArithExpr, amount: int) -> ArithExpr:
    return binary_expr("shr", value, amount)


def shift_left(value: ArithExpr, amount: int) -> ArithExpr:
    return binary_expr("shl", value, amount)


def bit_or(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return binary_expr("or", a, b)


def wrap_sum(first: ArithExpr, *others: ArithExpr) -> ArithExpr:
    """Return the sum of int32 modulo 2^32, as int32."""
    total = first.cast(UINT32)
    for other in others:
        total = total + other.cast(UINT32)
    return total.cast(INT32)


def wrap_difference(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the difference of int32 modulo 2^32, as int32."""
    return (a.cast(UINT32) - b.cast(UINT32)).cast(INT32)


def wrap_product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the low 32 bits of the product of two int32, as int32."""
    return (a.cast(UINT32) * b.cast(UINT32)).cast(INT32)


def high_product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the high 32 bits of the product of two int32, as int32."""
    return shift_right(a.cast(INT64) * b.cast(INT64), 32).cast(INT32)


def saturate(value: ArithExpr, dtype: DType) -> ArithExpr:
    """Return `value` limited to the range of `dtype`, in the type of `value`."""
    return minimum(maximum(value, dtype.min), dtype.max)


def sum_lanes(start: ArithExpr, terms: Sequence[ArithExpr]) -> ArithExpr:
    return wrap_sum(start, *terms)
