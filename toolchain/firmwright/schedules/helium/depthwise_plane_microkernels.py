"""Depthwise micro-kernels on the plane of one channel: gather per window, VMLADAV per output."""

from textwrap import indent
from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.schedules.helium import vector_requantize

_C = read_sections(__file__)

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
    portable=_C["plane_portable"],
    doc="Copies one channel to a plane.",
    requires="mve",
    text={"gnu": _C["plane_text"]},
    count=lambda args: plane_copy_instructions(args[2], args[3]),
)

# ---- windows ------------------------------------------------------------------------------------

# The parameters of a single channel are adjacent.
_ONE = vector_requantize.PORTABLE.replace("at + 4", "at + 1").replace("at + 8", "at + 2")


def _portable(groups: int) -> str:
    each, step = 4 // groups, indent(_ONE, " " * 12)
    group, place = (f"o / {each} * group + ", f"o % {each}") if groups > 1 else ("", "o")
    return fill_text(_C["portable"], step=step, group=group, place=place)


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
    return "\n".join(lines) + "\n" + _C["finish"]


def _text(groups: int) -> str:
    weights = "\n".join(
        f"const int8x16_t w{k} = vldrbq_gather_offset_s8(w, vldrbq_u8(table + {16 * (k + 1)}));"
        for k in range(4 // groups)
    )
    return fill_text(_C["text"], weights=weights, block=indent(_block(groups), " " * 12))


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
