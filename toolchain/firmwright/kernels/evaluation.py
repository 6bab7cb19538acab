"""Semantics of instructions in numpy, by the interpreter of TIR."""

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from firmwright.base.dtypes import Array, DType
from firmwright.ir import tir
from firmwright.ir.core import Span
from firmwright.ir.tir.affine import Bounds
from firmwright.ir.tir.interpreter_exprs import ExprCompiler
from firmwright.ir.tir.interpreter_runtime import CallFrame, Eval
from firmwright.kernels.isa.instruction import Immediate, Instr, operand_lanes
from firmwright.ops.intrinsics import BASE_INTRINSICS

_COMPILER = ExprCompiler("semantics", Span(""), BASE_INTRINSICS, check_overflow=True)


def evaluate_expression(node: tir.Expr, values: Mapping[str, Array]) -> Array:
    """Return the values of an expression for arrays of values of its variables.

    Raises InternalError if signed arithmetic overflows, which the C of the expression
    must not do either.
    """
    return _run(_compiled_expression(node), node.dtype, values)


def evaluate(
    instr: Instr, operands: Sequence[Sequence[Array] | int]
) -> tuple[tuple[Array, ...], ...]:
    """Return the lanes of each result, for the lanes of each operand.

    Operands are in the order of the instruction; each has one array per lane or
    element. An immediate is an int.
    """
    values: dict[str, Array] = {}
    immediates: list[tuple[str, int]] = []
    for operand, given in zip(instr.operands, operands, strict=True):
        if isinstance(operand.place, Immediate):
            assert isinstance(given, int)
            immediates.append((operand.name, given))
            continue
        assert not isinstance(given, int)
        for var, lane in zip(operand_lanes(operand), given, strict=True):
            values[var.name] = np.asarray(lane, var.dtype.np)
    results = []
    for lanes in _compiled(instr, tuple(immediates)):
        results.append(tuple(_run(lane, dtype, values) for lane, dtype in lanes))
    return tuple(results)


@cache
def _compiled_expression(node: tir.Expr) -> Eval:
    return _COMPILER.compile(node, Bounds())


@cache
def _compiled(
    instr: Instr, immediates: tuple[tuple[str, int], ...]
) -> tuple[tuple[tuple[Eval, DType], ...], ...]:
    """Return the lanes of each result as functions, with their types."""
    results = []
    for lanes in instr.expressions(dict(immediates)):
        functions = [(_COMPILER.compile(lane, Bounds()), lane.dtype) for lane in lanes]
        results.append(tuple(functions))
    return tuple(results)


def _run(function: Eval, dtype: DType, values: Mapping[str, Array]) -> Array:
    frame = CallFrame()
    frame.variables.update(values)
    return np.asarray(function(frame), dtype.np)
