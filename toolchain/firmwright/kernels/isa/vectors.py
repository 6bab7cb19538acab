"""Lanes of vectors, and rounding arithmetic of one lane, for instruction semantics."""

import operator
from collections.abc import Callable
from functools import reduce

from firmwright.base.dtypes import (
    FLOAT32,
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    DType,
)
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    call_intrinsic,
    logical_and,
    maximum,
    minimum,
    select,
)
from firmwright.kernels.isa.instruction import Lanes
from firmwright.kernels.isa.lanes import (
    bit_or,
    constant,
    saturate,
    shift_left,
    shift_right,
)

# ---- lanes ---------------------------------------------------------------------------


def each(function: Callable[..., ArithExpr], *vectors: Lanes) -> Lanes:
    """Return the results of `function` for the lanes of vectors of one length."""
    return tuple(function(*lanes) for lanes in zip(*vectors, strict=True))


def repeat(value: ArithExpr, count: int) -> Lanes:
    return (value,) * count


def cast(vector: Lanes, dtype: DType) -> Lanes:
    return tuple(lane.cast(dtype) for lane in vector)


def active(inside: Lanes, vector: Lanes, others: Lanes) -> Lanes:
    """Return the lanes of `vector` where the predicate is set, else those of others."""
    return each(select, inside, vector, others)


def active_or_zero(inside: Lanes, vector: Lanes) -> Lanes:
    number = 0.0 if vector[0].expr.dtype.is_float else 0
    return tuple(
        select(is_set, lane, number)
        for is_set, lane in zip(inside, vector, strict=True)
    )


def first_lanes(count: ArithExpr, lanes: int) -> Lanes:
    """Return a predicate of the first `count` of some lanes."""
    return tuple(constant(lane, UINT32) < count for lane in range(lanes))


def bottom(vector: Lanes) -> Lanes:
    """Return the lanes of even number."""
    return vector[::2]


def top(vector: Lanes) -> Lanes:
    """Return the lanes of odd number."""
    return vector[1::2]


def interleave(even: Lanes, odd: Lanes) -> Lanes:
    pairs = zip(even, odd, strict=True)
    return tuple(lane for pair in pairs for lane in pair)


def split_words(vector: Lanes, dtype: DType) -> Lanes:
    """Return the bits of each lane as narrower lanes of `dtype`, lowest first."""
    width = vector[0].expr.dtype.bits
    parts = []
    for lane in vector:
        for place in range(0, width, dtype.bits):
            parts.append(shift_right(lane, place).cast(dtype))
    return tuple(parts)


def saturate_cast_lanes(vector: Lanes, dtype: DType) -> Lanes:
    return tuple(saturate_cast(lane, dtype) for lane in vector)


def products(a: Lanes, b: Lanes, dtype: DType) -> Lanes:
    """Return the products of lanes, which must fit `dtype`."""
    return tuple(x.cast(dtype) * y.cast(dtype) for x, y in zip(a, b, strict=True))


def largest(start: ArithExpr, vector: Lanes) -> ArithExpr:
    return reduce(maximum, vector, start)


def pack_bits(predicate: Lanes) -> ArithExpr:
    """Return a word whose bit i is lane i of a predicate."""
    bits = [shift_left(lane.cast(UINT32), i) for i, lane in enumerate(predicate)]
    return reduce(bit_or, bits)


def unpack_bits(word: ArithExpr, count: int) -> Lanes:
    """Return the low bits of a word as a predicate."""
    one = constant(1, UINT32)
    return tuple((shift_right(word, i) & one).equal(one) for i in range(count))


# ---- one lane ------------------------------------------------------------------------


def wrapping(
    function: Callable[[ArithExpr, ArithExpr], ArithExpr],
) -> Callable[[ArithExpr, ArithExpr], ArithExpr]:
    """Return `function` of two integers of at most 32 bits, modulo 2^bits."""

    def compute(a: ArithExpr, b: ArithExpr) -> ArithExpr:
        dtype = a.expr.dtype
        return function(a.cast(UINT32), b.cast(UINT32)).cast(dtype)

    return compute


add: Callable[[ArithExpr, ArithExpr], ArithExpr] = wrapping(operator.add)
subtract: Callable[[ArithExpr, ArithExpr], ArithExpr] = wrapping(operator.sub)
multiply: Callable[[ArithExpr, ArithExpr], ArithExpr] = wrapping(operator.mul)


