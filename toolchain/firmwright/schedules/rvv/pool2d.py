"""max_pool2d and average_pool2d of int8 on RISC-V vectors: channels in lanes."""

from functools import partial

from firmwright.base.dtypes import INT8, INT16, UINT16
from firmwright.kernels.elementwise import riscv_text
from firmwright.kernels.isa.c_numbers import word
from firmwright.kernels.isa.rvv import RVV, riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.pooling import (
    IntegerPools,
    MaxRows,
    MeanRows,
    max_intrinsics,
    mean_intrinsics,
)
from firmwright.schedules.rvv.vector_requantize import limit_lanes

# Eight registers have 128 bytes, or the sums of 64.

BYTES, SUMS = 128, 64
_HALVES, _UNSIGNED = partial(riscv_row, SUMS, INT16), partial(riscv_row, SUMS, UINT16)
MAXIMA = MaxRows(
    riscv_row(BYTES, INT8, "vmv_v_x"),
    riscv_row(BYTES, INT8, "vmax_vv"),
    riscv_row(BYTES, INT8, "vmin_vv"),
).loop(INT8)


def _times(
    k: VectorBuilder, value: VirtualRegister, factor: VirtualRegister
) -> VirtualRegister:
    return k(_UNSIGNED("vmulhu_vx"), value, k(word, factor))


def _shift_right(
    k: VectorBuilder, value: VirtualRegister, amount: VirtualRegister
) -> VirtualRegister:
    return k(_UNSIGNED("vsrl_vx"), value, k(word, amount))


MEANS = MeanRows(
    INT16,
    spread=_HALVES("vmv_v_x"),
    take=_HALVES("vwadd_wv"),
    subtract=_HALVES("vsub_vx"),
    sign=_HALVES("vsra_vx"),
    add=_HALVES("vadd_vv"),
    as_unsigned=RVV.rows["vreinterpret_v_i16m8_u16m8"],
    times_reciprocal=_times,
    shift_right=_shift_right,
    as_signed=RVV.rows["vreinterpret_v_u16m8_i16m8"],
    finish=lambda k, mean: limit_lanes(k, mean, SUMS, INT8.min),
).loop(INT8)


INTRINSICS = (
    *max_intrinsics("rvv", "rvv", INT8, BYTES, riscv_text(MAXIMA, BYTES), ()),
    *mean_intrinsics("rvv", "rvv", INT8, INT16, SUMS, riscv_text(MEANS, SUMS), ()),
)
SCHEDULES = IntegerPools("rvv", {INT8: (INT16,)}).schedules("rvv", "rvv")
