"""Dot products of int16 columns with int8 weights, eight values at a time.

Columns are bytes in memory (`taps` counts bytes), so the int8 packers apply. A step
(dot_product_loop.py) reads sixteen bytes of a column and eight weights per channel.
"""

import enum
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firmwright.base.dtypes import INT16, INT32, Array
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import immediates, inputs
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.mve.dot_products import Weights
from firmwright.ops.requantize import Requantization
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.dot_product_kernels import (
    COLUMN,
    PAIR,
    DotProductKernel,
)
from firmwright.schedules.helium.vector_ending import (
    SumsInRegisters,
    VectorEnding,
)

_C = read_sections(__file__)

# `mve_gemm_int16_LOOP`: four channels times two pixels, requantized to int16. With
# `Int16LaneRounding.ONCE`, VMULH leaves floor(sum * multiplier / 2^32) and VRSHL rounds
# the rest, which is a single rounding of the product if a shift remains. Otherwise the
# epilogue is that of vector_requantize.py. `mve_rows_int16_LOOP`: raw sums of eight
# weight rows.
#
# Obligations: sums with bias fit 32 bits; zero points are 0; rounding once: every shift
# is at least 2 to the right, one of which the multiplication performs; rounding twice:
# no left shift.


class Int16LaneRounding(enum.IntEnum):
    """How an int16 micro-kernel rounds: the values of its immediate operand `rounding`.

    All except `ONCE` round twice, as `LaneRounding` describes.
    """

    HALVES_UP = 0
    HALVES_AWAY = 1
    HALVES_AWAY_IF_SHIFTED = 2
    ONCE = 3


SETTINGS = immediates("low", "high", "rounding", "lanes")

STEP_PORTABLE = _C["step_portable"]
"""C text from `sum` to `raised`, parameters from `at`; the caller clamps at `high`."""

_SCALED = _C["scaled"] + " " + vector_requantize.SCALED_TWICE


def scale_assembly(
    vector: str, multiplier: str = "multiplier", shift: str = "shift"
) -> str:
    """Return C that requantizes the sums with bias in `vector`, without clamping."""
    return fill_text(_SCALED, v=vector, multiplier=multiplier, shift=shift)


def requantize_to_int16(
    sums: Array, multiplier: Array, shift: Array, settings: Sequence[int]
) -> Array:
    """Requantize sums with bias; `settings` are low, high, rounding."""
    low, high, rounding = settings
    if rounding == Int16LaneRounding.ONCE:
        moved = (sums * multiplier) >> 32
        right = -np.asarray(shift, np.int64)
        results = (moved + (np.int64(1) << (right - 1))) >> right
    else:
        twice = Rounding.TWICE
        results = multiply_by_quantized_multiplier(sums, multiplier, shift, twice)
    clamped: Array = np.clip(results, low, high)
    return clamped.astype(np.int16)


def _requantized(**x: ArithExpr) -> ArithExpr:
    """Return the result of a sum; the table has the shifts that VRSHL performs."""
    biased, factor = x["sum"] + x["bias"], x["multiplier"]
    is_once = x["rounding"].equal(int(Int16LaneRounding.ONCE))
    shift = x["shift"] - is_once.cast(INT32)
    once = call_intrinsic("requantize_once", [biased, factor, shift], INT32)
    twice = call_intrinsic("requantize_twice", [biased, factor, x["shift"]], INT32)
    moved = select(is_once, once, twice)
    return minimum(maximum(moved, x["low"]), x["high"]).cast(INT16)


REQUANTIZED = value_intrinsic(
    "mve_requantized_int16",
    inputs(INT32, "sum", "bias", "multiplier", "shift", "low", "high", "rounding"),
    _requantized,
    "Adds the bias to a sum and requantizes it.",
)


def _finish(vector: str, target: str, lanes: str) -> str:
    return "\n".join(
        [
            f"{vector} = vaddq_s32({vector}, bias);",
            scale_assembly(vector),
            vector_requantize.store_assembly(vector, target, lanes, INT16),
        ]
    )


_ENDING = VectorEnding(
    output=INT16,
    tables=(vector_requantize.PARAMETERS,),
    settings=SETTINGS,
    element=REQUANTIZED,
    finish=_finish,
    instructions=lambda given: 8,
)


PAIR_INT16 = DotProductKernel("mve_gemm_int16", PAIR, _ENDING, Weights.INT16)
ROW_SUMS = DotProductKernel("mve_rows_int16", COLUMN, SumsInRegisters(), Weights.INT16)
INTRINSICS = (REQUANTIZED,)
INTRINSIC_MAKERS = {**PAIR_INT16.makers, **ROW_SUMS.makers}


def supports_requantize(params: Requantization) -> bool:
    max_shift = max(params.shifts)
    return max_shift <= -2 if params.rounding is Rounding.ONCE else max_shift <= 0


def adjust_round_once_shifts(params: Requantization) -> Requantization:
    """Return the micro-kernel's parameters.

    If it rounds once, the multiplication includes one of the right shifts.
    """
    if params.rounding is not Rounding.ONCE:
        return params
    return replace(params, shifts=tuple(shift + 1 for shift in params.shifts))


def epilogue_settings(params: Requantization) -> list[int]:
    return [params.clamp_min, params.clamp_max, int(rounding_mode(params))]


def rounding_mode(params: Requantization) -> Int16LaneRounding:
    if params.rounding is Rounding.ONCE:
        return Int16LaneRounding.ONCE
    return Int16LaneRounding(vector_requantize.rounding_mode(params))
