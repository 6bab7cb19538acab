"""Arithmetic of integers with a result for all operands.

Sums, differences, products and left shifts wrap: they keep the low bits of the result,
as in numpy and ONNX Runtime. The amount of a shift is at least 0 and less than the bits
of the type.

Quotients truncate toward zero. A divisor of 0 counts as 1, and the quotient that does
not fit, of the least integer and -1, wraps to the least integer with the remainder 0:
C leaves both undefined, and x86 ends the program. Results of int8 and int16 wrap, too,
which C computes as int. ONNX Runtime wraps the same quotient of int8 and int16, but its
process ends by SIGFPE at that of int64, and of int32 outside of vectors. LiteRT's
FLOOR_DIV wraps it, its DIV saturates it. All of them refuse the divisor 0.
"""

import numpy as np

from firmwright.base.dtypes import INT32, INT64, UINT32, UINT64, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    as_expr,
    binary_expr,
    maximum,
    select,
)
from firmwright.ir.tir.intervals import fits_dtype

_INT_BITS = 32
"""Narrower types are computed as int, whose quotients fit before they wrap."""


def quotient(a: Array, b: Array) -> Array:
    """Return the quotients of arrays of one integer type, with their broadcast."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    with np.errstate(over="ignore"):
        lower = a // divisor
        is_inexact = lower * divisor != a
    is_rounded_down = is_inexact & ((a < 0) != (divisor < 0))
    return np.asarray(np.where(is_rounded_down, lower + 1, lower), a.dtype)


def remainder(a: Array, b: Array) -> Array:
    divisor = np.where(b == 0, b.dtype.type(1), b)
    with np.errstate(over="ignore"):
        return np.asarray(a - quotient(a, divisor) * divisor, a.dtype)


def saturated_quotient(a: Array, b: Array) -> Array:
    """Return the quotients; the one that does not fit is the greatest integer."""
    kind = np.iinfo(a.dtype)
    is_least = (a == kind.min) & (b == -1)
    return np.where(is_least, a.dtype.type(kind.max), quotient(a, b))


def divide_expr(op: tir.BinaryOp, a: ExprLike, b: ArithExpr) -> ArithExpr:
    """Return the quotient (`div`) or remainder; a literal `a` takes the type of `b`."""
    if not isinstance(a, ArithExpr):
        a = ArithExpr(as_expr(a, b.expr.dtype))
    return quotient_expr(a, b) if op == "div" else remainder_expr(a, b)


def quotient_expr(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the quotient of two values of one integer type; b occurs repeatedly."""
    kind = b.expr.dtype
    if kind.signed and kind.bits < _INT_BITS:
        return (a.cast(INT32) / _safe_divisor(b).cast(INT32)).cast(kind)
    whole = a / _safe_divisor(b)
    if not kind.signed:
        return whole
    unsigned = UINT64 if b.expr.dtype.bits > _INT_BITS else UINT32
    negated = (0 - a.cast(unsigned)).cast(b.expr.dtype)
    return select(b.equal(-1), negated, whole)


def saturated_quotient_expr(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the quotient of int32 or int64 as `saturated_quotient`."""
    negated = 0 - maximum(a, -b.expr.dtype.max)
    return select(b.equal(-1), negated, a / _safe_divisor(b))


def remainder_expr(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the remainder, which has the sign of `a`; b occurs repeatedly."""
    return a % _safe_divisor(b)


def wrapped_expr(
    op: tir.BinaryOp, a: ExprLike, b: ExprLike, bounds: Bounds = Bounds()
) -> ArithExpr:
    """Return `a op b`, in which integers wrap.

    C computes int8 and int16 as int, and an int that overflows is undefined: unless
    `bounds` prove that the result fits, it is computed in an unsigned type.
    """
    plain = binary_expr(op, a, b)
    kind = plain.expr.dtype
    if op not in _WRAPPING or not (kind.is_int and kind.signed):
        return plain
    if _fits(plain.expr, bounds):
        return plain
    wide = _UNSIGNED.get(kind, INT32)
    return binary_expr(op, _low_bits(a, wide), _low_bits(b, wide)).cast(kind)


_WRAPPING = frozenset({"add", "sub", "mul", "shl"})
_UNSIGNED = {INT32: UINT32, INT64: UINT64}


def _fits(node: tir.Expr, bounds: Bounds) -> bool:
    limits = bounds.interval_of(node)
    if isinstance(node, tir.Binary) and node.op == "shl":
        amount = bounds.interval_of(node.b)
        # Without an amount, bounds take a shifted value as one that fits.
        if amount is None or not (amount[0] >= 0 and amount[1] < node.dtype.bits):
            return False
    return limits is not None and fits_dtype(limits, node.dtype)


def _low_bits(x: ExprLike, dtype: DType) -> ArithExpr:
    if isinstance(x, ArithExpr):
        return x.cast(dtype)
    if isinstance(x, int) and not dtype.signed:
        x %= 1 << dtype.bits
    return ArithExpr(as_expr(x, dtype))


def _safe_divisor(b: ArithExpr) -> ArithExpr:
    """Return b, or 1 in place of divisors for which C has no result.

    The remainder of a division by 1 is that of one by -1.
    """
    if not _may_overflow(b):
        return select(b.equal(0), 1, b)
    unsigned = UINT64 if b.expr.dtype.bits > _INT_BITS else UINT32
    return select(b.cast(unsigned) + 1 <= 1, 1, b)


def _may_overflow(b: ArithExpr) -> bool:
    return b.expr.dtype.signed and b.expr.dtype.bits >= _INT_BITS
