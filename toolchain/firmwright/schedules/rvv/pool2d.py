"""max_pool2d and average_pool2d of integers on RISC-V vectors: channels in lanes."""

from collections.abc import Iterator
from functools import partial

from firmwright.base.dtypes import INT8, INT16, INT32, UINT16, UINT32, DType
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import riscv_text
from firmwright.kernels.isa.c_numbers import word
from firmwright.kernels.isa.rvv import reinterpret, riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.pooling import (
    IntegerPools,
    MaxRows,
    MeanRows,
    max_intrinsics,
    mean_intrinsics,
)
from firmwright.schedules.rvv.endings import limit_lanes

# Sums of int8 are in int16 lanes, those of int16 in int32 lanes.

_LANES = {8: 128, 16: 64, 32: 32}
"""Lanes of eight registers of 128 bits, by the bits of each."""


def maxima_lanes(dtype: DType) -> int:
    return _LANES[dtype.bits]


def means_lanes(dtype: DType) -> int:
    return _LANES[2 * dtype.bits]


def _max_rows(dtype: DType) -> MaxRows:
    row = partial(riscv_row, maxima_lanes(dtype), dtype)
    return MaxRows(row("vmv_v_x"), row("vmax_vv"), row("vmin_vv"))


def _mean_rows(dtype: DType) -> MeanRows:
    lanes = means_lanes(dtype)
    wide, bits = (INT16, UINT16) if dtype == INT8 else (INT32, UINT32)
    row, unsigned = partial(riscv_row, lanes, wide), partial(riscv_row, lanes, bits)

    def times(
        k: VectorBuilder, value: VirtualRegister, factor: VirtualRegister
    ) -> VirtualRegister:
        return k(unsigned("vmulhu_vx"), value, k(word, factor))

    def shift_right(
        k: VectorBuilder, value: VirtualRegister, amount: VirtualRegister
    ) -> VirtualRegister:
        return k(unsigned("vsrl_vx"), value, k(word, amount))

    def finish(k: VectorBuilder, mean: VirtualRegister) -> VirtualRegister:
        if dtype == INT8:
            return limit_lanes(k, mean, lanes, INT8.min)
        centered = k(row("vsub_vx"), mean, -dtype.min)
        half = k.named("half", riscv_row(lanes, INT16, "vnclip_wx"), centered, 0)
        return limit_lanes(k, half, lanes, None, dtype)

    return MeanRows(
        wide,
        spread=row("vmv_v_x"),
        take=row("vwadd_wv"),
        subtract=row("vsub_vx"),
        sign=row("vsra_vx"),
        add=row("vadd_vv"),
        as_unsigned=reinterpret(lanes, wide, bits),
        times_reciprocal=times,
        shift_right=shift_right,
        as_signed=reinterpret(lanes, bits, wide),
        finish=finish,
    )


SUMS = {INT8: INT16, INT16: INT32}
"""The lanes of sums, by the type of elements."""
MAXIMA = {dtype: _max_rows(dtype).loop(dtype) for dtype in SUMS}
MEANS = {dtype: _mean_rows(dtype).loop(dtype) for dtype in SUMS}


def _intrinsics() -> Iterator[Intrinsic]:
    for dtype, lane in SUMS.items():
        lanes = maxima_lanes(dtype)
        text = riscv_text(MAXIMA[dtype], lanes)
        yield from max_intrinsics("rvv", "rvv", dtype, lanes, text, ())
        lanes = means_lanes(dtype)
        text = riscv_text(MEANS[dtype], lanes)
        yield from mean_intrinsics("rvv", "rvv", dtype, lane, lanes, text, ())


INTRINSICS = tuple(_intrinsics())
POOLS = IntegerPools("rvv", {dtype: (lane,) for dtype, lane in SUMS.items()})
SCHEDULES = POOLS.schedules("rvv", "rvv")
