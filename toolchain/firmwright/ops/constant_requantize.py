"""Requantization by one compile-time factor with two roundings, in few operations.

The input is 4 v for a value |v| < 2^28. With the multiplier m, e = -shift >= 1 and the zero point
z, both roundings and the zero point become one shift of the high word of one product:

    y = floor((z 2^(e+1) + 2^e + 1 - 2 [v < 0] + floor(4 v m / 2^32)) / 2^(e+1))

The definition (base/quant.py) is h = floor((v m + 2^30) / 2^31), then h / 2^e to nearest, halves
away from zero: floor((h + 2^(e-1) - [h < 0]) / 2^e). Since h = floor((floor(4 v m / 2^32) + 1) /
2), nested floors combine into one. Testing v < 0 instead of h < 0 matters only for h = 0, where
both give 0.
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
    """Store the requantized `value`; a factor of 1 needs no multiplication."""
    if (params.multipliers, params.shifts) == ((1 << 30,), (1,)):
        store(clamp(value + params.zero_point, params.clamp_min, params.clamp_max, dtype))
        return
    with b.let("v4", value * 4) as fourfold:
        store(requantize_fourfold(fourfold, params, dtype))


def requantize_fourfold(fourfold: ArithExpr, params: Requantization, dtype: DType) -> ArithExpr:
    """Return the output for `fourfold`, 4 v; it should be a variable, because it is used twice."""
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
