"""Exact requantization by products of 32 bits, for cores without a 64-bit product.

    y = clamp((acc * high_factor + (acc * low_factor >> split_bits) + addend) >> shift)

The definition is given by its steps, the least accumulator of each output. They bound
the addend of a channel from both sides; a multiplier is exact if an addend is left
between the bounds.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT32, Array, DType
from firmwright.base.quant import Rounding
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs
from firmwright.ops.requantize import Requantization

_NEARBY = (0, 1, -1, 2, -2, 3, -3)
"""Distances from the rounded multiplier to try."""
_UNBOUNDED = 1 << 60


def _meaning(
    acc: Array,
    high_factor: Array,
    low_factor: Array,
    addend: Array,
    split_bits: int,
    shift: int,
) -> Array:
    wide = np.asarray(acc, np.int64)
    y = (wide * high_factor + ((wide * low_factor) >> split_bits) + addend) >> shift
    return y.astype(np.int32)


INTRINSICS = (
    Intrinsic(
        "requantize_narrow",
        (
            *inputs(INT32, "acc", "high_factor", "low_factor", "addend"),
            *immediates("split_bits", "shift"),
        ),
        _meaning,
        "return (acc * high_factor + ((acc * low_factor) >> split_bits) + addend) >> "
        "shift;",
        doc="Requantization by products of 32 bits, before the bounds of the output.",
        result=INT32,
        instructions=9,
    ),
)


@dataclass(frozen=True, slots=True)
class NarrowRequantize:
    """The parameters of each channel, and the shifts and bounds of all."""

    high_factor: tuple[int, ...]
    low_factor: tuple[int, ...]
    addend: tuple[int, ...]
    split_bits: int
    shift: int
    clamp_min: int
    clamp_max: int

    def apply(
        self,
        acc: ArithExpr,
        high_factor: ArithExpr,
        low_factor: ArithExpr,
        addend: ArithExpr,
        dtype: DType,
    ) -> ArithExpr:
        y = call_intrinsic(
            "requantize_narrow",
            [acc, high_factor, low_factor, addend, self.split_bits, self.shift],
            INT32,
        )
        return minimum(maximum(y, self.clamp_min), self.clamp_max).cast(dtype)


def narrow_requantize(
    params: Requantization, low: Array, high: Array, dtype: DType
) -> NarrowRequantize | None:
    """Return the narrow form for sums in [low[c], high[c]], or None if inexact."""
    reach = np.maximum(np.maximum(-low, high), 1)
    split_bits = 31 - int(reach.max()).bit_length()
    multipliers = np.array(params.multipliers, float)
    scale = np.ldexp(multipliers, np.array(params.shifts) - 31)
    scale = np.broadcast_to(scale, low.shape)
    most_output = float((reach * scale).max()) + abs(params.zero_point) + 2
    shift = 31 - int(most_output).bit_length()
    if params.rounding is Rounding.FLOAT32 or split_bits < 1 or shift < 1:
        return None
    outputs = np.arange(params.clamp_min + 1, params.clamp_max + 1)[:, None]
    steps = _find_steps(params, low, high, dtype, outputs)
    ends = outputs << (shift + split_bits)
    usual = (2 * params.zero_point + 1) << (shift - 1)
    multiplier = np.full(low.shape, -1)
    addend = np.zeros(low.shape, np.int64)
    rounded = np.floor(np.ldexp(scale, shift + split_bits)).astype(np.int64)
    for distance in _NEARBY:
        tried = rounded + distance
        least = -((steps * tried - ends) >> split_bits)
        most = (ends - 1 - (steps - 1) * tried) >> split_bits
        least = np.where(steps <= high, least, -_UNBOUNDED)
        least = least.max(axis=0, initial=-_UNBOUNDED)
        most = np.where(steps > low, most, _UNBOUNDED)
        most = most.min(axis=0, initial=_UNBOUNDED)
        is_new = (least <= most) & (multiplier < 0)
        multiplier = np.where(is_new, tried, multiplier)
        addend = np.where(is_new, np.clip(usual, least, most), addend)
    if (multiplier < 0).any():
        return None
    high_factor = multiplier >> split_bits
    low_factor = multiplier & ((1 << split_bits) - 1)
    return NarrowRequantize(
        high_factor=tuple(map(int, high_factor)),
        low_factor=tuple(map(int, low_factor)),
        addend=tuple(map(int, addend)),
        split_bits=split_bits,
        shift=shift,
        clamp_min=params.clamp_min,
        clamp_max=params.clamp_max,
    )


def _find_steps(
    params: Requantization, low: Array, high: Array, dtype: DType, outputs: Array
) -> Array:
    """Return the least accumulator [output, channel] of each output or a greater."""
    shape = len(outputs), len(low)
    first = np.broadcast_to(low, shape)
    last = np.broadcast_to(high + 1, shape)
    # Binary search.
    while (first < last).any():
        middle = (first + last) >> 1
        reaches = params.apply(np.minimum(middle, high), dtype) >= outputs
        is_open = first < last
        first = np.where(is_open & ~reaches, middle + 1, first)
        last = np.where(is_open & reaches, middle, last)
    return first
