"""Integer instructions as the solver sees them: their values, and that they have some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import z3

from firmwright.base.dtypes import BOOL, INT16, INT32, UINT32, DType
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa import lanes
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    InstructionSet,
    Int,
    Word,
    operand_lanes,
)
from tests.unit.kernels.cores import CORES
from tests.unit.kernels.overflow import undefined_cases
from tests.unit.kernels.proof import NoBitVectorError, Term, evaluate_terms

SETS = {table.name: table for core in CORES.values() for table in core.sets}
UNKNOWN = {"clz", "ctz", "nsau"}
"""Instructions whose semantics call an intrinsic."""
CASES = 3


def constant(value: int, dtype: DType) -> Term:
    return z3.BoolVal(bool(value)) if dtype == BOOL else z3.BitVecVal(value, dtype.bits)


def number(term: Term, dtype: DType) -> int:
    value = z3.simplify(term)
    if dtype == BOOL:
        return int(z3.is_true(value))
    return value.as_signed_long() if dtype.signed else value.as_long()


def has_floats(instr: Instr) -> bool:
    places = [operand.place for operand in (*instr.operands, *instr.results)]
    return any(
        place.dtype.is_float for place in places if not isinstance(place, Immediate)
    )


def differences(instr: Instr, rng: np.random.Generator) -> list[str]:
    """Return the lanes in which the solver and numpy differ, for random operands."""
    arrays: list[Sequence[object] | int] = []
    terms: list[Sequence[Term] | int] = []
    for operand in instr.operands:
        if isinstance(operand.place, Immediate):
            value = int(rng.choice(operand.place.values))
            arrays.append(value)
            terms.append(value)
            continue
        dtype = operand.place.dtype
        count = len(operand_lanes(operand))
        lanes = rng.integers(dtype.min, dtype.max + 1, count).tolist()
        arrays.append([np.array([lane]) for lane in lanes])
        terms.append([constant(lane, dtype) for lane in lanes])
    found = []
    results = zip(
        instr.results,
        evaluate_terms(instr, terms),
        evaluate(instr, arrays),
        strict=True,
    )
    for result, actual, expected in results:
        for lane, (term, value) in enumerate(zip(actual, expected, strict=True)):
            if number(term, result.place.dtype) != int(
                np.asarray(value).reshape(-1)[0]
            ):
                found.append(f"{instr.name}: lane {lane} of {result.name}")
    return found


@pytest.mark.parametrize("name", SETS)
def test_expressions_of_the_solver_have_the_values_of_numpy(name: str) -> None:
    rng = np.random.default_rng(3)
    unknown = set()
    instrs = [instr for instr in SETS[name] if not has_floats(instr)]
    for instr in instrs:
        try:
            assert [differences(instr, rng) for _ in range(CASES)] == [[]] * CASES
        except NoBitVectorError:
            unknown.add(instr.name)
    assert unknown == UNKNOWN & {instr.name for instr in instrs}


@pytest.mark.parametrize("name", SETS)
def test_arithmetic_does_not_overflow_for_any_operands(name: str) -> None:
    known = [instr for instr in SETS[name] if instr.name not in UNKNOWN]
    instrs = [instr for instr in known if not has_floats(instr)]
    assert [case for instr in instrs for case in undefined_cases(instr)] == []


PLANTED = InstructionSet("planted", frozenset())


@PLANTED.instruction("add {d}, {a}, {b}")
def overflows(a: Int, b: Int) -> Int:
    return a + b


@PLANTED.instruction("lsr {d}, {a}, {b}")
def shifts_by_any_number(a: Word, b: Word) -> Word:
    return a >> (b & lanes.constant(63, UINT32))


@PLANTED.instruction("smulbb {d}, {a}, {b}")
def fits(a: Int, b: Int) -> Int:
    return a.cast(INT16).cast(INT32) * b.cast(INT16).cast(INT32)


def test_overflows_are_found() -> None:
    (found,) = undefined_cases(overflows)
    assert found.startswith("overflows: add of {'a': ")
    (found,) = undefined_cases(shifts_by_any_number)
    assert found.startswith("shifts_by_any_number: shr of {'b': ")
    assert undefined_cases(fits) == []
