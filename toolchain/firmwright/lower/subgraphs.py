"""Lowering of the graph functions that calls of `if` and `while` run.

Their calls become calls of PrimFuncs, views and further control flow. Each call gets
its best candidate in isolation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from firmwright.ir.bind_requests import bind_constants
from firmwright.ir.graph.attributes.base import NO_ATTRS
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize
from firmwright.lower.lowering import Lowering
from firmwright.ops.schedule import LoweringCandidate


def lower_subgraphs(
    module: IRModule, lowering_of: Callable[[IRModule], Lowering]
) -> IRModule:
    """Return the module with all graph functions except the entry lowered."""
    for function in module.graphs[1:]:
        one = replace(module, entry_name=function.name)
        lowering = replace(lowering_of(one), prefix=f"{function.name}_")
        module = _lower_function(module, function, lowering)
    return module


def _lower_function(
    module: IRModule, function: Function, lowering: Lowering
) -> IRModule:
    def cost(item: LoweringCandidate) -> tuple[int, int]:
        if module.settings.objective.minimize is Minimize.SIZE:
            return item.image_bytes, item.time
        return item.time, item.scratch_bytes

    body: list[Call] = []
    read: dict[str, Sequence[Value | None]] = {}
    functions, constants = dict(module.functions), dict(module.constants)
    for item in lowering.calls():
        if not item.candidates:
            body.append(item.call)
            continue
        best = min(item.candidates, key=cost)
        functions[best.function.name] = best.function
        constants.update(best.constants)
        read[best.function.name] = item.call.inputs
        called = f"@{best.function.name}"
        inputs = item.call.variables
        body.append(replace(item.call, op=called, inputs=inputs, attrs=NO_ATTRS))
    functions[function.name] = replace(function, body=tuple(body))
    module = replace(module, functions=functions, constants=constants)
    for kernel, values in read.items():
        module = bind_constants(module, values, kernel)
    return module
