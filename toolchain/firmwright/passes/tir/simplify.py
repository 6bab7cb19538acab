"""Simplification of expressions and statements by algebra and known bounds.

Folds constants and identities such as `x + 0` and `x * 1`; decides min, max, select,
div and mod by bounds; removes dead branches, single-iteration loops, empty statements,
unused lets, and stores of the value that was loaded from the same place. Integer rules
assume no overflow (the TIR rule); float arithmetic is not changed. A condition that
reads memory is not assumed in its branch.
"""

from firmwright.base.dtypes import BOOL, DType
from firmwright.ir import tir
from firmwright.ir.tir.affine import NEGATED, Bounds, has_load, is_widening
from firmwright.ir.tir.expr_evaluation import SCALAR_FUNCTIONS
from firmwright.ir.tir.traversal import (
    EMPTY_STMT,
    LEAVES,
    N,
    Node,
    make_sequence,
    map_children,
    walk,
    with_body,
    with_children,
)
from firmwright.passes.map_functions import tir_pass

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq", "ne"})


def simplify_expr(node: tir.Expr, bounds: Bounds) -> tir.Expr:
    if isinstance(node, tir.Var):
        return bounds.names.get(node.name, node)
    if type(node) in LEAVES:
        return node
    if isinstance(node, tir.Select):
        return _select(node, bounds)
    new = map_children(node, lambda child: simplify_expr(child, bounds))
    match new:
        case tir.Binary():
            return _binary(new, bounds)
        case tir.Not():
            return _not(new)
        case tir.Cast():
            return _cast(new)
    return new


def _binary(node: tir.Binary, bounds: Bounds) -> tir.Expr:
    if isinstance(node.a, tir.IntImm) and not isinstance(node.b, tir.IntImm):
        node = _constant_last(node)
    if node.a.dtype == BOOL:
        return _logical(node)
    if not node.a.dtype.is_int:
        return node
    if node.op in tir.COMPARISONS:
        return _comparison(node, bounds)
    return _folded(node) or _identity(node) or _decided(node, bounds) or node


def _constant_last(node: tir.Binary) -> tir.Binary:
    if node.op in tir.COMPARISONS and node.op not in _COMMUTATIVE:
        mirrored: dict[str, str] = _MIRRORED
        return tir.Binary(mirrored[node.op], node.b, node.a)  # type: ignore[arg-type]  # a BinaryOp
    return tir.Binary(node.op, node.b, node.a) if node.op in _COMMUTATIVE else node


def _bool(value: bool) -> tir.IntImm:
    return tir.IntImm(int(value), BOOL)


def _logical(node: tir.Binary) -> tir.Expr:
    if isinstance(node.b, tir.IntImm):
        holds = bool(node.b.value)
        match node.op:
            case "and":
                return node.a if holds else _bool(False)
            case "or":
                return _bool(True) if holds else node.a
            case "xor" | "ne":
                return _not(tir.Not(node.a)) if holds else node.a
    if node.op in ("and", "or") and node.a == node.b:
        return node.a
    return node


def _comparison(node: tir.Binary, bounds: Bounds) -> tir.Expr:
    """Decide a comparison by the bounds of the difference: common terms cancel."""
    difference = bounds.tight_interval_of(tir.Binary("sub", node.a, node.b))
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


def _folded(node: tir.Binary) -> tir.Expr | None:
    if not (isinstance(node.a, tir.IntImm) and isinstance(node.b, tir.IntImm)):
        return None
    value = _computed(node.op, node.a.value, node.b.value)
    if value is None or not _holds(node.dtype, value):
        return None
    return tir.IntImm(value, node.dtype)


def _holds(dtype: DType, value: int) -> bool:
    return dtype.min <= value <= dtype.max


def _computed(op: str, a: int, b: int) -> int | None:
    if op in ("div", "mod"):
        if not b:
            return None
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if op == "div" else a - quotient * b
    if op in ("shl", "shr") and not 0 <= b < 64:
        return None
    return int(SCALAR_FUNCTIONS[op](a, b))


