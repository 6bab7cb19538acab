"""Numbers and conditions of C around vector intrinsics, as rows of a table.

They have no assembly: a compiler computes them, most of them when it inlines a
micro-kernel whose operands are constants.
"""

import operator
from typing import Annotated

from firmwright.base.dtypes import BOOL, FLOAT32, INT32, UINT32
from firmwright.ir.tir.builder import (
    ArithExpr,
    logical_and,
    logical_not,
    maximum,
    select,
)
from firmwright.kernels.isa.instruction import (
    Immediate,
    InstructionSet,
    Int,
    RegisterClass,
    RegisterPlace,
    Word,
    signature,
)
from firmwright.kernels.isa.lanes import constant

C_NUMBERS = InstructionSet("c_numbers", frozenset())

CoreFloat = Annotated[ArithExpr, RegisterPlace(RegisterClass.CORE, FLOAT32)]
"""A float in a core register."""
Truth = Annotated[ArithExpr, RegisterPlace(RegisterClass.CORE, BOOL)]
_COMPARED = signature(Truth, a=Int, b=Int)


@C_NUMBERS.instruction("", c="{value}")
def number(value: Annotated[int, Immediate(range(INT32.min, INT32.max + 1))]) -> Int:
    """Return a number."""
    return constant(value, INT32)


@C_NUMBERS.instruction("", c="{value}.0f")
def whole_float(value: Annotated[int, Immediate(range(-128, 128))]) -> CoreFloat:
    """Return a number as a float."""
    return constant(value, FLOAT32)


@C_NUMBERS.instruction("", c="{a} / {b}")
def quotient(a: CoreFloat, b: CoreFloat) -> CoreFloat:
    """Return a / b."""
    return a / b


@C_NUMBERS.instruction("", c="{condition} ? {a} : {b}")
def either(condition: Truth, a: CoreFloat, b: CoreFloat) -> CoreFloat:
    """Return a if the condition holds, else b."""
    return select(condition, a, b)


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


@C_NUMBERS.instruction("", c="(size_t)({a} > 0 ? {a} : 0)")
def left_shift(a: Int) -> Word:
    """Return the amount of a shift to the left, 0 for one to the right."""
    return maximum(a, 0).cast(UINT32)


@C_NUMBERS.instruction("", c="{a} != {b}")
def different(a: Int, b: Int) -> Truth:
    """Return whether a and b differ."""
    return logical_not(a.equal(b))


less = C_NUMBERS.row("", _COMPARED, operator.lt, "less", "{a} < {b}")
greater = C_NUMBERS.row("", _COMPARED, operator.gt, "greater", "{a} > {b}")
at_least = C_NUMBERS.row("", _COMPARED, operator.ge, "at_least", "{a} >= {b}")
equal = C_NUMBERS.row("", _COMPARED, ArithExpr.equal, "equal", "{a} == {b}")
both = C_NUMBERS.row(
    "", signature(Truth, a=Truth, b=Truth), logical_and, "both", "{a} && {b}"
)
