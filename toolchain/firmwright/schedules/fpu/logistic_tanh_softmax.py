"""float32 logistic, tanh and softmax: exponentials in line, without calls of libm."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import read_intrinsics
from firmwright.ops.elementwise import loop_over_elements
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import Schedule, ScheduleConfig
from firmwright.ops.softmax import softmax_beta
from firmwright.schedules.fpu.expressions import compute_in_line
from firmwright.schedules.schedule_factories import FLOAT_FAMILIES, for_inputs_of

# Arguments of the exponentials are at most 0, so the only limit to test is the lower
# one. A tanh near 0, where 1 - e^-2x cancels, is x plus an odd polynomial, fitted to
# the relative error. Without an FPU, an exponential is computed in integers; it ignores
# the sign.

EXP, SOFT_EXP = "fpu_exp_below_f32", "soft_exp_below_f32"
_LOGISTIC_IS_EXP = -9.0
_SMALL = 0.625
_UNROLL = (8, 7, 6, 5, 4, 3, 2)
_ODD = (-3.33332777e-1, 1.33313805e-1, -5.37352003e-2, 2.06258949e-2, -5.69152692e-3)


def _exp(name: str, x: ArithExpr) -> ArithExpr:
    return call_intrinsic(name, [x], FLOAT32)


def logistic_of(name: str, b: Kernel, given: ArithExpr) -> ArithExpr:
    """Return the logistic of a value, by the exponential `name`."""
    x = b.let("x", given)
    below = x if name == SOFT_EXP else minimum(x, 0.0 - x)
    power = b.let("power", _exp(name, below))
    rest = select(x < _LOGISTIC_IS_EXP, 0.0, power)
    return select(x < 0.0, power, 1.0) / (rest + 1.0)


def store_tanh(
    name: str, b: Kernel, given: ArithExpr, store: Callable[[ArithExpr], None]
) -> None:
    """Store the tanh of a value, by the exponential `name`."""
    x = b.let("x", given)
    below = b.let("below", minimum(x, 0.0 - x))
    with b.if_(below > -_SMALL):
        square = b.let("square", x * x)
        odd = square * _ODD[-1]
        for factor in _ODD[-2:0:-1]:
            odd = (odd + factor) * square
        store(x + x * (square * (odd + _ODD[0])))
    with b.else_():
        power = b.let("power", _exp(name, below * 2.0))
        size = b.let("size", (1.0 - power) / (power + 1.0))
        store(select(x < 0.0, 0.0 - size, size))


def _build_logistic(name: str, op: OpCall, b: Kernel) -> None:
    with loop_over_elements(b) as (loaded, store):
        store(logistic_of(name, b, loaded[0]))


def _build_tanh(name: str, op: OpCall, b: Kernel) -> None:
    with loop_over_elements(b) as (loaded, store):
        store_tanh(name, b, loaded[0], store)


def _build_softmax(name: str, op: OpCall, b: Kernel) -> None:
    depth = op.input(0).shape[-1]
    beta = softmax_beta(op)
    rows = op.input(0).elements // depth
    x, y = b.views("rows out", (rows, depth), b.input(0), b.y)
    factors = _UNROLL if name == EXP else ()
    with b.for_("row", rows) as row:
        highest = b.register("highest", FLOAT32, b.load(x, [row, 0]))
        with b.unrolled("i", depth, *factors) as i:
            highest.set(maximum(highest.value, b.load(x, [row, i])))
        total = b.register("total", FLOAT32, 0.0)
        with b.for_("i", depth) as i:
            below = b.load(x, [row, i]) - highest.value
            if beta != 1.0:
                below = below * beta
            power = b.let("power", _exp(name, below))
            b.store(y, [row, i], power)
            total.add(power)
        with b.unrolled("i", depth, *factors) as i:
            b.store(y, [row, i], b.load(y, [row, i]) / total.value)


_Build: TypeAlias = Callable[[str, OpCall, Kernel], None]
_BUILDS: dict[str, _Build] = {
    "logistic": _build_logistic,
    "tanh": _build_tanh,
    "softmax": _build_softmax,
}


def exponential_of(feature: str) -> str:
    """Return the name of the exponential of cores with a feature of FLOAT_FAMILIES."""
    return EXP if feature == "fpu" else SOFT_EXP


def _build(
    build: _Build, feature: str, op: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    build(exponential_of(feature), op, b)
    b.transform = partial(compute_in_line, feature)


_MEANINGS: dict[str, Callable[[Array], Array]] = {
    EXP: partial(np.exp, dtype=np.float32),
    SOFT_EXP: lambda x: np.exp(-np.abs(x), dtype=np.float32),
}
INTRINSICS = tuple(read_intrinsics(__file__, _MEANINGS).values())
SCHEDULES = tuple(
    Schedule(
        f"{family}.{op}.exponentials",
        op,
        frozenset({feature}),
        for_inputs_of(FLOAT32),
        partial(_build, build, feature),
    )
    for family, feature in FLOAT_FAMILIES
    for op, build in _BUILDS.items()
)
