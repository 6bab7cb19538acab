"""Semantics of instructions in numpy, by the interpreter of TIR."""

from collections.abc import Mapping, Sequence

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.interpreter_exprs import ExprCompiler
from firmwright.ir.tir.interpreter_runtime import CallFrame
from firmwright.kernels.isa.instruction import Immediate, Instr, operand_lanes
from firmwright.ops.intrinsics import BASE_INTRINSICS


def evaluate_expression(node: tir.Expr, values: Mapping[str, Array]) -> Array:
    """Return the values of an expression for arrays of values of its variables.

    Raises InternalError if signed arithmetic overflows, which the C of the expression
    must not do either.
    """
    compiler = ExprCompiler("semantics", Span(""), BASE_INTRINSICS, check_overflow=True)
    frame = CallFrame()
    frame.variables.update(values)
    result = compiler.compile(node, Bounds())(frame)
    return np.asarray(result, node.dtype.np)


def evaluate(
    instr: Instr, operands: Sequence[Sequence[Array] | int]
) -> tuple[tuple[Array, ...], ...]:
    """Return the lanes of each result, for the lanes of each operand.

    Operands are in the order of the instruction; each has one array per lane or
    element. An immediate is an int.
    """
    values: dict[str, Array] = {}
    immediates: dict[str, int] = {}
    for operand, given in zip(instr.operands, operands, strict=True):
        if isinstance(operand.place, Immediate):
            assert isinstance(given, int)
            immediates[operand.name] = given
            continue
        assert not isinstance(given, int)
        for var, lane in zip(operand_lanes(operand), given, strict=True):
            values[var.name] = np.asarray(lane, var.dtype.np)
    results = []
    for lanes in instr.expressions(immediates):
        results.append(tuple(evaluate_expression(lane, values) for lane in lanes))
    return tuple(results)
