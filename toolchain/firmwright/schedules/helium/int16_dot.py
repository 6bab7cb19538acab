"""Dot products of int16 columns with int8 weights, eight values at a time.

Columns are bytes in memory (`taps` counts bytes), so the int8 packers apply. A step
(dot_product_loop.py) reads sixteen bytes of a column and eight weights per channel.
"""

import enum
from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.mve.dot_products import (
    BYTES_PER_STEP,
    DotProductLoop,
    Weights,
)
from firmwright.ops.requantize import Requantization
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import dot_product_loop, vector_requantize

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

ROWS = 8
WIDTH = BYTES_PER_STEP // 2
"""Values per step."""


class Int16LaneRounding(enum.IntEnum):
    """How an int16 micro-kernel rounds: the values of its immediate operand `rounding`.

    All except `ONCE` round twice, as `LaneRounding` describes.
    """

    HALVES_UP = 0
    HALVES_AWAY = 1
    HALVES_AWAY_IF_SHIFTED = 2
    ONCE = 3


EPILOGUE_OPERANDS = immediates("low", "high", "rounding", "lanes", "taps")

STEP_PORTABLE = _C["step_portable"]
"""C text from `sum` to `raised`, parameters from `at`; the caller clamps at `high`."""

_COLUMN = ("x",)

_SCALED = _C["scaled"] + " " + vector_requantize.SCALED_TWICE


def scale_assembly(
    vector: str, multiplier: str = "multiplier", shift: str = "shift"
) -> str:
    """Return C that requantizes the sums with bias in `vector`, without clamping."""
    return fill_text(_SCALED, v=vector, multiplier=multiplier, shift=shift)


def _product_text(loop: DotProductLoop) -> str:
    frame = dot_product_loop.frame(loop, dot_product_loop.PAIR, Weights.INT16)
    parts = [frame, vector_requantize.PARAMETER_LOADS]
    for vector, target in (("first", "y0"), ("second", "y1")):
        parts.append(f"{vector} = vaddq_s32({vector}, bias);")
        parts.append(scale_assembly(vector))
        parts.append(vector_requantize.store_assembly(vector, target, "lanes", INT16))
    return "\n".join(parts)


def _portable(loop: DotProductLoop) -> str:
    pair = dot_product_loop.PAIR
    frame = dot_product_loop.portable_frame(loop, pair, Weights.INT16)
    step = indent(STEP_PORTABLE, " " * 8)
    return fill_text(_C["portable"], frame=frame, step=step)


def unpack_int16_column(column: Array) -> Array:
    """Convert bytes [2 n, lanes...] to their int16 values, as int64."""
    raw = np.asarray(column, np.int64)
    values: Array = (raw[0::2] & 0xFF) | (raw[1::2] << 8)
    return values


def _sums(w: Array, x: Array, rows: int, taps: int) -> Array:
    """Return the sums [row, lanes...] of weights times a column of `taps` bytes.

    The weights are [step, row, eight].
    """
    weights = np.asarray(w, np.int64)
    lanes = weights.shape[1:]
    steps = weights.reshape(-1, rows, WIDTH, *lanes)
    by_row = steps.swapaxes(0, 1).reshape(rows, -1, *lanes)
    products = by_row[:, : taps // 2] * unpack_int16_column(x)[None, : taps // 2]
    sums: Array = products.sum(axis=1)
    return sums


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


def _product_meaning(
    w: Array, x0: Array, x1: Array, q: Array, y0: Array, y1: Array, *rest: int
) -> tuple[Array, ...]:
    *settings, lanes, taps = rest
    table = np.asarray(q, np.int64)
    bias = table[:4]
    multiplier = table[4:8]
    shift = table[8:12]
    results = []
    for x in (x0, x1):
        sums = _sums(w, x, vector_requantize.CHANNELS, taps) + bias
        stored = requantize_to_int16(sums, multiplier, shift, settings)
        results.append(stored[:lanes])
    return tuple(results)


def _product(loop: DotProductLoop, name: str) -> Intrinsic:
    weights = (loop.head + loop.tail) * WIDTH * vector_requantize.CHANNELS
    return Intrinsic(
        name,
        (
            *pointers(INT8, w=weights, x0=loop.least_taps, x1=loop.least_taps),
            *pointers(INT32, q=vector_requantize.PARAMETERS),
            *pointers(INT16, "w", y0=1, y1=1),
            *EPILOGUE_OPERANDS,
        ),
        _product_meaning,
        _portable(loop),
        "Four channels of two pixels: products over a column of int16, requantised.",
        requires="mve",
        text={"gnu": _product_text(loop)},
        definitions=(KEEP_STORES,),
        count=lambda args: _instructions(loop, dot_product_loop.PAIR, args[-1]) + 24,
    )


def _instructions(loop: DotProductLoop, columns: tuple[str, ...], taps: int) -> int:
    return dot_product_loop.instructions(loop, columns, taps, Weights.INT16)


def _rows_portable(loop: DotProductLoop) -> str:
    lines = [dot_product_loop.portable_frame(loop, _COLUMN, Weights.INT16)]
    for i in range(ROWS):
        lines.append(f"c{i} = {'first' if i < 4 else 'second'}[{i % 4}];")
    return "\n".join(lines)


def _rows_text(loop: DotProductLoop) -> str:
    lines = [dot_product_loop.frame(loop, _COLUMN, Weights.INT16)]
    for i in range(ROWS):
        vector = "first" if i < 4 else "second"
        lines.append(f"c{i} = vgetq_lane_s32({vector}, {i % 4});")
    return "\n".join(lines)


def _rows(loop: DotProductLoop, name: str) -> Intrinsic:
    weights = (loop.head + loop.tail) * WIDTH * ROWS
    return Intrinsic(
        name,
        (
            *pointers(INT8, w=weights, x=loop.least_taps),
            *immediates("taps"),
            *(Operand(f"c{i}", "out", INT32) for i in range(ROWS)),
        ),
        lambda w, x, taps, *_: tuple(_sums(w, x, ROWS, taps).astype(np.int32)),
        _rows_portable(loop),
        "Eight rows of weights: products with a column of int16.",
        requires="mve",
        text={"gnu": _rows_text(loop)},
        count=lambda args: _instructions(loop, _COLUMN, args[2]) + 16,
    )


INTRINSIC_MAKERS = {
    **dot_product_loop.make_for_loops("mve_gemm_int16_{}", _product),
    **dot_product_loop.make_for_loops("mve_rows_int16_{}", _rows),
}


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
