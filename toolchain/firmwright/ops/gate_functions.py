"""LiteRT's logistic and tanh of 16-bit sums of gates, with no integer bits.

The method is that of `logistic` and `tanh` in fixed_point.py, with 16-bit products and
constants: a power of e is a series in a quarter, times a factor for each bit of the
distance to that quarter, and 2 / (1 + power) follows by Newton's method. The series can
be a table: that of e^-t for the 1,024 values t of a quarter serves all functions.
"""

from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import INT16, INT32, Array
from firmwright.base.quant import IntArray, rounding_divide_by_pot
from firmwright.ir.tir.intrinsic import Intrinsic, inputs
from firmwright.ops.fixed_point import FACTORS, NEWTON_STEPS

GATE_BITS = 3
"""The integer bits of the sum of a gate."""
_CELL_BITS = range(7)
"""The integer bits of cells of which LiteRT computes tanh."""
_ONE = INT16.max
WITHIN_QUARTER = 1 << 10
"""Values of a distance within a quarter, and of the table of their powers."""
_DISTANCE_BITS = 12
_FARTHEST = 32 << _DISTANCE_BITS
_START = "int32_t power = start;"
_HALF = """\
int32_t half = 1 << 14;
__asm__("" : "+r"(half)); /* in a register, for MLA */"""
_SATURATED = "const int32_t positive = wide > INT16_MAX ? INT16_MAX : wide;"
_SSAT = """\
int32_t positive;
__asm__("ssat %0, #16, %1" : "=r"(positive) : "r"(wide));"""


def _to_16_bits(value: int) -> int:
    return int(rounding_divide_by_pot(value, 16))


EXP_EIGHTH = _to_16_bits(1895147668)
THIRD = _to_16_bits(715827883)
TWELVE_17THS = _to_16_bits(1515870810)
EIGHT_17THS = _to_16_bits(-1010580540)
MOST_FACTORS = 5
"""Factors extend to e^-16; below -32 the exponential is 0."""
_FACTORS = tuple((exponent, _to_16_bits(factor)) for exponent, factor in FACTORS)