def _identity(node: tir.Binary) -> tir.Expr | None:
    """Apply algebraic identities with an immediate on the right."""
    op, a, b = node.op, node.a, node.b
    if a == b and op in ("min", "max", "and", "or"):
        return a
    if not isinstance(b, tir.IntImm):
        return tir.IntImm(0, node.dtype) if a == b and op == "sub" else None
    match op, b.value:
        case ("add" | "sub" | "shl" | "shr" | "or" | "xor", 0) | ("mul" | "div", 1):
            return a
        case ("mul" | "and", 0) | ("mod", 1):
            return tir.IntImm(0, node.dtype)
    return _reassociated(node, a, b)


def _reassociated(node: tir.Binary, a: tir.Expr, b: tir.IntImm) -> tir.Expr | None:
    """Combine the constants of (x + 1) + 2, (x * 2) * 3 and nested clamps."""
    if not (isinstance(a, tir.Binary) and isinstance(a.b, tir.IntImm)):
        return None
    dtype, inner, outer = node.dtype, a.b.value, b.value
    if node.op in ("add", "sub") and a.op in ("add", "sub") and dtype.signed:
        first = inner if a.op == "add" else -inner
        total = first + (outer if node.op == "add" else -outer)
        if _holds(dtype, abs(total)):
            if not total:
                return a.a
            step = tir.IntImm(abs(total), dtype)
            return tir.Binary("add" if total > 0 else "sub", a.a, step)
    if node.op == a.op and node.op in ("mul", "min", "max") and dtype.signed:
        value = _computed(node.op, inner, outer)
        if value is not None and _holds(dtype, value):
            return tir.Binary(node.op, a.a, tir.IntImm(value, dtype))
    return None


def _decided(node: tir.Binary, bounds: Bounds) -> tir.Expr | None:
    if node.op in ("min", "max"):
        difference = bounds.interval_of(tir.Binary("sub", node.a, node.b))
        if difference is not None and difference[1] <= 0:
            return node.a if node.op == "min" else node.b
        if difference is not None and difference[0] >= 0:
            return node.b if node.op == "min" else node.a
        return None
    if node.op not in ("div", "mod") or not isinstance(node.b, tir.IntImm):
        return None
    divisor = node.b.value
    limits = bounds.interval_of(node.a) if divisor > 0 else None
    # Division truncates toward zero: below the divisor, on both sides of zero, it gives
    # zero.
    if limits is not None and -divisor < limits[0] and limits[1] < divisor:
        return tir.IntImm(0, node.dtype) if node.op == "div" else node.a
    return None


def _not(node: tir.Not) -> tir.Expr:
    match node.a:
        case tir.IntImm(value, _):
            return _bool(not value)
        case tir.Not(inner):
            return inner
        case tir.Binary(op, left, right) if op in tir.COMPARISONS and left.dtype.is_int:
            return tir.Binary(NEGATED[op], left, right)  # type: ignore[arg-type]  # a BinaryOp
    return node


def _cast(node: tir.Cast) -> tir.Expr:
    dtype, value = node.dtype, node.value
    if value.dtype == dtype:
        return value
    if isinstance(value, tir.IntImm) and dtype.is_int and _holds(dtype, value.value):
        return tir.IntImm(value.value, dtype)
    # Skip an intermediate type that represents every value of the inner type.
    if isinstance(value, tir.Cast) and dtype.is_int:
        inner = value.value
        if is_widening(inner.dtype, value.dtype):
            return _cast(tir.Cast(dtype, inner))
    return node


def _select(node: tir.Select, bounds: Bounds) -> tir.Expr:
    cond = simplify_expr(node.cond, bounds)
    if isinstance(cond, tir.IntImm):
        return simplify_expr(node.a if cond.value else node.b, bounds)
    a, b = simplify_expr(node.a, bounds), simplify_expr(node.b, bounds)
    if a == b:
        return a
    return with_children(node, (cond, a, b))


def assuming(bounds: Bounds, cond: tir.Expr, holds: bool = True) -> Bounds:
    # a and b: both hold. not (a or b): neither holds. Other cases tell nothing of a.
    joint = "and" if holds else "or"
    if isinstance(cond, tir.Binary) and cond.op == joint and cond.a.dtype == BOOL:
        return assuming(assuming(bounds, cond.a, holds), cond.b, holds)
    return bounds if has_load(cond) else bounds.assume(cond, holds)


