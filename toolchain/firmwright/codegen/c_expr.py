"""C operators and C expressions with precedence and type, literals, and conversions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import FLOAT64, INT32, UINT32, UINT64, DType
from firmwright.ir import tir

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, RELATION, EQUALITY = 16, 14, 13, 12, 11, 10, 9
BIT_AND, BIT_XOR, BIT_OR, LOGICAL_AND, LOGICAL_OR, CONDITIONAL = 8, 7, 6, 5, 4, 3

C_OPERATORS: Mapping[str, tuple[str, int, int]] = {
    "add": ("+", SUM, SUM),
    "sub": ("-", SUM, SUM),
    "mul": ("*", PRODUCT, PRODUCT),
    "div": ("/", PRODUCT, PRODUCT),
    "mod": ("%", PRODUCT, UNARY),
    "shl": ("<<", SHIFT, UNARY),
    "shr": (">>", SHIFT, UNARY),
    "and": ("&", BIT_AND, UNARY),
    "or": ("|", BIT_OR, UNARY),
    "xor": ("^", BIT_XOR, UNARY),
    "lt": ("<", RELATION, SUM),
    "le": ("<=", RELATION, SUM),
    "gt": (">", RELATION, SUM),
    "ge": (">=", RELATION, SUM),
    "eq": ("==", EQUALITY, SUM),
    "ne": ("!=", EQUALITY, SUM),
}
"""For each TIR operator its C operator, the precedence, and the least of its operands.

Operands of lower precedence are parenthesized, also where only compiler warnings
require it.
"""
BOOL_OPERATORS: Mapping[str, tuple[str, int, int]] = {
    "and": ("&&", LOGICAL_AND, BIT_AND),
    "or": ("||", LOGICAL_OR, BIT_AND),
    "xor": ("!=", EQUALITY, SUM),
}
"""The rows of `C_OPERATORS` for boolean operands."""

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True, slots=True)
class CExpr:
    """A C expression with its precedence and type.

    `sign_extended` marks an unsigned value with the bits of a signed one. With an alias
    type, gcc then warns unless every operand is cast.
    """

    text: str
    ctype: DType
    precedence: int = PRIMARY
    literal: bool = False
    sign_extended: bool = False

    def within(self, least: int) -> str:
        """Return the text, parenthesized if its precedence is below `least`."""
        return self.text if self.precedence >= least else f"({self.text})"


def integer_literal(value: int, dtype: DType) -> CExpr:
    if dtype.signed and value == dtype.min and dtype.bits >= 32:
        return CExpr(f"INT{dtype.bits}_MIN", dtype, literal=True)
    if dtype in (UINT32, UINT64) and value < 1 << 32:
        return CExpr(f"{format_unsigned(value)}u", UINT32, literal=True)
    if dtype.bits <= 32 or -(1 << 31) < value < 1 << 31:
        return CExpr(str(value), INT32, UNARY if value < 0 else PRIMARY, literal=True)
    macro = "INT64_C" if dtype.signed else "UINT64_C"
    text = str(value) if dtype.signed else format_unsigned(value)
    return CExpr(f"{macro}({text})", dtype, literal=True)


def format_unsigned(value: int, digits: int = 0) -> str:
    """Format a number: above 255 in hexadecimal, with at least `digits` digits."""
    if value < 1 << 8 and not digits:
        return str(value)
    width = max(digits, 8 if value >> 16 else 4)
    return f"{value:#0{2 + width}x}"


def float_literal(value: float, dtype: DType) -> CExpr:
    """Return the shortest decimal literal that reads back as the same number."""
    if not np.isfinite(value):
        # Both macros are float32, which compilers convert to double with a warning.
        text = "NAN" if np.isnan(value) else "INFINITY"
        text = f"-{text}" if value < 0 else text
        if dtype == FLOAT64:
            return CExpr(f"(double){text}", dtype, UNARY, literal=True)
    else:
        text = float_digits(str(dtype.np.type(value)), dtype)
    return CExpr(text, dtype, UNARY if text[0] == "-" else PRIMARY, literal=True)


def float_digits(digits: str, dtype: DType) -> str:
    """Return decimal digits as a floating constant of C, which is never an integer."""
    whole = digits if any(c in digits for c in ".e") else f"{digits}.0"
    return whole if dtype == FLOAT64 else f"{whole}f"


def convert_to(value: CExpr, dtype: DType) -> CExpr:
    """Convert a value for assignment to `dtype`; cast only if C alters it or warns."""
    dtype, source = dtype.stored, value.ctype.stored
    if value.literal or source == dtype:
        return value
    if value.ctype.is_float or dtype.is_float:
        return cast_to(value, dtype)
    return value if represents_all_values(dtype, source) else cast_to(value, dtype)


def cast_to(value: CExpr, dtype: DType) -> CExpr:
    extended = value.ctype.signed and not dtype.signed and value.ctype.is_int
    text = f"({dtype.c_type}){value.within(UNARY)}"
    return CExpr(text, dtype, UNARY, sign_extended=extended)


def strip_alias_type(value: CExpr, dtype: DType) -> CExpr:
    """Cast a value from an alias type to the standard type; return others as is."""
    return value if value.literal or value.sign_extended else cast_to(value, dtype)


def fold_range_comparison(node: tir.Binary, a: CExpr, b: CExpr) -> int | None:
    """Return the constant result of a comparison, of which compilers warn, or None."""
    op, side, literal = str(node.op), a, node.b
    if isinstance(node.a, tir.IntImm):
        op, side, literal = _MIRRORED[node.op], b, node.a
    if not isinstance(literal, tir.IntImm) or side.literal or side.ctype.is_float:
        return None
    low, high, value = side.ctype.min, side.ctype.max, literal.value
    always = {
        "lt": high < value,
        "le": high <= value,
        "gt": low > value,
        "ge": low >= value,
    }
    never = {
        "lt": low >= value,
        "le": low > value,
        "gt": high <= value,
        "ge": high < value,
    }
    outside = not low <= value <= high
    if always.get(op, op == "ne" and outside):
        return 1
    return 0 if never.get(op, op == "eq" and outside) else None


def represents_all_values(target: DType, source: DType) -> bool:
    return source.min >= target.min and source.max <= target.max


def arithmetic_type(a: DType, b: DType) -> DType:
    if a.is_float:
        return a
    promoted = [t if t.bits >= 32 else INT32 for t in (a, b)]
    return max(promoted, key=lambda t: (t.bits, not t.signed))
