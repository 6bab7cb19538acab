"""Predicts the instruction count of each operator with the cost model.

Selection runs again, because the cost model evaluates kernels before any later pass.
Calls in row-streaming loops count once per iteration.
"""

import operator
from collections import Counter
from collections.abc import Callable, Mapping

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.ir.tir.traversal import Node, children, walk
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import Compilation, remaining_passes
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import cost_weights_for


def _divide(a: int, b: int) -> int:
    """Divide as C does, toward zero."""
    return int(a / b)


def _remainder(a: int, b: int) -> int:
    return a - b * _divide(a, b)


_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "mod": _remainder,
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": operator.and_,
    "or": operator.or_,
}


def predict_instructions(compiled: Compilation) -> Mapping[int, int]:
    """Predict the instructions of each operator of a run."""
    module = compiled.imported
    for step in remaining_passes(module, compiled.options):
        if isinstance(module.entry, tir.PrimFunc) and step.name != "compress-weights":
            break
        module = step(module).with_stage(step.stage)
    counts: dict[int, int] = {}
    for op, count in predict_lowered(module).items():
        if op >= 0:
            counts[op] = count
    return counts


def predict_lowered(module: IRModule) -> Mapping[int, int]:
    """Predict each operator's instructions; -1 is the key of rows moved in segments."""
    main = module.aot_main
    intrinsics = collect_intrinsics(module, INTRINSICS)
    costs: dict[str, int] = {}
    totals: Counter[int] = Counter()
    for (op, callee), times in count_kernel_calls(main.body).items():
        if callee not in costs:
            kernel = module.kernel(callee)
            target = module.targets.get(str(kernel.attrs.get("target", "")))
            cost = estimate_cost(kernel, intrinsics, cost_weights_for(target))
            costs[callee] = cost.instructions
        totals[op] += costs[callee] * times
    return totals


def count_kernel_calls(body: tir.Stmt) -> Mapping[tuple[int, str], int]:
    """Count an AOT main's calls of each kernel.

    If data decide, both branches and one iteration count.
    """
    calls: Counter[tuple[int, str]] = Counter()

    def count(node: Node, variables: Mapping[str, int]) -> None:
        match node:
            case tir.PrimFuncCall(callee=callee, op=op):
                calls[op, callee] += 1
            case tir.For(var=var, start=start, extent=extent, body=inner):
                first = _value(start, variables)
                for value in range(first, first + _value(extent, variables)):
                    count(inner, {**variables, var.name: value})
            case tir.Let(var=var, value=expr, body=inner):
                count(inner, {**variables, var.name: _value(expr, variables)})
            case tir.If(cond=cond, then=then, orelse=orelse):
                branches = [then, orelse]
                if not depends_on_data(node):
                    branches = [then if _value(cond, variables) else orelse]
                for branch in branches:
                    if branch is not None:
                        count(branch, variables)
            case _:
                for part in children(node):
                    count(part, variables)

    count(body, {})
    return calls


def depends_on_data(node: Node) -> bool:
    """Return whether the data decide how often the body of a statement runs."""
    if isinstance(node, tir.If):
        return any(isinstance(part, tir.BufferLoad) for part in walk(node.cond))
    return isinstance(node, tir.While)


def _value(node: tir.Expr, variables: Mapping[str, int]) -> int:
    """Evaluate an expression of the variables of loops."""
    match node:
        case tir.IntImm(value=value):
            return value
        case tir.Var(name=name):
            return variables[name]
        case tir.Binary(op=op, a=a, b=b):
            return int(_OPERATIONS[op](_value(a, variables), _value(b, variables)))
        case tir.Not(a=a):
            return int(not _value(a, variables))
        case tir.Cast(value=value):
            return _value(value, variables)
        case _:
            kind = type(node).__name__
            raise InternalError(f"control flow of an AOT main depends on a {kind}")
