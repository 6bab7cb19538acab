"""quantize of floats to int8 on RISC-V vectors of integers: a search in 255 bounds.

The order of floats is that of keys (schedules/scalar/quantize_search.py), here with a
sign. Eight steps find how many bounds a key reaches, in bytes of the table:

    offset = 0
    for step in 128, 64, ... 1:
        if bounds[offset / 4 + step - 1] <= key: offset += 4 * step
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT16, INT32, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, riscv_text
from firmwright.kernels.isa.rvv import reinterpret, riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import NOMINAL_LANES
from firmwright.schedules.scalar.quantize_search import (
    FIRST,
    SIZE_MASK,
    least_floats,
)

_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_STEPS = (128, 64, 32, 16, 8, 4, 2, 1)
_SIGN = 1 << 31
_SIGNED_FIRST = (FIRST ^ _SIGN) - (_SIGN << 1) * ((FIRST ^ _SIGN) >= _SIGN)
"""FIRST less 2^31, which makes signed keys of words."""


def _compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    (bits,) = lanes
    inverted = k(_WORDS("vand_vx"), k(_WORDS("vsra_vx"), bits, 31), SIZE_MASK)
    order = k(_WORDS("vxor_vv"), bits, inverted)
    key = k.named("key", _WORDS("vadd_vx"), order, _SIGNED_FIRST)
    bounds = k.pointer("bounds", INT32)
    offset = k.named("offset", _WORDS("vmv_v_x"), 0)
    for step in _STEPS:
        places = k(reinterpret(NOMINAL_LANES, INT32, UINT32), offset)
        bound = k(_WORDS("vluxei32_v"), bounds[step - 1], places)
        is_below = k(_WORDS("vsra_vx"), k(_WORDS("vssub_vv"), key, bound), 31)
        back = k(_WORDS("vand_vx"), is_below, -4 * step)
        ahead = k(_WORDS("vadd_vx"), offset, 4 * step)
        k(_WORDS("vadd_vv"), ahead, back, into=offset)
    rank = k(_WORDS("vsra_vx"), offset, 2)
    value = k(_WORDS("vadd_vx"), rank, INT8.min)
    half = k(riscv_row(NOMINAL_LANES, INT16, "vnclip_wx"), value, 0)
    return k(riscv_row(NOMINAL_LANES, INT8, "vnclip_wx"), half, 0)


_LOOP = ElementLoop(
    (PointerOperand("x", INT32),), PointerOperand("y", INT8, "w"), INT32, _compute
)


def _meaning(y: Array, x: Array, bounds: Array, count: Array) -> Array:
    bits = np.asarray(x)[:count].astype(np.int64)
    order = np.where(bits < 0, bits ^ SIZE_MASK, bits)
    keys = (order + _SIGNED_FIRST + _SIGN & (_SIGN << 1) - 1) - _SIGN
    table = np.asarray(bounds).reshape(len(bounds), -1)[:, 0]
    rank = np.searchsorted(table, keys, side="right")
    result: Array = (rank + INT8.min).astype(np.int8)
    return result


_PORTABLE = f"""\
for (int32_t i = 0; i < count; ++i) {{
    const uint32_t order = (uint32_t)(x[i] < 0 ? x[i] ^ {SIZE_MASK} : x[i]);
    const int32_t key = (int32_t)(order + {_SIGNED_FIRST & (_SIGN << 1) - 1}u);
    int32_t rank = 0;
    for (int32_t step = 128; step > 0; step /= 2) {{
        rank += bounds[rank + step - 1] <= key ? step : 0;
    }}
    y[i] = (int8_t)(rank - 128);
}}"""

INTRINSICS = (
    Intrinsic(
        "rvv_quantize_f32",
        (
            *pointers(INT8, "w", y=1),
            *pointers(INT32, x=1, bounds=255),
            *immediates("count"),
        ),
        _meaning,
        _PORTABLE,
        "Quantizes `count` floats, given as their bits.",
        requires="rvv",
        text={"gnu": riscv_text(_LOOP, NOMINAL_LANES)},
        count=lambda args: 10 + divide_up(args[3], NOMINAL_LANES) * 64,
    ),
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    applies = op.input(0).dtype == FLOAT32 and op.output.dtype == INT8
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    bounds = b.constant("bounds", least_floats(op) + _SIGNED_FIRST, INT32)
    count = b.y.elements
    x = b.view("bits", b.input(0), 0, (count,), dtype=INT32, alignment=4)
    b.evaluate(
        "rvv_quantize_f32",
        [
            b.pointer(b.y, 0, count, "w"),
            b.pointer(x, 0, count),
            b.pointer(bounds, 0, bounds.elements),
            count,
        ],
    )
    b.state_elementwise()


SCHEDULES = (
    Schedule("rvv.quantize.search", "quantize", frozenset({"rvv"}), _configs, _build),
)
