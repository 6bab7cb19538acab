"""Dead-code elimination on the graph: removes unused calls and constants.

Operators are pure, so any unused call is dead.
"""

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.map_functions import map_graph_functions, names_of
from firmwright.passes.tir.dce import drop_unreferenced_constants


def eliminate_dead_calls(func: Function) -> Function:
    """Return `func` without the calls on which no result depends."""
    needed = names_of(func.sinks)
    live_calls: list[Call] = []
    for call in reversed(func.body):
        if needed.isdisjoint(names_of(call.outputs)):
            continue
        live_calls.append(call)
        for operand in call.inputs:
            if operand is not None:
                needed.add(operand.name)
    if len(live_calls) == len(func.body):
        return func
    return replace(func, body=tuple(reversed(live_calls)))


def run(module: IRModule) -> IRModule:
    changed = map_graph_functions(module, eliminate_dead_calls)
    return module if changed is module else drop_unreferenced_constants(changed)


PASS = Pass("graph-dce", run)
