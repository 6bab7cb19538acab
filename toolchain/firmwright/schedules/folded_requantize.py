"""Exact requantization by one multiply-high and one shift (decision 0005).

Both roundings of the definition (base/quant.py) collapse, by floor(floor(a / b) / c) = floor(a / (b
c)), into a single shift that can be the same for every channel of a layer:

    y = (A_c + nk_c * [acc < 0] + mulhi(acc << k_c, m_c)) >> S            (zero point included)

with s_c the right shift of channel c, S = max s_c + 1 or more, and

    twice, s_c >= 1:  k_c = S + 1 - s_c, A_c = (zp << S) + 2^(S-1) + 2^(k_c-2), nk_c = -2^(k_c-1)
    twice, s_c <= 0:  k_c = S + 1 - s_c, A_c = (zp << S) + 2^(S-1),             nk_c = 0
    otherwise:        k_c = S + 1 - s_c, A_c = (zp << S) + 2^(S-1),             nk_c = 0

A negative s_c is a left shift before the multiply. The form is exact if, for every reachable acc,
acc << k_c fits 32 bits and |A_c| < 2^30. If the lower clamp equals the zero point (ReLU), the sign
term affects only clamped values and is dropped. If the definition multiplies in float32, the form
is exact except near ties, which are tested for in channels with an odd multiplier
(ops/float32_requantize.py); the others have a fitted one.
"""

from dataclasses import dataclass, replace

import numpy as np

from firmwright.base.dtypes import INT32, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum, minimum
from firmwright.ops.requantize import Requantization

_ADDEND_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class FoldedRequantize:
    """Per-channel parameters of the folded form; `shift` is S."""

    shift: int
    left: tuple[int, ...]
    multiplier: tuple[int, ...]
    addend: tuple[int, ...]
    sign: tuple[int, ...]
    clamp_min: int
    clamp_max: int
    zero_point: int
    is_float32: bool

    @property
    def has_sign(self) -> bool:
        return any(self.sign)


def fold_requantize(
    params: Requantization, low: Array, high: Array, least_shift: int = 1
) -> FoldedRequantize | None:
    """Return the folded form for accumulators in [low[c], high[c]], or None if it is not exact.

    S is at least `least_shift`.
    """
    channels = len(low)
    right = np.broadcast_to(-np.array(params.shifts, np.int64), channels)
    multiplier = np.broadcast_to(np.array(params.multipliers, np.int64), channels)
    shift = max(int(right.max()) + 1, least_shift)
    left = shift + 1 - right
    reach = np.maximum(np.abs(np.asarray(low, object)), np.abs(np.asarray(high, object)))
    if any(int(value) << int(k) >= 1 << 31 for value, k in zip(reach, left, strict=True)):
        return None
    addend = np.full(channels, (params.zero_point << shift) + (1 << (shift - 1)), np.int64)
    sign = np.zeros(channels, np.int64)
    if params.rounding is Rounding.TWICE:
        rounded = right >= 1
        addend += np.where(rounded, np.int64(1) << np.maximum(left - 2, 0), 0)
        if params.clamp_min < params.zero_point:
            sign = np.where(rounded, -(np.int64(1) << (left - 1)), 0)
    if np.abs(addend).max() >= _ADDEND_LIMIT or np.abs(sign).max() >= _ADDEND_LIMIT:
        return None
    lefts, multipliers, addends, signs = (
        tuple(map(int, values)) for values in (left, multiplier, addend, sign)
    )
    bounds = params.clamp_min, params.clamp_max
    return FoldedRequantize(
        shift, lefts, multipliers, addends, signs, *bounds, params.zero_point,
        params.rounding is Rounding.FLOAT32,
    )  # fmt: skip


def as_rounding_once(folded: FoldedRequantize | None) -> FoldedRequantize | None:
    return folded and replace(folded, is_float32=False)


def apply_folded_requantize(
    folded: FoldedRequantize, shifted: ArithExpr, acc: ArithExpr, multiplier: ArithExpr,
    addend: ArithExpr, sign: ArithExpr | None, dtype: DType,
) -> ArithExpr:  # fmt: skip
    """Emit the folded form; `shifted` is acc << k, `acc` any value of the same sign."""
    base = addend
    if sign is not None:
        base = base + ((acc >> 31) & sign)
    high = call_intrinsic("smmla", [shifted, multiplier, base], INT32)
    if folded.is_float32:
        y = call_intrinsic(
            "requantize_folded_float32",
            [high, shifted, multiplier, folded.shift, folded.zero_point],
            INT32,
        )
    else:
        y = high >> folded.shift
    return minimum(maximum(y, folded.clamp_min), folded.clamp_max).cast(dtype)
