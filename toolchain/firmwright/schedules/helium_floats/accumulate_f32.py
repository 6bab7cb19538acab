"""Float multiply-accumulate in two styles, and activations: numpy, C and assembly."""

from typing import Literal

import numpy as np

from firmwright.base.dtypes import FLOAT32, Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.graph.attributes.layers import ActivationAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, logical_and, select
from firmwright.kernels.isa import mve_float
from firmwright.kernels.isa.c_numbers import (
    either,
    equal,
    greater,
    whole_float,
)
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.libm_intrinsics import fused_multiply_add

# `fused` (VFMA) rounds once per product: fewer instructions, but other bits than the
# default loops. Such schedules are offered only if the model converts no floats to
# integers, so that a difference in the last bit cannot become a step
# (docs/decisions/0028). `separate` rounds the product and the sum like the default
# loops. Vectors flush subnormal numbers to zero in either style.

AccumulateStyle = Literal["fused", "separate"]
ACCUMULATE_STYLES: tuple[AccumulateStyle, ...] = ("fused", "separate")

PORTABLE_ACCUMULATE: dict[AccumulateStyle, str] = {
    "fused": "fmaf({x}, {w}, {total})",
    "separate": "{total} + {x} * {w}",
}

_C = read_sections(__file__)

_LANES = 4
_FLOATS = RegisterPlace(RegisterClass.VECTOR, FLOAT32, _LANES)

ACTIVATION_CODES = {"none": 0, "relu": 1, "relu6": 2, "relu_n1_to_1": 3}
"""Values of the immediate operand `activation`."""


def activation_code(op: OpCall) -> int:
    return ACTIVATION_CODES[op.attributes(ActivationAttrs).activation]


def accumulate(style: AccumulateStyle, total: Array, x: Array, w: Array) -> Array:
    if style == "separate":
        return np.asarray(total + x * w)
    return fused_multiply_add(x, w, total)


def apply_activation(value: Array, activation: Array | int) -> Array:
    if activation == 0:
        return value
    low = np.float32(-1 if activation == 3 else 0)
    value = np.where(value < low, low, value)
    if activation == 1:
        return value
    high = np.float32(1 if activation == 3 else 6)
    return np.where(value > high, high, value)


def activated(value: ArithExpr, activation: ArithExpr) -> ArithExpr:
    """Return the activation of a value; NaN stays."""
    is_pair = activation.equal(ACTIVATION_CODES["relu_n1_to_1"])
    least, most = select(is_pair, -1.0, 0.0), select(is_pair, 1.0, 6.0)
    raised = select(logical_and(activation > 0, value < least), least, value)
    return select(logical_and(activation > 1, raised > most), most, raised)


def emit_scalar_activation(name: str) -> str:
    return fill_text(_C["scalar"], v=name)


def activate_lanes(k: VectorBuilder, value: VirtualRegister) -> VirtualRegister:
    """Apply the activation to the result of arithmetic, in a variable.

    The number `activation` is its code.
    """
    code = k.number("activation")
    is_pair = k(equal, code, ACTIVATION_CODES["relu_n1_to_1"])

    with k.when(is_pair):
        raise_lanes(k, value, k(mve_float.vdupq_n_f32, k(whole_float, -1)))
    with k.otherwise(), k.when(k(greater, code, 0)):
        k(mve_float.relu_f32, value, into=value)
    with k.when(k(greater, code, 1)):
        numbers = k(whole_float, 1), k(whole_float, 6)
        lower_lanes(k, value, k(mve_float.vdupq_n_f32, k(either, is_pair, *numbers)))
    return value


def raise_lanes(
    k: VectorBuilder, value: VirtualRegister, least: VirtualRegister
) -> None:
    """Replace the lanes of a variable that are less; VMAXNM would replace NaN, too."""
    below = k(mve_float.vcmpgtq_f32, least, value)
    k(mve_float.vpselq_f32, least, value, below, into=value)


def lower_lanes(
    k: VectorBuilder, value: VirtualRegister, most: VirtualRegister
) -> None:
    """Replace the lanes of a variable that are greater, but not NaN."""
    above = k(mve_float.vcmpgtq_f32, value, most)
    k(mve_float.vpselq_f32, most, value, above, into=value)


def emit_vector_activation(name: str) -> str:
    """Return C that applies the activation to the vector `name`."""
    k = VectorBuilder("activation")
    activate_lanes(k, k.variable(name, _FLOATS))
    return vector_text(k.build_vectors())


def activation_instructions(activation: int) -> int:
    return min(activation, 2)
