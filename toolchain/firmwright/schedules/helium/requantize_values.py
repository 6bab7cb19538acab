"""Requantization of integers on Helium: quantize, and the sums of means.

Each value becomes an int8, rounded twice, four at a time; VRSHL rounds halves up.
"""

from collections.abc import Iterator, Sequence

from firmwright.base.dtypes import INT8, INT16, INT32, DType
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import (
    ElementLoop,
    element_intrinsics,
    helium_text,
)
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.c_numbers import both, greater, less
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.quantize import requantization_of
from firmwright.ops.requantize import Requantization, per_tensor_quant
from firmwright.ops.schedule import NO_CONFIG, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium import vector_requantize
from firmwright.schedules.schedule_factories import helium_schedule

_LANES = 4
_INPUTS = (INT8, INT16)
_NUMBERS = ("offset", "multiplier", "shift", "zero_point", "rounding", "count")


def _element(**x: ArithExpr) -> ArithExpr:
    scale = [x["x"].cast(INT32) + x["offset"], x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scale, INT32) + x["zero_point"]
    return minimum(maximum(moved, INT8.min), INT8.max).cast(INT8)


def _lanes(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    shift = k.number("shift")
    exact = k(mve.vaddq_n_s32, lanes[0], k.number("offset"))
    total = k.named("total", mve.vqrdmulhq_n_s32, exact, k.number("multiplier"))
    with k.when(k(both, k(greater, k.number("rounding"), 0), k(less, shift, 0))):
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, total, 31), into=total)
    k(mve.vrshlq_n_s32, total, shift, into=total)
    k(mve.vqaddq_n_s32, total, k.number("zero_point"), into=total)
    k(narrow_words_twice_in_place, total, into=total)
    return total


def requantize_loop(dtype: DType) -> ElementLoop:
    x, y = PointerOperand("x", dtype), PointerOperand("y", INT8, "w")
    return ElementLoop((x,), y, INT32, _lanes)


def name(dtype: DType) -> str:
    """Return the name of the micro-kernel for elements of `dtype`."""
    return f"mve_requantize_{dtype.name}"


def _intrinsics() -> Iterator[Intrinsic]:
    for dtype in (*_INPUTS, INT32):
        yield from element_intrinsics(
            name(dtype),
            (*pointers(INT8, "w", y=1), *pointers(dtype, x=1), *immediates(*_NUMBERS)),
            _element,
            "Requantizes `count` values.",
            "mve",
            helium_text(requantize_loop(dtype)),
            lambda args: 12 + divide_up(args[-1], _LANES) * (9 + args[-2]),
            (KEEP_STORES,),
        )


INTRINSICS = tuple(_intrinsics())


def settings(params: Requantization, offset: int) -> list[int]:
    """Return the operands before `count`; `offset` is added to each value."""
    rounding = int(vector_requantize.rounding_mode(params) > 0)
    scale = [params.multipliers[0], params.shifts[0]]
    return [offset, *scale, params.zero_point, rounding]


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype in _INPUTS and op.output.dtype == INT8
    if not fits or not vector_requantize.supports_requantize(requantization_of(op)):
        return ()
    return (NO_CONFIG,)


def _build(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    offset = -per_tensor_quant(op.input(0)).zero_point
    numbers = settings(requantization_of(op), offset)
    count = op.output.elements
    y, x = b.pointer(b.y, 0, count, "w"), b.pointer(b.input(0), 0, count)
    b.evaluate(name(op.input(0).dtype), [y, x, *numbers, count])


SCHEDULES = (
    helium_schedule(
        "helium.quantize.integers", "quantize", configs=_configs, build=_build
    ),
)
