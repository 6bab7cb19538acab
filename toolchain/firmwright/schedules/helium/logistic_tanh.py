"""logistic and tanh of int16 on Helium: four values gather their table entries."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT16, INT32, UINT16, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import Compute, ElementLoop, helium_text
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import negative
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.logistic_tanh import (
    lookup_sigmoid_array,
    sigmoid_table,
    step_multiplier,
)
from firmwright.ops.schedule import ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.schedule_factories import for_inputs_of, helium_schedule

_C = read_sections(__file__)
_GATHER = MVE_MEMORY.rows["vldrhq_gather_shifted_offset_u32"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Numbers of the interpolation: fraction bits, and from its sum to the result.

    The sum is limited to `most`. The result is the sum plus `above`, or `below` minus
    the sum for negative arguments, without the last `right` bits.
    """

    bits: int
    most: int
    above: int
    below: int
    right: int


CURVES = {
    "logistic": Curve(9, 0x1FFFC00, 512, 0x20001FF, 10),
    "tanh": Curve(8, 0xFFFF00, 128 - (1 << 23), 0x80007F, 8),
}


def _compute(
    curve: Curve, k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    """Interpolate between two entries of the table."""
    scaled = k(mve.vmulq_n_s32, lanes[0], k.number("multiplier"))
    back = k(negative, k.number("shift"))
    value = k.named("value", mve.vrshlq_n_s32, scaled, back)
    last = k(mve.vdupq_n_s32, 255 << curve.bits)
    distance = k.named("distance", mve_lanes.vminq_s32, k(mve.vabsq_s32, value), last)
    place = k(mve.vshrq_n_s32, distance, curve.bits)
    entry = k.named("entry", mve_lanes.vreinterpretq_u32_s32, place)
    table = k.pointer("table", UINT16)
    low = k.named("low", mve_lanes.vreinterpretq_s32_u32, k(_GATHER, table[0], entry))
    high = k.named("high", mve_lanes.vreinterpretq_s32_u32, k(_GATHER, table[1], entry))
    part = k(mve.vandq_s32, distance, k(mve.vdupq_n_s32, (1 << curve.bits) - 1))
    rise = k.named("rise", mve.vmulq_s32, part, k(mve.vsubq_s32, high, low))
    total = k(mve.vaddq_s32, k(mve.vshlq_n_s32, low, curve.bits), rise)
    raised = k.named(
        "raised", mve_lanes.vminq_s32, total, k(mve.vdupq_n_s32, curve.most)
    )
    if_negative = k(mve.vsubq_s32, k(mve.vdupq_n_s32, curve.below), raised)
    is_negative = k(mve_lanes.vcmpltq_n_s32, value, 0)
    chosen = k(
        mve_lanes.vpselq_s32,
        if_negative,
        k(mve.vaddq_n_s32, raised, curve.above),
        is_negative,
    )
    return k(mve.vshrq_n_s32, chosen, curve.right)


def lookup(
    op: str, family: str, text: str, count: tuple[int, int], *macros: str
) -> Intrinsic:
    """Return the micro-kernel of a family with the C `text`.

    `count` has the lanes of a vector and its instructions.
    """

    def meaning(
        y: Array, x: Array, table: Array, multiplier: Array, shift: Array, count: Array
    ) -> Array:
        raised = np.asarray(x)[:count].astype(np.int64) * multiplier + (1 << shift >> 1)
        return lookup_sigmoid_array(raised >> shift, op == "tanh").astype(np.int16)

    lanes, instructions = count
    return Intrinsic(
        f"{family}_{op}_int16",
        (
            *pointers(INT16, "w", y=1),
            *pointers(INT16, x=1),
            *pointers(UINT16, table=257),
            *immediates("multiplier", "shift", "count"),
        ),
        meaning,
        fill_text(_C["portable"], **asdict(CURVES[op])),
        f"{op} of `count` values.",
        requires=family,
        text={"gnu": text},
        definitions=macros,
        count=lambda args: 20 + divide_up(args[5], lanes) * instructions,
    )


def lookup_loop(compute: Compute) -> ElementLoop:
    x, y = PointerOperand("x", INT16), PointerOperand("y", INT16, "w")
    return ElementLoop((x,), y, INT32, compute)


def _lookup(op: str) -> Intrinsic:
    loop = lookup_loop(partial(_compute, CURVES[op]))
    return lookup(op, "mve", helium_text(loop), (4, 22), KEEP_STORES)


def build_lookup(
    op: OpCall, config: ScheduleConfig, b: Kernel, family: str = "mve"
) -> None:
    table = b.constant("sigmoid", sigmoid_table(), UINT16)
    count = op.output.elements
    x = b.pointer(b.input(0), 0, count)
    y = b.pointer(b.y, 0, count, "w")
    places = [y, x, b.pointer(table, 0, table.elements)]
    b.evaluate(f"{family}_{op.op}_int16", [*places, *step_multiplier(op), count])


INTRINSICS = tuple(map(_lookup, CURVES))
SCHEDULES = tuple(
    helium_schedule(
        f"helium.{op}.int16", op, configs=for_inputs_of(INT16), build=build_lookup
    )
    for op in CURVES
)
