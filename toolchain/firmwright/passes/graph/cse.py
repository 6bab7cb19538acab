"""Common subexpression elimination on the graph.

Calls with equal operator, attributes, inputs and output types are merged; constants
with equal contents in the same place count as equal. Calls that define a function
result or a next state stay, since those have their own memory, as do calls that define
a tensor that the user placed.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.passes.map_functions import map_graph_functions, names_of


def eliminate_common_calls(
    function: Function, constants: Mapping[str, Constant], *, are_apart: bool = False
) -> Function:
    """Merge equal calls of `function`; `are_apart` keeps equal constants distinct."""
    sinks = names_of(function.sinks)
    first: dict[Hashable, Call] = {}
    instead: dict[str, Value] = {}
    body: list[Call] = []

    def known(value: Value | None) -> Value | None:
        return value if value is None else instead.get(value.name, value)

    for call in function.body:
        inputs = tuple(map(known, call.inputs))
        current = call if inputs == call.inputs else replace(call, inputs=inputs)
        key = _key(current, constants, are_apart=are_apart)
        same = first.setdefault(key, current)
        if same is current or called_functions(current) or _has_place(current, sinks):
            body.append(current)
            continue
        for value, equal in zip(call.outputs, same.outputs, strict=True):
            instead[value.name] = equal
    if len(body) == len(function.body):
        return function
    return replace(function, body=tuple(body))


def _has_place(call: Call, sinks: Collection[str]) -> bool:
    """Return whether an output of `call` has memory of its own."""
    return any(value.name in sinks or is_placed(value) for value in call.outputs)


def _key(call: Call, constants: Mapping[str, Constant], *, are_apart: bool) -> Hashable:
    def operand(value: Value | None) -> Hashable:
        if value is None or value.constant is None:
            return value
        constant = constants[value.constant]
        content = value.constant if are_apart else constant.digest
        return content, value.type, value.virtual_device

    inputs = tuple(map(operand, call.inputs))
    outputs = tuple((value.type, value.virtual_device) for value in call.outputs)
    # Compared as text to distinguish 0.0 from -0.0 and 1 from true.
    attrs = repr(call.attrs)
    return call.op, call.target, attrs, inputs, outputs


def run(module: IRModule) -> IRModule:
    constants = module.constants
    are_apart = keeps_constants_apart(module)

    def change(function: Function) -> Function:
        return eliminate_common_calls(function, constants, are_apart=are_apart)

    return map_graph_functions(module, change)


PASS = Pass("cse", run)
