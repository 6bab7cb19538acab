"""Depthwise micro-kernels of sixteen adjacent channels of NHWC data, one per lane."""

from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.lane_loops import lane_loops
from firmwright.kernels.mve.depthwise import (
    CHANNELS,
    SUMS,
    VisibleTaps,
    depthwise_taps,
    depthwise_taps_in_turn,
)
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.vector_requantize import LaneRounding

_C = read_sections(__file__)

# `mve_depthwise_16ch_RxK` computes one pixel of sixteen channels from R x K taps;
# `mve_depthwise_16ch_RxK_of_W` uses K columns of a window of W; the other columns are
# outside the input. The sum of a pair of taps must fit int16, which the caller proves
# (`pair_sums_fit_int16`). Tables have the order of the four vectors of sums.

MAX_ROWS = 5
MAX_COLUMNS = 5
LANE_ORDER = tuple(
    channel for first in (0, 2, 1, 3) for channel in range(first, CHANNELS, 4)
)
"""Channels in the order of the four vectors."""

_PAIR_LIMIT = 255
_NARROWED = """\
__asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnt.s32 %q0, %q1" : "+w"({v}) : "w"({u}));
int16x8_t {name} = vqaddq_n_s16(vreinterpretq_s16_s32({v}), (int16_t)zero_point);"""


_ROUNDING_INSTRUCTIONS = {
    LaneRounding.HALVES_UP: 0,
    LaneRounding.HALVES_AWAY: 2,
    LaneRounding.HALVES_AWAY_IF_SHIFTED: 3,
    LaneRounding.IN_FLOAT32: 1,
}
"""Instructions for each vector of four sums, besides those of every mode."""


def _instructions(taps: VisibleTaps, rounding: LaneRounding) -> int:
    sums = count_executed(depthwise_taps(taps), {})
    return 36 + sums + 4 * _ROUNDING_INSTRUCTIONS[rounding]


def pair_sums_fit_int16(taps: Array) -> bool:
    reach = np.abs(taps.astype(np.int64))
    even = reach[: len(reach) // 2 * 2]
    return int((even[0::2] + even[1::2]).max(initial=0)) <= _PAIR_LIMIT


def _text(taps: VisibleTaps) -> str:
    statement = statement_text(depthwise_taps(taps), mve_file(4))
    declared = []
    if taps.rows > 1:
        steps = taps.columns - 1
        back = ("", " - x_column")[steps] if steps < 2 else f" - {steps} * x_column"
        declared.append(f"const int32_t row = x_row{back};")
    if taps.columns > 1:
        declared.append("const int32_t column = x_column;")
    used = " ".join(declared)
    names = [name for name in ("x_row", "x_column") if name not in used]
    unused = [f"(void){name};" for name in ("lanes", *names)]
    scaled = []
    for index, vector in enumerate(SUMS):
        multiplier = f"vldrwq_s32(q + {4 * index})"
        shift = f"vldrwq_s32(q + {4 * index + CHANNELS})"
        scaled.append(vector_requantize.scale_assembly(vector, multiplier, shift))
    narrowed = [
        _NARROWED.format(v="a", u="b", name="even"),
        _NARROWED.format(v="c", u="d", name="odd"),
    ]
    begin = [*unused, _C["biases"], *declared, statement]
    return "\n".join([*begin, *scaled, *narrowed, _C["stored"]])


def _portable(taps: VisibleTaps) -> str:
    places = ", ".join(map(str, np.argsort(LANE_ORDER)))
    # Sixteen parameters of each kind follow each other.
    step = vector_requantize.PORTABLE.replace("at + 4", "at")
    step = step.replace("at + 8", "at + 16")
    return fill_text(
        _C["portable"],
        step=indent(step, " " * 4),
        places=places,
        sums=lane_loops(depthwise_taps_in_turn(taps)),
    )


def _meaning(taps: VisibleTaps, *args: Array) -> Array:
    x, w, bias, q, _, zero_point, low, high, rounding, _, x_row, x_column = args
    i = np.arange(taps.rows)[:, None, None]
    j = np.arange(taps.columns)[:, None]
    c, place = np.arange(CHANNELS), np.argsort(LANE_ORDER)
    values = np.asarray(x, np.int64)
    weights = np.asarray(w, np.int64)
    seen = values[i * x_row + j * x_column + c]
    filters = weights[CHANNELS * (taps.width * i + j) + c]
    sums = (seen * filters).sum(axis=(0, 1)) + np.asarray(bias, np.int64)[place]
    parameters = np.asarray(q, np.int64)
    scaled = vector_requantize.scale_lanes(
        sums, parameters[place], parameters[CHANNELS + place], rounding
    )
    result: Array = np.clip(scaled + zero_point, low, high).astype(np.int8)
    return result


def _taps(taps: VisibleTaps) -> Intrinsic:
    reach = CHANNELS * ((taps.rows - 1) * taps.width + taps.columns)
    return Intrinsic(
        name=taps.name,
        operands=(
            *pointers(INT8, x=1, w=reach),
            *pointers(INT32, bias=CHANNELS, q=2 * CHANNELS),
            *pointers(INT8, "w", y=CHANNELS),
            *vector_requantize.EPILOGUE_OPERANDS,
            *immediates("x_row", "x_column"),
        ),
        meaning=lambda *args: _meaning(taps, *args),
        portable=_portable(taps),
        doc=f"{taps.rows} x {taps.columns} taps of sixteen channels.",
        requires="mve",
        text={"gnu": _text(taps)},
        count=lambda args: _instructions(taps, LaneRounding(args[8])),
    )


_VISIBLE_TAPS = (
    VisibleTaps(rows, columns, width)
    for rows in range(1, MAX_ROWS + 1)
    for width in range(1, MAX_COLUMNS + 1)
    for columns in range(1, width + 1)
)
INTRINSIC_MAKERS = {taps.name: partial(_taps, taps) for taps in _VISIBLE_TAPS}
