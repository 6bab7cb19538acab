"""Depthwise micro-kernels of sixteen adjacent channels of NHWC data, one per lane."""

from dataclasses import dataclass
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.schedules.asm_macros import string_lines
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.vector_requantize import LaneRounding

_C = read_sections(__file__)

# `mve_depthwise_16ch_RxK` computes one pixel of sixteen channels from R x K taps;
# `mve_depthwise_16ch_RxK_of_W` uses K columns of a window of W; the other columns are
# outside the input. Products of int8 are added in pairs of taps: VMULLB and VMULLT give
# int16 products of even and odd channels. The sum of a pair must fit int16, which the
# caller proves (`pair_sums_fit_int16`). It is widened into four vectors of int32:
# channels 0, 4, 8, 12, then those starting at 2, 1 and 3, as in the tables.

CHANNELS = 16
MAX_ROWS = 5
MAX_COLUMNS = 5
LANE_ORDER = tuple(
    channel for first in (0, 2, 1, 3) for channel in range(first, CHANNELS, 4)
)
"""Channels in the order of the four vectors."""

_PAIR_LIMIT = 255
_VECTORS = ("a", "b", "c", "d")


_NARROWED = """\
__asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnt.s32 %q0, %q1" : "+w"({v}) : "w"({u}));
int16x8_t {name} = vqaddq_n_s16(vreinterpretq_s16_s32({v}), (int16_t)zero_point);"""


_PRODUCTS = (
    (
        "vldrb.8 %q[v], [%[taps]], STEP",
        "vmullb.s8 %q[even], %q[x], %q[v]",
        "vmullt.s8 %q[odd], %q[x], %q[v]",
    ),
    (
        "vldrb.8 %q[v], [%[taps]]",
        "vmullt.s8 %q[v], %q[x], %q[v]",
        "vadd.i16 %q[odd], %q[odd], %q[v]",
        "vldrb.8 %q[v], [%[taps]], STEP",
        "vmullb.s8 %q[x], %q[x], %q[v]",
        "vadd.i16 %q[even], %q[even], %q[x]",
    ),
)
"""Code of both taps of a pair; no register is left for both products of the second."""

_WIDENED = (
    "vmovlb.s16 %q[x], %q[even]",
    "vmovlt.s16 %q[v], %q[even]",
    "vadd.i32 %q[a], %q[a], %q[x]",
    "vadd.i32 %q[b], %q[b], %q[v]",
    "vmovlb.s16 %q[x], %q[odd]",
    "vmovlt.s16 %q[v], %q[odd]",
    "vadd.i32 %q[c], %q[c], %q[x]",
    "vadd.i32 %q[d], %q[d], %q[v]",
)


_ROUNDING_INSTRUCTIONS = {
    LaneRounding.HALVES_UP: 0,
    LaneRounding.HALVES_AWAY: 2,
    LaneRounding.HALVES_AWAY_IF_SHIFTED: 3,
    LaneRounding.IN_FLOAT32: 1,
}
"""Instructions for each vector of four sums, besides those of every mode."""


@dataclass(frozen=True, slots=True)
class VisibleTaps:
    """The valid taps of a window of `width` columns."""

    rows: int
    columns: int
    width: int

    @property
    def name(self) -> str:
        rest = "" if self.columns == self.width else f"_of_{self.width}"
        return f"mve_depthwise_16ch_{self.rows}x{self.columns}{rest}"

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def instructions(self, rounding: LaneRounding) -> int:
        return 36 + len(self.assembly()) + 4 * _ROUNDING_INSTRUCTIONS[rounding]

    def assembly(self) -> list[str]:
        """Return the assembly of the sums; every row skips its unused weights."""
        lines: list[str] = []
        for tap in range(self.count):
            ends_row = (tap + 1) % self.columns == 0
            step = CHANNELS * (1 + (self.width - self.columns if ends_row else 0))
            lines.append("vldrb.8 %q[x], [%[from]]")
            for line in _PRODUCTS[tap % 2]:
                lines.append(line.replace("STEP", f"#{step}"))
            if tap + 1 < self.count:
                advance = "row" if ends_row else "column"
                lines.append(f"add %[from], %[{advance}]")
            if tap % 2 or tap + 1 == self.count:
                lines += _WIDENED
        return lines


def pair_sums_fit_int16(taps: Array) -> bool:
    reach = np.abs(taps.astype(np.int64))
    even = reach[: len(reach) // 2 * 2]
    return int((even[0::2] + even[1::2]).max(initial=0)) <= _PAIR_LIMIT


def _text(taps: VisibleTaps) -> str:
    body = "\n".join(string_lines(taps.assembly()))
    back = ("", " - x_column")[taps.columns > 1]
    if taps.columns > 2:
        back = f" - {taps.columns - 1} * x_column"
    scaled = []
    for index, vector in enumerate(_VECTORS):
        multiplier = f"vldrwq_s32(q + {4 * index})"
        shift = f"vldrwq_s32(q + {4 * index + CHANNELS})"
        scaled.append(vector_requantize.scale_assembly(vector, multiplier, shift))
    narrowed = [
        _NARROWED.format(v="a", u="b", name="even"),
        _NARROWED.format(v="c", u="d", name="odd"),
    ]
    frame = fill_text(_C["frame"], body=body, back=back)
    return "\n".join(["(void)lanes;", frame, *scaled, *narrowed, _C["stored"]])


def _portable(taps: VisibleTaps) -> str:
    places = ", ".join(map(str, np.argsort(LANE_ORDER)))
    # Sixteen parameters of each kind follow each other.
    step = vector_requantize.PORTABLE.replace("at + 4", "at")
    step = step.replace("at + 8", "at + 16")
    return fill_text(
        _C["portable"],
        step=indent(step, " " * 4),
        places=places,
        rows=taps.rows,
        columns=taps.columns,
        width=taps.width,
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
        count=lambda args: taps.instructions(LaneRounding(args[8])),
    )


_VISIBLE_TAPS = (
    VisibleTaps(rows, columns, width)
    for rows in range(1, MAX_ROWS + 1)
    for width in range(1, MAX_COLUMNS + 1)
    for columns in range(1, width + 1)
)
INTRINSIC_MAKERS = {taps.name: partial(_taps, taps) for taps in _VISIBLE_TAPS}