def multiply_add(total: ArithExpr, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return add(total, multiply(a, b))


def saturating_add(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    return saturate_cast(a.cast(INT64) + b.cast(INT64), a.expr.dtype)


def saturate_cast(value: ArithExpr, dtype: DType) -> ArithExpr:
    return saturate(value, dtype).cast(dtype)


def high_half_of_product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the high half of the product of numbers without a sign, in their width."""
    dtype = a.expr.dtype
    wide = UINT32 if dtype.bits == 16 else UINT64
    product = a.cast(wide) * b.cast(dtype).cast(wide)
    return shift_right(product, dtype.bits).cast(dtype)


def rounding_doubling_high_product(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the rounded high half of 2 a b, of the type of a.

    Only the least number times itself saturates.
    """
    dtype = a.expr.dtype
    product = a.cast(INT64) * b.cast(dtype).cast(INT64)
    half = 1 << (dtype.bits - 2)
    return saturate_cast(shift_right(product + half, dtype.bits - 1), dtype)


def shift_by_sign(value: ArithExpr, amount: ArithExpr, *, rounds: bool) -> ArithExpr:
    """Return `value` shifted left by the low byte of `amount`, a signed number.

    A negative number shifts right: to nearest, halves up, if it `rounds`, otherwise
    down. Bits that leave on the left are lost. The number may exceed the width.
    """
    dtype = value.expr.dtype
    signed = amount.cast(INT8).cast(INT64)
    right = minimum(maximum(0 - signed, 0), dtype.bits)
    left = minimum(maximum(signed, 0), dtype.bits)
    wide = value.cast(INT64)
    if rounds:
        # Half of the last place that stays: 0 if nothing is shifted out.
        wide = wide + shift_right(binary_expr("shl", constant(1, INT64), right), 1)
    moved = binary_expr("shr", wide, right).cast(UINT64)
    return binary_expr("shl", moved, left.cast(UINT64)).cast(dtype)


def rounding_shift_right(value: ArithExpr, amount: ArithExpr) -> ArithExpr:
    """Return int64 `value` / 2^amount to nearest, halves up; the sum must fit."""
    half = shift_right(binary_expr("shl", constant(1, INT64), amount), 1)
    return binary_expr("shr", value + half, amount)


def shift_left_by(value: ArithExpr, amount: int) -> ArithExpr:
    return shift_left(value.cast(UINT32), amount).cast(value.expr.dtype)


def replace_low(value: ArithExpr, part: ArithExpr) -> ArithExpr:
    """Return a signed number with its low bits replaced by a narrower signed `part`."""
    mask = (1 << part.expr.dtype.bits) - 1
    kept = value.cast(UINT32) & constant(0xFFFFFFFF ^ mask, UINT32)
    low = part.cast(UINT32) & constant(mask, UINT32)
    return bit_or(kept, low).cast(value.expr.dtype)


def negate(a: ArithExpr) -> ArithExpr:
    """Return -a modulo 2^bits."""
    return subtract(constant(0, a.expr.dtype), a)


def magnitude(a: ArithExpr) -> ArithExpr:
    """Return |a| modulo 2^bits."""
    return select(a < 0, negate(a), a)


# ---- floats --------------------------------------------------------------------------


def float_to_int(x: ArithExpr, nearest: Callable[[ArithExpr], ArithExpr]) -> ArithExpr:
    """Return `nearest` of x as int32, saturated; 0 if x is not a number."""
    is_below, is_above = x < float(INT32.min), x >= -float(INT32.min)
    is_inside = logical_and(x >= float(INT32.min), x < -float(INT32.min))
    inside = nearest(select(is_inside, x, 0.0))
    below = select(is_below, constant(INT32.min, INT32), inside)
    return select(is_above, constant(INT32.max, INT32), below)


def nearest_even(x: ArithExpr) -> ArithExpr:
    """Return the nearest int32, halves to even; x must fit."""
    return call_intrinsic("nearest_even", [x], INT32)


def nearest_away(x: ArithExpr) -> ArithExpr:
    """Return the nearest int32, halves away from zero; x must fit."""
    whole = x.cast(INT32)
    rest = x - whole.cast(FLOAT32)
    up, down = (rest >= 0.5).cast(INT32), (rest <= -0.5).cast(INT32)
    return whole + up - down


def fused_multiply_add(total: ArithExpr, a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return total + a * b, rounded once."""
    return call_intrinsic("fma_f32", [a, b, total], FLOAT32)


def larger_number(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the larger number, where one is not a number the other one; -0 < +0."""
    same = select(a.equal(0.0), a + b, a)
    ordered = select(a.equal(b), same, select(a.equal(a), a, b))
    return select(a > b, a, select(a < b, b, ordered))


def smaller_number(a: ArithExpr, b: ArithExpr) -> ArithExpr:
    """Return the smaller number, where one is not a number the other one; -0 < +0."""
    return larger_number(a * -1.0, b * -1.0) * -1.0
