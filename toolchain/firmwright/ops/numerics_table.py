"""The table operator x profile of docs/numerics.md, made from the cells in the operator files."""

from __future__ import annotations

from collections.abc import Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.graph.opdef import NumericsSpec, OpDef, OpTable

BEGIN = "<!-- made by firmwright.ops.numerics_table from the operator files -->"
END = "<!-- end -->"

_HEAD = ("operator", "TFLite", "element types", "litert", "tflm")


def format_numerics_table(ops: OpTable) -> str:
    """Markdown, a row for each operator that a profile has, in name order."""
    rows = [
        _HEAD,
        ("---",) * len(_HEAD),
        *(_row(ops[name]) for name in sorted(ops) if ops[name].numerics),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def replace_table(page: str, ops: OpTable) -> str:
    """`page` with what stands between its marks replaced by the table."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise InternalError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{format_numerics_table(ops)}\n{END}{after}"


def _row(opdef: OpDef) -> Sequence[str]:
    foreign = ", ".join(name.removeprefix("tflite:") for name in opdef.imports) or "(by its types)"
    litert, tflm = opdef.numerics.get("litert"), opdef.numerics.get("tflm")
    same = "the same" if litert is not None and litert == tflm else _cell(tflm)
    return (opdef.name, foreign, ", ".join(opdef.dtypes), _cell(litert), same)


def _cell(cell: NumericsSpec | None) -> str:
    if cell is None:
        return "not in this profile"
    rounding = "no requantise" if cell.rounding is None else f"rounds {cell.rounding.value}"
    return f"{rounding}; {cell.accumulator}; {cell.source}"
