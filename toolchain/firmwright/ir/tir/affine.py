"""Affine forms and intervals of index expressions, used to prove bounds.

Intervals are inclusive and sound without overflow (the TIR rule); None means unknown.
Elements of bool are bytes of any value, since memory may be shared or uninitialized.
Correlated terms cancel because intervals are computed from the linear form: `y*2 + ky -
1` under the condition `y*2 + ky >= 1` is at least 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import BOOL, DType
from firmwright.ir import tir
from firmwright.ir.tir.intervals import (
    Interval,
    binary_interval,
    dtype_range,
    fits_dtype,
    hull_of,
    intersect,
)
from firmwright.ir.tir.traversal import walk

_Terms = dict[tir.Expr, int]
NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_SEARCH_DEPTH = 3  # maximum number of facts combined to bound an expression
_FACTS_MAX = 12  # only the innermost assumptions are kept, to limit the search


@dataclass(frozen=True, slots=True)
class Affine:
    """sum(coefficient * atom) + constant; non-affine parts such as loads are atoms.

    Coefficients are never zero. `terms` must not be modified.
    """

    terms: Mapping[tir.Expr, int]
    constant: int

    def coefficient(self, atom: tir.Expr) -> int:
        return self.terms.get(atom, 0)

    def plus(self, other: Affine, times: int = 1) -> Affine:
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            _add(terms, atom, times * coefficient)
        return Affine(terms, self.constant + times * other.constant)


def linearize(expr: tir.Expr) -> Affine:
    """Return `expr` as an affine form; widening casts are ignored."""
    terms: _Terms = {}
    constant = _collect(expr, 1, terms)
    return Affine(terms, constant + _join_div_mod(terms))


def _add(terms: _Terms, atom: tir.Expr, coefficient: int) -> None:
    total = terms.get(atom, 0) + coefficient
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


def _collect(expr: tir.Expr, scale: int, terms: _Terms) -> int:
    """Add scale * expr to `terms` and return the constant part."""
    match expr:
        case tir.IntImm(value):
            return scale * value
        case tir.Binary("add", a, b):
            return _collect(a, scale, terms) + _collect(b, scale, terms)
        case tir.Binary("sub", a, b):
            return _collect(a, scale, terms) + _collect(b, -scale, terms)
        case tir.Binary("mul", a, tir.IntImm(value)) | tir.Binary(
            "mul", tir.IntImm(value), a
        ):
            return _collect(a, scale * value, terms)
        case tir.Binary("shl", a, tir.IntImm(value)) if 0 <= value < 64:
            return _collect(a, scale << value, terms)
        case tir.Cast(dtype, value) if is_widening(value.dtype, dtype):
            return _collect(value, scale, terms)
        case _:
            _add(terms, expr, scale)
            return 0


def _join_div_mod(terms: _Terms) -> int:
    """Combine c*d*(a / d) + c*(a % d) into c*a; return the terms' constant part."""
    constant = 0
    for atom, scale in list(terms.items()):
        match atom:
            case tir.Binary("mod", a, tir.IntImm(divisor)) if divisor > 0:
                quotient = tir.Binary("div", a, atom.b)
                if terms.get(quotient) == scale * divisor:
                    del terms[atom], terms[quotient]
                    constant += _collect(a, scale, terms)
    return constant


