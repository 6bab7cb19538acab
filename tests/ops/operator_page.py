"""The page docs/reference/operators.md, written from the operator definitions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from firmwright.conformance.case_tables import EMULATED_BOARDS
from firmwright.flows.verify.operator_catalog import (
    SupportedAttribute,
    SupportedOperator,
    supported_operators,
)
from firmwright.flows.verify.operator_names import onnx_operators
from firmwright.ir.core import Attr
from firmwright.ir.syntax import format_attr
from firmwright.ops.opdef import OpTable
from firmwright.ops.schedule import Schedule

_HEAD = ("operator", "TFLite", "element types", "cases", "schedules", "limits")
_GROUP_NAMED = 8
"""Larger groups of operators are listed below their heading."""
_PAGE = """\
# Operators

Generated from the operator definitions; a test keeps this page up to date. `firmwright ops --json`
prints the same data.

{summary}

{cases}

The *schedules* column lists the families of targets with optimized kernels. When a model is read,
one error lists every violation of the limits with its location. Quantized uint8 of TFLite is
computed as int8. See [numerics](numerics.md) for rounding, and
[adding an operator](../developing/adding-an-operator.md).

{table}
## Inputs, results and attributes

The calls of these operators in [module text](fwir.md) and in `GraphBuilder.call`. An input or a result
with `?` may be absent, one with `...` repeats. Attributes with a default may be omitted.

{attributes}
## Semantics

What the operators compute, by the file of Firmwright that defines them. Layouts are those of TFLite (NHWC, weights OHWI)
unless a text says otherwise. [Numerics](numerics.md) has the exact arithmetic of quantized operators in each profile.

{semantics}
## ONNX

[ONNX models](onnx.md) are translated to calls of these operators
([why](../decisions/0029-onnx-translation.md)). These ONNX operators are supported directly:

{onnx}

Operators that the standard defines as functions of others, such as Attention, are expanded first.
"""

_CASES = """\
*Cases* are conformance cases: each compares an operator's reference with LiteRT and TFLM, and its
loops and its C with the reference. All of them also run as firmware on {boards} (`pytest
tests/ops --deep`; by default one for every third operator), and `firmwright selftest --board B` runs them
on any board. Operators without cases (control flow, compressed constants, ONNX only) have separate
tests.
"""


def render_operator_page(ops: OpTable, rules: Sequence[Schedule]) -> str:
    """Return the text of docs/reference/operators.md."""
    operators = supported_operators(ops, rules)
    tflite, onnx = (
        len({name for item in operators for name in item.tflite}),
        onnx_operators(),
    )
    imported = f"{tflite} TFLite operators and {len(onnx)} ONNX operators"
    summary = f"{len(operators)} operators implement {imported}."
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, operators)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    names = textwrap.fill(f"{', '.join(onnx)}.", 100)
    cases = " ".join(_CASES.format(boards=" and ".join(EMULATED_BOARDS)).split())
    cases = textwrap.fill(cases, 100, break_on_hyphens=False)
    calls = "\n".join(_group(group) for group in _groups(operators))
    return _PAGE.format(
        summary=summary,
        cases=cases,
        table=table,
        attributes=calls,
        semantics="\n".join(_semantics(operators)),
        onnx=names,
    )


def _semantics(operators: Sequence[SupportedOperator]) -> Iterator[str]:
    """Yield the text of each file that defines operators, in order of its path."""
    by_source: dict[str, list[SupportedOperator]] = {}
    for item in operators:
        by_source.setdefault(item.source, []).append(item)
    for source, items in sorted(by_source.items()):
        names = ", ".join(item.name for item in items)
        link = f"[{source}](../../toolchain/firmwright/{source})"
        yield f"### {source}\n\n{names} ({link}):\n"
        yield f"```text\n{items[0].semantics}\n```\n"


def _groups(operators: Sequence[SupportedOperator]) -> list[list[SupportedOperator]]:
    """Group the operators with equal inputs and attributes, in order of the first."""
    groups: dict[object, list[SupportedOperator]] = {}
    for item in operators:
        signature = item.inputs, item.results, item.attributes
        groups.setdefault(signature, []).append(item)
    return list(groups.values())


def _group(group: Sequence[SupportedOperator]) -> str:
    names, first = ", ".join(item.name for item in group), group[0]
    inputs = ", ".join(f"`{name}`" for name in first.inputs) or "none"
    inputs += f". Results: {', '.join(f'`{name}`' for name in first.results)}"
    lines = [
        f"### {names}"
        if len(group) < _GROUP_NAMED
        else f"### {group[0].name} and others",
        "",
    ]
    if len(group) >= _GROUP_NAMED:
        lines += [f"{names}.", ""]
    lines.append(
        f"Inputs: {inputs}."
        if first.attributes
        else f"Inputs: {inputs}. No attributes."
    )
    if first.attributes:
        rows = [("attribute", "kind", "default", "meaning"), ("---",) * 4]
        rows += [_attribute_row(item) for item in first.attributes]
        lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def _attribute_row(item: SupportedAttribute) -> tuple[str, str, str, str]:
    default = (
        ""
        if item.is_required
        else "absent"
        if item.default is None
        else _text(item.default)
    )
    return f"`{item.name}`", item.kind, default, item.meaning


def _text(value: Attr) -> str:
    return f"`{format_attr(value)}`"


def _row(item: SupportedOperator) -> Sequence[str]:
    general = (".unrolled", ".requantized", ".in_line", ".lanes")
    names = [name for name in item.schedules if not name.endswith(general)]
    families = ", ".join(dict.fromkeys(name.split(".")[0] for name in names))
    tflite, dtypes = ", ".join(item.tflite), ", ".join(item.dtypes)
    return item.name, tflite, dtypes, str(item.cases or ""), families, item.limits
