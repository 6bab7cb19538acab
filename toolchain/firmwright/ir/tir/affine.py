"""Affine forms and intervals of index expressions: what verifier and passes prove bounds with.

In: integer expressions and what is known of their variables. Out: `linearize` gives coefficients
per variable, `interval` the least and greatest value (inclusive), `Bounds` the same under
assumptions collected from loops, lets and conditions. Invariant: every interval is sound for
arithmetic that does not overflow (TIR's rule); None means nothing is known.

Correlations cancel because bounds are taken of the linear form: `y*2 + ky - 1` under the condition
`y*2 + ky >= 1` is at least 0 although its interval alone begins at -1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from firmwright.base.dtypes import BOOL, DType
from firmwright.ir import tir

Interval = tuple[int, int]
_Terms = dict[tir.Expr, int]
_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_SEARCH_DEPTH = 3  # facts combined to bound one expression
_FACTS_MAX = 12  # innermost assumptions that are kept: bounds the search


@dataclass(frozen=True, slots=True)
class Affine:
    """sum(coefficient * atom) + constant. Atoms are Vars, or opaque subexpressions if asked for.

    No coefficient is zero. Do not change `terms`.
    """

    terms: Mapping[tir.Expr, int]
    constant: int

    def coefficient(self, atom: tir.Expr) -> int:
        return self.terms.get(atom, 0)

    def minus(self, other: Affine, times: int = 1) -> Affine:
        """self - times * other."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            _add(terms, atom, -times * coefficient)
        return Affine(terms, self.constant - times * other.constant)


def linearize(expr: tir.Expr, *, opaque: bool = False) -> Affine | None:
    """`expr` as an affine form of its Vars; None if it is not one.

    With `opaque`, what is not affine (a division, a load) becomes an atom of its own instead, and
    the result is never None. Widening casts are looked through.
    """
    terms: _Terms = {}
    constant = _collect(expr, 1, terms)
    constant += _join_div_mod(terms)
    if not opaque and not all(isinstance(atom, tir.Var) for atom in terms):
        return None
    return Affine(terms, constant)


def interval(expr: tir.Expr, ranges: Mapping[str, Interval]) -> Interval | None:
    """Least and greatest value of `expr` (inclusive) for Vars, by name, in `ranges`.

    A Var not listed has its dtype's range. None for what is no integer.
    """
    return Bounds(ranges=ranges).of(expr)


def _add(terms: _Terms, atom: tir.Expr, coefficient: int) -> None:
    total = terms.get(atom, 0) + coefficient
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


def _collect(expr: tir.Expr, scale: int, terms: _Terms) -> int:
    """Adds scale * expr to `terms`; gives its constant part."""
    match expr:
        case tir.IntImm(value):
            return scale * value
        case tir.Binary("add", a, b):
            return _collect(a, scale, terms) + _collect(b, scale, terms)
        case tir.Binary("sub", a, b):
            return _collect(a, scale, terms) + _collect(b, -scale, terms)
        case tir.Binary("mul", a, tir.IntImm(value)) | tir.Binary("mul", tir.IntImm(value), a):
            return _collect(a, scale * value, terms)
        case tir.Binary("shl", a, tir.IntImm(value)) if 0 <= value < 64:
            return _collect(a, scale << value, terms)
        case tir.Cast(dtype, value) if is_widening(value.dtype, dtype):
            return _collect(value, scale, terms)
        case _:
            _add(terms, expr, scale)
            return 0


def _join_div_mod(terms: _Terms) -> int:
    """c*d*(a / d) + c*(a % d) is c*a; the two halves alone would lose their correlation.

    Gives the constant part of what was joined.
    """
    constant = 0
    for atom, scale in list(terms.items()):
        match atom:
            case tir.Binary("mod", a, tir.IntImm(divisor)) if divisor > 0:
                quotient = tir.Binary("div", a, atom.b)
                if terms.get(quotient) == scale * divisor:
                    del terms[atom], terms[quotient]
                    constant += _collect(a, scale, terms)
            case _:
                pass
    return constant


