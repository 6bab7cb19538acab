"""Float multiply-accumulate in two styles, and activations: numpy, portable C and assembly."""

from typing import Any, Literal

import numpy as np

# `fused` (VFMA) rounds once per product: fewer instructions, but other bits than the default loops.
# Such schedules are offered only if the model converts no floats to integers, so that a difference
# in the last bit cannot become a step (docs/decisions/0028). `separate` rounds the product and the
# sum like the default loops. Vectors flush subnormal numbers to zero in either style.

AccumulateStyle = Literal["fused", "separate"]
ACCUMULATE_STYLES: tuple[AccumulateStyle, ...] = ("fused", "separate")

PORTABLE_ACCUMULATE: dict[AccumulateStyle, str] = {
    "fused": "fmaf({x}, {w}, {total})",
    "separate": "{total} + {x} * {w}",
}

CLAMP_ASSEMBLY = """\
if (activation > 0 && !({v} > ({low}))) {{
    {v} = {low};
}}
if (activation > 1 && !({v} < ({high}))) {{
    {v} = {high};
}}"""
_LOW, _HIGH = "activation == 3 ? -1.0f : 0.0f", "activation == 3 ? 1.0f : 6.0f"

ACTIVATION_CODES = {"none": 0, "relu": 1, "relu6": 2, "relu_n1_to_1": 3}
"""Values of the immediate operand `activation`."""


def accumulate(style: AccumulateStyle, total: Any, x: Any, w: Any) -> Any:
    if style == "separate":
        return total + x * w
    return _fused(np.asarray(total), np.asarray(x), np.asarray(w))


def _fused(total: Any, x: Any, w: Any) -> Any:
    # The product is exact in double precision. The sum is rounded to odd, using its error term, so
    # that rounding it again to single precision is exact.
    product, addend = np.asarray(x * w.astype(np.float64)), total.astype(np.float64)
    wide = np.asarray(product + addend)
    part = wide - product
    error = (product - (wide - part)) + (addend - part)
    is_even = (wide.view(np.int64) & 1) == 0
    odd = np.isfinite(wide) & (error != 0) & is_even
    nearer = np.nextafter(wide, np.where(error > 0, np.inf, -np.inf))
    return np.where(odd, nearer, wide).astype(np.float32)


def apply_activation(value: Any, activation: int) -> Any:
    if activation == 0:
        return value
    low = np.float32(-1 if activation == 3 else 0)
    value = np.where(value > low, value, low)
    if activation == 1:
        return value
    high = np.float32(1 if activation == 3 else 6)
    return np.where(value < high, value, high)


def emit_scalar_activation(name: str) -> str:
    return CLAMP_ASSEMBLY.format(v=name, low=_LOW, high=_HIGH)


def emit_vector_activation(name: str) -> str:
    return "\n".join([
        "if (activation > 0) {",
        f"    {name} = vmaxnmq_f32({name}, vdupq_n_f32({_LOW}));",
        "}",
        "if (activation > 1) {",
        f"    {name} = vminnmq_f32({name}, vdupq_n_f32({_HIGH}));",
        "}",
    ])  # fmt: skip


def activation_instructions(activation: int) -> int:
    return min(activation, 2)


def store_assembly(name: str, target: str, first: int) -> list[str]:
    """Return C that stores vector `name` at element `first`, bounded by operand `lanes`."""
    place = f"{target} + {first}" if first else target
    rest = f"lanes - {first}" if first else "lanes"
    cut = f"vstrwq_p_f32({place}, {name}, vctp32q((uint32_t)({rest})));"
    return [
        f"if (lanes >= {first + 4}) {{",
        f"    vstrwq_f32({place}, {name});",
        f"}} else if (lanes > {first}) {{" if first else "} else {",
        f"    {cut}",
        "}",
    ]
