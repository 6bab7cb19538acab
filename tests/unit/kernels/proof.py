"""Proofs that programs compute what is claimed, for all values of their operands.

A program is executed on bit-vectors of the solver z3, by the same expressions that
define each instruction. Its results then contain products, which are hard for a solver
of bits: it does not know that (256 b + a) x = 256 b x + a x. So a proof has two parts:

1. The operands of a product are halves or bytes of words. Each is replaced by a plain
   form, such as 256 b + a, if the solver proves that the two are equal for all values
   that meet the assumptions. There are no products in this question.
2. What remains are polynomials modulo 2^32. The result is proven if the difference from
   the claim has the normal form 0.

Floats are not interpreted: a float result is proven if it consists of the same operations
in the same order.

If an operand equals no form it stays as it is, and the second part fails. The solver
then looks for values that disprove the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import z3

from firmwright.base.dtypes import BOOL, FLOAT32, INT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import ArithExpr
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.instruction import Immediate, Instr, operand_lanes
from firmwright.kernels.program import Program

Term: TypeAlias = z3.BitVecRef | z3.BoolRef | z3.ExprRef
Multiply: TypeAlias = Callable[[z3.BitVecRef, z3.BitVecRef], z3.BitVecRef]

FLOAT = z3.DeclareSort("float")
SECONDS_MAX = 10
"""The time for one question to the solver; a proof takes milliseconds."""

SIGNED = {
    "div": lambda a, b: a / b,
    "mod": z3.SRem,
    "shr": lambda a, b: a >> b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
UNSIGNED = {
    "div": z3.UDiv,
    "mod": z3.URem,
    "shr": z3.LShR,
    "lt": z3.ULT,
    "le": z3.ULE,
    "gt": z3.UGT,
    "ge": z3.UGE,
}
EITHER = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "shl": lambda a, b: a << b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
BOOLEAN = {**EITHER, "and": z3.And, "or": z3.Or, "xor": z3.Xor}


class NoBitVectorError(Exception):
    """An expression has no integer or Boolean value, or depends on memory or calls."""


def bits_of(
    node: tir.Expr,
    values: Mapping[str, Term],
    multiply: Multiply = lambda a, b: a * b,
) -> Term:
    """Return an integer or Boolean expression, given the values of its variables.

    Arithmetic is modulo a power of two: that signed arithmetic does not overflow is a
    question of its own.
    """

    def bits(inner: tir.Expr) -> Term:
        return bits_of(inner, values, multiply)

    match node:
        case tir.IntImm(value, dtype):
            return (
                z3.BoolVal(value) if dtype == BOOL else z3.BitVecVal(value, dtype.bits)
            )
        case tir.Var(name):
            return values[name]
        case tir.FloatImm(value, dtype) if dtype == FLOAT32:
            return z3.Const(repr(value), FLOAT)
        case tir.Binary("add" | "sub" | "mul" as op, a, b) if a.dtype == FLOAT32:
            return rounded(op, bits(a), bits(b))
        case tir.Binary("mul", a, b):
            return multiply(bits(a), bits(b))
        case tir.Binary("min", a, b):
            return bits(tir.Select(tir.Binary("lt", a, b), a, b))
        case tir.Binary("max", a, b):
            return bits(tir.Select(tir.Binary("gt", a, b), a, b))
        case tir.Binary(op, a, b) if not a.dtype.is_float:
            signs = SIGNED if a.dtype.signed else UNSIGNED
            functions = BOOLEAN if a.dtype == BOOL else {**EITHER, **signs}
            return functions[op](bits(a), bits(b))
        case tir.Not(a):
            return z3.Not(bits(a))
        case tir.Cast(dtype, value):
            return converted(bits(value), value.dtype, dtype)
        case tir.Select(cond, a, b):
            return z3.If(bits(cond), bits(a), bits(b))
        case _:
            raise NoBitVectorError(node)


def rounded(op: str, a: Term, b: Term) -> Term:
    """Return an operation on floats, of which nothing is known but its operands."""
    return z3.Function(op, FLOAT, FLOAT, FLOAT)(a, b)


def converted(value: Term, source: DType, target: DType) -> Term:
    if source.is_float or target.is_float:
        raise NoBitVectorError(value)
    if source == BOOL:
        return z3.If(value, *(z3.BitVecVal(bit, target.bits) for bit in (1, 0)))
    if target == BOOL:
        return value != 0
    more = target.bits - source.bits
    if more <= 0:
        return z3.Extract(target.bits - 1, 0, value)
    return (z3.SignExt if source.signed else z3.ZeroExt)(more, value)


def on_terms(function: Callable[..., ArithExpr], *terms: z3.BitVecRef) -> Term:
    """Return an expression that is a function of int32."""
    return all_on_terms(lambda *given: (function(*given),), *terms)[0]


def all_on_terms(
    function: Callable[..., tuple[ArithExpr, ...]], *terms: z3.BitVecRef
) -> list[Term]:
    """Return expressions that are functions of int32."""
    values = {f"v{place}": term for place, term in enumerate(terms)}
    given = [ArithExpr(tir.Var(name, INT32)) for name in values]
    return [bits_of(each.expr, values) for each in function(*given)]


def join(elements: Sequence[z3.BitVecRef], bits: int) -> z3.BitVecRef:
    """Return a word of the low `bits` of each element, the first one lowest."""
    return z3.Concat(*(z3.Extract(bits - 1, 0, each) for each in reversed(elements)))


def within(value: z3.BitVecRef, dtype: DType) -> z3.BoolRef:
    return z3.And(value >= dtype.min, value <= dtype.max)


def number_of(value: z3.BitVecRef) -> int:
    return value.as_signed_long()


def counterexample(
    statement: z3.BoolRef, *assumptions: z3.BoolRef
) -> dict[str, int] | None:
    """Return values that meet the assumptions and not the statement, if there are any."""
    solver = z3.SolverFor("QF_BV")
    solver.set("timeout", 1000 * SECONDS_MAX)
    solver.add(*assumptions, z3.Not(statement))
    outcome = solver.check()
    if outcome == z3.unknown:
        raise TimeoutError(f"no proof in {SECONDS_MAX} seconds")
    return values_of(solver.model()) if outcome == z3.sat else None


def values_of(model: z3.ModelRef) -> dict[str, int]:
    names = sorted(model.decls(), key=lambda each: each.name())
    return {each.name(): number_of(model[each]) for each in names}


def evaluate_terms(
    instr: Instr,
    operands: Sequence[Sequence[Term] | int],
    multiply: Multiply = lambda a, b: a * b,
) -> list[list[Term]]:
    """Return the lanes of each result of an instruction, for those of each operand."""
    values: dict[str, Term] = {}
    immediates: dict[str, int] = {}
    for operand, given in zip(instr.operands, operands, strict=True):
        if isinstance(operand.place, Immediate):
            immediates[operand.name] = given
            continue
        for variable, lane in zip(operand_lanes(operand), given, strict=True):
            values[variable.name] = lane
    return [
        [bits_of(lane, values, multiply) for lane in lanes]
        for lanes in instr.expressions(immediates)
    ]


@dataclass(frozen=True)
class Claim:
    """What a program computes, for all values that meet the assumptions.

    Memory and registers are bit-vectors of variables. `results` are registers after the
    program, and `stores` memory. `forms` are the plain forms of operands of products,
    all different. `numbers` are counts of loops and immediate operands.
    """

    program: Program
    memory: Mapping[str, Sequence[z3.BitVecRef]]
    registers: Mapping[str, z3.BitVecRef]
    results: Mapping[str, z3.BitVecRef]
    assumptions: Sequence[z3.BoolRef] = ()
    forms: Sequence[z3.BitVecRef] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    stores: Mapping[str, Sequence[z3.BitVecRef]] = field(default_factory=dict)


def failures(claim: Claim) -> dict[str, str]:
    """Return for each result that is not proven a sentence that says why."""
    proof = _Proof(claim)
    registers = {name: (value,) for name, value in claim.registers.items()}
    state = run_program(
        claim.program, proof.evaluate, claim.memory, registers, claim.numbers
    )
    pairs = {
        name: (state.registers[name][0], expected)
        for name, expected in claim.results.items()
    }
    for name, elements in claim.stores.items():
        both = zip(state.memory[name], elements, strict=True)
        pairs |= {f"{name}[{place}]": pair for place, pair in enumerate(both)}
    found = {}
    for name, (actual, expected) in pairs.items():
        problem = proof.problem(actual, expected)
        if problem:
            found[name] = f"{claim.program.name}: {name} {problem}"
    return found


class _Proof:
    """The proof of one claim: what is known of the operands of its products."""

    def __init__(self, claim: Claim) -> None:
        self.solver = z3.SolverFor("QF_BV")
        self.solver.set("timeout", 1000 * SECONDS_MAX)
        self.solver.add(*claim.assumptions)
        self.models: list[z3.ModelRef] = []
        """Values that meet the assumptions, and may disprove the claim."""
        self._known: dict[int, tuple[z3.BitVecRef, z3.BitVecRef]] = {}
        self._usual = [z3.Distinct(0, *claim.forms)] if claim.forms else []
        assert self._find(*self._usual), "no values meet the assumptions"
        self._forms = {self._value(form): form for form in claim.forms}

    def evaluate(
        self, instr: Instr, operands: Sequence[Sequence[Term] | int]
    ) -> list[list[Term]]:
        return evaluate_terms(instr, operands, self._product)

    def problem(self, actual: Term, expected: Term) -> str:
        """Return why `actual` may differ from `expected`, "" if it cannot."""
        if expected.sort() == FLOAT:
            same = actual.eq(expected)
            return "" if same else f"is {actual}, not {expected}".replace("\n", "")
        difference = z3.simplify(actual - expected, som=True)
        if z3.is_bv_value(difference) and difference.as_long() == 0:
            return ""
        if not self._disproves(difference):
            match self.solver.check(difference != 0):
                case z3.unsat:
                    return ""
                case z3.unknown:
                    return "is not proven, nor disproven"
            self.models.append(self.solver.model())
        model = self.models[-1]
        got, wanted = (self._value(each) for each in (actual, expected))
        values = ", ".join(f"{name} = {n}" for name, n in values_of(model).items())
        return f"is {got}, not {wanted}, if {values}"

    def _disproves(self, difference: z3.BitVecRef) -> bool:
        """Whether values that are known disprove equality; these are then the last."""
        for model in self.models:
            if number_of(model.eval(difference, model_completion=True)):
                self.models.remove(model)
                self.models.append(model)
                return True
        return False

    def _value(self, term: z3.BitVecRef) -> int:
        return number_of(self.models[-1].eval(term, model_completion=True))

    def _find(self, *conditions: z3.BoolRef) -> bool:
        """Whether there are values for conditions, which are then in `models`."""
        is_found = self.solver.check(*conditions) == z3.sat
        if is_found:
            self.models.append(self.solver.model())
        return is_found

    def _product(self, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
        return self._plain(a) * self._plain(b)

    def _plain(self, term: z3.BitVecRef) -> z3.BitVecRef:
        """Return the form that equals an operand for all values, else the operand."""
        if term.get_id() not in self._known:
            self._known[term.get_id()] = term, self._find_form(term)
        return self._known[term.get_id()][1]

    def _find_form(self, term: z3.BitVecRef) -> z3.BitVecRef:
        first = self.models[0]
        value = number_of(first.eval(term, model_completion=True))
        form = self._forms.get(value)
        if form is None or form.size() != term.size():
            return term
        if self.solver.check(term != form) == z3.unsat:
            return form
        self._find(term != form, *self._usual)
        return term
