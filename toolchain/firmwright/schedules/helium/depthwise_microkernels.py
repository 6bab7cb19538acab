"""Depthwise micro-kernels of adjacent channels of NHWC data, one in each lane."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, Array, DType
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.elementwise import without_unused
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import greater, less, word
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.lane_loops import lane_loops
from firmwright.kernels.mve import depthwise, depthwise_lanes
from firmwright.kernels.mve.depthwise import VisibleTaps
from firmwright.kernels.mve.depthwise_lanes import LaneWindow
from firmwright.kernels.program import Program, VirtualRegister
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.kernels.vector_program import VectorBuilder, VectorProgram
from firmwright.kernels.vector_text import vector_text
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import int16_dot, vector_requantize
from firmwright.schedules.helium.int16_dot import Int16LaneRounding
from firmwright.schedules.helium.vector_requantize import LaneRounding

_C = read_sections(__file__)

# `mve_depthwise_16ch_RxK` computes one pixel of sixteen channels from R x K taps;
# `mve_depthwise_16ch_RxK_of_W` uses K columns of a window of W; the other columns are
# outside the input. The sum of a pair of taps must fit int16, which the caller proves
# (`pair_sums_fit_int16`).
#
# `mve_depthwise_8ch_PxK` computes P = 1 or 2 pixels of eight channels from windows of K
# columns and any number of rows; `int16_8ch` those of int16, `wide_8ch` those of int8
# with weights of int16, and `few_...` those of fewer channels, the number of `lanes`.
# No scratch memory is needed, which suits single output rows.
#
# Tables have the order of the vectors of sums: `bias`, and `q`, the multipliers, then
# the shifts.

MAX_ROWS = 5
"""Maximum rows of windows of sixteen channels."""
MAX_COLUMNS = 5
"""Maximum columns of windows of sixteen channels."""
MAX_LANE_COLUMNS = 8
"""Maximum columns of windows of eight channels."""
LANE_ORDERS: Mapping[int, tuple[int, ...]] = {
    16: tuple(c for first in (0, 2, 1, 3) for c in range(first, 16, 4)),
    8: (*range(0, 8, 2), *range(1, 8, 2)),
}
"""Channels of a block -> its channels in the order of the vectors of sums."""

_PAIR_LIMIT = 255
_VECTORS = 4
"""The registers of values, weights and products."""
_FILES = {
    depthwise.CHANNELS: mve_file(_VECTORS),
    depthwise_lanes.CHANNELS: mve_file(_VECTORS, loop_register="lr"),
}
_WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, 4)
_GEOMETRY = ("x_row", "x_column", "x_pixel", "w_row", "w_column", "rows")
_INT16_EPILOGUE = immediates("low", "high", "rounding", "lanes")
_ROUNDING_INSTRUCTIONS: Mapping[DType, Mapping[int, int]] = {
    INT8: {
        LaneRounding.HALVES_UP: 0,
        LaneRounding.HALVES_AWAY: 2,
        LaneRounding.HALVES_AWAY_IF_SHIFTED: 3,
        LaneRounding.IN_FLOAT32: 1,
    },
    INT16: {
        Int16LaneRounding.HALVES_UP: 0,
        Int16LaneRounding.HALVES_AWAY: 2,
        Int16LaneRounding.HALVES_AWAY_IF_SHIFTED: 3,
        Int16LaneRounding.ONCE: 0,
    },
}
"""Instructions for each vector of four sums, besides those of every mode."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A micro-kernel of `channels` channels, and of a pixel for each group of `sums`.

    `program` adds all taps to the sums; `in_turn` is the shortest program that does,
    from the biases on. `declared` are the C variables of each. `fixed` are numbers that
    are no operands, and `overhead` instructions outside of the loop over taps.
    """

    name: str
    doc: str
    channels: int
    dtype: DType
    operands: tuple[Operand, ...]
    sums: tuple[tuple[str, ...], ...]
    program: Program
    in_turn: Program
    declared: tuple[str, ...]
    declared_in_turn: tuple[str, ...]
    overhead: int
    fixed: Mapping[str, int] = field(default_factory=dict)
    is_partial: bool = False

    @property
    def order(self) -> tuple[int, ...]:
        return LANE_ORDERS[self.channels]

    def numbers(self, args: Sequence[Array | int]) -> dict[str, Array | int]:
        """Return the arguments and the fixed numbers, by name."""
        names = [operand.name for operand in self.operands]
        return {**self.fixed, **dict(zip(names, args, strict=True))}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The pointers to the output of each pixel."""
        return tuple(item.name for item in self.operands if item.access == "w")


