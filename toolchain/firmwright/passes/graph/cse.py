"""Common subexpression elimination on the graph.

Calls with equal operator, attributes, inputs and output types are merged; constants
with equal contents in the same place count as equal. Calls that define a function
result or a next state stay, since those have their own memory, as do calls that define
a tensor that the user placed.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace

from firmwright.ir.core import Constant
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value, called_functions
from firmwright.ir.module import IRModule, Pass
from firmwright.ir.program_record import keeps_constants_apart
from firmwright.passes.map_functions import map_graph_functions


def eliminate_common_calls(
    function: Function, constants: Mapping[str, Constant], *, are_apart: bool = False
) -> Function:
    """Merge the equal calls of `function`; if `are_apart`, equal constants are
    different ones.
    """
    sinks = {value.name for value in function.sinks}
    first: dict[Hashable, Call] = {}
    instead: dict[str, Value] = {}
    body: list[Call] = []

    def known(value: Value | None) -> Value | None:
        return value if value is None else instead.get(value.name, value)

    for call in function.body:
        inputs = tuple(map(known, call.inputs))
        current = call if inputs == call.inputs else replace(call, inputs=inputs)
        same = first.setdefault(_key(current, constants, are_apart=are_apart), current)
        is_kept = any(
            value.name in sinks or is_placed(value) for value in current.outputs
        )
        if same is current or called_functions(current) or is_kept:
            body.append(current)
        else:
            instead |= {
                v.name: w for v, w in zip(call.outputs, same.outputs, strict=True)
            }
    return (
        function
        if len(body) == len(function.body)
        else replace(function, body=tuple(body))
    )


def _key(call: Call, constants: Mapping[str, Constant], *, are_apart: bool) -> Hashable:
    def operand(value: Value | None) -> Hashable:
        if value is None or value.constant is None:
            return value
        constant = constants[value.constant]
        content = value.constant if are_apart else constant.digest
        return content, value.type, value.virtual_device

    outputs = tuple((value.type, value.virtual_device) for value in call.outputs)
    # Compared as text to distinguish 0.0 from -0.0 and 1 from true.
    return (
        call.op,
        call.target,
        repr(call.attrs),
        tuple(map(operand, call.inputs)),
        outputs,
    )


def run(module: IRModule) -> IRModule:
    are_apart = keeps_constants_apart(module)
    return map_graph_functions(
        module,
        lambda function: eliminate_common_calls(
            function, module.constants, are_apart=are_apart
        ),
    )


PASS = Pass("cse", run)
