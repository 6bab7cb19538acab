"""table_sum of int8 on Helium: four summands are gathered, and products added.

v = a * multiplier + table[b + 128]
y = limited((v + window * ((v >> shift) & 1)) >> shift)
"""

from collections.abc import Sequence

import numpy as np

from firmwright.base.dtypes import INT8, INT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.attributes.values import TableSumAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, helium_text
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import different, negative
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.schedule_factories import helium_schedule

_GATHER = MVE_MEMORY.rows["vldrwq_gather_shifted_offset_s32"]
_NUMBERS = ("multiplier", "shift", "window", "low", "high")
_NAME = "mve_table_sum"


def _compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    a, b = lanes
    shift, window = k(negative, k.number("shift")), k.number("window")
    place = k(mve_lanes.vreinterpretq_u32_s32, k(mve.vaddq_n_s32, b, -INT8.min))
    total = k.named("total", _GATHER, k.pointer("table", INT32)[0], place)
    k(mve.vmlaq_n_s32, total, a, k.number("multiplier"), into=total)
    with k.when(k(different, window, 0)):
        whole = k.named("whole", mve.vaddq_n_s32, total, 0)
        k(mve.vshlq_r_s32, whole, shift, into=whole)
        odd = k(mve.vandq_s32, whole, k(mve.vdupq_n_s32, 1))
        k(mve.vmlaq_n_s32, total, odd, window, into=total)
    k(mve.vshlq_r_s32, total, shift, into=total)
    low, high = (k(mve.vdupq_n_s32, k.number(name)) for name in ("low", "high"))
    k(mve_lanes.vmaxq_s32, total, low, into=total)
    k(mve_lanes.vminq_s32, total, high, into=total)
    return total


_LOOP = ElementLoop(
    (PointerOperand("a", INT8), PointerOperand("b", INT8)),
    PointerOperand("y", INT8, "w"),
    INT32,
    _compute,
)
_PORTABLE = """\
for (int32_t i = 0; i < count; ++i) {
    const int32_t v = a[i] * multiplier + table[b[i] + 128];
    const int32_t whole = (v + window * ((v >> shift) & 1)) >> shift;
    const int32_t raised = whole < low ? low : whole;
    y[i] = (int8_t)(raised > high ? high : raised);
}"""


def _meaning(y: Array, a: Array, b: Array, table: Array, *numbers: int) -> Array:
    *given, count = numbers
    x = dict(zip(_NUMBERS, given, strict=True))
    place = np.asarray(b)[:count].astype(np.int64) - INT8.min
    summands = np.take_along_axis(np.asarray(table), place, 0)
    v = np.asarray(a)[:count].astype(np.int64) * x["multiplier"] + summands
    whole = (v + x["window"] * ((v >> x["shift"]) & 1)) >> x["shift"]
    limited: Array = np.clip(whole, x["low"], x["high"]).astype(np.int8)
    return limited


INTRINSICS = (
    Intrinsic(
        _NAME,
        (
            *pointers(INT8, "w", y=1),
            *pointers(INT8, a=1, b=1),
            *pointers(INT32, table=256),
            *immediates(*_NUMBERS, "count"),
        ),
        _meaning,
        _PORTABLE,
        "Adds a product and a summand of a table, for each of `count` elements.",
        requires="mve",
        text={"gnu": helium_text(_LOOP)},
        definitions=(KEEP_STORES,),
        count=lambda args: 20 + divide_up(args[-1], 4) * (10 + 4 * (args[-4] != 0)),
    ),
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).shape == op.input(1).shape == op.output.shape
    return (NO_CONFIG,) if fits else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    attrs, count = op.attributes(TableSumAttrs), op.output.elements
    table = b.constant("table", np.array(attrs.table), INT32)
    inputs = [b.pointer(b.input(n), 0, count) for n in (0, 1)]
    numbers = [attrs.multiplier, attrs.shift, attrs.window, attrs.low, attrs.high]
    ends = [b.pointer(b.y, 0, count, "w"), *inputs, b.pointer(table, 0, 256)]
    b.evaluate(_NAME, [*ends, *numbers, count])


SCHEDULES = (
    helium_schedule(
        "helium.table_sum.gather", "table_sum", configs=_configs, build=_build
    ),
)
