"""Requantization of vectors of channels, as C text that the RVV micro-kernels share."""

from collections.abc import Sequence
from textwrap import indent

import numpy as np

from firmwright.base.dtypes import INT8, INT32, UINT16, Array
from firmwright.base.quant import Rounding, multiply_by_quantized_multiplier
from firmwright.base.text_sections import fill_text, read_sections
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, weight_zero_point

_C = read_sections(__file__)

# Layers that round twice: VSMUL with rounding mode rnu is the doubling high multiply of
# the definition. VNCLIP with rnu rounds halves up but the definition rounds them away
# from zero, so 1 is first subtracted from negative values (`AWAY`). If the lower clamp
# is not below the zero point (ReLU), this affects only clamped values and is omitted.
#
# Layers that round once: VMULH is the product's high word, and the definition's 31 -
# shift bits are 32 bits and a rounded shift; `s` is one less than the right shift.
#
# VNCLIP and VSADD saturate to 16 bits, beyond every clamp. Obligations: multipliers are
# not negative, sums with bias fit 32 bits, and shifts are large enough
# (`supports_requantize`).

PORTABLE = _C["portable"]
UPWARD, AWAY, ONCE = range(3)
"""Values of the immediate operand `rounding`."""
_LEAST_SHIFTS = {UPWARD: 0, AWAY: 1, ONCE: 2}
NOMINAL_LANES = 32
"""32-bit lanes of eight registers of 128 bits, which the cost model assumes."""


def supports_requantize(params: Requantization) -> bool:
    is_integer = params.rounding is not Rounding.FLOAT32
    return is_integer and -max(params.shifts) >= _LEAST_SHIFTS[_rounding_mode(params)]


def is_int8_layer(op: OpCall) -> bool:
    is_int8 = op.input(0).dtype == op.input(1).dtype == INT8
    return is_int8 and op.numerics != "onnx" and not weight_zero_point(op)


def _rounding_mode(params: Requantization) -> int:
    if params.rounding is Rounding.ONCE:
        return ONCE
    return AWAY if params.clamp_min < params.zero_point else UPWARD


def requantize_settings(params: Requantization) -> list[int]:
    return [
        params.zero_point,
        params.clamp_min,
        params.clamp_max,
        _rounding_mode(params),
    ]


def parameter_tables(
    b: Kernel, params: Requantization, bias: Array
) -> tuple[tir.Buffer, tir.Buffer]:
    """Return the constants of all channels: `q`, biases and multipliers, and `s`.

    `s` are the right shifts.
    """
    multipliers = np.resize(params.multipliers, len(bias))
    shifts = np.resize(params.shifts, len(bias))
    right = -shifts - (params.rounding is Rounding.ONCE)
    table = np.stack([bias, multipliers])
    return b.constant("parameters", table, INT32), b.constant("shifts", right, UINT16)


def lmul_names(lmul: int) -> dict[str, str]:
    """Return the register groups of lanes whose int32 take `lmul` registers.

    `m` is that of 32-bit values, `m16` and `m8` are those of narrower ones.
    """
    return {
        "m": f"m{lmul}",
        "m16": f"m{lmul // 2}",
        "m8": f"m{lmul // 4}" if lmul > 2 else "mf2",
    }


def pixel_sums(pixels: int) -> list[tuple[str, str]]:
    """Return the variables of the sums of `pixels` pixels, and their targets."""
    sums = [("sum0", "y + at")]
    for p in range(1, pixels):
        sums.append((f"sum{p}", f"y + {p} * channels + at"))
    return sums


def requantize_text(
    sums: Sequence[tuple[str, str]], lmul: int, at: str, vl: str
) -> str:
    """Return C that requantizes and stores sums of the channels from `at` on.

    Each sum takes `lmul` registers.
    """
    names = {**lmul_names(lmul), "at": at, "vl": vl}

    def each(section: str) -> str:
        texts = [fill_text(_C[section], s=s, y=y, **names) for s, y in sums]
        return "\n".join(texts)

    return fill_text(
        _C["requantized"],
        stored=each("stored"),
        once=indent(each("once"), "    "),
        twice=indent(each("twice"), "    "),
        away=indent(each("away"), "    "),
        **names,
    )


def requantize_lanes(
    sums: Array, q: Array, s: Array, settings: Sequence[Array]
) -> Array:
    """Add the biases to sums [pixel, channel, ...] and requantize, in numpy."""
    zero_point, low, high, rounding = settings
    channels = (-1, *[1] * (sums.ndim - 2))
    half = len(q) // 2
    bias = np.asarray(q[:half], np.int64).reshape(channels)
    multiplier = np.asarray(q[half:], np.int64).reshape(channels)
    shift = np.asarray(s, np.int64).reshape(channels)
    once = int(rounding) == ONCE
    scaled = multiply_by_quantized_multiplier(
        sums + bias,
        multiplier,
        -shift - once,
        Rounding.ONCE if once else Rounding.TWICE,
    )
    return np.clip(scaled + zero_point, low, high).astype(INT8.np)
