"""float32 logistic, tanh and softmax on RISC-V vectors.

The exponential and the polynomial near 0 are those of fpu/logistic_tanh_softmax.py, in
lanes. The powers of a softmax are summed in the order of the default loops.
"""

from collections.abc import Callable, Sequence
from functools import partial
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.rounding import divide_up
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    immediate,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, inputs, pointers
from firmwright.kernels.elementwise import element_intrinsics
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.ops.softmax import softmax_beta
from firmwright.schedules.schedule_factories import for_inputs_of

_C = read_sections(__file__)
_LANES = 16
"""Lanes of four registers of 128 bits: an exponential has six variables."""


_LOGISTIC_IS_EXP = -9.0


def _logistic(x: ArithExpr) -> ArithExpr:
    below = minimum(x, 0.0 - x)
    power = call_intrinsic("exp_f32", [below], FLOAT32)
    rest = select(x < _LOGISTIC_IS_EXP, 0.0, power)
    return select(x < 0.0, power, 1.0) / (rest + 1.0)


def _tanh(x: ArithExpr) -> ArithExpr:
    return call_intrinsic("tanh_f32", [x], FLOAT32)


def _executed(instructions: int, args: Sequence[int]) -> int:
    return 6 + divide_up(args[-1], _LANES) * instructions


def _text(name: str) -> str:
    return fill_text(_C[name], exp=indent(_C["exp"].strip(), "    "))


def _function(
    op: str, element: Callable[[ArithExpr], ArithExpr], instructions: int
) -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        f"rvv_{op}_f32",
        (*pointers(FLOAT32, x=1), *pointers(FLOAT32, "w", y=1), *immediates("count")),
        element,
        f"{op} of `count` elements.",
        "rvvf",
        _text(op),
        partial(_executed, instructions),
    )


def _softmax(x: Array, _: Array, beta: float, count: int) -> Array:
    """Return the softmax of a row [element, ...]."""
    with np.errstate(all="ignore"):
        below = (x[:count] - np.max(x[:count], axis=0)) * np.float32(beta)
        powers = np.exp(below, dtype=np.float32)
        return np.asarray(powers / np.cumsum(powers, axis=0, dtype=np.float32)[-1])


_SOFTMAX = Intrinsic(
    "rvv_softmax_f32",
    (
        *pointers(FLOAT32, x=1),
        *pointers(FLOAT32, "w", y=1),
        *inputs(FLOAT32, "beta"),
        *immediates("count"),
    ),
    _softmax,
    _C["portable_softmax"],
    "softmax of a row of `count` elements.",
    requires="rvvf",
    text={"gnu": _text("softmax")},
    calls=("exp_f32",),
    count=partial(_executed, 45),
)
INTRINSICS = (
    *_function("logistic", _logistic, 38),
    *_function("tanh", _tanh, 48),
    _SOFTMAX,
)


def _build_function(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = op.output.elements
    ends = (b.pointer(b.input(0), 0, count), b.pointer(b.y, 0, count, "w"))
    b.evaluate(f"rvv_{op.op}_f32", [*ends, count])
    b.state_elementwise()


def _build_softmax(op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    depth, elements = op.input(0).shape[-1], op.output.elements
    beta = immediate(float(np.float32(softmax_beta(op))), FLOAT32)
    with b.for_("row", elements // depth) as row:
        x = b.pointer(b.input(0), row * depth, depth)
        y = b.pointer(b.y, row * depth, depth, "w")
        b.evaluate(_SOFTMAX.name, [x, y, beta, depth])
    # Each pass over a row reads an element before the result takes its place.
    b.state_elementwise()


_BUILDS = {
    "logistic": _build_function,
    "tanh": _build_function,
    "softmax": _build_softmax,
}
SCHEDULES = tuple(
    Schedule(
        f"rvv.{op}.exponentials",
        op,
        frozenset({"rvvf"}),
        for_inputs_of(FLOAT32),
        build,
    )
    for op, build in _BUILDS.items()
)