def is_widening(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of the integer type `target`."""
    if not (target.is_int and (source.is_int or source == BOOL)):
        return False
    return target.min <= source.min and source.max <= target.max


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known at a point of a program; refined copies are made on the way into a body.

    `ranges` bounds Vars by name. `facts` bounds linear forms: each is a form without constant
    and the interval of its value. `lets` are the definitions of Let-bound Vars. `dead` says that
    the assumptions contradict each other: the point is never reached and everything holds.
    """

    ranges: Mapping[str, Interval] = field(default_factory=dict)
    facts: tuple[tuple[Affine, Interval], ...] = ()
    lets: Mapping[str, Affine] = field(default_factory=dict)
    dead: bool = False

    # ---- questions ---------------------------------------------------------------------------

    def of(self, expr: tir.Expr) -> Interval | None:
        """Least and greatest value of `expr`, by interval arithmetic on its linear form."""
        if isinstance(expr, tir.IntImm):
            return expr.value, expr.value
        if not (expr.dtype.is_int or expr.dtype == BOOL):
            return None
        return self._form(linearize(expr, opaque=True))

    def tight(self, expr: tir.Expr) -> Interval | None:
        """As `of`, combining facts and let definitions too: slower and closer."""
        form = linearize(expr, opaque=True)
        plain = self._form(form)
        if plain is None or form is None:
            return None
        best = self._search(form, _SEARCH_DEPTH, plain)
        expanded = self.expand(form)
        if expanded is form:
            return best
        there = self._form(expanded)
        return (
            best
            if there is None
            else _intersect(best, self._search(expanded, _SEARCH_DEPTH, there))
        )

    def within(self, expr: tir.Expr, low: int, high: int) -> bool:
        """Whether `expr` is proved to lie in low..high, both included."""
        if self.dead:
            return True
        known = self.of(expr)
        if known is not None and not (low <= known[0] and known[1] <= high):
            known = self.tight(expr)
        return known is not None and low <= known[0] and known[1] <= high

    # ---- assumptions -------------------------------------------------------------------------

    def with_range(self, name: str, low: int, high: int) -> Bounds:
        """With Var `name` known to lie in low..high."""
        dead = self.dead or low > high
        return replace(self, ranges={**self.ranges, name: (low, high)}, dead=dead)

    def with_let(self, var: tir.Var, value: tir.Expr) -> Bounds:
        """With `var` equal to `value`."""
        known = self.tight(value)
        result = self if known is None else self.with_range(var.name, *known)
        form = linearize(value, opaque=True) if value.dtype.is_int else None
        if form is None or any(has_load(atom) for atom in form.terms):
            return result
        return replace(result, lets={**self.lets, var.name: self.expand(form)})

    def with_loop(self, var: tir.Var, start: tir.Expr, extent: tir.Expr) -> Bounds:
        """Inside `for var in start .. start + extent`."""
        first, count = self.tight(start), self.tight(extent)
        if first is None or count is None:
            return self
        inner = self.with_range(var.name, first[0], max(first[0], first[1] + count[1] - 1))
        if isinstance(start, tir.IntImm) and isinstance(extent, tir.IntImm):
            return inner
        if has_load(start) or has_load(extent):  # the body may change what they were read from
            return inner
        end = tir.Binary("add", start, extent)
        return inner._at_least(var, start)._below(var, start, extent, end)

    def assume(self, cond: tir.Expr, holds: bool = True) -> Bounds:
        """Where `cond` is known to be true (or false)."""
        match cond:
            case tir.Not(a):
                return self.assume(a, not holds)
            case tir.Binary("and", a, b) if holds and a.dtype == BOOL:
                return self.assume(a).assume(b)
            case tir.Binary("or", a, b) if not holds and a.dtype == BOOL:
                return self.assume(a, False).assume(b, False)
            case tir.Binary(op, a, b) if op in _NEGATED and a.dtype.is_int:
                return self._compare(op if holds else _NEGATED[op], a, b)
            case _:
                return self

    def _compare(self, op: str, a: tir.Expr, b: tir.Expr) -> Bounds:
        match op:
            case "lt":
                return self._at_most(a, b, -1)
            case "le":
                return self._at_most(a, b, 0)
            case "gt":
                return self._at_most(b, a, -1)
            case "ge":
                return self._at_most(b, a, 0)
            case "eq":
                return self._at_most(a, b, 0)._at_most(b, a, 0)
            case _:
                return self

    def _at_least(self, a: tir.Expr, b: tir.Expr) -> Bounds:
        return self._at_most(b, a, 0)

    def _below(self, var: tir.Var, start: tir.Expr, extent: tir.Expr, end: tir.Expr) -> Bounds:
        """var < start + extent, where the extent may be a min() of several."""
        if isinstance(extent, tir.Binary) and extent.op == "min":
            one = self._below(var, start, extent.a, tir.Binary("add", start, extent.a))
            return one._below(var, start, extent.b, tir.Binary("add", start, extent.b))
        return self._at_most(var, end, -1)

    def _at_most(self, a: tir.Expr, b: tir.Expr, slack: int) -> Bounds:
        """a <= b + slack; a min on the right or a max on the left are two facts."""
        if isinstance(b, tir.Binary) and b.op == "min":
            return self._at_most(a, b.a, slack)._at_most(a, b.b, slack)
        if isinstance(a, tir.Binary) and a.op == "max":
            return self._at_most(a.a, b, slack)._at_most(a.b, b, slack)
        left, right = linearize(a, opaque=True), linearize(b, opaque=True)
        if left is None or right is None:
            return self
        form = left.minus(right)
        result = self._with_fact(form, slack)
        expanded = self.expand(form)
        return result if expanded is form else result._with_fact(expanded, slack)

    def _with_fact(self, form: Affine, slack: int) -> Bounds:
        """form <= slack."""
        limit = slack - form.constant
        if not form.terms:
            return self if limit >= 0 else replace(self, dead=True)
        key = Affine(form.terms, 0)
        if len(form.terms) == 1:
            return self._with_atom(*next(iter(form.terms.items())), limit)
        bound = self._form(key)
        return self if bound is None else self._remember(key, bound[0], min(limit, bound[1]))

    def _remember(self, form: Affine, low: int, high: int) -> Bounds:
        facts = (*self.facts, (form, (low, high)))[-_FACTS_MAX:]
        return replace(self, facts=facts, dead=self.dead or low > high)

    def _with_atom(self, atom: tir.Expr, coefficient: int, limit: int) -> Bounds:
        """coefficient * atom <= limit."""
        known = self._atom(atom)
        if known is None:
            return self
        low, high = known
        if coefficient > 0:
            high = min(high, limit // coefficient)
        else:
            low = max(low, -(limit // -coefficient))
        if isinstance(atom, tir.Var):
            return self.with_range(atom.name, low, high)
        return self._remember(Affine({atom: 1}, 0), low, high)

    # ---- arithmetic --------------------------------------------------------------------------

    def _form(self, form: Affine | None) -> Interval | None:
        if form is None:
            return None
        low = high = form.constant
        for atom, coefficient in form.terms.items():
            known = self._atom(atom)
            if known is None:
                return None
            ends = (coefficient * known[0], coefficient * known[1])
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _search(self, form: Affine, depth: int, best: Interval) -> Interval:
        """The closest interval that rewriting `form` by up to `depth` facts gives."""
        if depth == 0:
            return best
        for fact, (low, high) in self.facts:
            for times in _multiples(form, fact):
                rest = form.minus(fact, times)
                plain = self._form(rest)
                if plain is None:
                    continue
                lower, upper = self._search(rest, depth - 1, plain)
                ends = (times * low, times * high)
                best = _intersect(best, (lower + min(ends), upper + max(ends)))
        return best

    def expand(self, form: Affine) -> Affine:
        """With Let-bound Vars replaced by their definitions."""
        for atom in list(form.terms):
            if isinstance(atom, tir.Var) and atom.name in self.lets:
                value = self.lets[atom.name]
                times = form.coefficient(atom)
                form = form.minus(Affine({atom: 1}, 0), times).minus(value, -times)
        return form

    def _atom(self, atom: tir.Expr) -> Interval | None:
        known = self._plain_atom(atom)
        if known is None or isinstance(atom, tir.Var):
            return known
        for fact, limits in self.facts:
            if len(fact.terms) == 1 and fact.terms.get(atom) == 1:
                known = _intersect(known, limits)
        return known

    def _plain_atom(self, atom: tir.Expr) -> Interval | None:
        match atom:
            case tir.IntImm(value):
                return value, value
            case tir.Var(name, dtype):
                return self.ranges.get(name) or dtype_range(dtype)
            case tir.Binary(op, a, b):
                return self._binary(op, a, b)
            case tir.Cast(dtype, value):
                return self._cast(dtype, value)
            case tir.Select(cond, a, b):
                if _has_select(cond):  # refining by it could take exponential time
                    return _union(self.of(a), self.of(b))
                return _union(self.assume(cond).of(a), self.assume(cond, False).of(b))
            case _:
                return dtype_range(atom.dtype)

    def _cast(self, dtype: DType, value: tir.Expr) -> Interval | None:
        whole = dtype_range(dtype)
        known = self.of(value)
        if whole is None or known is None:
            return whole
        return known if whole[0] <= known[0] and known[1] <= whole[1] else whole

    def _binary(self, op: str, a: tir.Expr, b: tir.Expr) -> Interval | None:
        if op in _NEGATED:
            return 0, 1
        x, y = self.of(a), self.of(b)
        if x is None or y is None:
            return dtype_range(a.dtype)
        return _binary_interval(op, x, y) or dtype_range(a.dtype)


def _multiples(form: Affine, fact: Affine) -> list[int]:
    """By how much a fact may be taken out of `form` so that one of its atoms goes away."""
    if len(fact.terms) < 2:
        return []
    found: list[int] = []
    for atom, coefficient in fact.terms.items():
        mine = form.coefficient(atom)
        if mine and mine % coefficient == 0 and mine // coefficient not in found:
            found.append(mine // coefficient)
    return found


def _binary_interval(op: str, x: Interval, y: Interval) -> Interval | None:
    match op:
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
        case "mul":
            return _product_interval(x, y)
        case "div" if y[0] > 0:
            ends = [_truncated(p, q) for p in x for q in y]
            return min(ends), max(ends)
        case "mod" if y[0] > 0:
            return _modulo(x, y[1]) if x[1] >= y[0] or x[0] <= -y[0] else x
        case "shr" if y[0] >= 0 and y[1] < 64:
            ends = [p >> q for p in x for q in y]
            return min(ends), max(ends)
        case "shl" if y[0] >= 0 and y[1] < 64:
            return _product_interval(x, (1 << y[0], 1 << y[1]))
        case "and" | "or" | "xor":
            return _bitwise(op, x, y)
        case _:
            return None


def _product_interval(x: Interval, y: Interval) -> Interval:
    products = [p * q for p in x for q in y]
    return min(products), max(products)


def _truncated(p: int, q: int) -> int:
    return p // q if p >= 0 else -(-p // q)


def _modulo(x: Interval, most: int) -> Interval:
    """x % d for d up to `most`; the sign is the dividend's, as in C."""
    return max(x[0], 1 - most) if x[0] < 0 else 0, min(x[1], most - 1) if x[1] > 0 else 0


def _bitwise(op: str, x: Interval, y: Interval) -> Interval | None:
    if op == "and":
        masks = [side[1] for side in (x, y) if side[0] >= 0]
        return (0, min(masks)) if masks else None
    if x[0] < 0 or y[0] < 0:
        return None
    return 0, (1 << max(x[1], y[1]).bit_length()) - 1


def _intersect(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _union(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def dtype_range(dtype: DType) -> Interval | None:
    """Every value of an integer or bool dtype."""
    return (dtype.min, dtype.max) if dtype.is_int or dtype == BOOL else None


def children(expr: tir.Expr) -> tuple[tir.Expr, ...]:
    """The direct subexpressions."""
    match expr:
        case tir.Binary(_, a, b):
            return a, b
        case tir.Not(a):
            return (a,)
        case tir.Cast(_, value):
            return (value,)
        case tir.Select(cond, a, b):
            return cond, a, b
        case tir.BufferLoad(_, indices):
            return indices
        case tir.AccessPtr(_, offset):
            return (offset,)
        case tir.IntrinsicCall(_, args):
            return args
        case _:
            return ()


def has_load(expr: tir.Expr) -> bool:
    """Whether the value of `expr` depends on memory."""
    if isinstance(expr, tir.BufferLoad | tir.IntrinsicCall):
        return True
    return any(has_load(child) for child in children(expr))


def _has_select(expr: tir.Expr) -> bool:
    return isinstance(expr, tir.Select) or any(_has_select(child) for child in children(expr))


def common_divisor(form: Affine) -> int:
    """The greatest number that divides every value of `form` (0 for the constant 0)."""
    return math.gcd(form.constant, *form.terms.values())
