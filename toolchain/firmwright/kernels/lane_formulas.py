"""One formula for all lanes of a result, if there is one.

The semantics of a vector instruction are an expression for each lane:

    d0 = a0 * b0,  d1 = a2 * b2,  d2 = a4 * b4,  ...

A formula is one of them, with the lane of each operand and each constant as
`factor * n + offset` for lane n of the result: a[2 * n] * b[2 * n]. A sum over lanes
has one for its terms.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from firmwright.base.dtypes import DType
from firmwright.ir import tir
from firmwright.kernels.isa.instruction import (
    Immediate,
    Instr,
    InstrOperand,
    Memory,
    RegisterPlace,
    operand_lanes,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Lane `factor * n + offset` of an operand; "" is the number itself."""

    operand: str
    factor: int
    offset: int

    @property
    def is_same_lane(self) -> bool:
        return (self.factor, self.offset) == (1, 0)


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression of variables that stand for places, by their name."""

    expr: tir.Expr
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class LaneResult:
    """A result of an instruction, of `lanes` lanes or a sum of as many terms.

    `formulas` has one for each of as many interleaved sets of lanes: formula i in lane
    n is that of lane `len(formulas) * n + i`. With `is_sum`, it is that of a term, and
    `start` is added if there is one.
    """

    lanes: int
    formulas: tuple[Formula, ...]
    is_sum: bool = False
    start: Formula | None = None


@cache
def lane_results(instr: Instr, numbers: tuple[int, ...]) -> tuple[LaneResult, ...]:
    """Return the results of an instruction, given its immediate operands in order."""
    names = [item.name for item in instr.operands if isinstance(item.place, Immediate)]
    known: dict[str, Place] = {}
    lanes = 1
    for operand in instr.operands:
        if not isinstance(operand.place, Immediate):
            variables = operand_lanes(operand)
            lanes = max(lanes, len(variables))
            known |= _places(operand, variables)
    results = []
    for exprs in instr.expressions(dict(zip(names, numbers, strict=True))):
        if len(exprs) > 1 or lanes == 1:
            results.append(LaneResult(len(exprs), _formulas(exprs, known)))
        else:
            results.append(_sum_of_lanes(exprs[0], lanes, known))
    return tuple(results)


def _places(operand: InstrOperand, variables: Sequence[tir.Var]) -> dict[str, Place]:
    is_scalar = isinstance(operand.place, RegisterPlace) and len(variables) == 1
    if is_scalar:
        return {variables[0].name: Place(operand.name, 0, 0)}
    assert isinstance(operand.place, RegisterPlace | Memory)
    return {var.name: Place(operand.name, 0, i) for i, var in enumerate(variables)}


def _formulas(
    exprs: Sequence[tir.Expr], known: Mapping[str, Place]
) -> tuple[Formula, ...]:
    """Return the formulas of as few interleaved sets of lanes as possible."""
    for sets in (1, 2, len(exprs)):
        found = [_formula(exprs[first::sets], known) for first in range(sets)]
        complete = tuple(formula for formula in found if formula)
        if len(complete) == sets:
            return complete
    raise AssertionError("a single lane always has a formula")


def _sum_of_lanes(expr: tir.Expr, lanes: int, known: Mapping[str, Place]) -> LaneResult:
    """Return the sum over `lanes` lanes that an expression is, or a plain result."""
    inner = expr.value if isinstance(expr, tir.Cast) else expr
    terms = list(_terms(inner))
    if len(terms) >= lanes:
        formula = _formula(terms[len(terms) - lanes :], known)
        if formula and len(terms) == lanes:
            return LaneResult(lanes, (formula,), is_sum=True)
        if formula and len(terms) == lanes + 1:
            start = _formula(terms[:1], known)
            return LaneResult(lanes, (formula,), is_sum=True, start=start)
    return LaneResult(1, _formulas((expr,), known))


def _terms(expr: tir.Expr) -> Iterator[tir.Expr]:
    if isinstance(expr, tir.Binary) and expr.op == "add":
        yield from _terms(expr.a)
        yield expr.b
    else:
        yield expr


def _formula(exprs: Sequence[tir.Expr], known: Mapping[str, Place]) -> Formula | None:
    unifier = _Unifier(known)
    expr = unifier.unify(exprs)
    return Formula(expr, unifier.places) if expr else None


@dataclass(slots=True)
class _Unifier:
    known: Mapping[str, Place]
    places: dict[str, Place] = field(default_factory=dict)

    def unify(self, exprs: Sequence[tir.Expr]) -> tir.Expr | None:
        """Return one expression for all, or None."""
        match exprs[0]:
            case tir.Var(dtype=dtype):
                return self._variables(exprs, dtype)
            case tir.IntImm(dtype=dtype):
                return self._numbers(exprs, dtype)
            case tir.FloatImm() as number:
                return number if all(expr == number for expr in exprs) else None
            case tir.Cast(dtype):
                inner = self._inner(exprs)
                return tir.Cast(dtype, inner[0]) if inner else None
            case tir.Not():
                inner = self._inner(exprs)
                return tir.Not(inner[0]) if inner else None
            case tir.Binary(op):
                inner = self._inner(exprs)
                return tir.Binary(op, *inner) if inner else None
            case tir.Select():
                inner = self._inner(exprs)
                return tir.Select(*inner) if inner else None
        return None

    def _inner(self, exprs: Sequence[tir.Expr]) -> list[tir.Expr] | None:
        """Return the unified parts of expressions of one kind."""
        if len({_head(expr) for expr in exprs}) != 1:
            return None
        unified = []
        for parts in zip(*map(_parts, exprs), strict=True):
            part = self.unify(parts)
            if part is None:
                return None
            unified.append(part)
        return unified

    def _variables(self, exprs: Sequence[tir.Expr], dtype: DType) -> tir.Expr | None:
        places = [self.known[e.name] for e in exprs if isinstance(e, tir.Var)]
        operands = {place.operand for place in places}
        if len(places) != len(exprs) or len(operands) != 1:
            return None
        return self._place(operands.pop(), [place.offset for place in places], dtype)

    def _numbers(self, exprs: Sequence[tir.Expr], dtype: DType) -> tir.Expr | None:
        numbers = [e.value for e in exprs if isinstance(e, tir.IntImm)]
        if len(numbers) != len(exprs):
            return None
        if len(set(numbers)) == 1:
            return exprs[0]
        return self._place("", numbers, dtype)

    def _place(
        self, operand: str, lanes: Sequence[int], dtype: DType
    ) -> tir.Expr | None:
        step = lanes[1] - lanes[0] if len(lanes) > 1 else 0
        if any(lane != lanes[0] + step * i for i, lane in enumerate(lanes)):
            return None
        place = Place(operand, step, lanes[0])
        name = f"{operand}.{step}.{lanes[0]}"
        self.places[name] = place
        return tir.Var(name, dtype)


def _head(expr: tir.Expr) -> tuple[type[object], object, DType]:
    detail = expr.op if isinstance(expr, tir.Binary) else None
    return type(expr), detail, expr.dtype


def _parts(expr: tir.Expr) -> tuple[tir.Expr, ...]:
    match expr:
        case tir.Cast(_, value):
            return (value,)
        case tir.Not(a):
            return (a,)
        case tir.Binary(_, a, b):
            return (a, b)
        case tir.Select(cond, a, b):
            return (cond, a, b)
    return ()
