"""Depthwise micro-kernels of eight adjacent channels of NHWC data, one per lane."""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import int16_dot, vector_requantize
from firmwright.schedules.helium.int16_dot import Int16LaneRounding
from firmwright.schedules.helium.vector_requantize import LaneRounding

_C = read_sections(__file__)

# `mve_depthwise_8ch_PxK`, for int16 `mve_depthwise_int16_8ch_PxK`, for int8 with int16
# weights `mve_depthwise_wide_8ch_PxK`, computes P = 1 or 2 pixels of eight channels
# from windows of K columns and any number of rows. VMULLB and VMULLT leave even and odd
# channels in two vectors of int32. The tables have the same order: `bias` of the four
# even, then the four odd channels; `q` their multipliers, then their shifts. VQMOVNB
# and VQMOVNT restore the channel order. No scratch memory is needed, which suits single
# output rows.

CHANNELS = 8
PIXEL_COUNTS = (1, 2)
MAX_COLUMNS = 8
LANE_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Channels in the order of the two vectors."""

_GEOMETRY = ("x_row", "x_column", "x_pixel", "w_row", "w_column", "rows")


_VALUE = "vreinterpretq_s16_s32(even{p})"
_NARROWED = '__asm__("vqmovnb.s16 %q0, %q0" : "+w"(value));\n'


def microkernel_name(
    pixels: int, columns: int, dtype: DType = INT8, weight_dtype: DType = INT8
) -> str:
    if weight_dtype == INT16:
        kind = "wide_"
    else:
        kind = "" if dtype == INT8 else "int16_"
    return f"mve_depthwise_{kind}8ch_{pixels}x{columns}"


_INT8_ROUNDING_INSTRUCTIONS = {
    LaneRounding.HALVES_UP: 0,
    LaneRounding.HALVES_AWAY: 4,
    LaneRounding.HALVES_AWAY_IF_SHIFTED: 8,
    LaneRounding.IN_FLOAT32: 2,
}
"""Instructions for each pixel, besides those of every mode."""
_INT16_ROUNDING_INSTRUCTIONS = {
    Int16LaneRounding.HALVES_UP: 0,
    Int16LaneRounding.HALVES_AWAY: 4,
    Int16LaneRounding.HALVES_AWAY_IF_SHIFTED: 8,
    Int16LaneRounding.ONCE: 8,
}


def rounding_instructions(dtype: DType, rounding: int) -> int:
    """Return the instructions that the operand `rounding` adds to each pixel."""
    if dtype == INT8:
        return _INT8_ROUNDING_INSTRUCTIONS[LaneRounding(rounding)]
    return _INT16_ROUNDING_INSTRUCTIONS[Int16LaneRounding(rounding)]


def microkernel_instructions(
    pixels: int, rows: int, columns: int, per_pixel: int
) -> int:
    """Return the instructions that gcc's code executes, including the argument setup.

    Each row of windows of several columns spills some values. `per_pixel` are the
    `rounding_instructions`.
    """
    row = 9 if columns == 1 else 10 * columns + 5
    return 18 + rows * pixels * row + pixels * per_pixel


def _load(pointer: str, dtype: DType = INT8) -> str:
    name = "vldrbq" if dtype == INT8 else "vldrhq"
    return f"lanes == 8 ? {name}_s16({pointer}) : {name}_z_s16({pointer}, inside)"


def _place(base: str, *terms: tuple[int, str]) -> str:
    """Return the address `base` plus every (count, step) of which count is not 0."""
    parts = [base]
    for count, step in terms:
        if count:
            parts.append(step if count == 1 else f"{count} * {step}")
    return " + ".join(parts)


def _stored(p: int, dtype: DType) -> str:
    value, is_int8 = _VALUE.format(p=p), dtype == INT8
    return fill_text(
        _C["stored"],
        p=p,
        value=f"vqaddq_n_s16({value}, (int16_t)zero_point)" if is_int8 else value,
        min=dtype.min,
        max=dtype.max,
        narrowed=_NARROWED if is_int8 else "",
        store="vstrb" if is_int8 else "vstrh",
    )


def _text(pixels: int, columns: int, dtype: DType, weight_dtype: DType) -> str:
    unused = ["x_pixel"] * (pixels == 1) + ["x_column", "w_column"] * (columns == 1)
    lines = [*(f"(void){name};" for name in unused), *_C["start"].splitlines()]
    for p in range(1, pixels):
        lines += [f"int32x4_t even{p} = even0;", f"int32x4_t odd{p} = odd0;"]
    lines.append(fill_text(_C["rows"], x=dtype.c_type, w=weight_dtype.c_type))
    for j in range(columns):
        weight = _load(_place("row_weights", (j, "w_column")), weight_dtype)
        for p in range(pixels):
            value = _load(_place("from", (j, "x_column"), (p, "x_pixel")), dtype)
            tap = fill_text(_C["tap"], w=weight, x=value, p=p).splitlines()
            lines += tap if p == 0 else tap[1:]
    lines += ["    from += x_row;", "    row_weights += w_row;", "}", _C["parameters"]]
    for p in range(pixels):
        for half in ("even", "odd"):
            fields = f"{half}{p}", f"{half}_multiplier", f"{half}_shift"
            scale = vector_requantize if dtype == INT8 else int16_dot
            lines.append(scale.scale_assembly(*fields))
        lines.append(_stored(p, dtype))
    return "\n".join(lines)


def _portable(pixels: int, columns: int, dtype: DType) -> str:
    step = vector_requantize.PORTABLE if dtype == INT8 else int16_dot.STEP_PORTABLE
    # Eight parameters of each kind follow each other.
    return fill_text(
        _C["portable"],
        step=indent(step.replace("at + 4", "at"), " " * 8),
        pixels=pixels,
        columns=columns,
        results=", ".join(f"y{p}" for p in range(pixels)),
        output=dtype.c_type,
    )


def _finished(
    sums: Array, multiplier: Array, shift: Array, settings: Sequence[int]
) -> Array:
    """Return the requantized sums (bias included); int8 has a zero point in front."""
    if len(settings) == len(_WIDE_ENDING) - 1:
        return int16_dot.requantize_to_int16(sums, multiplier, shift, settings)
    zero_point, low, high, rounding = settings
    scaled = vector_requantize.scale_lanes(sums, multiplier, shift, rounding)
    results: Array = np.clip(scaled + zero_point, low, high)
    return results.astype(np.int8)


def _meaning(
    pixels: int, columns: int, x: Array, w: Array, bias: Array, q: Array, *rest: int
) -> tuple[Array, ...]:
    *settings, lanes = rest[pixels : -len(_GEOMETRY)]
    x_row, x_column, x_pixel, w_row, w_column, rows = rest[-len(_GEOMETRY) :]
    i = np.arange(rows)[:, None, None]
    j = np.arange(columns)[:, None]
    c = np.arange(lanes)
    place = np.argsort(LANE_ORDER)[:lanes]
    values = np.asarray(x, np.int64)
    weights = np.asarray(w, np.int64)
    taps = weights[i * w_row + j * w_column + c]
    starts = np.asarray(bias, np.int64)[place]
    parameters = np.asarray(q, np.int64)
    results = []
    for p in range(pixels):
        seen = values[p * x_pixel + i * x_row + j * x_column + c]
        sums = (seen * taps).sum(axis=(0, 1)) + starts
        multiplier = parameters[place]
        shift = parameters[8 + place]
        results.append(_finished(sums, multiplier, shift, settings))
    return tuple(results)


_WIDE_ENDING = immediates("low", "high", "rounding", "lanes")


def _channels(
    pixels: int, columns: int, dtype: DType, weight_dtype: DType
) -> Intrinsic:
    ending = vector_requantize.EPILOGUE_OPERANDS if dtype == INT8 else _WIDE_ENDING

    def count(args: Sequence[int]) -> int:
        rounding = args[4 + pixels + len(ending) - 2]
        each = rounding_instructions(dtype, rounding)
        return microkernel_instructions(pixels, args[-1], columns, each)

    return Intrinsic(
        name=microkernel_name(pixels, columns, dtype, weight_dtype),
        operands=(
            *pointers(dtype, x=1),
            *pointers(weight_dtype, w=1),
            *pointers(INT32, bias=CHANNELS, q=2 * CHANNELS),
            *(Operand(f"y{p}", "ptr", dtype, "w", 1) for p in range(pixels)),
            *ending,
            *immediates(*_GEOMETRY),
        ),
        meaning=partial(_meaning, pixels, columns),
        portable=_portable(pixels, columns, dtype),
        doc=f"Windows of {columns} columns, {pixels} pixels of eight channels.",
        requires="mve",
        text={"gnu": _text(pixels, columns, dtype, weight_dtype)},
        definitions=(KEEP_STORES,),
        count=count,
    )


_FORMS = (
    (pixels, columns, dtype, weight_dtype)
    for dtype, weight_dtype in ((INT8, INT8), (INT16, INT8), (INT8, INT16))
    for pixels in PIXEL_COUNTS
    for columns in range(1, MAX_COLUMNS + 1)
)
INTRINSIC_MAKERS = {
    microkernel_name(*form): partial(_channels, *form) for form in _FORMS
}
