"""The supported operators: names in other formats, element types, limits and schedules."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.conformance.registry import conformance_cases
from firmwright.flows.operator_conformance import EMULATED_BOARDS
from firmwright.frontends.onnx.contrib_expansion import EXPANDED_OPERATORS
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.ir.graph.opdef import OpDef, OpTable
from firmwright.ir.tir.schedule import Schedule

_HEAD = ("operator", "TFLite", "element types", "cases", "schedules", "limits")
_PAGE = """\
# Operators

Generated from the operator definitions by `firmwright.flows.operator_catalog`; a test keeps this
page up to date. `firmwright ops --json` prints the same data.

{summary}

{cases}

The *schedules* column lists the families of targets with optimized kernels. When a model is read,
one error lists every violation of the limits with its location. Quantized uint8 of TFLite is
computed as int8. See [numerics](numerics.md) for rounding, and
[adding an operator](adding-an-operator.md).

{table}
## ONNX

[ONNX models](onnx.md) are translated to calls of these operators
([why](decisions/0029-onnx-translation.md)). These ONNX operators are supported directly:

{onnx}

Operators that the standard defines as functions of others, such as Attention, are expanded first.
"""

_CASES = """\
*Cases* are conformance cases: each compares an operator's reference with LiteRT and TFLM, and its
loops and its C with the reference. All of them also run as firmware on {boards} (`pytest
tests/ops --deep`; by default one for each operator), and `firmwright selftest --board B` runs them
on any board. Operators without cases (control flow, compressed constants, ONNX only) have separate
tests.
"""


@dataclass(frozen=True, slots=True)
class SupportedOperator:
    """An operator as users see it.

    `schedules` are the names of its schedules, `boards` those on which tests run its cases.
    """

    name: str
    tflite: tuple[str, ...]
    dtypes: tuple[str, ...]
    numerics: tuple[str, ...]
    schedules: tuple[str, ...]
    limits: str
    cases: int
    boards: tuple[str, ...]


def supported_operators(ops: OpTable, rules: Sequence[Schedule]) -> list[SupportedOperator]:
    """Return all operators except `custom`, in order of their names."""
    ordered = sorted(ops.items())
    return [_operator(opdef, rules) for _, opdef in ordered if opdef.dtypes]


def _operator(opdef: OpDef, rules: Sequence[Schedule]) -> SupportedOperator:
    cases = sum(1 for _ in conformance_cases(opdef.name))
    tflite = sorted(n.removeprefix("tflite:") for n in opdef.imports if n.startswith("tflite:"))
    return SupportedOperator(
        name=opdef.name,
        tflite=tuple(tflite),
        dtypes=opdef.dtypes,
        numerics=tuple(opdef.numerics),
        schedules=tuple(dict.fromkeys(rule.name for rule in rules if rule.op == opdef.name)),
        limits=opdef.restrictions,
        cases=cases,
        boards=EMULATED_BOARDS if cases else (),
    )


def render_operator_page(ops: OpTable, rules: Sequence[Schedule]) -> str:
    """Return the text of docs/operators.md, which a test keeps up to date."""
    operators = supported_operators(ops, rules)
    tflite, onnx = len({name for item in operators for name in item.tflite}), onnx_operators()
    imported = f"{tflite} TFLite operators and {len(onnx)} ONNX operators"
    summary = f"{len(operators)} operators implement {imported}."
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, operators)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    names = textwrap.fill(f"{', '.join(onnx)}.", 100)
    cases = " ".join(_CASES.format(boards=" and ".join(EMULATED_BOARDS)).split())
    cases = textwrap.fill(cases, 100, break_on_hyphens=False)
    return _PAGE.format(summary=summary, cases=cases, table=table, onnx=names)


def onnx_operators() -> tuple[str, ...]:
    return tuple(sorted({*onnx_importers(), *EXPANDED_OPERATORS}))


def _row(item: SupportedOperator) -> Sequence[str]:
    families = ", ".join(dict.fromkeys(name.split(".")[0] for name in item.schedules))
    tflite, dtypes = ", ".join(item.tflite), ", ".join(item.dtypes)
    return item.name, tflite, dtypes, str(item.cases or ""), families, item.limits
