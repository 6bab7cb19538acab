"""Intervals of integers: inclusive ranges, and those of operations on them."""

import operator
from collections.abc import Callable
from typing import TypeAlias

from firmwright.base.dtypes import BOOL, UINT8, DType
from firmwright.base.rounding import divide_up

Interval: TypeAlias = tuple[int, int]


def binary_interval(op: str, x: Interval, y: Interval) -> Interval | None:
    match op:
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
        case "mul":
            return _hull_of_ends(operator.mul, x, y)
        case "div" if y[0] > 0:
            return _hull_of_ends(_divide, x, y)
        case "mod" if y[0] > 0:  # the sign follows the dividend, as in C
            if -y[0] < x[0] and x[1] < y[0]:
                return x
            low = max(x[0], 1 - y[1]) if x[0] < 0 else 0
            high = min(x[1], y[1] - 1) if x[1] > 0 else 0
            return low, high
        case "shr" if y[0] >= 0 and y[1] < 64:
            return _hull_of_ends(operator.rshift, x, y)
        case "shl" if y[0] >= 0 and y[1] < 64:
            return _hull_of_ends(operator.lshift, x, y)
        case "and":
            masks = [side[1] for side in (x, y) if side[0] >= 0]
            return (0, min(masks)) if masks else None
        case "or" | "xor" if x[0] >= 0 and y[0] >= 0:
            return 0, (1 << max(x[1], y[1]).bit_length()) - 1
        case _:
            return None


def _divide(value: int, divisor: int) -> int:
    """Return the quotient, truncated as in C, for a positive divisor."""
    return value // divisor if value >= 0 else divide_up(value, divisor)


def _hull_of_ends(
    function: Callable[[int, int], int], x: Interval, y: Interval
) -> Interval:
    """Return the interval of a function with its extremes at the operands' ends."""
    return hull_of([function(p, q) for p in x for q in y])


def hull_of(values: list[int]) -> Interval:
    return min(values), max(values)


def intersect(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def dtype_range(dtype: DType) -> Interval | None:
    """Return the values that an element or variable may have; a bool is a byte."""
    if dtype == BOOL:
        return 0, UINT8.max
    return (dtype.min, dtype.max) if dtype.is_int else None


def fits_dtype(limits: Interval, dtype: DType) -> bool:
    whole = dtype_range(dtype)
    return whole is not None and whole[0] <= limits[0] and limits[1] <= whole[1]
