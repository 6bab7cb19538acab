"""Requantization of vectors of channels, as C text that the RVV micro-kernels share."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT8, INT16, INT32, UINT16, Array
from firmwright.base.quant import Rounding
from firmwright.ir import tir
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
    maximum,
    minimum,
    select,
)
from firmwright.ir.tir.intrinsic import inputs
from firmwright.kernels.elementwise import value_intrinsic
from firmwright.kernels.isa.c_numbers import equal, greater, less
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.kernels.vector_text import vector_text
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import Requantization, weight_zero_point

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
    k, words = VectorBuilder("requantize", vl), partial(riscv_row, 4 * lmul, INT32)
    rounding = k.number("rounding")
    place = RegisterPlace(RegisterClass.VECTOR, INT32, 4 * lmul)
    values = [k.variable(name, place) for name, _ in sums]
    factors = k.pointer(f"q + channels + {at}", INT32)
    multiplier = k.named("multiplier", words("vle32_v"), factors[0])
    with k.when(k(equal, rounding, ONCE)):
        for value in values:
            k(words("vmulh_vv"), value, multiplier, into=value)
    with k.otherwise():
        for value in values:
            k(words("vsmul_vv"), value, multiplier, into=value)
    with k.when(k(equal, rounding, AWAY)):
        for value in values:
            sign = k(words("vsra_vx"), value, 31)
            k(words("vadd_vv"), value, sign, into=value)
    shifts = k.pointer(f"s + {at}", UINT16)
    shift = k.named("shift", riscv_row(4 * lmul, UINT16, "vle16_v"), shifts[0])
    for value, (name, target) in zip(values, sums, strict=True):
        row = riscv_row(4 * lmul, INT16, "vnclip_wv")
        short = k.named(f"short_{name}", row, value, shift)
        y, store = k.pointer(target, INT8, "w"), riscv_row(4 * lmul, INT8, "vse8_v")
        zero_point = k.number("zero_point")
        k.store(store, y[0], limit_lanes(k, short, 4 * lmul, zero_point))
    return vector_text(k.build_vectors())


def limit_lanes(
    k: VectorBuilder,
    short: VirtualRegister,
    lanes: int,
    zero_point: VirtualRegister | int,
) -> VirtualRegister:
    """Add the zero point to the variable `short`, clamp it, and return it as int8."""
    halves = partial(riscv_row, lanes, INT16)
    low, high = k.number("low"), k.number("high")
    k(halves("vsadd_vx"), short, zero_point, into=short)
    with k.when(k(greater, low, INT8.min)):
        k(halves("vmax_vx"), short, low, into=short)
    with k.when(k(less, high, INT8.max)):
        k(halves("vmin_vx"), short, high, into=short)
    return k(riscv_row(lanes, INT8, "vnclip_wx"), short, 0)


def _requantized(**x: ArithExpr) -> ArithExpr:
    """Return the result of `sum`, of which `right` is the shift in the table."""
    factor, right = x["multiplier"], x["right"]
    once = call_intrinsic("requantize_once", [x["sum"], factor, -1 - right], INT32)
    twice = call_intrinsic("requantize_twice", [x["sum"], factor, 0 - right], INT32)
    moved = select(x["rounding"].equal(ONCE), once, twice) + x["zero_point"]
    return minimum(maximum(moved, x["low"]), x["high"]).cast(INT8)


REQUANTIZED = value_intrinsic(
    "rvv_requantized",
    inputs(
        INT32, "sum", "multiplier", "right", "zero_point", "low", "high", "rounding"
    ),
    _requantized,
    "Requantizes a sum with its bias.",
)
