"""Float multiply-accumulate in two styles, and activations: numpy, C and assembly."""

from typing import Literal

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.text_sections import fill_text, read_sections

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
    return _fused(np.asarray(total), np.asarray(x), np.asarray(w))


def _fused(total: Array, x: Array, w: Array) -> Array:
    # The product is exact in double precision. The sum is rounded to odd, using its
    # error term, so that rounding it again to single precision is exact.
    product = np.asarray(x * w.astype(np.float64))
    addend = total.astype(np.float64)
    wide = np.asarray(product + addend)
    part = wide - product
    error = (product - (wide - part)) + (addend - part)
    is_even = (wide.view(np.int64) & 1) == 0
    odd = np.isfinite(wide) & (error != 0) & is_even
    nearer = np.nextafter(wide, np.where(error > 0, np.inf, -np.inf))
    return np.where(odd, nearer, wide).astype(np.float32)


def apply_activation(value: Array, activation: Array | int) -> Array:
    if activation == 0:
        return value
    low = np.float32(-1 if activation == 3 else 0)
    value = np.where(value > low, value, low)
    if activation == 1:
        return value
    high = np.float32(1 if activation == 3 else 6)
    return np.where(value < high, value, high)


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
