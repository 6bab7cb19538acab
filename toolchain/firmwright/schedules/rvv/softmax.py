"""softmax of int8 on RISC-V vectors: exponentials are gathered from the table.

    highest = the maximum of a row
    total = the sum of the exponentials of highest - x, rounded to 12 integer bits
    y = exponential * reciprocal of total, rounded twice

Halves are rounded up, which for numbers that are not negative is away from zero.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import Register, call_intrinsic
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.ops.softmax import (
    SUM_INTEGER_BITS,
    bind_reciprocal,
    summed_exponentials,
)
from firmwright.schedules.rvv.endings import NOMINAL_LANES

_C = read_sections(__file__)
_PAIR = 2
"""Elements of a row of which a table has the results."""
_Meaning: TypeAlias = Callable[..., Array | tuple[Array, ...]]


def _powers(x: Array, table: Array, highest: Array, last: int, count: int) -> Array:
    distance = np.asarray(highest, np.int64) - np.asarray(x)[: int(count)]
    exponentials = np.asarray(table).reshape(len(table), -1)[:, 0].astype(np.int64)
    found: Array = exponentials[np.clip(distance, 0, int(last))]
    return found


def _largest(x: Array, count: int, *_: Array) -> Array:
    return np.asarray(np.asarray(x)[: int(count)].max(axis=0), np.int32)


def _sum(
    x: Array, table: Array, highest: Array, last: int, count: int, *_: Array
) -> Array:
    powers = _powers(x, table, highest, last, count)
    half = 1 << (SUM_INTEGER_BITS - 1)
    rounded = (powers + half) >> SUM_INTEGER_BITS
    return np.asarray(rounded.sum(axis=0).astype(np.int32))


def _scaled(y: Array, x: Array, table: Array, *rest: Array) -> Array:
    highest, inverse, right, last, count = rest
    powers = _powers(x, table, highest, int(last), int(count))
    product = (powers * np.asarray(inverse, np.int64) + (1 << 30)) >> 31
    amount = np.asarray(right, np.int64)
    moved = (product + ((1 << amount) >> 1)) >> amount
    return np.asarray(np.clip(moved + INT8.min, INT8.min, INT8.max).astype(np.int8))


def _kernel(
    name: str,
    operands: Sequence[Operand],
    meaning: _Meaning,
    doc: str,
    instructions: int,
) -> Intrinsic:
    """Return a micro-kernel, with the instructions of a vector."""
    place = [operand.name for operand in operands].index("count")
    return Intrinsic(
        f"rvv_{name}",
        tuple(operands),
        meaning,
        _C[f"{name}_portable"],
        doc,
        requires="rvv",
        text={"gnu": _C[name]},
        count=lambda args: 10 + divide_up(args[place], NOMINAL_LANES) * instructions,
    )


_ROW = (*pointers(INT8, x=1), *pointers(INT32, exponentials=1))
LARGEST = _kernel(
    "largest",
    (*pointers(INT8, x=1), *immediates("count"), Operand("most", "out", INT32)),
    _largest,
    "The greatest of `count` elements.",
    4,
)
SUM = _kernel(
    "sum_exponentials",
    (
        *_ROW,
        *inputs(INT32, "highest"),
        *immediates("last", "count"),
        Operand("total", "out", INT32),
    ),
    _sum,
    "The sum of the exponentials of `count` elements.",
    12,
)
SCALE = _kernel(
    "scale_exponentials",
    (
        *pointers(INT8, "w", y=1),
        *_ROW,
        *inputs(INT32, "highest", "inverse", "right"),
        *immediates("last", "count"),
    ),
    _scaled,
    "Multiplies the exponentials of `count` elements by the reciprocal of their sum.",
    18,
)
INTRINSICS = (LARGEST, SUM, SCALE)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    x, y = op.input(0), op.output
    fits = x.dtype == y.dtype == INT8 and x.shape[-1] > _PAIR
    return (NO_CONFIG,) if fits else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    depth = op.input(0).shape[-1]
    exponentials = summed_exponentials(op)
    table = b.constant("exponentials", exponentials, INT32)
    last = len(exponentials) - 1
    whole = b.pointer(table, 0, table.elements)
    with b.for_("row", op.input(0).elements // depth) as row:
        x = b.pointer(b.input(0), row * depth, depth)
        highest, total = b.register("highest", INT32), b.register("total", INT32)
        b.evaluate(LARGEST.name, [x, depth, highest.value])
        b.evaluate(SUM.name, [x, whole, highest.value, last, depth, total.value])
        y = b.pointer(b.y, row * depth, depth, "w")
        _scale(b, [y, x, whole], (highest, total), last)


def _scale(
    b: Kernel,
    places: Sequence[tir.AccessPtr],
    found: tuple[Register, Register],
    last: int,
) -> None:
    """Emit the results of a row, of which the maximum and the sum are `found`."""
    depth = b.call.input(0).shape[-1]
    highest, total = found
    headroom = b.let("headroom", call_intrinsic("clz", [total.value], INT32))
    inverse, shift = bind_reciprocal(b, total.value, headroom, depth, INT8)
    factors = [highest.value, inverse, b.let("right", 0 - shift)]
    b.evaluate(SCALE.name, [*places, *factors, last, depth])


SCHEDULES = (
    Schedule("rvv.softmax.gather", "softmax", frozenset({"rvv"}), _configs, _build),
)
