"""Whether the C of expressions has a value for all operands, as the solver sees it.

Signed arithmetic must not overflow, and a shift must be by less than the width. Where
intervals do not show it, the solver is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import z3

from firmwright.base.dtypes import BOOL
from firmwright.ir import tir
from firmwright.ir.tir.affine import Bounds
from firmwright.kernels.isa.instruction import Immediate, Instr, operand_lanes
from tests.unit.kernels.proof import Term, bits_of, counterexample

DEFINED = {
    "add": lambda a, b: z3.And(
        z3.BVAddNoOverflow(a, b, True), z3.BVAddNoUnderflow(a, b)
    ),
    "sub": lambda a, b: z3.And(
        z3.BVSubNoOverflow(a, b), z3.BVSubNoUnderflow(a, b, True)
    ),
    "mul": lambda a, b: z3.And(
        z3.BVMulNoOverflow(a, b, True), z3.BVMulNoUnderflow(a, b)
    ),
    "shl": lambda a, b: (a << b) >> b == a,
}
"""What must hold for signed operands."""


def undefined_cases(instr: Instr) -> list[str]:
    """Return operations of an instruction that have no value, with operands of each.

    Immediates are at both ends of their ranges.
    """
    values: dict[str, Term] = {}
    choices: dict[str, set[int]] = {}
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            choices[operand.name] = {operand.place.values[0], operand.place.values[-1]}
            continue
        for lane in operand_lanes(operand):
            is_bool = lane.dtype == BOOL
            bits = lane.dtype.bits
            values[lane.name] = (
                z3.Bool(lane.name) if is_bool else z3.BitVec(lane.name, bits)
            )
    found = []
    for chosen in product(*choices.values()):
        immediates = dict(zip(choices, chosen, strict=True))
        for lanes in instr.expressions(immediates):
            for operation in {part for lane in lanes for part in operations(lane)}:
                case = undefined_case(operation, values)
                if case is not None:
                    found.append(f"{instr.name}: {operation.op} of {case}")
    return found


def operations(node: tir.Expr) -> Iterator[tir.Binary]:
    """Yield the binary operations in an expression."""
    match node:
        case tir.Binary(_, a, b):
            yield node
            parts = (a, b)
        case tir.Not(a) | tir.Cast(_, a):
            parts = (a,)
        case tir.Select(cond, a, b):
            parts = (cond, a, b)
        case _:
            parts = ()
    for part in parts:
        yield from operations(part)


def undefined_case(
    node: tir.Binary, values: Mapping[str, Term]
) -> dict[str, int] | None:
    """Return values of variables for which an operation has no value, if there are any."""
    dtype = node.a.dtype
    is_signed = dtype.signed and node.op in DEFINED
    if not dtype.is_int or not (is_signed or node.op in ("shl", "shr")):
        return None
    conditions = []
    if node.op in ("shl", "shr"):
        conditions.append(lambda a, b: z3.ULT(b, dtype.bits))
    limits = Bounds().interval_of(node) if is_signed else None
    if is_signed and not (limits and dtype.min < limits[0] and limits[1] < dtype.max):
        conditions.append(DEFINED[node.op])
    if not conditions:
        return None
    a, b = bits_of(node.a, values), bits_of(node.b, values)
    return counterexample(z3.And(*(condition(a, b) for condition in conditions)))
