"""max_pool2d and average_pool2d of integers on Helium: channels in lanes."""

from collections.abc import Sequence
from dataclasses import replace

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import Builder
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import (
    WINDOW_NUMBERS,
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import negative, word
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.pooling import (
    IntegerPools,
    MaxRows,
    MeanRows,
    max_intrinsics,
    mean_intrinsics,
    window_loop,
)

# Sums of int8 are in int16 lanes if these can hold them. When rows arrive one at a time
# (`mve_add_row`), sums have 32 bits.

MAX_ROWS = {
    INT8: MaxRows(mve.vdupq_n_s8, mve_lanes.vmaxq_s8, mve_lanes.vminq_s8),
    INT16: MaxRows(mve.vdupq_n_s16, mve_lanes.vmaxq_s16, mve_lanes.vminq_s16),
    INT32: MaxRows(mve.vdupq_n_s32, mve_lanes.vmaxq_s32, mve_lanes.vminq_s32),
}


def _mean_rows(dtype: DType, lane: DType) -> MeanRows:
    bits = lane.bits
    signed, unsigned = mve.MVE.rows, mve.MVE.rows

    def times(
        k: VectorBuilder, value: VirtualRegister, factor: VirtualRegister
    ) -> VirtualRegister:
        factors = k(unsigned[f"vdupq_n_u{bits}"], k(word, factor))
        return k(unsigned[f"vmulhq_u{bits}"], value, factors)

    def shift_right(
        k: VectorBuilder, value: VirtualRegister, amount: VirtualRegister
    ) -> VirtualRegister:
        return k(unsigned[f"vshlq_r_u{bits}"], value, k(negative, amount))

    def finish(k: VectorBuilder, mean: VirtualRegister) -> VirtualRegister:
        k(signed[f"vaddq_n_s{bits}"], mean, dtype.min, into=mean)
        return MAX_ROWS[lane].limit(dtype, k, [mean])

    return MeanRows(
        lane,
        spread=signed[f"vdupq_n_s{bits}"],
        take=signed[f"vaddq_s{bits}"],
        subtract=signed[f"vsubq_n_s{bits}"],
        sign=signed[f"vshrq_n_s{bits}"],
        add=signed[f"vaddq_s{bits}"],
        as_unsigned=mve_lanes.MVE_LANES.rows[f"vreinterpretq_u{bits}_s{bits}"],
        times_reciprocal=times,
        shift_right=shift_right,
        as_signed=mve_lanes.MVE_LANES.rows[f"vreinterpretq_s{bits}_u{bits}"],
        finish=finish,
    )


MEANS = {
    (dtype, lane): _mean_rows(dtype, lane).loop(dtype)
    for dtype, lane in ((INT8, INT16), (INT8, INT32), (INT16, INT32))
}


def _row_sums() -> ElementLoop:
    """Return the sums of the pixels of rows, added to one number a channel."""
    sums = window_loop(INT8, INT32, mve.vdupq_n_s32, mve.vaddq_s32, _added)
    acc = PointerOperand("acc", INT32, "rw")
    return replace(sums, inputs=(acc, *sums.inputs), output=acc)


def _added(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    return k(mve.vaddq_s32, *lanes)


ROW_SUMS = _row_sums()
ADD_ROW = "mve_add_row"


def _intrinsics() -> Sequence[Intrinsic]:
    found: list[Intrinsic] = []
    for dtype in (INT8, INT16):
        text = helium_text(MAX_ROWS[dtype].loop(dtype))
        lanes = 128 // dtype.bits
        found += max_intrinsics("mve", "mve", dtype, lanes, text, (KEEP_STORES,))
    for (dtype, lane), loop in MEANS.items():
        found += mean_intrinsics(
            "mve",
            "mve",
            dtype,
            lane,
            128 // lane.bits,
            helium_text(loop),
            (KEEP_STORES,),
        )
    return found


def take_rows(op: OpCall, b: Builder, x: tir.Buffer, acc: tir.Buffer) -> None:
    """Add rows of int8 to the sums of channels, of int32."""
    _, rows, columns, channels = x.shape
    sums = b.pointer(acc, 0, channels, "rw")
    pixels = b.pointer(x, 0, x.elements)
    window = (rows, columns, columns * channels, channels)
    b.evaluate(ADD_ROW, [sums, pixels, *window, 0, channels])


INTRINSICS = (
    *_intrinsics(),
    *element_intrinsics(
        ADD_ROW,
        (
            *pointers(INT32, "rw", acc=1),
            *pointers(INT8, x=1),
            *immediates(*WINDOW_NUMBERS, "start", "count"),
        ),
        lambda value, acc, **_: acc + value,
        "Adds pixels to one sum a channel.",
        "mve",
        helium_text(ROW_SUMS),
        lambda args: 6 - args[-1] // -4 * (9 + args[2] * (3 + 4 * args[3])),
        (KEEP_STORES,),
        take=lambda value, x: value + x.cast(INT32),
    ),
)
POOLS = IntegerPools("mve", {INT8: (INT16, INT32), INT16: (INT32,)})
SCHEDULES = POOLS.schedules("helium", "mve", fold=take_rows)