# ---- requantization and stores -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Limits:
    """The instructions that clamp vectors of one lane type."""

    repeat: Instr
    least: Instr
    most: Instr

    def clamp(self, k: VectorBuilder, value: VirtualRegister, dtype: DType) -> None:
        """Clamp a variable to `low` and `high`, which are in the range of `dtype`."""
        low, high = k.number("low"), k.number("high")
        with k.when(k(greater, low, dtype.min)):
            k(self.most, value, k(self.repeat, low), into=value)
        with k.when(k(less, high, dtype.max)):
            k(self.least, value, k(self.repeat, high), into=value)


_BYTE_LIMITS = _Limits(mve.vdupq_n_s8, mve_lanes.vminq_s8, mve_lanes.vmaxq_s8)
_HALF_LIMITS = _Limits(mve.vdupq_n_s16, mve_lanes.vminq_s16, mve_lanes.vmaxq_s16)


def _narrow(
    k: VectorBuilder, name: str, low: str, high: str, dtype: DType
) -> VirtualRegister:
    """Narrow two vectors of sums to one of halves; add the zero point for int8."""
    words = k.variable(low, _WORDS)
    k(mve_lanes.narrow_words_together, words, k.variable(high, _WORDS), into=words)
    if dtype != INT8:
        return k.named(name, mve_lanes.vreinterpretq_s16_s32, words)
    halves = k(mve_lanes.vreinterpretq_s16_s32, words)
    return k.named(name, mve.vqaddq_n_s16, halves, k.number("zero_point"))


def _store_sixteen(sums: Sequence[str], target: str) -> VectorProgram:
    """Return the steps that narrow and store sixteen channels.

    `sums` hold channels 0, 4, 8, 12, then those starting at 2, 1 and 3:

        a, b -> even  | 14 12 10 8 6 4 2 0 |     odd  | 15 13 11 9 7 5 3 1 |
        bytes         | 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0 |
    """
    k = VectorBuilder("store_sixteen")
    a, b, c, d = sums
    even, odd = _narrow(k, "even", a, b, INT8), _narrow(k, "odd", c, d, INT8)
    k(mve_lanes.narrow_halves_together, even, odd, into=even)
    result = k.named("result", mve_lanes.vreinterpretq_s8_s16, even)
    _BYTE_LIMITS.clamp(k, result, INT8)
    k.store(MVE_MEMORY.rows["vstrbq_s8"], k.pointer(target, INT8, "w")[0], result)
    return k.build_vectors()


def _store_eight(
    sums: Sequence[str], target: str, dtype: DType, *, is_partial: bool
) -> VectorProgram:
    """Return the steps that narrow and store eight channels, or the first `lanes`."""
    k = VectorBuilder("store_eight")
    even, odd = sums
    result = _narrow(k, f"result_{target}", even, odd, dtype)
    _HALF_LIMITS.clamp(k, result, dtype)
    if dtype == INT8:
        k(mve_lanes.narrow_halves_in_place, result, into=result)
    y, stem = k.pointer(target, dtype, "w")[0], "vstrbq" if dtype == INT8 else "vstrhq"
    if is_partial:
        inside = k(mve_lanes.vctp16q, k(word, k.number("lanes")))
        k.store(MVE_MEMORY.rows[f"{stem}_p_s16"], y, result, inside)
    else:
        k.store(MVE_MEMORY.rows[f"{stem}_s16"], y, result)
    return k.build_vectors()


# ---- texts ---------------------------------------------------------------------------


def _text(tile: _Tile) -> str:
    """Return C with assembly and vector intrinsics."""
    lines: list[str] = []
    for group in tile.sums:
        for number, vector in enumerate(group):
            at = f"bias + {4 * number}" if number else "bias"
            lines.append(f"int32x4_t {vector} = vldrwq_s32({at});")
    lines += tile.declared
    lines.append(statement_text(tile.program, _FILES[tile.channels]))
    scale = vector_requantize if tile.dtype == INT8 else int16_dot
    for group, target in zip(tile.sums, tile.outputs, strict=True):
        for number, vector in enumerate(group):
            multiplier = f"vldrwq_s32(q + {4 * number})"
            shift = f"vldrwq_s32(q + {4 * number + tile.channels})"
            lines.append(scale.scale_assembly(vector, multiplier, shift))
        if tile.channels == depthwise.CHANNELS:
            stored = _store_sixteen(group, target)
        else:
            stored = _store_eight(group, target, tile.dtype, is_partial=tile.is_partial)
        lines.append(vector_text(stored))
    return without_unused(tile.operands, "\n".join(lines))


