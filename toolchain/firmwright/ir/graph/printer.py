"""Printer of graph functions: one line per call, types at definitions.

    graph @main(%x: i8[1,8] quant(0.5, -3)) -> (%y) {
      %w = const @weights: i8[4,8] quant(0.25, 0)
      %y: i8[1,4] quant(1.0, 0) = fully_connected(%x, %w, none) {activation="relu"}
    }

State follows the results, with its initial constant and its next value: `state(%kept: i8[4] =
@zeros -> %next)`.

A value is written in full where it is defined (parameter, `const` line, call output) and by name
where it is used. A use that differs from the definition, which the verifier rejects, is also
written in full. `none` is an omitted optional input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from firmwright.base.tokenizer import format_global, format_local, quote
from firmwright.ir.core import UNCONSTRAINED, Span
from firmwright.ir.graph.nodes import Call, Function, Value
from firmwright.ir.syntax import (
    IRWriter,
    format_attrs,
    format_device,
    format_span,
    format_type,
    format_word,
)

_OP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z")


def print_graph(func: Function, page: IRWriter) -> None:
    defined: dict[str, Value] = {}
    params = ",\n".join(_format_definition(value, defined) for value in func.params)
    states = [_format_definition(state.value, defined) for state in func.state]
    body = [_format_call(call, defined) for call in func.body]
    results = [
        (_new_constants([value], defined), _format_use(value, defined)) for value in func.results
    ]
    names = ",\n".join(use for _, use in results)
    becomes = [
        (_new_constants([state.next], defined), _format_use(state.next, defined))
        for state in func.state
    ]
    results += becomes
    states_text = [
        f"{full} =\n{format_global(state.initial)} ->\n{use}"
        for state, full, (_, use) in zip(func.state, states, becomes, strict=True)
    ]
    state = "\nstate(" + ",\n".join(states_text) + ")" if states_text else ""
    attrs = f"\nattrs {format_attrs(func.attrs)}" if func.attrs else ""
    page.put(f"graph {format_global(func.name)}({params})\n-> ({names}){state}{attrs} {{")
    with page.indent():
        for constants, text in body:
            for line in constants:
                page.put(line)
            page.put(text)
        for constants, _ in results:
            for line in constants:
                page.put(line)
    page.line("}")


def _format_call(call: Call, made: dict[str, Value]) -> tuple[list[str], str]:
    constants = _new_constants(call.inputs, made)
    inputs = ",\n".join("none" if v is None else _format_use(v, made) for v in call.inputs)
    outputs = ",\n".join(_format_definition(value, made) for value in call.outputs)
    text = (
        f"{outputs} =\n{_format_op(call.op)}({inputs})"
        if outputs
        else f"{_format_op(call.op)}({inputs})"
    )
    if call.attrs:
        text += f"\n{format_attrs(call.attrs)}"
    if call.target:
        text += f"\ntarget({format_word(call.target)})"
    return constants, text if call.span == Span("") else f"{text}\n{format_span(call.span)}"


def _format_op(op: str) -> str:
    if op.startswith("@"):
        return format_global(op[1:])
    return op if _OP.match(op) and op not in ("inf", "nan") else quote(op)


def _new_constants(values: Iterable[Value | None], made: dict[str, Value]) -> list[str]:
    lines = []
    for value in values:
        if value is not None and value.constant is not None and value.name not in made:
            made[value.name] = value
            lines.append(f"{format_local(value.name)} = {_format_constant(value)}")
    return lines


def _format_constant(value: Value) -> str:
    device = "" if value.virtual_device == UNCONSTRAINED else format_device(value.virtual_device)
    text = f"const {format_global(value.constant or '')}:\n{format_type(value.type)}"
    return f"{text}\n{device}" if device else text


def _format_definition(value: Value, made: dict[str, Value]) -> str:
    made.setdefault(value.name, value)
    return _format_value(value)


def _format_value(value: Value) -> str:
    text = f"{format_local(value.name)}: {format_type(value.type)}"
    if value.virtual_device != UNCONSTRAINED:
        text += f"\n{format_device(value.virtual_device)}"
    return text if value.constant is None else f"{text}\nconst {format_global(value.constant)}"


def _format_use(value: Value, made: dict[str, Value]) -> str:
    return format_local(value.name) if made.get(value.name) == value else _format_value(value)
