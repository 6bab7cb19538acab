"""float32 add, sub, mul and hard_swish on Helium, four elements at a time.

Every element is rounded as in the default loops.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from firmwright.base.dtypes import FLOAT32
from firmwright.base.rounding import divide_up
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, element_intrinsics, helium_text
from firmwright.kernels.isa import mve_float
from firmwright.kernels.isa.c_numbers import quotient, whole_float
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACTIVATION_CODES,
    activate_lanes,
    activated,
    activation_instructions,
)
from firmwright.schedules.schedule_factories import for_inputs_of

_A, _B, _X = (PointerOperand(name, FLOAT32) for name in "abx")
_Y = PointerOperand("y", FLOAT32, "w")
_NEEDED = frozenset({"mvefp"})


def activation_code(op: OpCall) -> int:
    return ACTIVATION_CODES[op.attributes(ActivationAttrs).activation]


# ---- add, sub and mul ----------------------------------------------------------------


_PAIRS: dict[str, tuple[Instr, Callable[[ArithExpr, ArithExpr], ArithExpr]]] = {
    "add": (mve_float.vaddq_f32, operator.add),
    "sub": (mve_float.vsubq_f32, operator.sub),
    "mul": (mve_float.vmulq_f32, operator.mul),
}


def pair_loop(op: str) -> ElementLoop:
    """Return the loop of an operator of two tensors of equal shape."""
    row, _ = _PAIRS[op]

    def compute(k: VectorBuilder, lanes: Sequence[VirtualRegister]) -> VirtualRegister:
        return activate_lanes(k, k.named("value", row, *lanes))

    return ElementLoop((_A, _B), _Y, FLOAT32, compute)


def _pair_element(op: str, a: ArithExpr, b: ArithExpr, **x: ArithExpr) -> ArithExpr:
    _, function = _PAIRS[op]
    return activated(function(a, b), x["activation"])


def _pairs(op: str) -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        f"mve_{op}_f32",
        (
            *pointers(FLOAT32, a=1, b=1),
            *pointers(FLOAT32, "w", y=1),
            *immediates("activation", "count"),
        ),
        partial(_pair_element, op),
        f"{op} of `count` elements.",
        "mvefp",
        helium_text(pair_loop(op)),
        lambda args: 10 + args[4] // 4 * (6 + activation_instructions(args[3])),
        (KEEP_STORES,),
    )


def _pairs_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    for kind in (op.input(0), op.input(1)):
        if kind.dtype != FLOAT32 or kind.shape != op.output.shape:
            return ()
    return (NO_CONFIG,)


def _build_pairs(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements
    pair = [b.pointer(b.input(index), 0, count) for index in (0, 1)]
    y = b.pointer(b.y, 0, count, "w")
    b.evaluate(f"mve_{op.op}_f32", [*pair, y, activation_code(op), count])


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


HARD_SWISH = ElementLoop((_X,), _Y, FLOAT32, _hard_swish_lanes)


def _hard_swish_element(x: ArithExpr) -> ArithExpr:
    return x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0


def _build_hard_swish(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements
    ends = b.pointer(b.input(0), 0, count), b.pointer(b.y, 0, count, "w")
    b.evaluate("mve_hard_swish_f32", [*ends, count])


def _intrinsics() -> Iterator[Intrinsic]:
    for op in _PAIRS:
        yield from _pairs(op)
    yield from element_intrinsics(
        "mve_hard_swish_f32",
        (
            *pointers(FLOAT32, x=1),
            *pointers(FLOAT32, "w", y=1),
            *immediates("count"),
        ),
        _hard_swish_element,
        "hard_swish of `count` elements.",
        "mvefp",
        helium_text(HARD_SWISH),
        lambda args: 10 + divide_up(args[2], 4) * 20,
        (KEEP_STORES,),
    )


INTRINSICS = tuple(_intrinsics())
SCHEDULES = (
    *(
        Schedule(f"helium.{op}.floats", op, _NEEDED, _pairs_configs, _build_pairs)
        for op in _PAIRS
    ),
    Schedule(
        "helium.hard_swish.floats",
        "hard_swish",
        _NEEDED,
        for_inputs_of(FLOAT32),
        _build_hard_swish,
    ),
)
