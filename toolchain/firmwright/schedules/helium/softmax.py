"""softmax of int8 on Helium: four exponentials at a time, looked up by a gather.

The first micro-kernel finds the maximum of a row and adds the exponentials, the second
one looks them up again and multiplies them by the reciprocal of the sum. They are not
negative, so that VRSHL rounds their halves as the definition does (ops/softmax.py).
"""

from collections.abc import Sequence
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.quant import (
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import call_intrinsic
from firmwright.ir.tir.intrinsic import (
    Intrinsic,
    Operand,
    immediates,
    inputs,
    pointers,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.ops.softmax import (
    SUM_INTEGER_BITS,
    bind_reciprocal,
    summed_exponentials,
)
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.schedule_factories import helium_schedule

_C = read_sections(__file__)
_LANES = 4
_POWERS = indent(_C["powers"], "    ")


def _powers(x: Array, table: Array, highest: Array, last: int) -> Array:
    distances = np.minimum(highest - np.asarray(x, np.int64), last)
    powers: Array = np.take_along_axis(np.asarray(table, np.int64), distances, 0)
    return powers


def _total(
    x: Array, table: Array, last: int, count: int, *_: Array
) -> tuple[Array, Array]:
    values = np.asarray(x, np.int64)[: int(count)]
    highest = values.max(axis=0)
    powers = _powers(values, table, highest, int(last))
    return highest, rounding_divide_by_pot(powers, SUM_INTEGER_BITS).sum(axis=0)


def _scaled(
    y: Array,
    x: Array,
    table: Array,
    highest: Array,
    inverse: Array,
    shift: Array,
    last: int,
    count: int,
) -> Array:
    powers = _powers(np.asarray(x)[: int(count)], table, highest, int(last))
    factor = np.asarray(inverse, np.int64) + 0 * powers
    product = saturating_rounding_doubling_high_mul(factor, powers)
    right = np.negative(np.asarray(shift, np.int64)) + 0 * powers
    return np.minimum(rounding_divide_by_pot(product, right) + INT8.min, INT8.max)


TOTAL = Intrinsic(
    "mve_softmax_total",
    (
        *pointers(INT8, x=1),
        *pointers(INT32, table=1),
        *immediates("last", "count"),
        Operand("highest", "out", INT32),
        Operand("total", "out", INT32),
    ),
    _total,
    fill_text(_C["total_portable"], bits=SUM_INTEGER_BITS),
    "The maximum of `count` values, and the sum of the exponentials.",
    requires="mve",
    text={"gnu": fill_text(_C["total_text"], bits=SUM_INTEGER_BITS, powers=_POWERS)},
    count=lambda args: 20 + args[3] // 16 * 3 + divide_up(args[3], _LANES) * 8,
)
SCALE = Intrinsic(
    "mve_softmax_scale",
    (
        *pointers(INT8, "w", y=1),
        *pointers(INT8, x=1),
        *pointers(INT32, table=1),
        *inputs(INT32, "highest", "inverse", "shift"),
        *immediates("last", "count"),
    ),
    _scaled,
    _C["scale_portable"],
    "Multiplies the exponentials of `count` values by the reciprocal of their sum.",
    requires="mve",
    text={"gnu": fill_text(_C["scale_text"], powers=_POWERS)},
    definitions=(KEEP_STORES,),
    count=lambda args: 12 + divide_up(args[-1], _LANES) * 11,
    calls=("requantize_twice",),
)
INTRINSICS = (TOTAL, SCALE)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    is_int8 = op.input(0).dtype == op.output.dtype == INT8
    return (NO_CONFIG,) if is_int8 else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    depth = op.input(0).shape[-1]
    table = b.constant("exponentials", summed_exponentials(op), INT32)
    powers = b.pointer(table, 0, table.elements)
    numbers = [table.elements - 1, depth]
    with b.for_("row", op.input(0).elements // depth) as row:
        x = b.pointer(b.input(0), row * depth, depth)
        highest = b.register("highest", INT32)
        total = b.register("total", INT32)
        b.evaluate(TOTAL.name, [x, powers, *numbers, highest.value, total.value])
        headroom = b.let("headroom", call_intrinsic("clz", [total.value], INT32))
        inverse, shift = bind_reciprocal(b, total.value, headroom, depth, INT8)
        y = b.pointer(b.y, row * depth, depth, "w")
        factors = [highest.value, inverse, shift]
        b.evaluate(SCALE.name, [y, x, powers, *factors, *numbers])


SCHEDULES = (
    helium_schedule(
        "helium.softmax.gathers", "softmax", configs=_configs, build=_build
    ),
)
