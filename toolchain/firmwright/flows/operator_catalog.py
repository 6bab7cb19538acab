"""What operators there are: their names elsewhere, element types, limits and schedules.

In: the table of operators, the rules of all schedules and the importers of ONNX. Out: an
`SupportedOperator` for each, and docs/operators.md, which a test holds against them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.conformance.registry import cases_of
from firmwright.flows.selftest import EMULATED_BOARDS
from firmwright.frontends.onnx.operators.registry import onnx_importers
from firmwright.ir.graph.opdef import OpDef, OpTable
from firmwright.ir.tir.schedule import Schedule

_HEAD = ("operator", "TFLite", "element types", "cases", "schedules", "limits")
_PAGE = """\
# Operators

Made from the operator files by `firmwright.flows.operator_catalog`; a test keeps it current.
`firmwright ops --json` says the same to programs.

{summary}

{cases}

Under *schedules* stand the kernels beside an operator's own loops, by families of targets. What a
model holds beyond the limits is reported when it is read, all of it at once, each with its place.
How an operator rounds stands in [numerics](numerics.md), how one is added in [adding an
operator](adding-an-operator.md).

{table}
## ONNX

[Models in ONNX](onnx.md) are translated to calls of these operators
([why](decisions/0029-onnx-becomes-our-operators.md)). Translated are

{onnx}

Operators that the standard defines by others, such as Attention, are replaced by their definition.
"""

_CASES = """\
*Cases* are conformance cases: each holds an operator's reference against LiteRT and TFLM, and its
loops and its C against that. All of them run as firmware on {boards} too (`pytest
tests/ops --deep`; by default one of each operator), and `firmwright selftest --board B` runs them
on any board. Operators without cases are those of control flow, of compressed constants and of
ONNX, which have tests of their own.
"""


@dataclass(frozen=True, slots=True)
class SupportedOperator:
    """One operator as users see it; `schedules` are the names of the rules for it.

    `boards` are those on which tests run its cases.
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
    """All of them in name order, but for `custom`, which stands for what there is not."""
    found = sorted(ops.items())
    return [_operator(opdef, rules) for _, opdef in found if opdef.dtypes]


def _operator(opdef: OpDef, rules: Sequence[Schedule]) -> SupportedOperator:
    cases = sum(1 for _ in cases_of(opdef.name))
    return SupportedOperator(
        opdef.name,
        _imports(opdef, "tflite:"),
        opdef.dtypes,
        tuple(opdef.numerics),
        tuple(dict.fromkeys(rule.name for rule in rules if rule.op == opdef.name)),
        opdef.restrictions,
        cases,
        EMULATED_BOARDS if cases else (),
    )


def _imports(opdef: OpDef, prefix: str) -> tuple[str, ...]:
    return tuple(sorted(n.removeprefix(prefix) for n in opdef.imports if n.startswith(prefix)))


def render_operator_page(ops: OpTable, rules: Sequence[Schedule]) -> str:
    """The text of docs/operators.md."""
    found = supported_operators(ops, rules)
    tflite, onnx = len({name for item in found for name in item.tflite}), onnx_operators()
    summary = f"{len(found)} operators take {tflite} of TFLite's and {len(onnx)} of ONNX's."
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, found)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    names = textwrap.fill(f"{', '.join(onnx)}.", 100)
    cases = textwrap.fill(
        " ".join(_CASES.format(boards=" and ".join(EMULATED_BOARDS)).split()),
        100,
        break_on_hyphens=False,
    )
    return _PAGE.format(summary=summary, cases=cases, table=table, onnx=names)


def onnx_operators() -> tuple[str, ...]:
    """ONNX's operators that are translated; those that it defines by these come on top."""
    return tuple(sorted(onnx_importers()))


def _row(item: SupportedOperator) -> Sequence[str]:
    families = dict.fromkeys(name.split(".")[0] for name in item.schedules)
    return (
        item.name,
        ", ".join(item.tflite),
        ", ".join(item.dtypes),
        str(item.cases or ""),
        ", ".join(families),
        item.limits,
    )
