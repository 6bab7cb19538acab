"""mean and sum of int8 channels on RISC-V vectors: sums in lanes of 32 bits.

Outputs are computed from the sums as in the default loops.
"""

from functools import partial

from firmwright.base.dtypes import INT8, INT32
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.intrinsic import immediates, pointers
from firmwright.kernels.elementwise import (
    WINDOW_NUMBERS,
    ElementLoop,
    WindowInput,
    element_intrinsics,
    riscv_text,
)
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.reductions import finish_sums
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.schedules.channel_sums import integer_configs
from firmwright.schedules.pooling import executed_instructions
from firmwright.schedules.rvv.endings import NOMINAL_LANES

_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_NAME = "rvv_sum_channels_int8"


def _start(k: VectorBuilder) -> VirtualRegister:
    return k.named("value", _WORDS("vmv_v_x"), k.number("start"))


def _take(k: VectorBuilder, value: VirtualRegister, tap: VirtualRegister) -> None:
    k(_WORDS("vadd_vv"), value, k(_WORDS("vsext_vf4"), tap), into=value)


SUM_LOOP = ElementLoop(
    (WindowInput(PointerOperand("x", INT8), _start, _take),),
    PointerOperand("y", INT32, "w"),
    INT32,
    lambda k, values: values[0],
)
INTRINSICS = element_intrinsics(
    _NAME,
    (
        *pointers(INT32, "w", y=1),
        *pointers(INT8, x=1),
        *immediates(*WINDOW_NUMBERS, "start", "count"),
    ),
    lambda value, **_: value,
    "The sums of `count` channels of a window.",
    "rvv",
    riscv_text(SUM_LOOP, NOMINAL_LANES),
    partial(executed_instructions, NOMINAL_LANES, 2),
    take=lambda value, x: value + x.cast(INT32),
)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x = op.input(0)
    channels = x.shape[-1]
    sums = b.allocate("sums", INT32, (channels,), 4)
    values = b.pointer(b.input(0), 0, x.elements)
    window = (1, x.elements // channels, x.elements, channels)
    y = b.pointer(sums, 0, channels, "w")
    b.evaluate(_NAME, [y, values, *window, 0, channels])
    finish_sums(op, b, sums, b.y)


SCHEDULES = tuple(
    Schedule(f"rvv.{name}.channels", name, frozenset({"rvv"}), integer_configs, _build)
    for name in ("mean", "sum")
)
