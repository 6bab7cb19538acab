"""Removes calls of the graph whose outputs nobody reads, and constants that nothing names then.

In: a module with graph functions. Out: the same results from fewer calls. Operators are pure, so
any call without a reader may go; `device_copy` and calls of PrimFuncs (`@name`) are no exception.
"""

from __future__ import annotations

from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule, Pass
from firmwright.passes.tir.dce import referenced_constants


def eliminate_dead_calls(func: Function) -> Function:
    """`func` without the calls that its results do not depend on."""
    needed = {value.name for value in func.sinks}
    kept: list[Call] = []
    for call in reversed(func.body):
        if any(value.name in needed for value in call.outputs):
            kept.append(call)
            needed.update(value.name for value in call.inputs if value is not None)
    if len(kept) == len(func.body):
        return func
    return replace(func, body=tuple(reversed(kept)))


def run(module: IRModule) -> IRModule:
    """Prunes every graph function."""
    functions = {
        name: eliminate_dead_calls(func) if isinstance(func, Function) else func
        for name, func in module.functions.items()
    }
    if all(functions[name] is func for name, func in module.functions.items()):
        return module
    module = replace(module, functions=functions)
    named = referenced_constants(module)
    kept = {name: value for name, value in module.constants.items() if name in named}
    return replace(module, constants=kept)


PASS = Pass("graph-dce", run)
