"""Dot products of int8 columns on Helium: loops, assembly and GEMM micro-kernels."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from textwrap import indent
from typing import Literal

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.rounding import round_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    IntrinsicMakers,
    Meaning,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.lane_loops import lane_loops
from firmwright.kernels.mve.dot_products import (
    BYTES_PER_STEP,
    STEPS_PER_ITERATION,
    DotProductLoop,
    Weights,
    dot_products,
    dot_products_in_turn,
)
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.ops.conv2d import weights_of
from firmwright.ops.requantize import has_weight_zero_point
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize

_C = read_sections(__file__)

PAIR = ("x0", "x1")
"""The columns of two pixels."""
MAX_STEPS = 12

_VECTORS = 4
"""The registers of columns and weights."""


@dataclass(frozen=True, slots=True)
class WeightConfig(ScheduleConfig):
    """The configuration of a layer: how its weights are stored."""

    weights: Literal["int8", "int4"] = "int8"


def frame(
    loop: DotProductLoop, columns: tuple[str, ...], weights: Weights = Weights.INT8
) -> str:
    """Return C that leaves the sums in the vectors `first` and `second`."""
    declared = ["int32x4_t first, second;"]
    if loop.deep:
        declared.append("int32_t rounds = (taps / 16 - 1) / 8;")
    elif not loop.tail:
        declared.append("(void)taps;")
    declared += _rest(loop, weights)
    file = mve_file(_VECTORS, has_core_sums=True)
    statement = statement_text(dot_products(columns, loop, weights), file)
    return "\n".join([*declared, statement])


def _rest(loop: DotProductLoop, weights: Weights) -> list[str]:
    """Return the declaration of the length of a tail."""
    values = "taps % 16" if weights.width == BYTES_PER_STEP else "taps % 16 / 2"
    return [f"const uint32_t rest = (uint32_t)({values});"] * loop.tail


def portable_frame(
    loop: DotProductLoop, columns: tuple[str, ...], weights: Weights = Weights.INT8
) -> str:
    """Return portable C that leaves the sums in the arrays `first` and `second`."""
    program = dot_products_in_turn(columns, weights, has_tail=loop.tail)
    declared = ["int32_t first[4], second[4];", *_rest(loop, weights)]
    in_bytes = frozenset(columns if weights is Weights.INT16 else ())
    return "\n".join([*declared, lane_loops(program, in_bytes)])


@cache
def instructions(
    loop: DotProductLoop,
    columns: tuple[str, ...],
    taps: int,
    weights: Weights = Weights.INT8,
) -> int:
    rounds = (taps // BYTES_PER_STEP - 1) // STEPS_PER_ITERATION
    return count_executed(dot_products(columns, loop, weights), {"rounds": rounds})


def _all_loops() -> Iterator[DotProductLoop]:
    for head in range(MAX_STEPS + 1):
        if head:
            yield DotProductLoop(head, deep=False, tail=False)
        yield DotProductLoop(head, deep=False, tail=True)
    for head in range(1, STEPS_PER_ITERATION + 1):
        yield DotProductLoop(head, deep=True, tail=False)
        yield DotProductLoop(head, deep=True, tail=True)


DOT_PRODUCT_LOOPS = tuple(_all_loops())


def make_for_loops(
    names: str, make: Callable[[DotProductLoop, str], Intrinsic]
) -> IntrinsicMakers:
    """Return makers of the micro-kernels with every loop.

    `names` has {} in place of the loop's suffix.
    """
    makers = {}
    for loop in DOT_PRODUCT_LOOPS:
        name = names.format(loop.suffix)
        makers[name] = partial(make, loop, name)
    return makers


def choose_loop(taps: int) -> DotProductLoop:
    steps, tail = divmod(taps, BYTES_PER_STEP)
    deep = steps > MAX_STEPS
    head = (steps - 1) % STEPS_PER_ITERATION + 1 if deep else steps
    return DotProductLoop(head, deep, tail > 0)


def pad_tap_count(taps: int) -> int:
    return round_up(taps, BYTES_PER_STEP)


def pack_weight_rows(
    matrix: Array, starts: Sequence[int], rows: int, width: int = BYTES_PER_STEP
) -> Array:
    """Pack [row, tap] int8 as [block, step, row of block, `width` taps], zero-padded.

    Each block has `rows` rows, beginning at its entry in `starts`.
    """
    count, taps = matrix.shape
    padded = np.zeros((max(count, rows), round_up(taps, width)), np.int8)
    padded[:count, :taps] = matrix
    blocks = np.stack([padded[start : start + rows] for start in starts])
    steps = blocks.reshape(len(starts), rows, -1, width)
    return np.ascontiguousarray(steps.transpose(0, 2, 1, 3))


def pack_int4_rows(matrix: Array, starts: Sequence[int], rows: int) -> Array:
    """Pack [row, tap] as `pack_weight_rows` does, but two rows in each value.

    The values are 16 odd + even, in int16, so that the caller can see whether they fit
    a byte.
    """
    steps = pack_weight_rows(matrix, starts, rows).astype(np.int16)
    packed: Array = 16 * steps[:, :, 1::2] + steps[:, :, ::2]
    return packed


def int4_configs(
    op: OpCall, starts: Sequence[int], rows: int
) -> Sequence[WeightConfig]:
    """Return the configurations of a layer: weights of int8 and, if they fit, of int4.

    They do not fit if an odd weight is -8 next to a negative even one.
    """
    matrix = weights_of(op).reshape(op.input(1).shape[0], -1)
    if has_weight_zero_point(op) or matrix.min() < -8 or matrix.max() > 7:
        return (WeightConfig(),)
    if pack_int4_rows(matrix, starts, rows).min() < INT8.min:
        return (WeightConfig(),)
    return (WeightConfig(), WeightConfig("int4"))


# `mve_gemm_int8_LOOP` (kernels/mve/dot_products.py): a step reads sixteen values of two
# columns and sixteen weights of four channels, 14 instructions for 128 products. The
# sums are collected in two vectors of four channels, requantized (vector_requantize.py)
# and stored. `mve_gemm_shares_int8_LOOP` first adds a number to the sums of each
# column: the share of the weights' zero point.


_ADDED_SHARES = """\
first = vaddq_n_s32(first, share0);
second = vaddq_n_s32(second, share1);"""


def _text(loop: DotProductLoop, weights: Weights, *, has_shares: bool) -> str:
    parts = [frame(loop, PAIR, weights)]
    if has_shares:
        parts.append(_ADDED_SHARES)
    parts.append(vector_requantize.PARAMETER_LOADS)
    parts.append(vector_requantize.requantize_assembly("first", "y0"))
    parts.append(vector_requantize.requantize_assembly("second", "y1"))
    return "\n".join(parts)


def unpack_weights(w: Array, rows: int, taps: int) -> Array:
    """Convert weights to int64 [row, tap, lanes].

    They are [step, row, sixteen] as one flat axis, and the lanes last.
    """
    weights = np.asarray(w, np.int64)
    tail = weights.shape[1:]
    steps = weights.reshape(-1, rows, BYTES_PER_STEP, *tail)
    return steps.swapaxes(0, 1).reshape(rows, -1, *tail)[:, :taps]


def unpack_int4_weights(w: Array, rows: int, taps: int) -> Array:
    """Convert int4 weights to int64 [row, tap, lanes]."""
    both = unpack_weights(w, rows // 2, taps)
    even = (both + 8) % 16 - 8
    return np.stack([even, (both - even) >> 4], axis=1).reshape(rows, *both.shape[1:])


def _meaning(
    unpack: Meaning,
    w: Array,
    x0: Array,
    x1: Array,
    q: Array,
    y0: Array,
    y1: Array,
    *rest: Array,
) -> tuple[Array, ...]:
    settings = rest[:_SETTINGS]
    shares = rest[_SETTINGS:-1] or (0, 0)
    taps = rest[-1]
    weights = unpack(w, vector_requantize.CHANNELS, taps)
    results = []
    for x, share in zip((x0, x1), shares, strict=True):
        products = weights * np.asarray(x, np.int64)[None, :taps]
        sums = products.sum(axis=1) + share
        results.append(vector_requantize.requantize_lanes(sums, q, settings))
    return tuple(results)


_SETTINGS = len(vector_requantize.EPILOGUE_OPERANDS)


def _product(
    loop: DotProductLoop, name: str, weights: Weights, *, has_shares: bool = False
) -> Intrinsic:
    shares = inputs(INT32, "share0", "share1") if has_shares else ()
    is_int4 = weights is Weights.INT4
    unpack = unpack_int4_weights if is_int4 else unpack_weights
    size = (loop.head + loop.tail) * BYTES_PER_STEP * (2 if is_int4 else 4)
    return Intrinsic(
        name=name,
        operands=(
            *pointers(INT8, w=size, x0=loop.least_taps, x1=loop.least_taps),
            *pointers(INT32, q=vector_requantize.PARAMETERS),
            *pointers(INT8, "w", y0=1, y1=1),
            *vector_requantize.EPILOGUE_OPERANDS,
            *shares,
            *immediates("taps"),
        ),
        meaning=partial(_meaning, unpack),
        portable=fill_text(
            _C["portable"],
            frame=portable_frame(loop, PAIR, weights),
            step=indent(vector_requantize.PORTABLE, " " * 8),
            share=" + (p == 0 ? share0 : share1)" if has_shares else "",
        ),
        doc="Four channels of two pixels: products over a column, requantised.",
        requires="mve",
        text={"gnu": _text(loop, weights, has_shares=has_shares)},
        definitions=(KEEP_STORES,),
        count=lambda args: (
            instructions(loop, PAIR, args[-1], weights)
            + 2 * (8 + (0, 2, 3, 1)[args[9]])
            + 8
            + len(shares)
        ),
    )


SUM = Intrinsic(
    name="mve_sum_int8",
    operands=(
        *pointers(INT8, x=1),
        *immediates("count"),
        Operand("total", "out", INT32),
    ),
    meaning=lambda x, count, *_: np.asarray(x, np.int64)[:count].sum(axis=0),
    portable="total = 0;\nfor (int32_t i = 0; i < count; ++i) {\n    total += x[i];\n}",
    doc="The sum of `count` values.",
    requires="mve",
    text={"gnu": _C["sum_text"]},
    count=lambda args: 6 + args[1] // 16 * 4,
)

INTRINSICS = (SUM,)
_PLAIN = partial(_product, weights=Weights.INT8)
_SHARES = partial(_product, weights=Weights.INT8, has_shares=True)
_INT4 = partial(_product, weights=Weights.INT4)
INTRINSIC_MAKERS = {
    **make_for_loops("mve_gemm_int8_{}", _PLAIN),
    **make_for_loops("mve_gemm_shares_int8_{}", _SHARES),
    **make_for_loops("mve_gemm_int4_{}", _INT4),
}
