"""Simplifies expressions and statements by algebra and by what loops, lets and branches imply.

In: PrimFuncs. Out: the same meaning with fewer nodes: constants folded, `x + 0`, `x * 1` and the
like gone, min, max, select, div and mod decided where bounds decide them, branches never taken,
loops of one iteration, empty statements and unused lets removed. Integer rules rest on TIR's rule
that arithmetic does not overflow; float arithmetic is left alone. What is assumed in a branch never
depends on memory, which the branch may change.
"""

from __future__ import annotations

import math
from dataclasses import replace

from firmwright.base.dtypes import BOOL, DType
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.tir.affine import Bounds, has_load, widens
from firmwright.ir.tir.nodes import (
    COMPARISONS,
    AccessPtr,
    Allocate,
    AllocateConst,
    Binary,
    BufferLoad,
    BufferStore,
    Call,
    CallPrim,
    Cast,
    DeclBuffer,
    Evaluate,
    Expr,
    For,
    If,
    IntImm,
    Let,
    Not,
    PrimFunc,
    Select,
    Seq,
    Stmt,
    Var,
    While,
)
from firmwright.ir.tir.rewrite import NOTHING, sequence, substitute, with_body
from firmwright.ir.tir.walk import walk
from firmwright.passes.per_function import each_prim_func

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"})


def simplify_expr(node: Expr, bounds: Bounds) -> Expr:
    """`node` in fewer nodes, given what is known where it stands."""
    match node:
        case Binary(op, a, b):
            new_a, new_b = simplify_expr(a, bounds), simplify_expr(b, bounds)
            same = new_a is a and new_b is b
            return _binary(node if same else Binary(op, new_a, new_b), bounds)
        case Not(a):
            return _not(node, simplify_expr(a, bounds))
        case Cast(_, value):
            return _cast(node, simplify_expr(value, bounds), bounds)
        case Select():
            return _select(node, bounds)
        case BufferLoad(buffer, indices):
            news = _all(indices, bounds)
            return node if news is indices else BufferLoad(buffer, news)
        case AccessPtr(_, offset, _, _):
            new = simplify_expr(offset, bounds)
            return node if new is offset else replace(node, offset=new)
        case Call(name, args, dtype):
            news = _all(args, bounds)
            return node if news is args else Call(name, news, dtype)
        case _:
            return node


def _all(nodes: tuple[Expr, ...], bounds: Bounds) -> tuple[Expr, ...]:
    news = tuple(simplify_expr(node, bounds) for node in nodes)
    return nodes if all(new is old for new, old in zip(news, nodes, strict=True)) else news


# ---- expressions -----------------------------------------------------------------------------


def _binary(node: Binary, bounds: Bounds) -> Expr:
    if isinstance(node.a, IntImm) and not isinstance(node.b, IntImm):
        node = _constant_last(node)
    if node.a.dtype == BOOL:
        return _logical(node)
    if not node.a.dtype.is_int:
        return node
    if node.op in COMPARISONS:
        return _comparison(node, bounds)
    folded = _folded(node)
    if folded is None:
        folded = _identity(node)
    if folded is None:
        folded = _decided(node, bounds)
    return node if folded is None else folded


def _constant_last(node: Binary) -> Binary:
    if node.op in COMPARISONS and node.op not in _COMMUTATIVE:
        mirrored: dict[str, str] = _MIRRORED
        return Binary(mirrored[node.op], node.b, node.a)  # type: ignore[arg-type]  # a BinaryOp
    return Binary(node.op, node.b, node.a) if node.op in _COMMUTATIVE else node


def _bool(value: bool) -> IntImm:
    return IntImm(int(value), BOOL)


def _logical(node: Binary) -> Expr:
    if isinstance(node.b, IntImm):
        holds = bool(node.b.value)
        match node.op:
            case "and":
                return node.a if holds else _bool(False)
            case "or":
                return _bool(True) if holds else node.a
            case "xor" | "ne":
                return _not(Not(node.a), node.a) if holds else node.a
    if node.op in ("and", "or") and node.a == node.b:
        return node.a
    return node


def _comparison(node: Binary, bounds: Bounds) -> Expr:
    """Decided by the bounds of the difference, in which common terms cancel."""
    difference = bounds.tight(Binary("sub", node.a, node.b))
    if difference is None:
        return node
    low, high = difference
    always, never = {
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }[node.op]
    return _bool(always) if always or never else node


def _folded(node: Binary) -> Expr | None:
    """Two immediates as one, if the dtype holds the result."""
    if not (isinstance(node.a, IntImm) and isinstance(node.b, IntImm)):
        return None
    value = _computed(node.op, node.a.value, node.b.value)
    dtype = node.dtype
    return IntImm(value, dtype) if value is not None and _holds(dtype, value) else None


