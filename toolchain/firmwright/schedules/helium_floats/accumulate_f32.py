"""Float multiply-accumulate in two styles, and activations: numpy, C and assembly."""

from typing import Literal

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir.tir.builder import ArithExpr, logical_and, logical_not, select
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

ACTIVATION_CODES = {"none": 0, "relu": 1, "relu6": 2, "relu_n1_to_1": 3}
"""Values of the immediate operand `activation`."""


def accumulate(style: AccumulateStyle, total: Array, x: Array, w: Array) -> Array:
    if style == "separate":
        return np.asarray(total + x * w)
    return fused_multiply_add(x, w, total)


def apply_activation(value: Array, activation: Array | int) -> Array:
    if activation == 0:
        return value
    low = np.float32(-1 if activation == 3 else 0)
    value = np.where(value > low, value, low)
    if activation == 1:
        return value
    high = np.float32(1 if activation == 3 else 6)
    return np.where(value < high, value, high)


def activated(value: ArithExpr, activation: ArithExpr) -> ArithExpr:
    """Return the activation of a value; NaN becomes the lower bound."""
    is_pair = activation.equal(ACTIVATION_CODES["relu_n1_to_1"])
    least, most = select(is_pair, -1.0, 0.0), select(is_pair, 1.0, 6.0)
    raised = select(
        logical_and(activation > 0, logical_not(value > least)), least, value
    )
    is_above = logical_and(activation > 1, logical_not(raised < most))
    return select(is_above, most, raised)


def emit_scalar_activation(name: str) -> str:
    return fill_text(_C["scalar"], v=name)


def emit_vector_activation(name: str) -> str:
    return fill_text(_C["vector"], v=name)


def activation_instructions(activation: int) -> int:
    return min(activation, 2)


def store_assembly(name: str, target: str, first: int) -> list[str]:
    """Return C that stores vector `name` at element `first`, bounded by `lanes`."""
    place, rest, some = target, "lanes", ""
    if first:
        place = f"{target} + {first}"
        rest = f"lanes - {first}"
        some = f" if (lanes > {first})"
    text = fill_text(_C["store"], v=name, y=place, end=first + 4, rest=rest, some=some)
    return text.splitlines()
