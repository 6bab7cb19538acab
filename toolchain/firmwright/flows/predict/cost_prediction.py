"""Predicts instructions and cycles of each operator with the cost model.

Calls in row-streaming loops count once per iteration.
"""

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from firmwright.base.errors import InternalError
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import Cost, estimate_cost
from firmwright.ir.tir.traversal import Node, children, walk
from firmwright.partitioning.backend_libraries import collect_intrinsics
from firmwright.pipeline import LoweredProgram
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


@dataclass(frozen=True, slots=True)
class PredictedCost:
    """The predicted cost of an operator in one run, without stalls of memory.

    `cycles` is None if the core's pipeline is not known.
    """

    instructions: int
    cycles: int | None


def predict_instructions(program: LoweredProgram) -> Mapping[int, int]:
    """Predict the instructions of each operator of a run."""
    counts: dict[int, int] = {}
    for op, cost in predict_lowered(program.selected).items():
        if op >= 0:
            counts[op] = cost.instructions
    return counts


def predict_lowered(
    module: IRModule, known: Mapping[str, Cost] | None = None
) -> Mapping[int, PredictedCost]:
    """Predict each operator's cost; -1 is the key of rows moved in segments.

    `known` are the costs of the kernels, if they were computed before.
    """
    costs = kernel_costs(module) if known is None else known
    totals: dict[int, PredictedCost] = {}
    for call, times in count_kernel_calls(module.aot_main.body).items():
        totals[call.op] = _plus(totals.get(call.op), costs[call.callee], times)
    return totals


def kernel_costs(module: IRModule) -> Mapping[str, Cost]:
    """Return the cost of one call of each kernel that the module's main calls."""
    intrinsics = collect_intrinsics(module, INTRINSICS)
    costs: dict[str, Cost] = {}
    for call in count_kernel_calls(module.aot_main.body):
        callee = call.callee
        if callee not in costs:
            kernel = module.kernel(callee)
            target = module.targets.get(str(kernel.attrs.get("target", "")))
            weights, size = cost_weights_for(target), module.settings.largest_size
            costs[callee] = estimate_cost(kernel, intrinsics, weights, size)
    return costs


def _plus(before: PredictedCost | None, cost: Cost, times: int) -> PredictedCost:
    instructions, cycles = cost.instructions * times, cost.run_cycles
    if cycles is not None:
        cycles *= times
    if before is None:
        return PredictedCost(instructions, cycles)
    if cycles is None or before.cycles is None:
        return PredictedCost(before.instructions + instructions, None)
    return PredictedCost(before.instructions + instructions, before.cycles + cycles)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel in a run, for an operator of the model."""

    op: int
    callee: str


def count_kernel_calls(body: tir.Stmt) -> Mapping[KernelCall, int]:
    """Count an AOT main's calls of each kernel; see `kernel_calls`."""
    return Counter(kernel_calls(body))


def kernel_calls(body: tir.Stmt) -> Sequence[KernelCall]:
    """Return an AOT main's calls in the order of a run.

    If data decide, both branches and one iteration count.
    """
    calls: list[KernelCall] = []
    _add_calls(body, {}, calls)
    return calls


def _add_calls(
    node: Node, variables: Mapping[str, int], calls: list[KernelCall]
) -> None:
    """Append the calls of a node.

    An AOT main nests up to one level per tensor; a generator would resume all of them
    for every call.
    """
    match node:
        case tir.PrimFuncCall(callee=callee, op=op):
            calls.append(KernelCall(op, callee))
        case tir.For(var=var, start=start, extent=extent, body=inner):
            first = _value(start, variables)
            for value in range(first, first + _value(extent, variables)):
                _add_calls(inner, {**variables, var.name: value}, calls)
        case tir.Let(value=tir.BufferLoad(), body=inner):  # the size of an axis
            _add_calls(inner, variables, calls)
        case tir.Let(var=var, value=expr, body=inner):
            value = _value(expr, variables)
            _add_calls(inner, {**variables, var.name: value}, calls)
        case tir.If(cond=cond, then=then, orelse=orelse):
            branches = [then, orelse]
            if not depends_on_data(node):
                branches = [then if _value(cond, variables) else orelse]
            for branch in branches:
                if branch is not None:
                    _add_calls(branch, variables, calls)
        case _:
            for part in children(node):
                _add_calls(part, variables, calls)


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
