"""Printer of graph functions: one line per call, types at definitions.

    graph @main(%x: i8[1,8] quant(0.5, -3)) -> (%y) {
      %w = const @weights: i8[4,8] quant(0.25, 0)
      %y: i8[1,4] quant(1.0, 0) = fully_connected(%x, %w, none) {keep_dims=true,
          activation="relu"}
    }

State follows the results, with initial constant and next value: `state(%kept: i8[4] =
@zeros -> %next)`.

A value is written in full where it is defined (parameter, `const` line, call output) or
a use differs, which the verifier rejects, and by name elsewhere. `none` is an omitted
optional input.
"""

import re
from collections.abc import Iterable

from firmwright.base.tokenizer import format_global, format_local, quote
from firmwright.ir import syntax
from firmwright.ir.core import UNCONSTRAINED, Span
from firmwright.ir.graph.attributes.base import attrs_to_mapping
from firmwright.ir.graph.nodes import Call, Function, Value

_OP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")


def print_graph(func: Function, page: syntax.IRWriter) -> None:
    defined: dict[str, Value] = {}
    params = ",\n".join(_format_definition(value, defined) for value in func.params)
    states = [_format_definition(state.value, defined) for state in func.state]
    lines: list[str] = []
    for call in func.body:
        lines += _format_call(call, defined)
    uses = []
    for value in func.sinks:
        lines += _new_constants([value], defined)
        uses.append(_format_use(value, defined))
    names = ",\n".join(uses[: len(func.results)])
    next_values = uses[len(func.results) :]
    head = f"graph {format_global(func.name)}({params})\n-> ({names})"
    kept = []
    for state, full, use in zip(func.state, states, next_values, strict=True):
        kept.append(f"{full} =\n{format_global(state.initial)} ->\n{use}")
    if kept:
        head += "\nstate(" + ",\n".join(kept) + ")"
    if func.attrs:
        head += f"\nattrs {syntax.format_attrs(func.attrs)}"
    page.put(head + " {")
    with page.indent():
        for line in lines:
            page.put(line)
    page.line("}")


def _format_call(call: Call, made: dict[str, Value]) -> list[str]:
    constants = _new_constants(call.inputs, made)
    operands = []
    for value in call.inputs:
        operands.append("none" if value is None else _format_use(value, made))
    inputs = ",\n".join(operands)
    outputs = ",\n".join(_format_definition(value, made) for value in call.outputs)
    text = f"{outputs} =\n" if outputs else ""
    text += f"{_format_op(call.op)}({inputs})"
    attrs = attrs_to_mapping(call.attrs)
    if attrs:
        text += f"\n{syntax.format_attrs(attrs)}"
    if call.target:
        text += f"\ntarget({syntax.format_word(call.target)})"
    if call.span != Span(""):
        text += f"\n{syntax.format_span(call.span)}"
    return [*constants, text]


def _format_op(op: str) -> str:
    if op.startswith("@"):
        return format_global(op[1:])
    return op if _OP.match(op) and op not in ("inf", "nan") else quote(op)


def _new_constants(values: Iterable[Value | None], made: dict[str, Value]) -> list[str]:
    lines = []
    for value in values:
        if value is not None and value.constant is not None and value.name not in made:
            made[value.name] = value
            name = f"{format_local(value.name)} = const {format_global(value.constant)}"
            lines.append(f"{name}:\n{_format_placed_type(value)}")
    return lines


def _format_placed_type(value: Value) -> str:
    device = value.virtual_device
    placement = "" if device == UNCONSTRAINED else f"\n{syntax.format_device(device)}"
    return syntax.format_type(value.type) + placement


def _format_definition(value: Value, made: dict[str, Value]) -> str:
    made.setdefault(value.name, value)
    return _format_value(value)


def _format_value(value: Value) -> str:
    text = f"{format_local(value.name)}: {_format_placed_type(value)}"
    if value.constant is None:
        return text
    return f"{text}\nconst {format_global(value.constant)}"


def _format_use(value: Value, made: dict[str, Value]) -> str:
    if made.get(value.name) == value:
        return format_local(value.name)
    return _format_value(value)