def _portable(tile: _Tile) -> str:
    step = vector_requantize.PORTABLE
    if tile.dtype != INT8:
        step = int16_dot.STEP_PORTABLE
    # The parameters of each kind follow each other.
    step = step.replace("at + 4", "at").replace("at + 8", f"at + {tile.channels}")
    lines = [
        fill_text(
            _C["places"],
            channels=tile.channels,
            places=", ".join(map(str, np.argsort(tile.order))),
        )
    ]
    vectors = [vector for group in tile.sums for vector in group]
    lines.append(f"int32_t {', '.join(f'{vector}[4]' for vector in vectors)};")
    pointers_ = ", ".join(vectors)
    lines.append(f"const int32_t *const sums[{len(vectors)}] = {{{pointers_}}};")
    lines += tile.declared_in_turn
    lines.append(lane_loops(tile.in_turn))
    for pixel, target in enumerate(tile.outputs):
        first = pixel * len(tile.sums[0])
        lines.append(
            fill_text(
                _C["finish"],
                lanes="lanes" if tile.is_partial else tile.channels,
                vector=f"{first} + at / 4" if first else "at / 4",
                step=indent(step, " " * 4),
                y=target,
                dtype=tile.dtype.c_type,
            )
        )
    return without_unused(tile.operands, "\n".join(lines))


# ---- specification and cost ----------------------------------------------------------


def _meaning(tile: _Tile, *args: Array) -> tuple[Array, ...]:
    """Return each output: a sum over the taps of every channel, requantized."""
    given = tile.numbers(args)
    lanes = int(given["lanes"])
    place = np.argsort(tile.order)[:lanes]
    i, j, c = np.ogrid[: int(given["rows"]), : int(given["columns"]), :lanes]
    values, weights = (np.asarray(given[name], np.int64) for name in ("x", "w"))
    bias, q = (np.asarray(given[name], np.int64) for name in ("bias", "q"))
    taps = weights[i * given["w_row"] + j * given["w_column"] + c]
    results: list[Array] = []
    for pixel in range(len(tile.sums)):
        start = pixel * given["x_pixel"]
        seen = values[start + i * given["x_row"] + j * given["x_column"] + c]
        sums = (seen * taps).sum(axis=(0, 1)) + bias[place]
        multiplier, shift = q[place], q[tile.channels + place]
        results.append(_requantized(given, sums, multiplier, shift))
    return tuple(results)


def _requantized(
    given: Mapping[str, Array | int], sums: Array, multiplier: Array, shift: Array
) -> Array:
    low, high, rounding = (int(given[name]) for name in ("low", "high", "rounding"))
    if "zero_point" not in given:
        settings = (low, high, rounding)
        return int16_dot.requantize_to_int16(sums, multiplier, shift, settings)
    scaled = vector_requantize.scale_lanes(sums, multiplier, shift, rounding)
    moved = scaled + int(given["zero_point"])
    return np.asarray(np.clip(moved, low, high), np.int8)


def _count(tile: _Tile, args: Sequence[int]) -> int:
    given = tile.numbers(args)
    each = _ROUNDING_INSTRUCTIONS[tile.dtype][int(given["rounding"])]
    vectors = sum(map(len, tile.sums))
    taps = count_executed(tile.program, {"rows": int(given["rows"])}, 1)
    return tile.overhead + vectors * each + taps


# ---- micro-kernels -------------------------------------------------------------------


def _intrinsic(make: Callable[[], _Tile]) -> Intrinsic:
    tile = make()
    return Intrinsic(
        name=tile.name,
        operands=tile.operands,
        meaning=partial(_meaning, tile),
        portable=_portable(tile),
        doc=tile.doc,
        requires="mve",
        text={"gnu": _text(tile)},
        definitions=(KEEP_STORES,) if tile.is_partial else (),
        count=partial(_count, tile),
    )


