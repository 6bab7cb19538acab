"""LiteRT's logistic and tanh of 16-bit sums, on RISC-V vectors of halves.

The steps are those of Helium (schedules/helium/gate_functions.py). A choice between two
values is made with a mask of the sign, all ones or zeros, in place of a predicate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from firmwright.base.dtypes import INT16
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import ElementLoop, riscv_text
from firmwright.kernels.isa.rvv import riscv_row
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
from firmwright.schedules.lstm_units import (
    FamilyText,
    gate_function_kernel,
    gate_function_loop,
    gate_function_name,
)

LANES = 32
_HALVES = partial(riscv_row, LANES, INT16)
_LAST_BIT = 15


@dataclass(frozen=True, slots=True)
class RiscvGateFunction:
    """The program of a gate's function."""

    function: GateFunction

    @property
    def name(self) -> str:
        return gate_function_name(self.function, "rvv")

    @property
    def loop(self) -> ElementLoop:
        return gate_function_loop(self._compute)

    def intrinsic(self) -> Intrinsic:
        family = FamilyText(
            requires="rvv",
            text=riscv_text(self.loop, LANES),
            lanes=LANES,
            instructions=60 + 6 * len(self.function.factors),
            once=20,
        )
        return gate_function_kernel(self.function, family)

    def _compute(
        self, k: VectorBuilder, lanes: Sequence[VirtualRegister]
    ) -> VirtualRegister:
        """Append the steps of a vector."""
        (x,) = lanes
        shifted = k(_HALVES("vsra_vx"), self._power(k, x), 1)
        half = k.named("half", _HALVES("vadd_vx"), shifted, 1 << 14)
        product = k(_HALVES("vsmul_vx"), half, EIGHT_17THS)
        y = k.named("quotient", _HALVES("vadd_vx"), product, TWELVE_17THS)
        for _ in range(NEWTON_STEPS):
            error = k(_HALVES("vrsub_vx"), k(_HALVES("vsmul_vv"), half, y), 1 << 13)
            step = k(_HALVES("vsll_vx"), k(_HALVES("vsmul_vv"), y, error), 2)
            k(_HALVES("vadd_vv"), y, step, into=y)
        return self._with_sign(k, x, y)

    def _power(self, k: VectorBuilder, x: VirtualRegister) -> VirtualRegister:
        """Return e^-|x| without integer bits; of 0, it may be anything."""
        bits = self.function.power_bits
        quarter = 1 << (13 - bits)
        multiply = _HALVES("vsmul_vv")
        below = k.named("below", _HALVES("vmin_vv"), x, k(_HALVES("vrsub_vx"), x, 0))
        inside = k(_HALVES("vand_vx"), below, quarter - 1)
        part = k.named("part", _HALVES("vsub_vx"), inside, quarter)
        rest = k.named("rest", _HALVES("vsub_vv"), part, below)
        wide = k(_HALVES("vsll_vx"), part, bits)
        a = k.named("a", _HALVES("vadd_vx"), wide, 1 << 12)
        square = k.named("square", multiply, a, a)
        cube = k(multiply, square, a)
        fourth = k(_HALVES("vssra_vx"), k(multiply, square, square), 2)
        third = k(_HALVES("vsmul_vx"), k(_HALVES("vadd_vv"), fourth, cube), THIRD)
        series = k(_HALVES("vssra_vx"), k(_HALVES("vadd_vv"), third, square), 1)
        total = k(_HALVES("vadd_vv"), a, series)
        scaled = k(_HALVES("vsmul_vx"), total, EXP_EIGHTH)
        power = k.named("power", _HALVES("vsadd_vx"), scaled, EXP_EIGHTH)
        for exponent, factor in self.function.factors:
            at_sign = k(_HALVES("vsll_vx"), rest, bits - exponent)
            is_set = k(_HALVES("vsra_vx"), at_sign, _LAST_BIT)
            less = k(_HALVES("vsmul_vx"), power, factor)
            change = k(_HALVES("vsub_vv"), less, power)
            taken = k(_HALVES("vand_vv"), change, is_set)
            k(_HALVES("vadd_vv"), power, taken, into=power)
        if bits > MOST_FACTORS:
            beyond = k(_HALVES("vadd_vx"), below, 1 << (15 - bits + MOST_FACTORS))
            is_far = k(_HALVES("vsra_vx"), beyond, _LAST_BIT)
            is_near = k(_HALVES("vxor_vx"), is_far, -1)
            k(_HALVES("vand_vv"), power, is_near, into=power)
        return power

    def _with_sign(
        self, k: VectorBuilder, x: VirtualRegister, y: VirtualRegister
    ) -> VirtualRegister:
        """Return the result; y is 2 / (1 + power) with two integer bits."""
        is_tanh = self.function.is_tanh
        if is_tanh:
            y = k.named("above", _HALVES("vsub_vx"), y, 1 << 13)
            y = k.named("doubled", _HALVES("vsadd_vv"), y, y)
        positive = k.named("positive", _HALVES("vsadd_vv"), y, y)
        sign = k.named("sign", _HALVES("vsra_vx"), x, _LAST_BIT)
        flipped = k(_HALVES("vxor_vv"), positive, sign)
        either = k(_HALVES("vor_vv"), x, k(_HALVES("vrsub_vx"), x, 0))
        nonzero = k.named("nonzero", _HALVES("vsra_vx"), either, _LAST_BIT)
        if is_tanh:
            beside = k(_HALVES("vsub_vv"), flipped, sign)
            return k(_HALVES("vand_vv"), beside, nonzero)
        # Of negative x, 2^15 - 1 less the result; of 0, 1/2.
        top = k(_HALVES("vsll_vx"), sign, _LAST_BIT)
        beside = k(_HALVES("vadd_vv"), flipped, top)
        inside = k(_HALVES("vand_vv"), beside, nonzero)
        is_zero = k(_HALVES("vadd_vx"), nonzero, 1)
        return k(_HALVES("vadd_vv"), inside, k(_HALVES("vsll_vx"), is_zero, 14))


FUNCTIONS = tuple(map(RiscvGateFunction, GATE_FUNCTIONS))
INTRINSIC_MAKERS = {function.name: function.intrinsic for function in FUNCTIONS}
