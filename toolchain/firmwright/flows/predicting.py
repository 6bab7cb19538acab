"""What the cost model says of each operator of a compilation, to stand beside what was counted.

In: a `Compiled`. Out: predicted instructions by operator index. The choice is made again from the
imported module, so the kernels are those that the model saw when it chose, before any pass changed
them; where an operator is computed row by row, each call counts as often as its loops run it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping

from firmwright.base.errors import InternalError
from firmwright.ir.tir.cost import cost
from firmwright.ir.tir.nodes import (
    Binary,
    CallPrim,
    Cast,
    Expr,
    For,
    If,
    IntImm,
    Let,
    Not,
    PrimFunc,
    Stmt,
    Var,
)
from firmwright.ir.tir.walk import Node, children
from firmwright.partitioning.libraries import intrinsics_of
from firmwright.pipeline import Compiled, remaining
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import weights_of

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: int(a / b),
    "mod": lambda a, b: a - b * int(a / b),
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def predicted(compiled: Compiled) -> Mapping[int, int]:
    """Instructions of one run by operator index, without the calls themselves."""
    module = compiled.imported
    for step in remaining(module, compiled.options):
        if isinstance(module.entry, PrimFunc):
            break
        module = step(module).with_attrs(stage=step.name)
    main = module.entry
    assert isinstance(main, PrimFunc)  # some pass lowers every graph
    costs: dict[str, int] = {}
    totals: Counter[int] = Counter()
    for (op, callee), times in calls_of(main.body).items():
        if op < 0:  # rows moved for a segment belong to no operator
            continue
        if callee not in costs:
            kernel = module.functions[callee]
            assert isinstance(kernel, PrimFunc)
            target = module.targets.get(str(kernel.attrs.get("target", "")))
            costs[callee] = cost(
                kernel, intrinsics_of(module, INTRINSICS), weights_of(target)
            ).instructions
        totals[op] += costs[callee] * times
    return totals


def calls_of(body: Stmt) -> Mapping[tuple[int, str], int]:
    """How often an AOT main calls each kernel, by operator index and name."""
    calls: Counter[tuple[int, str]] = Counter()
    _run(body, {}, calls)
    return calls


def _run(node: Node, known: Mapping[str, int], calls: Counter[tuple[int, str]]) -> None:
    match node:
        case CallPrim(callee=callee, op=op):
            calls[op, callee] += 1
        case For(var=var, start=start, extent=extent, body=body):
            first = _value(start, known)
            for value in range(first, first + _value(extent, known)):
                _run(body, {**known, var.name: value}, calls)
        case Let(var=var, value=value, body=body):
            _run(body, {**known, var.name: _value(value, known)}, calls)
        case If(cond=cond, then=then, orelse=orelse):
            branch = then if _value(cond, known) else orelse
            if branch is not None:
                _run(branch, known, calls)
        case _:
            for part in children(node):
                _run(part, known, calls)


def _value(node: Expr, known: Mapping[str, int]) -> int:
    match node:
        case IntImm(value=value):
            return value
        case Var(name=name):
            return known[name]
        case Binary(op=op, a=a, b=b):
            return int(_OPERATIONS[op](_value(a, known), _value(b, known)))
        case Not(a=a):
            return int(not _value(a, known))
        case Cast(value=value):
            return _value(value, known)
        case _:
            raise InternalError(f"{type(node).__name__} decides what an AOT main calls")
