"""Numbers and conditions of C around vector intrinsics, as rows of a table.

They have no assembly: a compiler computes them, most of them when it inlines a
micro-kernel whose operands are constants.
"""

from typing import Annotated

from firmwright.base.dtypes import BOOL, INT32, UINT32
from firmwright.ir.tir.builder import ArithExpr, logical_and
from firmwright.kernels.isa.instruction import (
    Immediate,
    InstructionSet,
    Int,
    RegisterClass,
    RegisterPlace,
    Word,
)
from firmwright.kernels.isa.lanes import constant

C_NUMBERS = InstructionSet("c_numbers", frozenset())

Truth = Annotated[ArithExpr, RegisterPlace(RegisterClass.CORE, BOOL)]


@C_NUMBERS.instruction("", c="{value}")
def number(value: Annotated[int, Immediate(range(INT32.min, INT32.max + 1))]) -> Int:
    """Return a number."""
    return constant(value, INT32)


@C_NUMBERS.instruction("", c="-{a}")
def negative(a: Int) -> Int:
    """Return -a."""
    return 0 - a


@C_NUMBERS.instruction("", c="(uint32_t)({a})")
def word(a: Int) -> Word:
    """Return a number that is not negative."""
    return a.cast(UINT32)


@C_NUMBERS.instruction("", c="(size_t)-{a}")
def right_shift(a: Int) -> Word:
    """Return the amount of a shift to the right, for one that is at most 0."""
    return (0 - a).cast(UINT32)


@C_NUMBERS.instruction("", c="{a} < {b}")
def less(a: Int, b: Int) -> Truth:
    """Return whether a < b."""
    return a < b


@C_NUMBERS.instruction("", c="{a} > {b}")
def greater(a: Int, b: Int) -> Truth:
    """Return whether a > b."""
    return a > b


@C_NUMBERS.instruction("", c="{a} >= {b}")
def at_least(a: Int, b: Int) -> Truth:
    """Return whether a >= b."""
    return a >= b


@C_NUMBERS.instruction("", c="{a} == {b}")
def equal(a: Int, b: Int) -> Truth:
    """Return whether a = b."""
    return a.equal(b)


@C_NUMBERS.instruction("", c="{a} && {b}")
def both(a: Truth, b: Truth) -> Truth:
    """Return whether both conditions hold."""
    return logical_and(a, b)
