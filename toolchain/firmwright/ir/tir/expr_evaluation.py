"""Evaluation of scalar expressions in Python and numpy."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firmwright.base.dtypes import BOOL
from firmwright.ir import tir

Ints: TypeAlias = NDArray[np.int64]
LaneValue: TypeAlias = "int | Ints | None"
"""An integer that is equal in all lanes, one integer per lane, or None if unknown."""
BinaryFunction: TypeAlias = Callable[[Any, Any], Any]

SCALAR_FUNCTIONS: Mapping[str, BinaryFunction] = {
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: a if a > b else b,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "and": operator.and_,
    "or": operator.or_,
    **{
        name: getattr(operator, name)
        for name in ("add", "sub", "mul", "xor", "lt", "le", "gt", "ge", "eq", "ne")
    },
}
"""Functions of the binary operators except division and remainder."""
FLOAT_EXTREMES: Mapping[str, BinaryFunction] = {
    "min": lambda a, b: np.where(a < b, a, b),
    "max": lambda a, b: np.where(a > b, a, b),
}
"""The extremes of arrays of floats; the second operand, if one is NaN."""
ARRAY_FUNCTIONS: Mapping[str, BinaryFunction] = {
    **SCALAR_FUNCTIONS,
    "min": np.minimum,
    "max": np.maximum,
}


def evaluate_lanes(node: tir.Expr, values: Mapping[str, LaneValue]) -> LaneValue:
    """Evaluate `node` in all lanes, bools as 0 and 1; None if it depends on memory.

    Unsigned arithmetic wraps by definition; where it would wrap, the result is unknown.
    """
    match node:
        case tir.IntImm(value):
            return value if -(1 << 63) <= value < 1 << 63 else None
        case tir.Var(name):
            return values.get(name)
        case tir.BufferLoad(buffer) if buffer.scope == "reg":
            return values.get(buffer.name)
        case tir.Binary(op, a, b):
            x, y = evaluate_lanes(a, values), evaluate_lanes(b, values)
            if x is None or y is None:
                return None
            result = _apply(op, x, y)
            dtype = node.dtype
            if not dtype.is_int or dtype.signed:
                return result
            if dtype.bits == 64:
                return None
            return _in_range(result, dtype.min, dtype.max)
        case tir.Not(a):
            x = evaluate_lanes(a, values)
            return None if x is None else 1 - x
        case tir.Cast(dtype, value) if dtype.is_int and (
            value.dtype.is_int or value.dtype == BOOL
        ):
            return _in_range(evaluate_lanes(value, values), dtype.min, dtype.max)
        case tir.Select(cond, a, b):
            holds, x, y = (evaluate_lanes(part, values) for part in (cond, a, b))
            if holds is None or x is None or y is None:
                return None
            return _bools_to_ints(np.where(np.asarray(holds) != 0, x, y))
        case _:
            return None


def _in_range(value: LaneValue, least: int, most: int) -> LaneValue:
    if value is None or np.any((value < least) | (value > most)):
        return None
    return value


def _bools_to_ints(value: ArrayLike) -> int | Ints:
    array = np.asarray(value, np.int64)
    return array if array.ndim else int(array)


def _apply(op: str, x: int | Ints, y: int | Ints) -> LaneValue:
    a, b = np.asarray(x, np.int64), np.asarray(y, np.int64)
    if op in ARRAY_FUNCTIONS:
        return _bools_to_ints(ARRAY_FUNCTIONS[op](a, b))
    if op not in ("div", "mod") or not np.all(b):
        return None
    quotient = np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)
    return _bools_to_ints(quotient if op == "div" else a - quotient * b)