def pair_sums_fit_int16(taps: Array) -> bool:
    """Whether sums of the products of two taps, adjacent in axis 0, fit int16."""
    reach = np.abs(taps.astype(np.int64))
    even = reach[: len(reach) // 2 * 2]
    return int((even[0::2] + even[1::2]).max(initial=0)) <= _PAIR_LIMIT


def _sixteen(taps: VisibleTaps) -> _Tile:
    channels = depthwise.CHANNELS
    declared: list[str] = []
    if taps.rows > 1:
        steps = taps.columns - 1
        back = ("", " - x_column")[steps] if steps < 2 else f" - {steps} * x_column"
        declared.append(f"const int32_t row = x_row{back};")
    if taps.columns > 1:
        declared.append("const int32_t column = x_column;")
    fixed = {"rows": taps.rows, "columns": taps.columns, "x_pixel": 0}
    reach = channels * ((taps.rows - 1) * taps.width + taps.columns)
    return _Tile(
        name=taps.name,
        doc=f"{taps.rows} x {taps.columns} taps of sixteen channels.",
        channels=channels,
        dtype=INT8,
        operands=(
            *pointers(INT8, x=1, w=reach),
            *pointers(INT32, bias=channels, q=2 * channels),
            *pointers(INT8, "w", y=channels),
            *vector_requantize.EPILOGUE_OPERANDS,
            *immediates("x_row", "x_column"),
        ),
        sums=(depthwise.SUMS,),
        program=depthwise.depthwise_taps(taps),
        in_turn=depthwise.depthwise_taps_in_turn(taps),
        declared=tuple(declared),
        declared_in_turn=(),
        overhead=36,
        fixed={**fixed, "w_row": channels * taps.width, "w_column": channels},
    )


def lane_window_name(window: LaneWindow) -> str:
    kind = "few_" if window.is_partial else ""
    if window.weights == INT16:
        kind += "wide_"
    elif window.values == INT16:
        kind += "int16_"
    return f"mve_depthwise_{kind}8ch_{window.pixels}x{window.columns}"


def _eight(window: LaneWindow) -> _Tile:
    channels, dtype = depthwise_lanes.CHANNELS, window.values
    others = window.values_of_pixels[1:]
    starts = [f"const {dtype.c_type} *{name} = x + x_pixel;" for name in others]
    if window.is_partial:
        starts.append("const uint32_t count = (uint32_t)lanes;")
    ends: list[str] = []
    for name in ("x", "w"):
        steps = window.columns - 1
        back = f" - {steps} * {name}_column" if steps else ""
        ends.append(f"const int32_t {name}_end = {name}_row{back};")
    is_int8 = dtype == INT8
    return _Tile(
        name=lane_window_name(window),
        doc=f"Windows of {window.columns} columns, {window.pixels} pixels of eight "
        "channels.",
        channels=channels,
        dtype=dtype,
        operands=(
            *pointers(dtype, x=1),
            *pointers(window.weights, w=1),
            *pointers(INT32, bias=channels, q=2 * channels),
            *(Operand(f"y{p}", "ptr", dtype, "w", 1) for p in range(window.pixels)),
            *(vector_requantize.EPILOGUE_OPERANDS if is_int8 else _INT16_EPILOGUE),
            *immediates(*_GEOMETRY),
        ),
        sums=window.sums,
        program=depthwise_lanes.depthwise_lanes(window),
        in_turn=depthwise_lanes.depthwise_lanes_in_turn(window),
        declared=(*starts, *ends),
        declared_in_turn=tuple(starts),
        overhead=12 + 8 * window.pixels,
        fixed={"columns": window.columns},
        is_partial=window.is_partial,
    )


_VISIBLE_TAPS = (
    VisibleTaps(rows, columns, width)
    for rows in range(1, MAX_ROWS + 1)
    for width in range(1, MAX_COLUMNS + 1)
    for columns in range(1, width + 1)
)
_LANE_WINDOWS = (
    LaneWindow(pixels, columns, values, weights, is_partial)
    for values, weights in ((INT8, INT8), (INT16, INT8), (INT8, INT16))
    for pixels in (1, 2)
    for columns in range(1, MAX_LANE_COLUMNS + 1)
    for is_partial in (False, True)
)
_TILES: Mapping[str, Callable[[], _Tile]] = {
    **{taps.name: partial(_sixteen, taps) for taps in _VISIBLE_TAPS},
    **{lane_window_name(window): partial(_eight, window) for window in _LANE_WINDOWS},
}
INTRINSIC_MAKERS = {name: partial(_intrinsic, make) for name, make in _TILES.items()}
