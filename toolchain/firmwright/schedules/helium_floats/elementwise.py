"""float32 functions of elements on Helium, four elements at a time."""

from collections.abc import Iterator, Sequence

from firmwright.base.dtypes import INT32
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import Compute, ElementLoop, helium_text
from firmwright.kernels.isa import mve_float
from firmwright.kernels.isa.c_numbers import quotient, whole_float
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules import float_elements
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.float_chains import ChainOp
from firmwright.schedules.float_elements import FloatElements, pair_of, single_loop
from firmwright.schedules.helium.vector_ending import VECTOR
from firmwright.schedules.helium_floats.accumulate_f32 import (
    activate_lanes,
    lower_lanes,
    raise_lanes,
)
from firmwright.schedules.helium_floats.quantize import dequantize_name

# ---- add, sub and mul ----------------------------------------------------------------


_PAIRS: dict[str, Instr] = {
    "add": mve_float.vaddq_f32,
    "sub": mve_float.vsubq_f32,
    "mul": mve_float.vmulq_f32,
}


def pair_loop(op: str) -> ElementLoop:
    """Return the loop of an operator of two tensors of equal shape."""

    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        return activate_lanes(k, k.named("value", _PAIRS[op], *lanes))

    return float_elements.pair_loop(compute)


def number_loop(op: ChainOp) -> ElementLoop:
    """Return the loop of an operation of a tensor and a number."""
    combine = _PAIRS[pair_of(op)]
    return float_elements.number_loop(
        op, mve_float.vdupq_n_f32, combine, activate_lanes
    )


# ---- limits --------------------------------------------------------------------------


def _limits(most: int | None) -> Compute:
    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        (value,) = lanes
        raise_lanes(k, value, k(mve_float.vdupq_n_f32, k(whole_float, 0)))
        if most is not None:
            lower_lanes(k, value, k(mve_float.vdupq_n_f32, k(whole_float, most)))
        return value

    return compute


# ---- hard_swish ----------------------------------------------------------------------


def _hard_swish_lanes(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    """Multiply by 1/6 and add the exact remainder's sixth; infinities stay."""
    (x,) = lanes
    zero, six = (k(mve_float.vdupq_n_f32, k(whole_float, n)) for n in (0, 6))
    raised = k(mve_float.vaddq_n_f32, x, k(whole_float, 3))
    limited = k(mve_float.vminnmq_f32, k(mve_float.vmaxnmq_f32, raised, zero), six)
    product = k.named("product", mve_float.vmulq_f32, x, limited)
    sixth = k(quotient, k(whole_float, 1), k(whole_float, 6))
    near = k.named("near", mve_float.vmulq_n_f32, product, sixth)
    rest = k.named("rest", mve_float.vfmaq_n_f32, product, near, k(whole_float, -6))
    is_number = k(mve_float.vcmpeqq_f32, rest, rest)
    return k(mve_float.vfmaq_m_n_f32, near, rest, sixth, is_number)


HARD_SWISH = single_loop(_hard_swish_lanes)
FUNCTIONS = {
    "hard_swish": (float_elements.hard_swish, HARD_SWISH, 20),
    "relu": (float_elements.relu, single_loop(_limits(None)), 5),
    "relu6": (float_elements.relu6, single_loop(_limits(6)), 6),
}
"""The expression of an element, its loop, and the instructions of a vector."""
_ELEMENTS = FloatElements(
    "mve", "mvefp", VECTOR, helium_text, (KEEP_STORES,), dequantize_name(INT32)
)


def _intrinsics() -> Iterator[Intrinsic]:
    for op in _PAIRS:
        yield from _ELEMENTS.pair(op, pair_loop(op))
    for operation in ChainOp:
        yield from _ELEMENTS.number(operation, number_loop(operation))
    for op, (element, loop, instructions) in FUNCTIONS.items():
        yield from _ELEMENTS.single(op, element, loop, instructions)


INTRINSICS = tuple(_intrinsics())
SCHEDULES = tuple(_ELEMENTS.schedules("helium", tuple(FUNCTIONS)))