def simplify_stmt(node: tir.Stmt, bounds: Bounds) -> tir.Stmt:
    match node:
        case tir.For():
            return _for(node, bounds)
        case tir.Let():
            return _let(node, bounds)
        case tir.If():
            return _if(node, bounds)
        case tir.While():
            new = _map_children(node, bounds)
            is_dead = isinstance(new.cond, tir.IntImm) and not new.cond.value
            return EMPTY_STMT if is_dead else new
        case tir.Seq(stmts):
            new_stmts = _map_children(node, bounds).stmts
            nested = any(isinstance(stmt, tir.Seq) for stmt in stmts) or len(stmts) == 1
            if new_stmts is stmts and not nested:
                return node
            return make_sequence(list(new_stmts))
        case tir.Allocate() | tir.AllocateConst() | tir.DeclBuffer():
            scope = _map_children(node, bounds)
            return EMPTY_STMT if scope.body == EMPTY_STMT else scope
        case tir.BufferStore():
            store = _map_children(node, bounds)
            return EMPTY_STMT if _stores_its_own_load(store) else store
    return _map_children(node, bounds)


def _stores_its_own_load(store: tir.BufferStore) -> bool:
    """Return whether a store writes to a place the value that was loaded from it."""
    match store.value:
        case tir.BufferLoad(buffer=buffer, indices=indices):
            return buffer == store.buffer and indices == store.indices
    return False


def _map_children(node: N, bounds: Bounds) -> N:
    def change(child: Node) -> Node:
        if isinstance(child, tir.Stmt):
            return simplify_stmt(child, bounds)
        return simplify_expr(child, bounds)

    return map_children(node, change)


def _for(node: tir.For, bounds: Bounds) -> tir.Stmt:
    start = simplify_expr(node.start, bounds)
    extent = simplify_expr(node.extent, bounds)
    count = bounds.tight_interval_of(extent)
    if count is not None and count[1] <= 0:
        return EMPTY_STMT
    if count == (1, 1):
        return _let(tir.Let(node.var, start, node.body), bounds)
    body = simplify_stmt(node.body, bounds.with_loop(node.var, start, extent))
    if body == EMPTY_STMT:
        return EMPTY_STMT
    return with_children(node, (start, extent, body))


def _let(node: tir.Let, bounds: Bounds) -> tir.Stmt:
    value = simplify_expr(node.value, bounds)
    # A name for a number or another variable hides what is known: it is replaced.
    if isinstance(value, tir.IntImm | tir.Var):
        return simplify_stmt(node.body, bounds.with_name(node.var, value))
    body = simplify_stmt(node.body, bounds.with_let(node.var, value))
    if not _mentions(body, node.var):
        return body
    return with_children(node, (value, body))


def _mentions(body: tir.Stmt, var: tir.Var) -> bool:
    return any(type(part) is tir.Var and part == var for part in walk(body))


def _if(node: tir.If, bounds: Bounds) -> tir.Stmt:
    cond = simplify_expr(node.cond, bounds)
    orelse = EMPTY_STMT if node.orelse is None else node.orelse
    if isinstance(cond, tir.IntImm):
        return simplify_stmt(node.then if cond.value else orelse, bounds)
    # Each branch knows its condition: nested guards against the same limit disappear.
    then = simplify_stmt(node.then, assuming(bounds, cond))
    other = simplify_stmt(orelse, assuming(bounds, cond, False))
    if then == EMPTY_STMT:
        return EMPTY_STMT if other == EMPTY_STMT else tir.If(_not(tir.Not(cond)), other)
    new_else = None if other == EMPTY_STMT else other
    same = cond is node.cond and then is node.then and new_else is node.orelse
    return node if same else tir.If(cond, then, new_else)


def simplify(func: tir.PrimFunc) -> tir.PrimFunc:
    return with_body(func, simplify_stmt(func.body, Bounds()))


PASS = tir_pass("simplify", simplify)
