"""float32 functions of elements on RISC-V vectors."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.tir.builder import ArithExpr
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import Compute, ElementLoop, riscv_text
from firmwright.kernels.isa.c_numbers import whole_float
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules import float_elements
from firmwright.schedules.float_chains import ChainOp
from firmwright.schedules.float_elements import (
    PAIRS,
    FloatElements,
    pair_of,
    single_loop,
)
from firmwright.schedules.rvv.endings import NOMINAL_LANES
from firmwright.schedules.rvv_floats.activations import activate_lanes

_ROW = partial(riscv_row, NOMINAL_LANES, FLOAT32)


def pair_loop(op: str) -> ElementLoop:
    """Return the loop of an operator of two tensors of equal shape."""

    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        value = k.named("value", _ROW(f"vf{op}_vv"), *lanes)
        return activate_lanes(NOMINAL_LANES, k, value)

    return float_elements.pair_loop(compute)


def number_loop(op: ChainOp) -> ElementLoop:
    """Return the loop of an operation of a tensor and a number."""
    return float_elements.number_loop(
        op,
        _ROW("vfmv_v_f"),
        _ROW(f"vf{pair_of(op)}_vv"),
        partial(activate_lanes, NOMINAL_LANES),
    )


def _hard_swish(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
    (x,) = lanes
    zero, three, six = (k(whole_float, number) for number in (0, 3, 6))
    raised = k(_ROW("vfadd_vf"), x, three)
    limited = k(_ROW("vfmin_vf"), k(_ROW("vfmax_vf"), raised, zero), six)
    return k(_ROW("vfdiv_vf"), k(_ROW("vfmul_vv"), x, limited), six)


def _limits(least: int | None, most: int | None) -> Compute:
    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        (value,) = lanes
        if least is not None:
            value = k(_ROW("vmflt_limit"), value, k(whole_float, least))
        if most is not None:
            value = k(_ROW("vmfgt_limit"), value, k(whole_float, most))
        return value

    return compute


_Function: TypeAlias = tuple[Callable[[ArithExpr], ArithExpr], Compute, int]
FUNCTIONS: dict[str, _Function] = {
    "hard_swish": (float_elements.hard_swish, _hard_swish, 12),
    "relu": (float_elements.relu, _limits(0, None), 8),
    "relu6": (float_elements.relu6, _limits(0, 6), 9),
}
"""The expression of an element, its vectors, and the instructions of each."""
_ELEMENTS = FloatElements(
    "rvv", "rvvf", NOMINAL_LANES, partial(riscv_text, lanes=NOMINAL_LANES)
)


def _intrinsics() -> Iterator[Intrinsic]:
    for op in PAIRS:
        yield from _ELEMENTS.pair(op, pair_loop(op))
    for operation in ChainOp:
        yield from _ELEMENTS.number(operation, number_loop(operation))
    for op, (element, compute, instructions) in FUNCTIONS.items():
        yield from _ELEMENTS.single(op, element, single_loop(compute), instructions)


INTRINSICS = tuple(_intrinsics())
SCHEDULES = tuple(_ELEMENTS.schedules("rvv", tuple(FUNCTIONS)))
