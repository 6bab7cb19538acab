"""The requantise step by one factor known at compile time, with both roundings, in few operations.

In: a value v with |v| < 2^28, as its fourfold. With the multiplier m, e = -shift >= 1 and the zero
point z, both roundings and the zero point are one shift of one product's high word:

    y = floor((z 2^(e+1) + 2^e + 1 - 2 [v < 0] + floor(4 v m / 2^32)) / 2^(e+1))

The definition (base/quant.py) asks for h = floor((v m + 2^30) / 2^31), then for h / 2^e to the
nearest, halves away from zero, which is floor((h + 2^(e-1) - [h < 0]) / 2^e). Nested floors are
one, so h = floor((floor(4 v m / 2^32) + 1) / 2) may be put into that; and where v < 0 gives h = 0
instead of h < 0 the result is 0 in both.
"""

from __future__ import annotations

from collections.abc import Callable

from firmwright.base.dtypes import INT32, INT64, DType
from firmwright.base.quant import Rounding
from firmwright.ir.tir.builder import ArithExpr, Builder
from firmwright.ir.tir.builder import call_intrinsic as intrinsic
from firmwright.ops.requantize import Requantization, clamp

_ADDEND_LIMIT = 1 << 30


def store_requantized(
    b: Builder,
    value: ArithExpr,
    params: Requantization,
    dtype: DType,
    store: Callable[[ArithExpr], None],
) -> None:
    """Store the output for `value` itself; a factor of 1 costs nothing."""
    if (params.multipliers, params.shifts) == ((1 << 30,), (1,)):
        store(clamp(value + params.zero_point, params.clamp_min, params.clamp_max, dtype))
        return
    with b.let("v4", value * 4) as fourfold:
        store(requantize_fourfold(fourfold, params, dtype))


def requantize_fourfold(fourfold: ArithExpr, params: Requantization, dtype: DType) -> ArithExpr:
    """The output for `fourfold`, which should be a variable: it is used twice."""
    assert params.rounding is Rounding.TWICE
    assert not params.per_channel
    multiplier, right = params.multipliers[0], -params.shifts[0]
    if right >= 1 and abs(addend := _addend(params.zero_point, right)) < _ADDEND_LIMIT:
        high = ((fourfold.cast(INT64) * multiplier) >> 32).cast(INT32)
        value = (high + (fourfold >> 31) * 2 + addend) >> (right + 1)
    else:
        scaled = intrinsic("requantize_twice", [fourfold >> 2, multiplier, -right], INT32)
        value = scaled + params.zero_point
    return clamp(value, params.clamp_min, params.clamp_max, dtype)


def _addend(zero_point: int, right: int) -> int:
    return zero_point * (1 << (right + 1)) + (1 << right) + 1