def is_widening(source: DType, target: DType) -> bool:
    limits = dtype_range(source)
    return limits is not None and target.is_int and fits_dtype(limits, target)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Known bounds at a program point; refined copies are made for nested statements.

    `ranges` bounds Vars by name. `facts` bounds linear forms: each entry is a form
    without its constant and the interval of its value. `lets` holds the definitions of
    Let-bound Vars. `dead` marks contradictory assumptions: the point is unreachable, so
    every bound holds. `names` has the Vars that only name a number or another Var.
    """

    ranges: Mapping[str, Interval] = field(default_factory=dict)
    facts: tuple[tuple[Affine, Interval], ...] = ()
    lets: Mapping[str, Affine] = field(default_factory=dict)
    dead: bool = False
    names: Mapping[str, tir.Expr] = field(default_factory=dict)

    def interval_of(self, expr: tir.Expr) -> Interval | None:
        if isinstance(expr, tir.IntImm):
            return expr.value, expr.value
        if not (expr.dtype.is_int or expr.dtype == BOOL):
            return None
        return self._form(linearize(expr))

    def tight_interval_of(self, expr: tir.Expr) -> Interval | None:
        """Return a tighter range than `interval_of`, by facts and lets; slower."""
        return self._tight_interval(linearize(expr))

    def _tight_interval(self, form: Affine) -> Interval | None:
        plain = self._form(form)
        if plain is None:
            return None
        best = self._search(form, _SEARCH_DEPTH, plain)
        expanded = self.expand(form)
        plain = None if expanded is form else self._form(expanded)
        if plain is None:
            return best
        return intersect(best, self._search(expanded, _SEARCH_DEPTH, plain))

    def proves_within(self, expr: tir.Expr, low: int, high: int) -> bool:
        if self.dead:
            return True
        limits = self.interval_of(expr)
        if limits is not None and not (low <= limits[0] and limits[1] <= high):
            limits = self.tight_interval_of(expr)
        return limits is not None and low <= limits[0] and limits[1] <= high

    # ---- assumptions -----------------------------------------------------------------

    def with_range(self, name: str, low: int, high: int) -> Bounds:
        dead = self.dead or low > high
        return replace(self, ranges={**self.ranges, name: (low, high)}, dead=dead)

    def with_name(self, var: tir.Var, value: tir.Expr) -> Bounds:
        return replace(self, names={**self.names, var.name: value})

    def with_let(self, var: tir.Var, value: tir.Expr) -> Bounds:
        if not (value.dtype.is_int or value.dtype == BOOL):
            return self
        form = linearize(value)
        limits = self._tight_interval(form)
        result = self if limits is None else self.with_range(var.name, *limits)
        if value.dtype == BOOL or any(map(has_load, form.terms)):
            return result
        return replace(result, lets={**self.lets, var.name: self.expand(form)})

    def with_loop(self, var: tir.Var, start: tir.Expr, extent: tir.Expr) -> Bounds:
        first, count = self.tight_interval_of(start), self.tight_interval_of(extent)
        if first is None or count is None:
            return self
        last = max(first[0], first[1] + count[1] - 1)
        inner = self.with_range(var.name, first[0], last)
        if isinstance(start, tir.IntImm) and isinstance(extent, tir.IntImm):
            return inner
        if has_load(start) or has_load(extent):
            return inner  # the body may overwrite the loaded elements
        return inner._at_most(start, var, 0)._below(var, start, extent)

    def assume(self, cond: tir.Expr, holds: bool = True) -> Bounds:
        match cond:
            case tir.Not(a):
                return self.assume(a, not holds)
            case tir.Binary("and", a, b) if holds and a.dtype == BOOL:
                return self.assume(a).assume(b)
            case tir.Binary("or", a, b) if not holds and a.dtype == BOOL:
                return self.assume(a, False).assume(b, False)
            case tir.Binary(op, a, b) if op in NEGATED and a.dtype.is_int:
                return self._compare(op if holds else NEGATED[op], a, b)
            case _:
                return self

    def _compare(self, op: str, a: tir.Expr, b: tir.Expr) -> Bounds:
        bounds, slack = self, -1 if op in ("lt", "gt") else 0
        if op in ("lt", "le", "eq"):
            bounds = bounds._at_most(a, b, slack)
        if op in ("gt", "ge", "eq"):
            bounds = bounds._at_most(b, a, slack)
        return bounds

    def _below(self, var: tir.Var, start: tir.Expr, extent: tir.Expr) -> Bounds:
        """Assume var < start + extent; the extent may be a min() of several bounds."""
        if isinstance(extent, tir.Binary) and extent.op == "min":
            return self._below(var, start, extent.a)._below(var, start, extent.b)
        return self._at_most(var, tir.Binary("add", start, extent), -1)

    def _at_most(self, a: tir.Expr, b: tir.Expr, slack: int) -> Bounds:
        """Assume a <= b + slack; a min in b or a max in a gives two facts."""
        if isinstance(b, tir.Binary) and b.op == "min":
            return self._at_most(a, b.a, slack)._at_most(a, b.b, slack)
        if isinstance(a, tir.Binary) and a.op == "max":
            return self._at_most(a.a, b, slack)._at_most(a.b, b, slack)
        form = linearize(a).plus(linearize(b), -1)
        result = self._with_fact(form, slack)
        expanded = self.expand(form)
        return result if expanded is form else result._with_fact(expanded, slack)

    def _with_fact(self, form: Affine, slack: int) -> Bounds:
        limit = slack - form.constant
        if not form.terms:
            return self if limit >= 0 else replace(self, dead=True)
        key = Affine(form.terms, 0)
        if len(form.terms) == 1:
            return self._with_atom(*next(iter(form.terms.items())), limit)
        bound = self._form(key)
        if bound is None:
            return self
        return self._remember(key, bound[0], min(limit, bound[1]))

    def _remember(self, form: Affine, low: int, high: int) -> Bounds:
        facts = (*self.facts, (form, (low, high)))[-_FACTS_MAX:]
        return replace(self, facts=facts, dead=self.dead or low > high)

    def _with_atom(self, atom: tir.Expr, coefficient: int, limit: int) -> Bounds:
        limits = self._atom(atom)
        if limits is None:
            return self
        low, high = limits
        if coefficient > 0:
            high = min(high, limit // coefficient)
        else:
            low = max(low, -(limit // -coefficient))
        if isinstance(atom, tir.Var):
            return self.with_range(atom.name, low, high)
        return self._remember(Affine({atom: 1}, 0), low, high)

    def _form(self, form: Affine) -> Interval | None:
        low = high = form.constant
        for atom, coefficient in form.terms.items():
            limits = self._atom(atom)
            if limits is None:
                return None
            ends = (coefficient * limits[0], coefficient * limits[1])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _search(self, form: Affine, depth: int, best: Interval) -> Interval:
        if depth == 0:
            return best
        for fact, (low, high) in self.facts:
            for times in _cancelling_factors(form, fact):
                rest = form.plus(fact, -times)
                plain = self._form(rest)
                if plain is None:
                    continue
                lower, upper = self._search(rest, depth - 1, plain)
                ends = (times * low, times * high)
                best = intersect(best, (lower + min(ends), upper + max(ends)))
        return best

    def expand(self, form: Affine) -> Affine:
        for atom in list(form.terms):
            if isinstance(atom, tir.Var) and atom.name in self.lets:
                times = form.coefficient(atom)
                without = form.plus(Affine({atom: 1}, 0), -times)
                form = without.plus(self.lets[atom.name], times)
        return form

    def _atom(self, atom: tir.Expr) -> Interval | None:
        result = self._plain_atom(atom)
        if result is None or isinstance(atom, tir.Var):
            return result
        for fact, limits in self.facts:
            if len(fact.terms) == 1 and fact.terms.get(atom) == 1:
                result = intersect(result, limits)
        return result

    def _plain_atom(self, atom: tir.Expr) -> Interval | None:
        match atom:
            case tir.IntImm(value):
                return value, value
            case tir.Var(name, dtype):
                return self.ranges.get(name) or dtype_range(dtype)
            case tir.Binary(op) if op in NEGATED:
                return 0, 1
            case tir.Not():
                return 0, 1
            case tir.Binary(op, a, b):
                x, y = self.interval_of(a), self.interval_of(b)
                limits = None if x is None or y is None else binary_interval(op, x, y)
                return limits or dtype_range(a.dtype)
            case tir.Cast(dtype, value):
                if value.dtype.is_float:
                    return dtype_range(dtype)
                x = self.interval_of(value)
                if dtype == BOOL and value.dtype != BOOL:
                    return 0, 1
                whole = dtype_range(dtype)
                if x is None:
                    return whole
                if fits_dtype(x, dtype):
                    return x
                # C does not convert a bool, a byte, to int8.
                return hull_of([*x, *whole]) if whole and value.dtype == BOOL else whole
            case tir.Select(cond, a, b):
                then = orelse = self
                if not any(isinstance(part, tir.Select) for part in walk(cond)):
                    # Refinement by nested selects could take exponential time.
                    then, orelse = self.assume(cond), self.assume(cond, False)
                x, y = then.interval_of(a), orelse.interval_of(b)
                return None if x is None or y is None else hull_of([*x, *y])
            case _:
                return dtype_range(atom.dtype)


def _cancelling_factors(form: Affine, fact: Affine) -> list[int]:
    """Return the factors f for which `form` - f * `fact` lacks an atom of `form`."""
    if len(fact.terms) < 2:
        return []
    factors: list[int] = []
    for atom, coefficient in fact.terms.items():
        mine = form.coefficient(atom)
        if mine and mine % coefficient == 0 and mine // coefficient not in factors:
            factors.append(mine // coefficient)
    return factors


def has_load(expr: tir.Expr) -> bool:
    for part in walk(expr):
        if isinstance(part, tir.BufferLoad | tir.IntrinsicCall):
            return True
    return False
