"""What operators there are: their names elsewhere, element types, limits and schedules.

In: the table of operators and the rules of all schedules. Out: an `Operator` for each, and
docs/operators.md, which a test holds against both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.ir.graph.opdef import OpDef, OpTable
from firmwright.ir.tir.schedule import Rule

_HEAD = ("operator", "TFLite", "ONNX", "element types", "schedules", "limits")
_PAGE = """\
# Operators

Made from the operator files by `firmwright.flows.operators`; a test keeps it current. `firmwright
ops --json` says the same to programs.

{summary}

Under *schedules* stand the kernels beside an operator's own loops, by families of targets. What a
model holds beyond the limits is reported when it is read, all of it at once, each with its place.
How an operator rounds stands in [numerics](numerics.md), how one is added in [adding an
operator](adding-an-operator.md).

{table}"""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as users see it; `schedules` are the names of the rules for it."""

    name: str
    tflite: tuple[str, ...]
    onnx: tuple[str, ...]
    dtypes: tuple[str, ...]
    numerics: tuple[str, ...]
    schedules: tuple[str, ...]
    limits: str
    cases: int


def operators(ops: OpTable, rules: Sequence[Rule]) -> list[Operator]:
    """All of them in name order."""
    return [_operator(opdef, rules) for _, opdef in sorted(ops.items())]


def _operator(opdef: OpDef, rules: Sequence[Rule]) -> Operator:
    return Operator(
        opdef.name,
        _imports(opdef, "tflite:"),
        _imports(opdef, "onnx:"),
        opdef.dtypes,
        tuple(opdef.numerics),
        tuple(dict.fromkeys(rule.name for rule in rules if rule.op == opdef.name)),
        opdef.limits,
        sum(1 for _ in opdef.cases()),
    )


def _imports(opdef: OpDef, prefix: str) -> tuple[str, ...]:
    return tuple(sorted(n.removeprefix(prefix) for n in opdef.imports if n.startswith(prefix)))


def operators_page(ops: OpTable, rules: Sequence[Rule]) -> str:
    """The text of docs/operators.md."""
    found = operators(ops, rules)
    tflite, onnx = (len({n for o in found for n in names(o)}) for names in (_tflite, _onnx))
    summary = f"{len(found)} operators take {tflite} of TFLite's"
    summary += f" and {onnx} of ONNX's." if onnx else "."
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, found)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return _PAGE.format(summary=summary, table=table)


def _tflite(item: Operator) -> tuple[str, ...]:
    return item.tflite


def _onnx(item: Operator) -> tuple[str, ...]:
    return item.onnx


def _row(item: Operator) -> Sequence[str]:
    families = dict.fromkeys(name.split(".")[0] for name in item.schedules)
    return (
        item.name,
        ", ".join(item.tflite),
        ", ".join(item.onnx),
        ", ".join(item.dtypes),
        ", ".join(families),
        item.limits,
    )
