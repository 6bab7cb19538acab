"""Lowering of the graph functions that calls of `if` and `while` run.

Their calls become calls of PrimFuncs, views and further control flow. Each call gets its best
candidate in isolation, since it is unknown which branch runs and how often.
"""

from collections.abc import Callable
from dataclasses import replace

from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.lower.lowering import Lowering


def lower_subgraphs(module: IRModule, lowering_of: Callable[[IRModule], Lowering]) -> IRModule:
    """Return the module with all graph functions except the entry lowered."""
    entry = module.entry.name
    for name, function in module.functions.items():
        if name != entry and isinstance(function, Function):
            lowering = replace(lowering_of(module.with_attrs(entry=name)), prefix=f"{name}_")
            module = _lower_function(module, function, lowering)
    return module


def _lower_function(module: IRModule, function: Function, lowering: Lowering) -> IRModule:
    def cost(item: LoweringCandidate) -> tuple[int, int]:
        if module.attrs.get("optimize") == "size":
            return item.image_bytes, item.time
        return item.time, item.scratch_bytes

    body: list[Call] = []
    functions, constants = dict(module.functions), dict(module.constants)
    for item in lowering.calls():
        if not item.candidates:
            body.append(item.call)
            continue
        best = min(item.candidates, key=cost)
        functions[best.function.name] = best.function
        constants.update(best.constants)
        called = f"@{best.function.name}"
        body.append(replace(item.call, op=called, inputs=item.call.variables, attrs={}))
    functions[function.name] = replace(function, body=tuple(body))
    return replace(module, functions=functions, constants=constants)
