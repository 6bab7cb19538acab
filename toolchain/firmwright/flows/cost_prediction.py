"""What the cost model says of each operator of a compilation, to stand beside what was counted.

In: a `Compilation`. Out: predicted instructions by operator index. The choice is made again from
the
imported module, so the kernels are those that the model saw when it chose, before any pass changed
them; where an operator is computed row by row, each call counts as often as its loops run it.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.ir.tir.traversal import Node, children
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation, remaining_passes
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import cost_weights_for

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


def predict_instructions(compiled: Compilation) -> Mapping[int, int]:
    """Instructions of one run by operator index, without the calls themselves."""
    module = compiled.imported
    for step in remaining_passes(module, compiled.options):
        if isinstance(module.entry, tir.PrimFunc):
            break
        module = step(module).with_attrs(stage=step.name)
    main = module.entry
    assert isinstance(main, tir.PrimFunc)  # some pass lowers every graph
    costs: dict[str, int] = {}
    totals: Counter[int] = Counter()
    for (op, callee), times in count_kernel_calls(main.body).items():
        if op < 0:  # rows moved for a segment belong to no operator
            continue
        if callee not in costs:
            kernel = module.functions[callee]
            assert isinstance(kernel, tir.PrimFunc)
            target = module.targets.get(str(kernel.attrs.get("target", "")))
            costs[callee] = estimate_cost(
                kernel, collect_intrinsics(module, INTRINSICS), cost_weights_for(target)
            ).instructions
        totals[op] += costs[callee] * times
    return totals


def count_kernel_calls(body: tir.Stmt) -> Mapping[tuple[int, str], int]:
    """How often an AOT main calls each kernel, by operator index and name."""
    calls: Counter[tuple[int, str]] = Counter()
    _run(body, {}, calls)
    return calls


def _run(node: Node, known: Mapping[str, int], calls: Counter[tuple[int, str]]) -> None:
    match node:
        case tir.PrimFuncCall(callee=callee, op=op):
            calls[op, callee] += 1
        case tir.For(var=var, start=start, extent=extent, body=body):
            first = _value(start, known)
            for value in range(first, first + _value(extent, known)):
                _run(body, {**known, var.name: value}, calls)
        case tir.Let(var=var, value=value, body=body):
            _run(body, {**known, var.name: _value(value, known)}, calls)
        case tir.If(cond=cond, then=then, orelse=orelse):
            branch = then if _value(cond, known) else orelse
            if branch is not None:
                _run(branch, known, calls)
        case _:
            for part in children(node):
                _run(part, known, calls)


def _value(node: tir.Expr, known: Mapping[str, int]) -> int:
    match node:
        case tir.IntImm(value=value):
            return value
        case tir.Var(name=name):
            return known[name]
        case tir.Binary(op=op, a=a, b=b):
            return int(_OPERATIONS[op](_value(a, known), _value(b, known)))
        case tir.Not(a=a):
            return int(not _value(a, known))
        case tir.Cast(value=value):
            return _value(value, known)
        case _:
            raise InternalError(f"{type(node).__name__} decides what an AOT main calls")
