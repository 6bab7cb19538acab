"""An axis whose size is an input of every run, between two bounds."""

from __future__ import annotations

from dataclasses import dataclass

from firmwright.base.c_identifiers import to_c_identifier
from firmwright.base.dtypes import INT32, DType
from firmwright.base.size_formula import SizeFormula
from firmwright.ir import tir
from firmwright.ir.tir.traversal import EMPTY_STMT, Node, rewrite_stmt

DEFAULT_AXIS_NAME = "size"
"""The name of an axis for which the user gives none."""
SIZES_MAX = 1024
"""The sizes of an axis at most: a model is read and lowered at each of them."""


def is_range_of_sizes(least: int, most: int) -> bool:
    """Return whether an axis can have the sizes `least` to `most`."""
    return 1 <= least < most < least + SIZES_MAX


@dataclass(frozen=True, slots=True)
class BoundedAxis:
    """The name of an axis, which its input has too, and its sizes `least` to `most`.

    Memory is planned for the largest size. Tensors of other sizes are compact: they
    occupy the first bytes of their memory.
    """

    name: str
    least: int
    most: int

    @property
    def sizes(self) -> range:
        return range(self.least, self.most + 1)

    @property
    def variable(self) -> tir.Var:
        """The size of the current run: a parameter of kernels."""
        return tir.Var(f"n_{to_c_identifier(self.name)}", INT32)

    @property
    def condition(self) -> tir.Expr:
        """That the size of a run is within the bounds, which a run checks first."""
        size = self.variable
        least, most = (tir.IntImm(n, size.dtype) for n in (self.least, self.most))
        at_least = tir.Binary("ge", size, least)
        return tir.Binary("and", at_least, tir.Binary("le", size, most))

    def expression(self, formula: SizeFormula, dtype: DType = INT32) -> tir.Expr:
        """Return the formula of the size of a run, such as `n_time * 16 + 1`."""
        size = self.variable

        def number(value: int) -> tir.IntImm:
            return tir.IntImm(value, size.dtype)

        expr: tir.Expr = size
        if formula.square:
            expr = tir.Binary("mul", expr, number(formula.square))
            if formula.factor:
                expr = tir.Binary("add", expr, number(formula.factor))
            expr = tir.Binary("mul", expr, size)
        elif formula.factor != 1:
            expr = tir.Binary("mul", expr, number(formula.factor))
        if formula.offset:
            operator: tir.BinaryOp = "add" if formula.offset > 0 else "sub"
            expr = tir.Binary(operator, expr, number(abs(formula.offset)))
        if formula.divisor > 1:
            expr = tir.Binary("div", expr, number(formula.divisor))
        return expr if dtype == size.dtype else tir.Cast(dtype, expr)

    def __str__(self) -> str:
        return f"{self.name} {self.least}..{self.most}"


def select_size(body: tir.Stmt, axis: BoundedAxis, size: int) -> tir.Stmt:
    """Return the body for a size: a condition on it has the branch that it selects."""

    def rule(node: Node) -> Node | None:
        match node:
            case tir.If(tir.Binary("eq", a, b), then, orelse):
                values = _value(a, axis, size), _value(b, axis, size)
                if None not in values:
                    equal = values[0] == values[1]
                    return then if equal else orelse or EMPTY_STMT
        return None

    return rewrite_stmt(body, rule)


def _value(expr: tir.Expr, axis: BoundedAxis, size: int) -> int | None:
    """Return the value of a size, a number or a remainder of a size; None of others."""
    match expr:
        case tir.IntImm(value):
            return value
        case tir.Var() if expr == axis.variable:
            return size
        case tir.Binary("mod", a, tir.IntImm(divisor)) if divisor > 0:
            number = _value(a, axis, size)
            return None if number is None else number % divisor
    return None