def _holds(dtype: DType, value: int) -> bool:
    return dtype.min <= value <= dtype.max


def _computed(op: str, a: int, b: int) -> int | None:
    quotient = 0 if b == 0 else int(math.copysign(1, a) * math.copysign(1, b)) * (abs(a) // abs(b))
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return quotient if b else None
        case "mod":
            return a - quotient * b if b else None
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "shl":
            return a << b if 0 <= b < 64 else None
        case "shr":
            return a >> b if 0 <= b < 64 else None
        case "and":
            return a & b
        case "or":
            return a | b
        case "xor":
            return a ^ b
    return None


def _identity(node: Binary) -> Expr | None:
    """Rules of algebra that one immediate on the right decides."""
    op, a, b = node.op, node.a, node.b
    if a == b and op in ("min", "max", "and", "or"):
        return a
    if not isinstance(b, IntImm):
        return IntImm(0, node.dtype) if a == b and op == "sub" else None
    match op, b.value:
        case ("add" | "sub" | "shl" | "shr" | "or" | "xor", 0) | ("mul" | "div", 1):
            return a
        case ("mul" | "and", 0) | ("mod", 1):
            return IntImm(0, node.dtype)
    return _reassociated(node, a, b)


def _reassociated(node: Binary, a: Expr, b: IntImm) -> Expr | None:
    """(x + 1) + 2 and (x * 2) * 3 in one step; clamps twice by constants."""
    if not (isinstance(a, Binary) and isinstance(a.b, IntImm)):
        return None
    dtype, inner, outer = node.dtype, a.b.value, b.value
    if node.op in ("add", "sub") and a.op in ("add", "sub") and dtype.signed:
        total = (inner if a.op == "add" else -inner) + (outer if node.op == "add" else -outer)
        if _holds(dtype, abs(total)):
            step: Expr = Binary("add" if total >= 0 else "sub", a.a, IntImm(abs(total), dtype))
            return a.a if total == 0 else step
    if node.op == a.op and node.op in ("mul", "min", "max") and dtype.signed:
        value = _computed(node.op, inner, outer)
        if value is not None and _holds(dtype, value):
            return Binary(node.op, a.a, IntImm(value, dtype))
    return None


def _decided(node: Binary, bounds: Bounds) -> Expr | None:
    """min, max, div and mod that bounds decide."""
    if node.op in ("min", "max"):
        difference = bounds.of(Binary("sub", node.a, node.b))
        if difference is None:
            return None
        if difference[1] <= 0:
            return node.a if node.op == "min" else node.b
        if difference[0] >= 0:
            return node.b if node.op == "min" else node.a
        return None
    if node.op in ("div", "mod") and isinstance(node.b, IntImm) and node.b.value > 0:
        known = bounds.of(node.a)
        if known is not None and -node.b.value < known[0] and known[1] < node.b.value:
            return IntImm(0, node.dtype) if node.op == "div" else node.a
    return None


def _not(node: Not, a: Expr) -> Expr:
    match a:
        case IntImm(value, _):
            return _bool(not value)
        case Not(inner):
            return inner
        case Binary(op, left, right) if op in COMPARISONS and left.dtype.is_int:
            opposite: dict[str, str] = _OPPOSITE
            return Binary(opposite[op], left, right)  # type: ignore[arg-type]  # a BinaryOp
        case _:
            return node if a is node.a else Not(a)


def _cast(node: Cast, value: Expr, bounds: Bounds) -> Expr:
    dtype = node.dtype
    if value.dtype == dtype:
        return value
    if isinstance(value, IntImm) and dtype.is_int and _holds(dtype, value.value):
        return IntImm(value.value, dtype)
    # A detour over a type that holds every value on the way is no detour.
    if isinstance(value, Cast) and dtype.is_int and widens(value.value.dtype, value.dtype):
        return _cast(Cast(dtype, value.value), value.value, bounds)
    return node if value is node.value else Cast(dtype, value)


def _select(node: Select, bounds: Bounds) -> Expr:
    cond = simplify_expr(node.cond, bounds)
    if isinstance(cond, IntImm):
        return simplify_expr(node.a if cond.value else node.b, bounds)
    a, b = simplify_expr(node.a, bounds), simplify_expr(node.b, bounds)
    if a == b:
        return a
    same = cond is node.cond and a is node.a and b is node.b
    return node if same else Select(cond, a, b)


# ---- statements ------------------------------------------------------------------------------


def assuming(bounds: Bounds, cond: Expr, holds: bool = True) -> Bounds:
    """`bounds` where `cond` is true (or false), leaving out what memory decides."""
    if isinstance(cond, Binary) and cond.op == ("and" if holds else "or") and cond.a.dtype == BOOL:
        return assuming(assuming(bounds, cond.a, holds), cond.b, holds)
    return bounds if has_load(cond) else bounds.assume(cond, holds)


def simplify_stmt(node: Stmt, bounds: Bounds) -> Stmt:
    """`node` in fewer nodes, given what is known where it stands."""
    match node:
        case For():
            return _for(node, bounds)
        case Let():
            return _let(node, bounds)
        case If():
            return _if(node, bounds)
        case While(cond, body):
            new_cond, new_body = simplify_expr(cond, bounds), simplify_stmt(body, bounds)
            if isinstance(new_cond, IntImm) and not new_cond.value:
                return NOTHING
            same = new_cond is cond and new_body is body
            return node if same else While(new_cond, new_body)
        case Seq(stmts):
            news = [simplify_stmt(stmt, bounds) for stmt in stmts]
            same = all(new is old for new, old in zip(news, stmts, strict=True))
            nested = any(isinstance(stmt, Seq) for stmt in stmts) or len(stmts) == 1
            return node if same and not nested else sequence(news)
        case Allocate(body=body) | AllocateConst(body=body):
            new_body = simplify_stmt(body, bounds)
            if new_body == NOTHING:
                return NOTHING
            return node if new_body is body else replace(node, body=new_body)
        case _:
            return _leaf(node, bounds)


def _leaf(node: Stmt, bounds: Bounds) -> Stmt:
    match node:
        case BufferStore(buffer, indices, value):
            news, new = _all(indices, bounds), simplify_expr(value, bounds)
            same = news is indices and new is value
            return node if same else BufferStore(buffer, news, new)
        case DeclBuffer(source=source, body=body):
            new_source, new_body = simplify_expr(source, bounds), simplify_stmt(body, bounds)
            assert isinstance(new_source, AccessPtr)
            if new_body == NOTHING:
                return NOTHING
            same = new_source is source and new_body is body
            return node if same else replace(node, source=new_source, body=new_body)
        case Evaluate(call):
            news = _all(call.args, bounds)
            return node if news is call.args else Evaluate(Call(call.name, news, call.dtype))
        case CallPrim(args=args):
            news = _all(args, bounds)
            return node if news is args else replace(node, args=news)
        case _:
            return node


def _for(node: For, bounds: Bounds) -> Stmt:
    start, extent = simplify_expr(node.start, bounds), simplify_expr(node.extent, bounds)
    count = bounds.tight(extent)
    if count is not None and count[1] <= 0:
        return NOTHING
    if count == (1, 1):
        return _let(Let(node.var, start, node.body), bounds)
    body = simplify_stmt(node.body, bounds.with_loop(node.var, start, extent))
    if body == NOTHING:
        return NOTHING
    same = start is node.start and extent is node.extent and body is node.body
    return node if same else For(node.var, start, extent, body, node.kind)


def _let(node: Let, bounds: Bounds) -> Stmt:
    value = simplify_expr(node.value, bounds)
    if isinstance(value, IntImm | Var):
        return simplify_stmt(substitute(node.body, {node.var.name: value}), bounds)
    body = simplify_stmt(node.body, bounds.with_let(node.var, value))
    if not any(part == node.var for part in walk(body)):
        return body
    return node if value is node.value and body is node.body else Let(node.var, value, body)


def _if(node: If, bounds: Bounds) -> Stmt:
    cond = simplify_expr(node.cond, bounds)
    orelse = NOTHING if node.orelse is None else node.orelse
    if isinstance(cond, IntImm):
        return simplify_stmt(node.then if cond.value else orelse, bounds)
    then = simplify_stmt(node.then, assuming(bounds, cond))
    other = simplify_stmt(orelse, assuming(bounds, cond, False))
    if then == NOTHING:
        return NOTHING if other == NOTHING else If(_not(Not(cond), cond), other)
    kept = None if other == NOTHING else other
    same = cond is node.cond and then is node.then and kept is node.orelse
    return node if same else If(cond, then, kept)


def simplify(func: PrimFunc) -> PrimFunc:
    """`func` with its body simplified."""
    return with_body(func, simplify_stmt(func.body, Bounds()))


def run(module: IRModule) -> IRModule:
    """Simplifies every PrimFunc."""
    return each_prim_func(module, simplify)


PASS = Pass("simplify", run)
