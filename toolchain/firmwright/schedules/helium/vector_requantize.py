"""Requantization of vectors of four channels, as C text shared by the micro-kernels."""

from typing import Any

import numpy as np

from firmwright.base.dtypes import INT8, Array
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.intrinsic import immediates
from firmwright.ops.conv2d import requantization_of
from firmwright.ops.requantize import Requantization

# `q` holds twelve int32 for four channels: biases, multipliers, and shifts as VRSHL takes them
# (negative is right). VQRDMULH is the doubling high multiply of the definition. VRSHL rounds halves
# up but the definition rounds them away from zero, so 1 is first subtracted from negative values
# that are shifted. If the lower clamp is not below the zero point (ReLU), this affects only clamped
# values and is omitted.
#
# Obligations: no left shift (`supports_requantize`), multipliers are not negative, and sums with
# bias fit 32 bits (guaranteed by the operators).

CHANNELS = 4
PARAMETERS = 3 * CHANNELS

EPILOGUE_OPERANDS = immediates("zero_point", "low", "high", "away", "lanes")

PORTABLE = """\
const int64_t doubled = ((int64_t)sum * q[at + 4] + (1 << 30)) >> 31;
const int32_t right = -q[at + 8];
const int64_t half = right > 0 ? ((int64_t)1 << (right - 1)) - (doubled < 0) : 0;
const int32_t moved = (int32_t)((doubled + half) >> right) + zero_point;
const int32_t raised = moved > low ? moved : low;"""
"""C text from `sum` to `raised`, with parameters from `at`; the caller clamps at `high`."""

PARAMETER_LOADS = """\
const int32x4_t bias = vldrwq_s32(q);
const int32x4_t multiplier = vldrwq_s32(q + 4);
const int32x4_t shift = vldrwq_s32(q + 8);"""

_SCALED = """\
{v} = vqrdmulhq_s32(vaddq_s32({v}, bias), multiplier);
if (away) {{
    const int32x4_t moved = away > 1 ? vandq_s32({v}, shift) : {v};
    {v} = vaddq_s32({v}, vshrq_n_s32(moved, 31));
}}
{v} = vqaddq_n_s32(vrshlq_s32({v}, shift), zero_point);"""

_STORED = """\
if (low > -128) {{
    {v} = vmaxq_s32({v}, vdupq_n_s32(low));
}}
if (high < 127) {{
    {v} = vminq_s32({v}, vdupq_n_s32(high));
}}
__asm__("vqmovnb.s32 %q0, %q0\\n\\tvqmovnb.s16 %q0, %q0" : "+w"({v}));
if ({lanes} >= 4) {{
    vstrbq_s32({y}, {v});
}} else {{
    vstrbq_p_s32({y}, {v}, vctp32q((uint32_t)({lanes})));
}}"""


def requantize_assembly(vector: str, target: str) -> str:
    return _SCALED.format(v=vector) + "\n" + store_assembly(vector, target, "lanes")


def store_assembly(vector: str, target: str, lanes: str) -> str:
    """Return C that clamps `vector` and stores `lanes` of its elements."""
    return _STORED.format(v=vector, y=target, lanes=lanes)


def supports_requantize(params: Requantization) -> bool:
    return params.rounding is Rounding.TWICE and max(params.shifts) <= 0


def supports_int8_layer(op: OpCall) -> bool:
    return op.input(0).dtype == INT8 and supports_requantize(requantization_of(op))


def epilogue_settings(params: Requantization, lanes: int) -> list[int]:
    return [params.zero_point, params.clamp_min, params.clamp_max, rounding_mode(params), lanes]


def rounding_mode(params: Requantization) -> int:
    """Return how to round halves: 0 either way, 1 away from zero, 2 away from zero if shifted."""
    if params.clamp_min >= params.zero_point:
        return 0
    return 1 if max(params.shifts) < 0 else 2


def parameter_rows(params: Requantization, bias: Array, starts: list[int]) -> Array:
    """Return the table [block, 12] for blocks with first channels `starts`."""
    channels = len(bias)
    table = np.stack([
        bias.astype(np.int64),
        np.broadcast_to(np.array(params.multipliers, np.int64), channels),
        np.broadcast_to(np.array(params.shifts, np.int64), channels),
    ])  # fmt: skip
    index = np.minimum(np.array(starts)[:, None] + np.arange(CHANNELS), channels - 1)
    return np.ascontiguousarray(table[:, index].transpose(1, 0, 2)).reshape(len(starts), -1)


def requantize_lanes(sums: Any, q: Any, settings: tuple[Any, ...]) -> Any:
    """Add the biases to `sums` [4, lanes] and requantize, in numpy."""
    zero_point, low, high, _, lanes = settings
    q64 = np.asarray(q, np.int64)
    scaled = multiply_by_quantized_multiplier(
        sums + q64[:4], q64[4:8], q64[8:12], Rounding.TWICE
    )  # fmt: skip
    return np.clip(scaled + zero_point, low, high).astype(INT8.np)[:lanes]
