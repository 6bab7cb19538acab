"""Micro-kernels of an LSTM's gates on Helium: eight rows of weights times a column.

The sums are requantized to int16 with parameters of each row, rounding twice. Those of
the hidden values are added to the steps of x (ops/lstm.py):

    gate = saturated(x_steps + scaled sum)
"""

from collections.abc import Callable
from functools import partial

from firmwright.base.dtypes import INT16, INT32
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    select,
)
from firmwright.ir.tir.intrinsic import immediates, inputs
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.isa.c_numbers import at_least, greater
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.lanes import saturate
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.schedules.helium.dot_product_kernels import COLUMN, DotProductKernel
from firmwright.schedules.helium.vector_ending import (
    VECTOR,
    ParameterTable,
    VectorEnding,
    store_lanes,
)

_PARAMETERS = ("bias", "multiplier", "shift")
_WORDS = RegisterPlace(RegisterClass.VECTOR, INT32, VECTOR)
_SETTINGS = ("most_shift", "lanes")
"""The largest shift, and the rows of a block to store."""


def _steps(**x: ArithExpr) -> ArithExpr:
    """Return the steps of a sum."""
    scale = [x["sum"] + x["bias"], x["multiplier"], x["shift"]]
    scaled = call_intrinsic("requantize_twice", scale, INT32)
    return saturate(scaled, INT16).cast(INT16)


def _gate(**x: ArithExpr) -> ArithExpr:
    """Return the steps of a sum, added to those of x; it `saturates` before."""
    scale = [x["sum"] + x["bias"], x["multiplier"], x["shift"]]
    scaled = call_intrinsic("requantize_twice", scale, INT32)
    added = select(x["saturates"].equal(0), scaled, saturate(scaled, INT16))
    return saturate(x["x_steps"] + added, INT16).cast(INT16)


def _scale(k: VectorBuilder, total: VirtualRegister) -> None:
    """Add the bias to the variable `total` and scale it."""
    bias, multiplier, shift = (k.variable(name, _WORDS) for name in _PARAMETERS)
    most = k.number("most_shift")
    zero = k(mve.vdupq_n_s32, 0)
    k(mve.vaddq_s32, total, bias, into=total)
    with k.when(k(greater, most, 0)):
        k(mve.vshlq_s32, total, k(mve_lanes.vmaxq_s32, shift, zero), into=total)
    k(mve.vqrdmulhq_s32, total, multiplier, into=total)
    with k.when(k(at_least, most, 0)):
        negative = k(mve.vandq_s32, total, shift)
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, negative, 31), into=total)
    with k.otherwise():
        k(mve.vaddq_s32, total, k(mve.vshrq_n_s32, total, 31), into=total)
    with k.when(k(greater, most, 0)):
        right = k(mve_lanes.vminq_s32, shift, zero)
        k(mve.vrshlq_s32, total, right, into=total)
    with k.otherwise():
        k(mve.vrshlq_s32, total, shift, into=total)


def gate_steps(k: VectorBuilder, total: VirtualRegister, *, adds: bool) -> None:
    """Make of the variable `total`, a sum, the steps of a gate in the low halves."""
    _scale(k, total)
    if adds:
        with k.when(k(greater, k.number("saturates"), 0)):
            least, most = (k(mve.vdupq_n_s32, n) for n in (INT16.min, INT16.max))
            above = k(mve_lanes.vmaxq_s32, total, least)
            k(mve_lanes.vminq_s32, above, most, into=total)
        x_steps = k.variable("x_steps", _WORDS)
        k(mve.vqaddq_s32, total, x_steps, into=total)
    k(mve_lanes.narrow_words_in_place, total, into=total)


def _finish(adds: bool, vector: str, target: str, lanes: str) -> str:
    k = VectorBuilder("gates")
    total = k.variable(vector, _WORDS)
    gate_steps(k, total, adds=adds)
    store_lanes(k, total, target, INT16, lanes)
    return vector_text(k.build_vectors())


def _ending(
    name: str, element: Callable[..., ArithExpr], *, adds: bool
) -> VectorEnding:
    tables = [ParameterTable("q", INT32, _PARAMETERS)]
    operands, settings = ["sum", *_PARAMETERS], [*_SETTINGS]
    if adds:
        settings.insert(0, "saturates")
        tables.append(ParameterTable("given", INT16, ("x_steps",)))
        operands += ["x_steps", "saturates"]
    return VectorEnding(
        output=INT16,
        tables=tuple(tables),
        settings=immediates(*settings),
        element=value_intrinsic(
            name, inputs(INT32, *operands), element, "Requantizes the sum of a gate."
        ),
        finish=partial(_finish, adds),
        instructions=lambda given: (
            10
            + 3 * (given["most_shift"] > 0)
            + (2 + 2 * given["saturates"] if adds else 0)
        ),
    )


_OF_X = _ending("mve_gate_steps", _steps, adds=False)
_OF_HIDDEN = _ending("mve_gate_sum", _gate, adds=True)
GATES_OF_X = DotProductKernel("mve_gates_of_x", COLUMN, _OF_X)
GATES_OF_HIDDEN = DotProductKernel("mve_gates_of_hidden", COLUMN, _OF_HIDDEN)
GATE = _OF_HIDDEN.element
INTRINSICS = (_OF_X.element, GATE)
INTRINSIC_MAKERS = {**GATES_OF_X.makers, **GATES_OF_HIDDEN.makers}
