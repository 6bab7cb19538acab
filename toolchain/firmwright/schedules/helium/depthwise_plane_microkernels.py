"""Depthwise micro-kernels on the plane of one channel: gather per window, VMLADAV per output."""

from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32, Array
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.schedules.helium import vector_requantize

# `mve_copy_plane` copies one channel of an NHWC tensor to a plane, eight elements per gather.
# `mve_depthwise_plane_G` computes every output of a filter. One gather of sixteen bytes holds the
# window of 4 / G adjacent outputs, each with its own weight vector that is zero outside its window;
# G gathers make four sums. `table` holds the offsets of the gather, then those of each weight
# vector, within a filter that ends in a zero. Blocks of `b_out` x `b_in` outputs advance along the
# inner axis; the last block overlaps its predecessor.

LANES = 16
GROUP_COUNTS = (1, 2, 4)
_GEOMETRY = ("outer", "inner", "b_out", "b_in", "p_out", "p_in", "y_out", "y_in")


def plane_copy_instructions(rows: int, columns: int) -> int:
    return 12 + rows * (6 + columns // 8 * 5 + (4 if columns % 8 else 0))


def window_instructions(
    groups: int, away: int, lanes: int, outer: int, inner: int, b_out: int, b_in: int
) -> int:
    block = 18 + 2 * (groups - 1) + (0, 2, 4, 1)[away] + (2 if lanes < 4 else 0)
    strips = -(-outer // b_out)
    return 16 + 8 // groups + strips * (10 + -(-inner // b_in) * block)


# ---- the plane ----------------------------------------------------------------------------------

_PLANE_PORTABLE = """\
for (int32_t i = 0; i < rows; ++i) {
    for (int32_t j = 0; j < columns; ++j) {
        plane[i * pitch + j] = x[i * row_step + j * column_step];
    }
}"""

_PLANE_TEXT = """\
const uint16x8_t offsets = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)column_step);
const uint8_t *row = (const uint8_t *)x;
uint8_t *to = (uint8_t *)plane;
for (int32_t i = 0; i < rows; ++i) {
    const uint8_t *from = row;
    int32_t j = 0;
    for (; j + 8 <= columns; j += 8) {
        vstrbq_u16(to + j, vldrbq_gather_offset_u16(from, offsets));
        from += 8 * column_step;
    }
    if (j < columns) {
        const mve_pred16_t inside = vctp16q((uint32_t)(columns - j));
        vstrbq_p_u16(to + j, vldrbq_gather_offset_z_u16(from, offsets, inside), inside);
    }
    row += row_step;
    to += pitch;
}"""


def _plane_meaning(plane: Any, x: Any, *rest: Any) -> Any:
    rows, columns, row_step, column_step, pitch = rest
    i, j = np.arange(rows)[:, None], np.arange(columns)
    result = np.array(plane)
    result[i * pitch + j] = np.asarray(x)[i * row_step + j * column_step]
    return result


COPY_PLANE = Intrinsic(
    name="mve_copy_plane",
    operands=(
        *pointers(INT8, "rw", plane=1),
        *pointers(INT8, x=1),
        *immediates("rows", "columns", "row_step", "column_step", "pitch"),
    ),
    meaning=_plane_meaning,
    portable=_PLANE_PORTABLE,
    doc="Copies one channel to a plane.",
    requires="mve",
    text={"gnu": _PLANE_TEXT},
    count=lambda args: plane_copy_instructions(args[2], args[3]),
)

# ---- windows ------------------------------------------------------------------------------------

_PORTABLE = """\
for (int32_t i = 0; i < outer; i += b_out) {
    const int32_t row = i < outer - b_out ? i : outer - b_out;
    for (int32_t j = 0; j < inner; j += b_in) {
        const int32_t column = j < inner - b_in ? j : inner - b_in;
        const int8_t *const from = plane + row * p_out + column * p_in;
        for (int32_t o = 0; o < lanes; ++o) {
            const int32_t at = 0;
            int32_t sum = q[at];
            for (int32_t k = 0; k < 16; ++k) {
                sum += from[o / EACH * group + table[k]] * w[table[16 * (o % EACH + 1) + k]];
            }
STEP
            const int32_t place = row * y_out + column * y_in + (int32_t)places[o];
            y[place] = (int8_t)(raised < high ? raised : high);
        }
    }
}"""
# The parameters of a single channel are adjacent.
_ONE = vector_requantize.PORTABLE.replace("at + 4", "at + 1").replace("at + 8", "at + 2")

_TEXT = """\
const uint8x16_t taps = vldrbq_u8(table);
{weights}
const uint32x4_t target = vldrwq_u32(places);
const int32_t bias = q[0];
const int32_t multiplier = q[1];
const int32_t shift = q[2];
for (int32_t i = 0; i < outer; i += b_out) {{
    const int32_t row = i < outer - b_out ? i : outer - b_out;
    const int8_t *from = plane + row * p_out;
    int8_t *to = y + row * y_out;
    int32_t blocks = inner / b_in;
    for (int32_t rest = inner % b_in;; rest = 0) {{
        do {{
{block}
            from += b_in * p_in;
            to += b_in * y_in;
        }} while (--blocks > 0);
        if (rest == 0) {{
            break;
        }}
        from -= (b_in - rest) * p_in;
        to -= (b_in - rest) * y_in;
        blocks = 1;
    }}
}}"""

_FINISH = """\
int32x4_t sums;
__asm__("vmov %q0[2], %q0[0], %1, %3\\n\\tvmov %q0[3], %q0[1], %2, %4"
    : "=&w"(sums) : "r"(sum0), "r"(sum1), "r"(sum2), "r"(sum3));
sums = vaddq_n_s32(sums, bias);
#if __ARM_FEATURE_MVE & 2
if (away == 3) {
    const float32x4_t factor = vreinterpretq_f32_s32(vdupq_n_s32(multiplier));
    sums = vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sums), factor));
} else
#endif
{
    sums = vqrdmulhq_n_s32(sums, multiplier);
    if (away) {
        const int32x4_t moved = away > 1 ? vandq_s32(sums, vdupq_n_s32(shift)) : sums;
        sums = vaddq_s32(sums, vshrq_n_s32(moved, 31));
    }
    sums = vrshlq_n_s32(sums, shift);
}
sums = vqaddq_n_s32(sums, zero_point);
if (low > -128) {
    sums = vmaxq_s32(sums, vdupq_n_s32(low));
}
if (high < 127) {
    sums = vminq_s32(sums, vdupq_n_s32(high));
}
__asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnb.s16 %q0, %q0" : "+w"(sums));
if (lanes == 4) {
    vstrbq_scatter_offset_s32(to, target, sums);
} else {
    vstrbq_scatter_offset_p_s32(to, target, sums, vctp32q((uint32_t)lanes));
}"""


def _portable(groups: int) -> str:
    text = _PORTABLE.replace("STEP", indent(_ONE, " " * 12))
    if groups == 1:
        return text.replace("o / EACH * group + ", "").replace("o % EACH", "o")
    return text.replace("EACH", str(4 // groups))


def _block(groups: int) -> str:
    each = 4 // groups
    lines = []
    for group in range(groups):
        step = f" + {group} * group" if group > 1 else " + group" if group else ""
        lines.append(f"const int8x16_t x{group} = vldrbq_gather_offset_s8(from{step}, taps);")
        lines += [
            f"const int32_t sum{group * each + k} = vmladavq_s8(x{group}, w{k});"
            for k in range(each)
        ]
    return "\n".join(lines) + "\n" + _FINISH


def _text(groups: int) -> str:
    weights = "\n".join(
        f"const int8x16_t w{k} = vldrbq_gather_offset_s8(w, vldrbq_u8(table + {16 * (k + 1)}));"
        for k in range(4 // groups)
    )
    return _TEXT.format(weights=weights, block=indent(_block(groups), " " * 12))


def block_starts(count: int, block: int) -> Array:
    """Return the first output of each block along an axis of `count` outputs."""
    return np.minimum(np.arange(0, count, block), count - block)


def _meaning(groups: int, *args: Any) -> Any:
    plane, w, table, places, q, y, zero_point, low, high, away, lanes, *geometry = args
    outer, inner, b_out, b_in, p_out, p_in, y_out, y_in, *group = geometry
    x, filters, output = (np.asarray(a).reshape(len(a), -1)[:, 0] for a in (plane, w, y))
    lane_table = np.asarray(table).reshape(-1, LANES).astype(np.int64)
    i, j = (
        a.reshape(-1) for a in np.meshgrid(block_starts(outer, b_out), block_starts(inner, b_in))
    )
    origin, target = i * p_out + j * p_in, i * y_out + j * y_in
    each = 4 // groups
    bias, multiplier, shift = (int(v) for v in np.asarray(q).reshape(-1)[:3])
    result = output.copy()
    for o in range(lanes):
        window = x[(origin + o // each * sum(group))[:, None] + lane_table[0]].astype(np.int64)
        sums = window @ filters[lane_table[1 + o % each]].astype(np.int64) + bias
        scaled = vector_requantize.scale_lanes(sums, multiplier, shift, away)
        place = int(np.asarray(places).reshape(-1)[o])
        result[target + place] = np.clip(scaled + zero_point, low, high).astype(np.int8)
    return result.reshape(np.asarray(y).shape)


def _window(groups: int) -> Intrinsic:
    geometry = _GEOMETRY if groups == 1 else (*_GEOMETRY, "group")
    return Intrinsic(
        name=f"mve_depthwise_plane_{groups}",
        operands=(
            *pointers(INT8, plane=1, w=1),
            *pointers(UINT8, table=LANES * (1 + 4 // groups)),
            *pointers(UINT32, places=4),
            *pointers(INT32, q=3),
            *pointers(INT8, "rw", y=1),
            *vector_requantize.EPILOGUE_OPERANDS,
            *immediates(*geometry),
        ),
        meaning=lambda *args: _meaning(groups, *args),
        portable=_portable(groups),
        doc="All outputs of one filter from its channel's plane.",
        requires="mve",
        text={"gnu": _text(groups)},
        count=lambda args: window_instructions(groups, *args[9:15]),
    )


INTRINSICS = (COPY_PLANE, *map(_window, GROUP_COUNTS))
