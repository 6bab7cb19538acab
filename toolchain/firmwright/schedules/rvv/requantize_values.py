"""quantize of integers on RISC-V vectors: each value is rounded twice, in 32-bit lanes.

Conversions of int8 to int8 have a table (byte_tables.py).
"""

from collections.abc import Iterator, Sequence
from functools import partial

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, call_intrinsic, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    riscv_text,
)
from firmwright.kernels.isa.c_numbers import greater, word
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.quantize import requantization_of
from firmwright.ops.requantize import Requantization, per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.rvv.endings import NOMINAL_LANES

_WORDS = partial(riscv_row, NOMINAL_LANES, INT32)
_EXTENSIONS = {INT8: "vsext_vf4", INT16: "vsext_vf2"}
_LEFT_MAX = 14
"""A difference of two int16 has 17 bits, which may move by this in 32 bits."""
CONVERSIONS = (
    (INT8, INT16),
    (INT16, INT8),
    (INT16, INT16),
    (INT32, INT8),
    (INT32, INT16),
)
"""Types of inputs and outputs."""


def _element(output: DType, **x: ArithExpr) -> ArithExpr:
    shift = x["left"] - x["right"]
    scale = [x["x"].cast(INT32) + x["offset"], x["multiplier"], shift]
    moved = call_intrinsic("requantize_twice", scale, INT32) + x["zero_point"]
    return minimum(maximum(moved, output.min), output.max).cast(output)


def _lanes(
    x: DType, y: DType, k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    (value,) = lanes
    left, right = k.number("left"), k.number("right")
    if x in _EXTENSIONS:
        value = k(_WORDS(_EXTENSIONS[x]), value)
    total = k.named("total", _WORDS("vadd_vx"), value, k.number("offset"))
    with k.when(k(greater, left, 0)):
        k(_WORDS("vsll_vx"), total, k(word, left), into=total)
    k(_WORDS("vsmul_vx"), total, k.number("multiplier"), into=total)
    # Halves round up, so that negative ones need a smaller number to move away from 0.
    with k.when(k(greater, right, 0)):
        k(_WORDS("vadd_vv"), total, k(_WORDS("vsra_vx"), total, 31), into=total)
    row = riscv_row(NOMINAL_LANES, INT16, "vnclip_wx")
    short = k.named("short_total", row, total, k(word, right))
    if y == INT16:
        return short
    row = riscv_row(NOMINAL_LANES, INT16, "vsadd_vx")
    k(row, short, k.number("zero_point"), into=short)
    return k(riscv_row(NOMINAL_LANES, INT8, "vnclip_wx"), short, 0)


def requantize_loop(x: DType, y: DType) -> ElementLoop:
    pointers = PointerOperand("x", x), PointerOperand("y", y, "w")
    return ElementLoop((pointers[0],), pointers[1], INT32, partial(_lanes, x, y))


def name(x: DType, y: DType) -> str:
    """Return the name of the micro-kernel from elements of `x` to those of `y`."""
    return f"rvv_requantize_{x.name}_{y.name}"


def _intrinsics() -> Iterator[Intrinsic]:
    numbers = ("offset", "left", "multiplier", "right", "zero_point", "count")
    for x, y in CONVERSIONS:
        yield from element_intrinsics(
            name(x, y),
            (*pointers(y, "w", y=1), *pointers(x, x=1), *immediates(*numbers)),
            partial(_element, y),
            "Requantizes `count` values.",
            "rvv",
            riscv_text(requantize_loop(x, y), NOMINAL_LANES),
            lambda args: 12 + divide_up(args[-1], NOMINAL_LANES) * 15,
        )


INTRINSICS = tuple(_intrinsics())


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    x, y = op.input(0), op.output
    if (x.dtype, y.dtype) not in CONVERSIONS:
        return ()
    shift = requantization_of(op).shifts[0]
    is_centered = y.dtype == INT8 or per_tensor_quant(y).zero_point == 0
    fits = shift <= _LEFT_MAX
    if x.dtype == INT32:
        # The sum with the zero point of the result must fit 32 bits, too.
        fits = shift < 0 and per_tensor_quant(x).zero_point == 0
    return (NO_CONFIG,) if is_centered and fits and shift >= -31 else ()


def settings(params: Requantization, offset: int) -> tuple[int, ...]:
    """Return the operands before `count`; `offset` is added to each value."""
    shift = params.shifts[0]
    scale = (max(shift, 0), params.multipliers[0], max(-shift, 0))
    return (offset, *scale, params.zero_point)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    x, y = op.input(0), op.output
    numbers = settings(requantization_of(op), -per_tensor_quant(x).zero_point)
    count = y.elements
    ends = b.pointer(b.y, 0, count, "w"), b.pointer(b.input(0), 0, count)
    b.evaluate(name(x.dtype, y.dtype), [*ends, *numbers, count])
    b.state_elementwise()


SCHEDULES = (
    Schedule("rvv.quantize.integers", "quantize", frozenset({"rvv"}), _configs, _build),
)
