"""float32 max_pool2d and average_pool2d on RISC-V vectors: the channels of a pixel."""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.kernels.elementwise import riscv_text
from firmwright.kernels.isa.c_numbers import greater
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.float_pools import FloatPools
from firmwright.schedules.pooling import window_loop
from firmwright.schedules.rvv.endings import NOMINAL_LANES
from firmwright.schedules.rvv_floats.activations import activate_lanes

_ROW = partial(riscv_row, NOMINAL_LANES, FLOAT32)


def _activated_lanes(
    k: VectorBuilder, values: Sequence[VirtualRegister]
) -> VirtualRegister:
    (value,) = values
    return activate_lanes(NOMINAL_LANES, k, value)


def _mean_lanes(k: VectorBuilder, values: Sequence[VirtualRegister]) -> VirtualRegister:
    (value,) = values
    taps, inverse = k.number("taps", FLOAT32), k.number("inverse", FLOAT32)
    with k.when(k(greater, k.number("is_exact"), 0)):
        k(_ROW("vfmul_vf"), value, inverse, into=value)
    with k.otherwise():
        k(_ROW("vfdiv_vf"), value, taps, into=value)
    return activate_lanes(NOMINAL_LANES, k, value)


_window = partial(window_loop, FLOAT32, FLOAT32, _ROW("vfmv_v_f"))
MAXIMA = _window(_ROW("vfmax_vv"), _activated_lanes)
MEANS = _window(_ROW("vfadd_vv"), _mean_lanes)
_POOLS = FloatPools(
    "rvv", "rvvf", NOMINAL_LANES, partial(riscv_text, lanes=NOMINAL_LANES)
)
INTRINSICS = _POOLS.intrinsics(MAXIMA, MEANS)
SCHEDULES = tuple(_POOLS.schedules("rvv"))
