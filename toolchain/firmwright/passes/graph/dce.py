"""Dead-code elimination on the graph: removes unused calls and constants.

Operators are pure, so any unused call is dead, including `device_copy` and calls of PrimFuncs.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.tir.dce import referenced_constants


def eliminate_dead_calls(func: Function) -> Function:
    """Return `func` without the calls that its results do not depend on."""
    needed = {value.name for value in func.sinks}
    live_calls: list[Call] = []
    for call in reversed(func.body):
        if any(value.name in needed for value in call.outputs):
            live_calls.append(call)
            needed.update(value.name for value in call.inputs if value is not None)
    if len(live_calls) == len(func.body):
        return func
    return replace(func, body=tuple(reversed(live_calls)))


def run(module: IRModule) -> IRModule:
    """Apply DCE to every graph function."""
    functions = {
        name: eliminate_dead_calls(func) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    module = replace(module, functions=functions)
    named = referenced_constants(module)
    constants = {name: value for name, value in module.constants.items() if name in named}
    return replace(module, constants=constants)


PASS = Pass("graph-dce", run)
