"""dequantize of int8 on RISC-V vectors of integers: floats are gathered by value."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT8, INT32, UINT32, Array
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, riscv_text
from firmwright.kernels.isa.rvv import reinterpret, riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.dequantize import reference
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import NOMINAL_LANES

_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_VALUES = np.arange(INT8.min, INT8.max + 1, dtype=np.int8)


def _compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    rank = k(_WORDS("vadd_vx"), k(_WORDS("vsext_vf4"), lanes[0]), -INT8.min)
    places = k(_WORDS("vsll_vx"), rank, 2)
    offsets = k(reinterpret(NOMINAL_LANES, INT32, UINT32), places)
    return k(_WORDS("vluxei32_v"), k.pointer("floats", INT32)[0], offsets)


_LOOP = ElementLoop(
    (PointerOperand("x", INT8),), PointerOperand("y", INT32, "w"), INT32, _compute
)


def _meaning(y: Array, x: Array, floats: Array, count: Array) -> Array:
    table = np.asarray(floats).reshape(len(_VALUES), -1)[:, 0]
    found: Array = table[np.asarray(x)[:count].astype(np.int64) - INT8.min]
    return found


INTRINSICS = (
    Intrinsic(
        "rvv_dequantize_int8",
        (
            *pointers(INT32, "w", y=1),
            *pointers(INT8, x=1),
            *pointers(INT32, floats=len(_VALUES)),
            *immediates("count"),
        ),
        _meaning,
        "for (int32_t i = 0; i < count; ++i) {\n    y[i] = floats[x[i] + 128];\n}",
        "Looks up the bits of `count` floats.",
        requires="rvv",
        text={"gnu": riscv_text(_LOOP, NOMINAL_LANES)},
        count=lambda args: 10 + divide_up(args[3], NOMINAL_LANES) * 11,
    ),
)


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    applies = op.input(0).dtype == INT8 and op.output.dtype == FLOAT32
    return (NO_CONFIG,) if applies else ()


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    bits = reference(op, [_VALUES])[0].astype(np.float32).view(np.int32)
    floats = b.constant("floats", bits, INT32)
    count = b.y.elements
    y = b.view("bits", b.y, 0, (count,), dtype=INT32, access="w", alignment=4)
    places = [b.pointer(y, 0, count, "w"), b.pointer(b.input(0), 0, count)]
    table = b.pointer(floats, 0, floats.elements)
    b.evaluate("rvv_dequantize_int8", [*places, table, count])
    b.state_elementwise()


SCHEDULES = (
    Schedule(
        "rvv.dequantize.gather", "dequantize", frozenset({"rvv"}), _configs, _build
    ),
)
