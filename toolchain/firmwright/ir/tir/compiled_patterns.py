"""Patterns in TIR that compilers turn into fewer instructions than their nodes."""

from collections.abc import Iterator, Sequence

from firmwright.ir import tir

_VECTOR_LANES = 4


def stays_loop(loop: tir.For) -> bool:
    once = isinstance(loop.extent, tir.IntImm) and loop.extent.value == 1
    return loop.kind != "unrolled" and not once


def iterations_together(loop: tir.For) -> int:
    """Return the iterations that one of the compiled loop computes."""
    return _VECTOR_LANES if loop.kind == "vectorized" else 1


def clamp_limits(node: tir.Binary, inner: tir.Binary) -> tuple[int, int] | None:
    """Return (low, high) if `node` is min(max(x, low), high), or max around min."""
    if {node.op, inner.op} != {"min", "max"}:
        return None
    if not (isinstance(node.b, tir.IntImm) and isinstance(inner.b, tir.IntImm)):
        return None
    if node.op == "min":
        return inner.b.value, node.b.value
    return node.b.value, inner.b.value


def is_saturation(low: int, high: int) -> bool:
    """Return whether a clamp is to all values of a number of bits, signed or not."""
    return high > 0 and not high & (high + 1) and low in (0, -high - 1)


def conjuncts(cond: tir.Expr) -> tuple[tir.Expr, ...]:
    if isinstance(cond, tir.Binary) and cond.op == "and":
        return conjuncts(cond.a) + conjuncts(cond.b)
    return (cond,)


def is_range_check(first: tir.Expr, second: tir.Expr) -> bool:
    """Return whether the last test of `first` is x >= 0, and `second` is x < y."""
    while isinstance(first, tir.Binary) and first.op == "and":
        first = first.b
    if not (isinstance(first, tir.Binary) and isinstance(second, tir.Binary)):
        return False
    if first.op != "ge" or second.op not in ("lt", "le"):
        return False
    return first.b == tir.IntImm(0, first.b.dtype) and first.a == second.a


def operand_forms(args: Sequence[tir.Expr]) -> Iterator[str]:
    """Yield the forms in which compilers simplify a function, the shortest first.

    `.zero` has a float zero, `.fixed` a constant float or constants from the second
    argument on.
    """
    floats = [arg.value for arg in args if isinstance(arg, tir.FloatImm)]
    if 0.0 in floats:
        yield ".zero"
    if floats or all(isinstance(arg, tir.IntImm) for arg in args[1:]):
        yield ".fixed"
    yield ""
