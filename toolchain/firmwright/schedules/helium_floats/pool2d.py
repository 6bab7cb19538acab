"""float32 max_pool2d and average_pool2d on Helium: four channels of a pixel.

A mean sums its window in the order of the default loops, and divides by the number of
taps, or multiplies by its inverse if that is exact.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, select
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs
from firmwright.kernels.elementwise import (
    WINDOW_NUMBERS,
    Element,
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve_float
from firmwright.kernels.isa.c_numbers import greater, quotient
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.pooling import pool_window
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.vector_ending import VECTOR
from firmwright.schedules.helium_floats.accumulate_f32 import (
    activate_lanes,
    activated,
)
from firmwright.schedules.helium_floats.elementwise import activation_code
from firmwright.schedules.pooling import (
    build_pixels,
    executed_instructions,
    is_inside,
    pool_pointers,
    window_loop,
)

_LEAST = float(np.finfo(np.float32).min)
_WINDOW = (*immediates(*WINDOW_NUMBERS), *inputs(FLOAT32, "start"))


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


def _intrinsics(
    name: str,
    operands: tuple[Operand, ...],
    take: Element,
    element: Element,
    fixed: int,
    loop: ElementLoop,
) -> tuple[Intrinsic, ...]:
    """Return the micro-kernel; `fixed` instructions are those after the last tap."""
    return element_intrinsics(
        f"mve_{name}_f32",
        (
            *pool_pointers(FLOAT32),
            *_WINDOW,
            *operands,
            *immediates("activation", "count"),
        ),
        element,
        f"The {name} of each of `count` channels of a window.",
        "mvefp",
        helium_text(loop),
        partial(executed_instructions, VECTOR, fixed),
        (KEEP_STORES,),
        take=take,
    )


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype == FLOAT32 and is_inside(op)
    return (NO_CONFIG,) if fits else ()


def _number(value: float) -> tir.FloatImm:
    return tir.FloatImm(value, FLOAT32)


def _build_max(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    settings = (_number(_LEAST), activation_code(op))
    build_pixels("mve_maximum_f32", settings, op, b)


def _build_mean(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    taps = int(np.prod(pool_window(op).size))
    is_exact = taps & (taps - 1) == 0
    numbers = (_number(0.0), _number(taps), _number(1 / taps if is_exact else 0.0))
    settings = (*numbers, int(is_exact), activation_code(op))
    build_pixels("mve_mean_f32", settings, op, b)


def _larger(value: ArithExpr, x: ArithExpr) -> ArithExpr:
    return select(x > value, x, value)


INTRINSICS = (
    *_intrinsics(
        "maximum",
        (),
        _larger,
        lambda value, activation, **_: activated(value, activation),
        2,
        MAXIMA,
    ),
    *_intrinsics(
        "mean",
        (*inputs(FLOAT32, "taps", "inverse"), *immediates("is_exact")),
        lambda value, x: value + x,
        lambda value, taps, activation, **_: activated(value / taps, activation),
        12,
        MEANS,
    ),
)
_NEEDED = frozenset({"mvefp"})
SCHEDULES = (
    Schedule("helium.max_pool2d.floats", "max_pool2d", _NEEDED, _configs, _build_max),
    Schedule(
        "helium.average_pool2d.floats",
        "average_pool2d",
        _NEEDED,
        _configs,
        _build_mean,
    ),
)
