"""float32 max_pool2d and average_pool2d on Helium: four channels of a pixel."""

from collections.abc import Sequence

from firmwright.base.dtypes import FLOAT32
from firmwright.kernels.elementwise import helium_text
from firmwright.kernels.isa import mve_float
from firmwright.kernels.isa.c_numbers import greater, quotient
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.float_pools import FloatPools
from firmwright.schedules.helium.vector_ending import VECTOR
from firmwright.schedules.helium_floats.accumulate_f32 import activate_lanes
from firmwright.schedules.pooling import window_loop


def _activated_lanes(
    k: VectorBuilder, values: Sequence[VirtualRegister]
) -> VirtualRegister:
    (value,) = values
    return activate_lanes(k, value)


def _mean_lanes(k: VectorBuilder, values: Sequence[VirtualRegister]) -> VirtualRegister:
    (value,) = values
    taps, inverse = k.number("taps", FLOAT32), k.number("inverse", FLOAT32)
    with k.when(k(greater, k.number("is_exact"), 0)):
        k(mve_float.vmulq_n_f32, value, inverse, into=value)
    with k.otherwise():
        for lane in range(VECTOR):
            mean = k(quotient, k(mve_float.vgetq_lane_f32, value, lane), taps)
            k(mve_float.vsetq_lane_f32, value, mean, lane, into=value)
    return activate_lanes(k, value)


MAXIMA = window_loop(
    FLOAT32,
    FLOAT32,
    mve_float.vdupq_n_f32,
    mve_float.vmaxnmq_f32,
    _activated_lanes,
)
MEANS = window_loop(
    FLOAT32, FLOAT32, mve_float.vdupq_n_f32, mve_float.vaddq_f32, _mean_lanes
)
_POOLS = FloatPools("mve", "mvefp", VECTOR, helium_text, (KEEP_STORES,))
INTRINSICS = _POOLS.intrinsics(MAXIMA, MEANS)
SCHEDULES = tuple(_POOLS.schedules("helium"))
