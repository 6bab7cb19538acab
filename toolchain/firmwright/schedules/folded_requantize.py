"""Exact requantization by one multiply-high and one shift (decision 0005).

Both roundings of the definition (base/quant.py) collapse, by floor(floor(a / b) / c) =
floor(a / (b c)), into a single shift that can be the same for every channel of a layer:

    y = (A_c + nk_c * [acc < 0] + mulhi(acc << k_c, m_c)) >> S    (zero point included)

with s_c the right shift of channel c, S = max s_c + 1 or more, k_c = S + 1 - s_c, and

    twice, s_c >= 1:  A_c = (zp << S) + 2^(S-1) + 2^(k_c-2),  nk_c = -2^(k_c-1)
    twice, s_c <= 0:  A_c = (zp << S) + 2^(S-1),              nk_c = 0
    otherwise:        A_c = (zp << S) + 2^(S-1),              nk_c = 0

A negative s_c is a left shift before the multiply. The form is exact if, for every
reachable acc, acc << k_c fits 32 bits and |A_c| < 2^30. If the lower clamp equals the
zero point (ReLU), the sign term affects only clamped values and is dropped. With one
rounding, k_c may be negative if m_c has as many low zeros: m_c is shifted right
instead, as the 16-bit multipliers of int16 layers allow. If the definition multiplies
in float32, the form is exact except near ties, which are tested for in channels with an
odd multiplier (ops/float32_requantize.py); the others have a fitted one.

Only the least accumulator of each int8 output matters, because requantization is
monotonic. If k and S are given for the whole layer, `fit_requantize` searches m_c and
A_c (with nk_c = -2 (A_c - (zp << S) - 2^(S-1)) or 0) that separate the accumulators at
each of these at most 255 thresholds.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from firmwright.base.dtypes import INT8, INT32, INT64, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum, minimum
from firmwright.ops.requantize import Requantization

_ADDEND_LIMIT = 1 << 30
_NEAR = 2
"""Accumulators around the threshold of real arithmetic that are searched first."""
SPARE_BITS = 16
"""Low zeros of the multipliers of layers with 64-bit biases."""
FITTED_LEFT = 8
"""The left shift of fitted forms, one byte: weights can be baked as high bytes."""
_FITTED_SHIFTS = (12, 11, 10, 13, 14, 9, 8)


@dataclass(frozen=True, slots=True)
class FoldedRequantize:
    """Per-channel parameters of the folded form, and those of the whole layer.

    `shift` is S, and `sign` is -2 (addend - middle) or 0.
    """

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

    @property
    def middle(self) -> int:
        return (2 * self.zero_point + 1) << (self.shift - 1)


def fold_requantize(
    params: Requantization, low: Array, high: Array, least_shift: int = 1
) -> FoldedRequantize | None:
    """Return the folded form for sums in [low[c], high[c]], or None if it is inexact.

    S is at least `least_shift`.
    """
    channels = len(low)
    right = np.broadcast_to(-np.array(params.shifts, np.int64), channels)
    multiplier = np.broadcast_to(np.array(params.multipliers, np.int64), channels)
    shift = max(int(right.max()) + 1, least_shift)
    least = max(least_shift, int(right.max()) - 1 - SPARE_BITS)
    low_bits = multiplier % (1 << SPARE_BITS)
    has_spare_bits = params.rounding is Rounding.ONCE and not low_bits.any()
    if has_spare_bits and least < right.min():
        shift = least
        multiplier = multiplier >> (right - 1 - least)
        right = np.full(channels, shift + 1)
    left = shift + 1 - right
    low_reach = np.abs(np.asarray(low, object))
    reach = np.maximum(low_reach, np.abs(np.asarray(high, object)))
    for value, k in zip(reach, left, strict=True):
        if int(value) << int(k) >= 1 << 31:
            return None
    middle = (params.zero_point << shift) + (1 << (shift - 1))
    addend = np.full(channels, middle, np.int64)
    sign = np.zeros(channels, np.int64)
    if params.rounding is Rounding.TWICE:
        rounded = right >= 1
        addend += np.where(rounded, np.int64(1) << np.maximum(left - 2, 0), 0)
        if params.clamp_min < params.zero_point:
            sign = np.where(rounded, -(np.int64(1) << (left - 1)), 0)
    greatest = max(np.abs(addend).max(), np.abs(sign).max())
    if greatest >= _ADDEND_LIMIT:
        return None
    return FoldedRequantize(
        shift=shift,
        left=tuple(map(int, left)),
        multiplier=tuple(map(int, multiplier)),
        addend=tuple(map(int, addend)),
        sign=tuple(map(int, sign)),
        clamp_min=params.clamp_min,
        clamp_max=params.clamp_max,
        zero_point=params.zero_point,
        is_float32=params.rounding is Rounding.FLOAT32,
    )


def fit_requantize(
    params: Requantization, low: Array, high: Array
) -> FoldedRequantize | None:
    """Return a fitted form for int8 with left shifts FITTED_LEFT, if there is one."""
    bounds = tuple(low.tolist()), tuple(high.tolist())
    reach = max(-min(bounds[0]), max(bounds[1]))
    return _fit(params, *bounds) if reach << FITTED_LEFT <= INT32.max else None


@lru_cache(maxsize=256)  # the candidates of a layer share their parameters
def _fit(
    params: Requantization, low: tuple[int, ...], high: tuple[int, ...]
) -> FoldedRequantize | None:
    least = np.array(low)
    end = np.array(high) + 1
    outputs, points, is_reached = _decisive_points(params, least, end)
    for shift in _FITTED_SHIFTS:
        columns = _fit_multipliers(params, outputs, points, is_reached, shift)
        if columns is not None:
            addend, sign, multiplier = columns
            return FoldedRequantize(
                shift=shift,
                left=(FITTED_LEFT,) * len(low),
                multiplier=tuple(multiplier.tolist()),
                addend=tuple(addend.tolist()),
                sign=tuple(sign.tolist()),
                clamp_min=params.clamp_min,
                clamp_max=params.clamp_max,
                zero_point=params.zero_point,
                is_float32=False,
            )
    return None


def _decisive_points(
    params: Requantization, least: Array, end: Array
) -> tuple[Array, ...]:
    """Return outputs, the accumulators at their thresholds, and which are reached.

    The first half of these are the least accumulators of each output, the second half
    are those before. Accumulators are in [least[c], end[c]).
    """
    outputs = np.arange(params.clamp_min + 1, params.clamp_max + 1)[:, None]
    first, after = _near_thresholds(params, outputs, least, end)
    # Binary search for the least accumulator of each output.
    while (first < after).any():
        middle = (first + after) // 2
        is_enough = params.apply(middle, INT64) >= outputs
        first = np.where(is_enough, first, np.minimum(middle + 1, after))
        after = np.where(is_enough, middle, after)
    points = np.concatenate([first, first - 1])
    points = np.where((points >= least) & (points < end), points, 0)
    return outputs, points, np.concatenate([first < end, first > least])


def _near_thresholds(
    params: Requantization, outputs: Array, least: Array, end: Array
) -> tuple[Array, Array]:
    """Return the ends of a search for the least accumulator of each output.

    They are near the threshold of real arithmetic where that proves right.
    """
    shape = len(outputs), len(least)
    slopes = np.ldexp(np.maximum(params.multipliers, 1.0), np.array(params.shifts) - 31)
    ideal = np.clip((outputs - params.zero_point - 0.5) / slopes, least, end)
    guess = np.rint(np.broadcast_to(ideal, shape)).astype(np.int64)
    first = np.clip(guess - _NEAR, least, end)
    after = np.clip(guess + _NEAR, least, end)
    before, last = np.maximum(first - 1, least), np.minimum(after, end - 1)
    is_late = (first > least) & (params.apply(before, INT64) >= outputs)
    is_early = (after < end) & (params.apply(last, INT64) < outputs)
    return np.where(is_late, least, first), np.where(is_early, end, after)


def _fit_multipliers(
    params: Requantization, outputs: Array, points: Array, is_reached: Array, shift: int
) -> tuple[Array, Array, Array] | None:
    """Return (addend, sign, multiplier) of every channel for the final shift, or None.

    The first half of `points` must reach `outputs`, the second half must not.
    """
    middle = (params.zero_point << shift) + (1 << (shift - 1))
    right = -np.array(params.shifts)
    is_twice = params.rounding is Rounding.TWICE
    rounding = np.ldexp(1.0, shift - 1 - right) if is_twice else np.zeros(1)
    is_signed = is_twice and params.clamp_min < params.zero_point
    channels = points.shape[1]
    values = np.zeros((3, channels), np.int64)
    is_done = np.zeros(channels, bool)
    for change in (0, -1, 1):
        changed = np.maximum(np.rint(rounding) + change, 0).astype(int)
        added = np.broadcast_to(changed, channels)
        sign = -2 * added if is_signed else np.zeros(channels, np.int64)
        offset = middle + added + np.where(points < 0, sign, 0)
        # The product of point << FITTED_LEFT and the multiplier must reach `need`.
        need = ((np.concatenate([outputs, outputs]) << shift) - offset) << 32
        least, most = _multiplier_range(points << FITTED_LEFT, need, is_reached)
        fits = ~is_done & (least <= most)
        found = np.array([middle + added, sign, (least + most) // 2])
        values[:, fits] = found[:, fits]
        is_done |= fits
    return (values[0], values[1], values[2]) if is_done.all() else None


OFFSET_FORM_BYTES = 7
_SCALE_BITS = 4
"""Left shift of multipliers of offset forms that do not fit otherwise."""


def fit_offset_form(
    params: Requantization,
    low: Array,
    high: Array,
    bias: Array,
    shift: int,
    offset_bits: int,
) -> Array | None:
    """Return each channel's record of a form for sums without bias, if it is exact.

    y = clamp(mulhi((sum << FITTED_LEFT) + offset, multiplier) >> shift, 0, 255) - 128

    A record has OFFSET_FORM_BYTES bytes, the lowest first: the offset, a bit that is
    set if the multiplier is in units of 16, and the multiplier.
    """
    is_twice = params.rounding is Rounding.TWICE
    has_sign = is_twice and params.clamp_min < params.zero_point
    if has_sign or (params.clamp_min, params.clamp_max) != (INT8.min, INT8.max):
        return None
    bounds = (tuple(each.tolist()) for each in (low, high, bias))
    return _fit_offsets(params, *bounds, shift, offset_bits)


@lru_cache(maxsize=256)  # a layer is fitted to offer its schedule, and to build it
def _fit_offsets(
    params: Requantization,
    lows: tuple[int, ...],
    highs: tuple[int, ...],
    biases: tuple[int, ...],
    shift: int,
    offset_bits: int,
) -> Array | None:
    low, high, bias = map(np.array, (lows, highs, biases))
    outputs, points, is_reached = _decisive_points(params, low, high + 1)
    exponents = 1 - FITTED_LEFT + shift + np.array(params.shifts)
    slopes = np.ldexp(np.maximum(params.multipliers, 1.0), exponents)
    slopes = np.broadcast_to(slopes, len(bias))
    reach = int(np.maximum(bias - low, high - bias).max())
    limit = INT32.max - (reach << FITTED_LEFT)
    limit = min(limit, (1 << (offset_bits - 1)) - 1)
    fine = 1 << (8 * OFFSET_FORM_BYTES - 1 - offset_bits)
    bound = (np.concatenate([outputs, outputs]) - INT8.min) << (32 + shift)
    sums = (points - bias) << FITTED_LEFT
    values = np.zeros((2, len(bias)), np.int64)
    left = np.arange(len(bias))  # channels without a form
    changes = [(1.0, change) for change in sorted(range(-32, 33), key=abs)]
    # Few outputs also allow steeper slopes.
    changes += [(1.25**k, 0) for k in range(1, 80)]
    for factor, change in changes:
        own = sums[:, left]
        reached = is_reached[:, left]
        slope = np.rint(slopes[left] * factor)
        guess = np.clip(slope, 1, INT32.max).astype(np.int64)
        above, below = np.split(-(-bound // guess) - own, 2)
        least = above.max(axis=0, initial=-limit, where=reached[: len(outputs)])
        most = below.min(axis=0, initial=limit, where=reached[len(outputs) :])
        offset = np.clip((least + most) // 2 + change, -limit, limit)
        least, most = _multiplier_range(own + offset, bound, reached)
        is_fine = least < fine
        unit = np.where(is_fine, 1, 1 << _SCALE_BITS)
        middle = (least + np.minimum(most, fine - 1)) // 2
        coded = np.where(is_fine, middle, -(-least // unit))
        fits = (least <= most) & (coded * unit <= most) & (coded < fine)
        found = np.array([offset, 2 * coded + (~is_fine)])
        values[:, left[fits]] = found[:, fits]
        left = left[~fits]
        if not len(left):
            offsets = values[0] & ((1 << offset_bits) - 1)
            records = offsets | values[1] << offset_bits
            octets: Array = records.astype("<i8").view(np.uint8).reshape(-1, 8)
            return octets[:, :OFFSET_FORM_BYTES]
    return None


def read_offset_form(records: Array, offset_bits: int) -> tuple[Array, Array]:
    """Return the offsets and multipliers of `records` [channel, byte]."""
    octets = np.pad(records, ((0, 0), (0, 8 - OFFSET_FORM_BYTES)))
    wide = octets.reshape(-1).view("<i8")
    unused = 64 - offset_bits
    offsets = wide << unused >> unused  # extends the sign
    is_coarse = wide >> offset_bits & 1
    multipliers = wide >> (offset_bits + 1) << (_SCALE_BITS * is_coarse)
    return offsets, multipliers


def _multiplier_range(
    points: Array, need: Array, is_reached: Array
) -> tuple[Array, Array]:
    """Return each channel's least and greatest multiplier; see `_fit_multipliers`."""
    half = len(points) // 2
    is_above = (np.arange(len(points)) < half)[:, None]
    # The multiplier m has `points * m >= need` or `points * m <= need - 1`.
    bound = np.where(is_above, need, need - 1)
    is_zero = points == 0
    divisor = np.where(is_zero, 1, points)
    is_bound = is_reached & ~is_zero
    is_least = is_bound & (is_above == (points > 0))
    is_most = is_bound & (is_above != (points > 0))
    misses = np.where(is_above, bound > 0, bound < 0)
    impossible = is_reached & is_zero & misses
    least = np.where(is_least, -(-bound // divisor), 1)
    least = least.max(axis=0, initial=1)
    most = np.where(is_most, bound // divisor, INT32.max)
    most = most.min(axis=0, initial=INT32.max)
    return np.where(impossible.any(axis=0), INT32.max + 1, least), most


def apply_folded_requantize(
    folded: FoldedRequantize,
    shifted: ArithExpr,
    acc: ArithExpr,
    multiplier: ArithExpr,
    addend: ArithExpr,
    sign: ArithExpr | None,
    dtype: DType,
    half: ArithExpr | None = None,
) -> ArithExpr:
    """Emit the folded form; `shifted` is acc << k, and `acc` has its sign.

    With `half`, the sign is -2 `half`.
    """
    base = addend
    if half is not None:
        base = base - ((half & (acc >> 31)) << 1)
    elif sign is not None:
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
