"""Fusion of two expressions if the second is the only reader of the first.

Both must have the same shape, so that nothing is computed twice. A float relu or relu6
counts as an expression. Each step rounds as before.
"""

from dataclasses import replace

from firmwright.base.dtypes import FLOAT32
from firmwright.ir.graph.attributes.values import ExpressionAttrs
from firmwright.ir.graph.devices import is_placed
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ops.expression_language import INPUT_NAMES
from firmwright.ops.formula_texts import compose_expressions
from firmwright.passes.map_functions import count_uses, graph_pass

_AS_FORMULA = {"relu": "max(0.0, a)", "relu6": "min(6.0, max(0.0, a))"}
_INPUTS_MAX = 8
_TEXT_MAX = 300


def _formula(call: Call) -> str | None:
    if call.op == "expression":
        return call.attributes(ExpressionAttrs).formula
    source = call.inputs[0] if call.inputs else None
    if source is None or source.type.dtype != FLOAT32:
        return None
    return _AS_FORMULA.get(call.op)


def fuse_expressions(function: Function) -> Function:
    if not any(call.op == "expression" for call in function.body):
        return function
    count = count_uses(function)
    makers: dict[str, Call] = {}
    body: list[Call] = []
    for call in function.body:
        current = call
        while (producer := _inner(current, makers, count)) is not None:
            fused = _fused(current, producer[0], producer[1])
            if fused is None:
                break
            body.remove(producer[1])
            current = fused
        body.append(current)
        makers[current.outputs[0].name] = current
    return replace(function, body=tuple(body))


def _inner(
    call: Call, makers: dict[str, Call], count: dict[str, int]
) -> tuple[int, Call] | None:
    if _formula(call) is None:
        return None
    for index, value in enumerate(call.inputs):
        maker = makers.get(value.name) if value is not None else None
        if value is None or maker is None or count[value.name] != 1:
            continue
        if is_placed(value):
            continue
        same = value.type.shape == call.outputs[0].type.shape
        if same and _formula(maker) is not None and call.target == maker.target:
            return index, maker
    return None


def _fused(outer: Call, index: int, inner: Call) -> Call | None:
    inputs: list[Value] = []

    def place(value: Value | None) -> str:
        assert value is not None  # expressions have no optional inputs
        if value not in inputs:
            inputs.append(value)
        return INPUT_NAMES[inputs.index(value)]

    outer_names: dict[str, str] = {}
    for number, value in enumerate(outer.inputs):
        if number != index:
            outer_names[INPUT_NAMES[number]] = place(value)
    inner_names: dict[str, str] = {}
    for number, value in enumerate(inner.inputs):
        inner_names[INPUT_NAMES[number]] = place(value)
    first, second = _formula(inner), _formula(outer)
    if first is None or second is None or len(inputs) > _INPUTS_MAX:
        return None
    result = INPUT_NAMES[index]
    formula = compose_expressions(first, inner_names, second, outer_names, result)
    if len(formula) > _TEXT_MAX:
        return None
    attrs = ExpressionAttrs(formula=formula)
    return replace(outer, op="expression", inputs=tuple(inputs), attrs=attrs)


PASS = graph_pass("fuse-expressions", fuse_expressions)
