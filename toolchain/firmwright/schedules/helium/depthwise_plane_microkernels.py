"""Depthwise micro-kernels of one channel: its copy to a plane, and windows of it."""

from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.isa.c_numbers import equal, word
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import vqaddq_n_s32
from firmwright.kernels.isa.mve_lanes import vctp32q
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.mve import depthwise_plane
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.helium.vector_requantize import LaneRounding

_C = read_sections(__file__)

# `mve_copy_plane` copies one channel of an NHWC tensor to a plane, eight elements per
# gather. `mve_depthwise_plane_G` computes every output of a filter. One gather of
# sixteen bytes holds the window of 4 / G adjacent outputs, each with its own weight
# vector that is zero outside its window; G gathers make four sums. `table` holds the
# offsets of the gather, then those of each weight vector, within a filter that ends in
# a zero. Blocks of `b_out` x `b_in` outputs advance along the inner axis; the last
# block overlaps its predecessor.

LANES = 16
GROUP_COUNTS = (1, 2, 4)
_GEOMETRY = ("outer", "inner", "b_out", "b_in", "p_out", "p_in", "y_out", "y_in")


_ROUNDING_INSTRUCTIONS = {
    LaneRounding.HALVES_UP: 0,
    LaneRounding.HALVES_AWAY: 2,
    LaneRounding.HALVES_AWAY_IF_SHIFTED: 4,
    LaneRounding.IN_FLOAT32: 1,
}
"""Instructions for each vector of four sums, besides those of every mode."""


def plane_copy_instructions(rows: int, columns: int) -> int:
    return 12 + rows * (6 + columns // 8 * 5 + (4 if columns % 8 else 0))


def window_instructions(
    groups: int,
    rounding: LaneRounding,
    lanes: int,
    outer: int,
    inner: int,
    b_out: int,
    b_in: int,
) -> int:
    block = 18 + 2 * (groups - 1) + _ROUNDING_INSTRUCTIONS[rounding]
    if lanes < 4:
        block += 2
    strips = divide_up(outer, b_out)
    return 16 + 8 // groups + strips * (10 + divide_up(inner, b_in) * block)


# ---- the plane -----------------------------------------------------------------------


def _plane_meaning(
    plane: Array,
    x: Array,
    rows: int,
    columns: int,
    row_step: int,
    column_step: int,
    pitch: int,
) -> Array:
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
    definitions=(KEEP_STORES,),
    count=lambda args: plane_copy_instructions(args[2], args[3]),
)

# ---- windows -------------------------------------------------------------------------

# The parameters of a single channel are adjacent.
_ONE = vector_requantize.PORTABLE.replace("at + 4", "at + 1")
_ONE = _ONE.replace("at + 8", "at + 2")


def _portable(groups: int) -> str:
    each, step = 4 // groups, indent(_ONE, " " * 12)
    group, place = "", "o"
    if groups > 1:
        group, place = f"o / {each} * group + ", f"o % {each}"
    return fill_text(_C["portable"], step=step, group=group, place=place)


def _text(groups: int) -> str:
    before = vector_text(depthwise_plane.load_weights(groups))
    sums = vector_text(depthwise_plane.block_sums(groups))
    scaled = vector_text(depthwise_plane.scale_by_numbers())
    parts = [fill_text(_C["scaled"], scaled=indent(scaled, " " * 4)), _store()]
    block = indent("\n".join([sums, *parts]), " " * 12)
    return fill_text(_C["text"], weights=before, block=block)


def _store() -> str:
    """Return C that adds the zero point, clamps and stores the outputs of a block."""
    k = VectorBuilder("store")
    total, count = k.variable("sums", depthwise_plane.WORDS), k.number("lanes")
    target = k.variable("target", RegisterPlace(RegisterClass.VECTOR, UINT32, 4))
    to = k.pointer("to", INT8, "w")[0]
    k(vqaddq_n_s32, total, k.number("zero_point"), into=total)
    vector_requantize.limit_lanes(k, total, INT8)
    with k.when(k(equal, count, depthwise_plane.SUMS)):
        k.store(MVE_MEMORY.rows["vstrbq_scatter_offset_s32"], to, total, target)
    with k.otherwise():
        inside = k(vctp32q, k(word, count))
        some = MVE_MEMORY.rows["vstrbq_scatter_offset_p_s32"]
        k.store(some, to, total, target, inside)
    return vector_text(k.build_vectors())


def block_starts(count: int, block: int) -> Array:
    """Return the first output of each block along an axis of `count` outputs."""
    return np.minimum(np.arange(0, count, block), count - block)


def _first_lane(values: Array) -> Array:
    return np.asarray(values).reshape(len(values), -1)[:, 0]


def _meaning(
    groups: int,
    plane: Array,
    w: Array,
    table: Array,
    places: Array,
    q: Array,
    y: Array,
    *rest: int,
) -> Array:
    zero_point, low, high, rounding, lanes, *geometry = rest
    outer, inner, b_out, b_in, p_out, p_in, y_out, y_in, *group = geometry
    x, filters = _first_lane(plane), _first_lane(w)
    lane_table = np.asarray(table).reshape(-1, LANES).astype(np.int64)
    grid = np.meshgrid(block_starts(outer, b_out), block_starts(inner, b_in))
    i, j = grid[0].reshape(-1), grid[1].reshape(-1)
    origin = i * p_out + j * p_in
    target = i * y_out + j * y_in
    each = 4 // groups
    bias, multiplier, shift = (int(v) for v in np.asarray(q).reshape(-1)[:3])
    result = _first_lane(y).copy()
    for o in range(lanes):
        first = origin + o // each * sum(group)
        window = x[first[:, None] + lane_table[0]].astype(np.int64)
        sums = window @ filters[lane_table[1 + o % each]].astype(np.int64) + bias
        scaled = vector_requantize.scale_lanes(sums, multiplier, shift, rounding)
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
        meaning=partial(_meaning, groups),
        portable=_portable(groups),
        doc="All outputs of one filter from its channel's plane.",
        requires="mve",
        text={"gnu": _text(groups)},
        definitions=(KEEP_STORES,),
        count=lambda args: window_instructions(
            groups, LaneRounding(args[9]), *args[10:15]
        ),
    )


INTRINSICS = (COPY_PLANE, *map(_window, GROUP_COUNTS))