@dataclass(frozen=True, slots=True)
class GateFunction:
    """The logistic function, or tanh, of arguments with some integer bits."""

    integer_bits: int
    is_tanh: bool

    @property
    def name(self) -> str:
        """The name of the intrinsic."""
        return f"{'tanh' if self.is_tanh else 'logistic'}_of_{self.integer_bits}_bits"

    @property
    def table_name(self) -> str:
        """The name of the intrinsic with the table of `powers_within_quarter`."""
        return f"{self.name}_by_table"

    @property
    def power_bits(self) -> int:
        """The integer bits of the exponential's argument."""
        return self.integer_bits + self.is_tanh

    @property
    def factors(self) -> list[tuple[int, int]]:
        """The exponents of 2 and factors of the bits of the distance to a quarter."""
        return [item for item in _FACTORS if item[0] < self.power_bits]

    def apply(self, x: Array) -> Array:
        """Return the function of int16 values."""
        value = np.asarray(x, np.int64)
        return self._quotient(value, self._power(-np.abs(value)))

    def apply_to_power(self, x: Array, distance: Array, power: Array) -> Array:
        """Return the function of int16 values, given the entries of the table.

        The distance is that of `distance_shift`.
        """
        result = np.asarray(power, np.int64)
        for exponent, factor in self.factors:
            bit = np.asarray(distance) & (1 << (_DISTANCE_BITS + exponent))
            result = np.where(bit != 0, _high_mul(result, factor), result)
        if self.power_bits > MOST_FACTORS:
            result = np.where(np.asarray(distance) < _FARTHEST, result, 0)
        return self._quotient(np.asarray(x, np.int64), result)

    @property
    def has_table(self) -> bool:
        """Whether arguments are not finer than the table's."""
        return self.distance_shift >= 0

    @property
    def distance_shift(self) -> int:
        """The shift of |x| in its distance to 0, less 1, which has 12 fraction bits."""
        return self.power_bits - GATE_BITS

    def _quotient(self, value: IntArray, power: IntArray) -> Array:
        half = (power + _ONE + 1) >> 1
        y = TWELVE_17THS + _high_mul(half, EIGHT_17THS)
        for _ in range(NEWTON_STEPS):
            y = y + (_high_mul(y, (1 << 13) - _high_mul(half, y)) << 2)
        positive = _saturated((y - (1 << 13)) << 2 if self.is_tanh else y << 1)
        below = -positive if self.is_tanh else _ONE - positive
        beside = np.where(value > 0, positive, below)
        return np.asarray(np.where(value == 0, self.center, beside), np.int32)

    @property
    def center(self) -> int:
        """The function of 0."""
        return 0 if self.is_tanh else 1 << 14

    def _power(self, a: IntArray) -> Array:
        bits = self.power_bits
        quarter = 1 << (13 - bits)
        part = (a & (quarter - 1)) - quarter
        result = _series(part << bits)
        for exponent, factor in self.factors:
            bit = (part - a) >> (15 - bits + exponent) & 1
            result = np.where(bit, _high_mul(result, factor), result)
        if bits > MOST_FACTORS:
            result = np.where(a < -(1 << (15 - bits + MOST_FACTORS)), 0, result)
        return np.where(a == 0, _ONE, result)

    def intrinsic(self) -> Intrinsic:
        lines = [*self._power_lines(), *self._quotient_lines(_SATURATED)]
        portable = "\n".join(lines)
        function = "tanh" if self.is_tanh else "logistic"
        return Intrinsic(
            self.name,
            inputs(INT32, "x"),
            self.apply,
            f"const int32_t half = 1 << 14;\n{portable}",
            f"LiteRT's {function} of 16 bits, {self.integer_bits} of them integer.",
            result=INT32,
            instructions=56 + 2 * len(self.factors),
        )

    def table_intrinsic(self) -> Intrinsic:
        """Return the function of x, of its distance to 0, and the table's entry."""
        lines, far = self._factor_lines(False), self._factor_lines(True)
        if self.power_bits > MOST_FACTORS:
            far += [f"if (distance >= {_FARTHEST}) {{", "    power = 0;", "}"]
        test = f"if (distance >= {2 << _DISTANCE_BITS}) {{ /* the rarer half */"
        lines += [test, *(f"    {line}" for line in far), "}"]
        portable, assembly = (
            "\n".join([*lines, *self._quotient_lines(saturated)])
            for saturated in (_SATURATED, _SSAT)
        )
        return Intrinsic(
            self.table_name,
            inputs(INT32, "x", "distance", "start"),
            self.apply_to_power,
            f"const int32_t half = 1 << 14;\n{_START}\n{portable}",
            f"The rest of {self.name}, given e to the part of -|x| within a quarter.",
            result=INT32,
            requires="mla",
            text={"gnu": f"{_HALF}\n{_START}\n{assembly}"},
            instructions=34 + 2 * len(self.factors),
        )

    def _factor_lines(self, is_far: bool) -> list[str]:
        """Return C for the factors of distances from 2 on, or of lower bits."""
        lines: list[str] = []
        for exponent, factor in self.factors:
            if (exponent > 0) == is_far:
                scaled = f"(power * {factor} + half) >> 15" if factor else "0"
                test = f"if ((distance & {1 << (_DISTANCE_BITS + exponent)}) != 0) {{"
                lines += [test, f"    power = {scaled};", "}"]
        return lines

    def _power_lines(self) -> list[str]:
        """Return C that computes e^-|x|; no intermediate result is saturated."""
        bits = self.power_bits
        quarter = 1 << (13 - bits)
        lines = [
            "const int32_t below = x < 0 ? x : -x;",
            f"const int32_t part = (below & {quarter - 1}) - {quarter};",
            "const int32_t rest = part - below;",
            f"const int32_t a = part * {1 << bits} + (1 << 12);",
            "const int32_t square = (a * a + half) >> 15;",
            "const int32_t cube = (square * a + half) >> 15;",
            "const int32_t fourth = (square * square + half + (1 << 16)) >> 17;",
            "const int32_t third = fourth + cube;",
            f"const int32_t series = ((third * {THIRD} + half) >> 15) + square;",
            "const int32_t sum = a + ((series + 1) >> 1);",
            f"int32_t power = {EXP_EIGHTH} + ((sum * {EXP_EIGHTH} + half) >> 15);",
        ]
        for exponent, factor in self.factors:
            scaled = f"(power * {factor} + half) >> 15" if factor else "0"
            test = f"if ((rest & {1 << (15 - bits + exponent)}) != 0) {{"
            lines += [test, f"    power = {scaled};", "}"]
        if bits > MOST_FACTORS:
            test = f"if (below < {-(1 << (15 - bits + MOST_FACTORS))}) {{"
            lines += [test, "    power = 0;", "}"]
        return lines

    def _quotient_lines(self, saturated: str) -> list[str]:
        """Return C that computes the result from the power."""
        one = (1 << 28) + (1 << 15) - 1 - (1 << 14)
        lines = [
            "/* 2 / (1 + power) with 2 integer bits. */",
            "const int32_t divisor = (power + 32768) >> 1;",
            f"int32_t y = {TWELVE_17THS} + ((divisor * {EIGHT_17THS} + half) >> 15);",
        ]
        for _ in range(NEWTON_STEPS):
            error = f"({one} - divisor * y) >> 15"
            lines.append(f"y += ((y * ({error}) + half) >> 15) * 4;")
        wide = "(y - (1 << 13)) * 4" if self.is_tanh else "y * 2"
        negative = "-positive" if self.is_tanh else "INT16_MAX - positive"
        return [
            *lines,
            f"const int32_t wide = {wide};",
            saturated,
            f"const int32_t beside = x > 0 ? positive : {negative};",
            f"return x != 0 ? beside : {self.center};",
        ]


def powers_within_quarter() -> Array:
    """Return uint16[1024]: e^-t without integer bits for t from 2^-12 to a quarter."""
    return _series(-8 * np.arange(1, WITHIN_QUARTER + 1)).astype(np.uint16)


def _series(x: IntArray) -> Array:
    """Return e^x for x from -2^13, a quarter, to 0, both without integer bits."""
    x = x + (1 << 12)
    square = _high_mul(x, x)
    cube = _high_mul(square, x)
    fourth = _high_mul(square, square)
    series = _high_mul(rounding_divide_by_pot(fourth, 2) + cube, THIRD) + square
    x = x + rounding_divide_by_pot(series, 1)
    return _saturated(EXP_EIGHTH + _high_mul(x, EXP_EIGHTH))


def _high_mul(a: Array, b: Array | int) -> Array:
    product: Array = a * b
    return np.asarray((product + (1 << 14)) >> 15)


def _saturated(x: Array) -> Array:
    return np.asarray(np.clip(x, INT16.min, INT16.max))


GATE_FUNCTIONS = (
    GateFunction(GATE_BITS, is_tanh=False),
    *(GateFunction(bits, is_tanh=True) for bits in _CELL_BITS),
)
GATE_FUNCTION_INTRINSICS = {
    item.name: item
    for each in GATE_FUNCTIONS
    for item in (
        each.intrinsic(),
        *([each.table_intrinsic()] if each.has_table else []),
    )
}
