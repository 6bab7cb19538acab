"""float32 add, sub, mul, hard_swish and pools on Helium, four elements at a time."""

from collections.abc import Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium_floats import accumulate_f32
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACTIVATION_CODES,
    activation_instructions,
)
from firmwright.schedules.helium_floats.microkernels import VECTOR_LANES
from firmwright.schedules.schedule_factories import for_inputs_of

_C = read_sections(__file__)

# Every element is rounded as in the default loops: a pool sums its window in their
# order and divides by the number of taps (or multiplies by its inverse if that is
# exact). Elementwise operators require equal shapes; pools require windows inside the
# input.

_SIGNS = {"add": "+", "sub": "-", "mul": "*"}
_POOLS = {"average_pool2d": "average", "max_pool2d": "most"}


def _pairs_meaning(
    op: str, a: Array, b: Array, y: Array, activation: Array, count: Array
) -> Array:
    left = np.asarray(a, np.float32)[:count]
    right = np.asarray(b, np.float32)[:count]
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op]
    with np.errstate(all="ignore"):
        return accumulate_f32.apply_activation(compute(left, right), activation)


def _limits() -> tuple[str, str]:
    """Return C that applies the activation to a scalar, and to a vector."""
    return (
        accumulate_f32.emit_scalar_activation("value"),
        accumulate_f32.emit_vector_activation("value"),
    )


def _pairs(op: str) -> Intrinsic:
    scalar, vector = _limits()
    scalar, vector = indent(scalar, " " * 4), indent(vector, " " * 4)
    return Intrinsic(
        f"mve_{op}_f32",
        (
            *pointers(FLOAT32, a=1, b=1),
            *pointers(FLOAT32, "w", y=1),
            *immediates("activation", "count"),
        ),
        partial(_pairs_meaning, op),
        fill_text(_C["pairs_portable"], sign=_SIGNS[op], limit=scalar),
        f"{op} of `count` elements.",
        requires="mvefp",
        text={"gnu": fill_text(_C["pairs_text"], op=op, limit=vector)},
        definitions=(KEEP_STORES,),
        count=lambda args: 10 + args[4] // 4 * (6 + activation_instructions(args[3])),
    )


def _pairs_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    for kind in (op.input(0), op.input(1)):
        if kind.dtype != FLOAT32 or kind.shape != op.output.shape:
            return ()
    return (NO_CONFIG,)


def _build_pairs(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements
    pair = [b.pointer(b.input(index), 0, count) for index in (0, 1)]
    code = ACTIVATION_CODES[op.attributes(ActivationAttrs).activation]
    b.evaluate(f"mve_{op.op}_f32", [*pair, b.pointer(b.y, 0, count, "w"), code, count])


def _pool_meaning(op: str, x: Array, y: Array, *settings: Array) -> Array:
    rows, columns, row_step, step, activation, lanes = settings
    values = np.asarray(x, np.float32)
    with np.errstate(all="ignore"):
        start = np.finfo(np.float32).min if op == "most" else 0
        total = np.full_like(values[:lanes], start)
        for i in range(rows):
            for j in range(columns):
                tap = values[i * row_step + j * step :][:lanes]
                total = np.maximum(total, tap) if op == "most" else total + tap
        if op == "average":
            total = total / np.float32(rows * columns)
    return accumulate_f32.apply_activation(total, activation)


def _pool(op: str) -> Intrinsic:
    names = ("rows", "columns", "row_step", "step", "activation", "lanes")
    scalar, vector = _limits()
    stored = "\n".join(accumulate_f32.store_assembly("value", "y", 0))
    result = "mean" if op == "average" else "greatest"
    return Intrinsic(
        f"mve_{op}_f32",
        (*pointers(FLOAT32, x=1), *pointers(FLOAT32, "w", y=1), *immediates(*names)),
        partial(_pool_meaning, op),
        fill_text(_C[f"{op}_portable"], limit=indent(scalar, " " * 4)),
        f"The {result} of a window, four channels.",
        requires="mvefp",
        text={"gnu": fill_text(_C[f"{op}_text"], limit=vector, stored=stored)},
        definitions=(KEEP_STORES,),
        count=lambda args: 12 + args[2] * (3 + 5 * args[3]),
    )


def _pool_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    window = pool_window(op)
    guarded = window.guarded(0) or window.guarded(1)
    return (NO_CONFIG,) if op.input(0).dtype == FLOAT32 and not guarded else ()


def _build_pool(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    attrs = op.attributes(ActivationAttrs)
    window = pool_window(op)
    batch, height, width, channels = op.output.shape
    in_rows, in_cols = window.input_size
    lanes = min(channels, VECTOR_LANES)
    steps = (in_cols * channels, channels)
    reach = (window.size[0] - 1) * steps[0] + (window.size[1] - 1) * steps[1] + lanes
    extents = (batch, height, width, divide_up(channels, VECTOR_LANES))
    with b.loops("n oy ox block", extents) as (n, oy, ox, block):
        channel = b.let("channel", minimum(block * VECTOR_LANES, channels - lanes))
        corner = (n * in_rows + oy * window.stride[0]) * in_cols + ox * window.stride[1]
        place = ((n * height + oy) * width + ox) * channels + channel
        x = b.pointer(b.input(0), corner * channels + channel, reach)
        y = b.pointer(b.y, place, lanes, "w")
        settings = [*window.size, *steps, ACTIVATION_CODES[attrs.activation], lanes]
        b.evaluate(f"mve_{_POOLS[op.op]}_f32", [x, y, *settings])


def _hard_swish_meaning(x: Array, y: Array, count: Array) -> Array:
    values = np.asarray(x, np.float32)[:count]
    with np.errstate(all="ignore"):
        cut = accumulate_f32.apply_activation(values + np.float32(3), 2)
        return values * cut / np.float32(6)


def _build_hard_swish(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements
    ends = b.pointer(b.input(0), 0, count), b.pointer(b.y, 0, count, "w")
    b.evaluate(_HARD_SWISH.name, [*ends, count])


_HARD_SWISH = Intrinsic(
    "mve_hard_swish_f32",
    (*pointers(FLOAT32, x=1), *pointers(FLOAT32, "w", y=1), *immediates("count")),
    _hard_swish_meaning,
    _C["hard_swish_portable"],
    "hard_swish of `count` elements.",
    requires="mvefp",
    text={"gnu": _C["hard_swish_text"]},
    definitions=(KEEP_STORES,),
    count=lambda args: 10 + divide_up(args[2], 4) * 23,
)
INTRINSICS = (*map(_pairs, _SIGNS), *map(_pool, _POOLS.values()), _HARD_SWISH)

_NEEDED = frozenset({"mvefp"})
SCHEDULES = (
    *(
        Schedule(f"helium.{op}.floats", op, _NEEDED, _pairs_configs, _build_pairs)
        for op in _SIGNS
    ),
    *(
        Schedule(f"helium.{op}.floats", op, _NEEDED, _pool_configs, _build_pool)
        for op in _POOLS
    ),
    Schedule(
        "helium.hard_swish.floats",
        "hard_swish",
        _NEEDED,
        for_inputs_of(FLOAT32),
        _build_hard_swish,
    ),
)
