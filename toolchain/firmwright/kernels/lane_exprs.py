"""Semantics of instructions as C expressions.

Numbers narrower than int are extended by C itself, so casts that keep a number are not
written. Sums modulo 2^32 are those of uint32_t.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firmwright.base.dtypes import BOOL, INT32, UINT32, DType
from firmwright.base.errors import InternalError
from firmwright.ir import tir

PRIMARY, _UNARY, PRODUCT, SUM, _CONDITIONAL = 16, 14, 13, 12, 3
_OPERATORS: Mapping[str, tuple[str, int, int]] = {
    "mul": ("*", PRODUCT, PRODUCT),
    "add": ("+", SUM, SUM),
    "sub": ("-", SUM, SUM),
    "shl": ("<<", 11, _UNARY),
    "shr": (">>", 11, _UNARY),
    "lt": ("<", 10, SUM),
    "le": ("<=", 10, SUM),
    "gt": (">", 10, SUM),
    "ge": (">=", 10, SUM),
    "eq": ("==", 9, SUM),
    "ne": ("!=", 9, SUM),
    "and": ("&", 8, _UNARY),
    "xor": ("^", 7, _UNARY),
    "or": ("|", 6, _UNARY),
}
"""The C operator, its precedence, and the least of its operands; others in brackets."""


@dataclass(frozen=True, slots=True)
class CText:
    """A C expression with its precedence and its type, which C may extend to int.

    Every type has a number that `is_small`.
    """

    text: str
    dtype: DType
    precedence: int = PRIMARY
    is_small: bool = False

    def within(self, least: int) -> str:
        return self.text if self.precedence >= least else f"({self.text})"


Variable = Callable[[tir.Var], CText]
"""A function from a variable to its C, which may have the other signedness."""


def c_expression(expr: tir.Expr, variable: Variable) -> CText:
    """Return the C of an expression of numbers and `variable`s."""
    match expr:
        case tir.Var(_, dtype):
            return converted(variable(expr), dtype)
        case tir.Cast(dtype, tir.Var() as value) if variable(value).dtype == dtype:
            return variable(value)
        case tir.IntImm(value, dtype):
            suffix = "u" * (dtype == UINT32)
            precedence = _UNARY if value < 0 else PRIMARY
            text = f"{value}{suffix}"
            return CText(text, _promoted(dtype), precedence, 0 <= value < 128)
        case tir.FloatImm(value, dtype):
            return CText(f"{value!r}f", dtype)
        case tir.Cast(dtype, value):
            return converted(c_expression(value, variable), dtype)
        case tir.Select(cond, a, b):
            texts = [c_expression(part, variable) for part in (cond, a, b)]
            return _choice(*texts)
        case tir.Binary("min" | "max" as op, a, b):
            left, right = c_expression(a, variable), c_expression(b, variable)
            sign = "<" if op == "min" else ">"
            is_first = f"{left.within(SUM)} {sign} {right.within(SUM)}"
            return _choice(CText(is_first, INT32, 10), left, right)
        case tir.Binary("shl" | "shr" as op, a, tir.IntImm(amount)):
            return _operation(op, c_expression(a, variable), CText(str(amount), INT32))
        case tir.Binary(op, a, b) if op in _OPERATORS:
            return _operation(op, c_expression(a, variable), c_expression(b, variable))
    raise InternalError(f"portable C has no expression of {expr}")


def converted(value: CText, dtype: DType) -> CText:
    """Return a value converted to `dtype`, with a cast if C does not extend it."""
    if value.dtype == dtype or _keeps(value.dtype, dtype):
        return value
    return CText(f"({dtype.c_type}){value.within(_UNARY)}", dtype, _UNARY)


def _keeps(source: DType, target: DType) -> bool:
    """Return whether C extends each number of `source` to `target` by itself."""
    if target == BOOL:
        return True
    if source.is_float or target.is_float or not target.signed or target.bits > 32:
        return False
    return source.bits < target.bits or (source.bits == target.bits and source.signed)


def _promoted(dtype: DType) -> DType:
    return INT32 if not dtype.is_float and dtype.bits < 32 else dtype


def _choice(cond: CText, a: CText, b: CText) -> CText:
    text = f"{cond.within(6)} ? {a.within(4)} : {b.within(4)}"
    is_narrow = a.dtype == b.dtype or b.is_small
    return CText(text, a.dtype if is_narrow else _promoted(a.dtype), _CONDITIONAL)


def _operation(op: str, a: CText, b: CText) -> CText:
    sign, precedence, least = _OPERATORS[op]
    right = max(least, precedence + 1)
    text = f"{a.within(least)} {sign} {b.within(right)}"
    is_comparison = op in ("lt", "le", "gt", "ge", "eq", "ne")
    dtype = INT32 if is_comparison else _promoted(a.dtype)
    return CText(text, dtype, precedence)
