"""LiteRT's logistic and tanh of 16-bit sums, on vectors of eight halves.

The steps are those of the definition (ops/gate_functions.py), whose rounded product is
VQRDMULH. Neither the series nor the fourth power is negative, so that VRSHL rounds
their halves as the definition does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT16
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import ElementLoop, helium_text
from firmwright.kernels.isa import mve, mve_lanes
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.fixed_point import NEWTON_STEPS
from firmwright.ops.gate_functions import (
    EIGHT_17THS,
    EXP_EIGHTH,
    GATE_FUNCTIONS,
    MOST_FACTORS,
    THIRD,
    TWELVE_17THS,
    GateFunction,
)
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.lstm_units import (
    FamilyText,
    gate_function_kernel,
    gate_function_loop,
    gate_function_name,
)

_LANES = 8


@dataclass(frozen=True, slots=True)
class GateVectors:
    """The micro-kernel of a function."""

    function: GateFunction

    @property
    def name(self) -> str:
        return gate_function_name(self.function, "mve")

    @property
    def loop(self) -> ElementLoop:
        return gate_function_loop(self._compute)

    def intrinsic(self) -> Intrinsic:
        family = FamilyText(
            requires="mve",
            text=helium_text(self.loop),
            lanes=_LANES,
            instructions=50 + 4 * len(self.function.factors),
            once=20,
            definitions=(KEEP_STORES,),
        )
        return gate_function_kernel(self.function, family)

    def _compute(
        self, k: VectorBuilder, lanes: Sequence[VirtualRegister]
    ) -> VirtualRegister:
        """Append the steps of a vector."""
        (x,) = lanes
        shifted = k(mve.vshrq_n_s16, self._power(k, x), 1)
        half = k.named("half", mve.vaddq_n_s16, shifted, 1 << 14)
        product = k(mve.vqrdmulhq_n_s16, half, EIGHT_17THS)
        y = k.named("quotient", mve.vaddq_n_s16, product, TWELVE_17THS)
        for _ in range(NEWTON_STEPS):
            one = k(mve.vdupq_n_s16, 1 << 13)
            error = k(mve.vsubq_s16, one, k(mve.vqrdmulhq_s16, half, y))
            k(mve.vmlaq_n_s16, y, k(mve.vqrdmulhq_s16, y, error), 4, into=y)
        return self._with_sign(k, x, y)

    def _power(self, k: VectorBuilder, x: VirtualRegister) -> VirtualRegister:
        """Return e^-|x| without integer bits; of 0, it may be anything."""
        bits = self.function.power_bits
        quarter = 1 << (13 - bits)
        below = k.named("below", mve.vnegq_s16, k(mve.vabsq_s16, x))
        inside = k(mve.vandq_s16, below, k(mve.vdupq_n_s16, quarter - 1))
        part = k.named("part", mve.vsubq_n_s16, inside, quarter)
        rest = k.named("rest", mve.vsubq_s16, part, below)
        wide = k(mve.vshlq_n_s16, part, bits)
        a = k.named("a", mve.vaddq_n_s16, wide, 1 << 12)
        square = k.named("square", mve.vqrdmulhq_s16, a, a)
        cube = k(mve.vqrdmulhq_s16, square, a)
        fourth = k(mve.vrshlq_n_s16, k(mve.vqrdmulhq_s16, square, square), -2)
        third = k(mve.vqrdmulhq_n_s16, k(mve.vaddq_s16, fourth, cube), THIRD)
        series = k(mve.vrshlq_n_s16, k(mve.vaddq_s16, third, square), -1)
        scaled = k(mve.vqrdmulhq_n_s16, k(mve.vaddq_s16, a, series), EXP_EIGHTH)
        power = k.named("power", mve.vqaddq_n_s16, scaled, EXP_EIGHTH)
        for exponent, factor in self.function.factors:
            at_sign = k(mve.vshlq_n_s16, rest, bits - exponent)
            is_set = k(mve_lanes.vcmpltq_n_s16, at_sign, 0)
            k(mve.vqrdmulhq_m_n_s16, power, power, factor, is_set, into=power)
        if bits > MOST_FACTORS:
            is_far = k(
                mve_lanes.vcmpltq_n_s16, below, -(1 << (15 - bits + MOST_FACTORS))
            )
            k(mve.vqrdmulhq_m_n_s16, power, power, 0, is_far, into=power)
        return power

    def _with_sign(
        self, k: VectorBuilder, x: VirtualRegister, y: VirtualRegister
    ) -> VirtualRegister:
        """Return the result; y is 2 / (1 + power) with two integer bits."""
        if self.function.is_tanh:
            y = k.named("above", mve.vsubq_n_s16, y, 1 << 13)
            y = k.named("doubled", mve.vqaddq_s16, y, y)
        positive = k.named("positive", mve.vqaddq_s16, y, y)
        if self.function.is_tanh:
            negative = k(mve.vnegq_s16, positive)
        else:
            one = k(mve.vdupq_n_s16, INT16.max)
            negative = k(mve.vsubq_s16, one, positive)
        is_negative = k(mve_lanes.vcmpltq_n_s16, x, 0)
        beside = k.named(
            "beside", mve_lanes.vpselq_s16, negative, positive, is_negative
        )
        center = k(mve.vdupq_n_s16, self.function.center)
        return k(mve_lanes.vpselq_s16, center, beside, k(mve_lanes.vcmpeqq_n_s16, x, 0))


INTRINSIC_MAKERS = {
    each.name: each.intrinsic for each in map(GateVectors, GATE_FUNCTIONS)
}
