"""The table of operators and profiles in docs/numerics.md, built from operator definitions."""

from collections.abc import Sequence

from firmwright.base.errors import InternalError
from firmwright.ir.graph.opdef import NumericsSpec, OpDef, OpTable

BEGIN = "<!-- made by firmwright.ops.numerics_table from the operator files -->"
END = "<!-- end -->"

_HEAD = ("operator", "TFLite", "element types", "litert", "tflm")


def format_numerics_table(ops: OpTable) -> str:
    """Return Markdown with one row for each operator that has a profile, sorted by name."""
    rows = [
        _HEAD,
        ("---",) * len(_HEAD),
        *(_row(ops[name]) for name in sorted(ops) if ops[name].numerics),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def replace_table(page: str, ops: OpTable) -> str:
    """Return `page` with the text between the markers replaced by the table."""
    head, mark, remainder = page.partition(BEGIN)
    _, end, tail = remainder.partition(END)
    if not mark or not end:
        raise InternalError(f"the page lacks {BEGIN} or {END}")
    return f"{head}{BEGIN}\n\n{format_numerics_table(ops)}\n{END}{tail}"


def _row(op: OpDef) -> Sequence[str]:
    names = ", ".join(name.removeprefix("tflite:") for name in op.imports) or "(by its types)"
    litert, tflm = op.numerics.get("litert"), op.numerics.get("tflm")
    tflm_text = "the same" if litert is not None and litert == tflm else _cell(tflm)
    return (op.name, names, ", ".join(op.dtypes), _cell(litert), tflm_text)


def _cell(cell: NumericsSpec | None) -> str:
    if cell is None:
        return "not in this profile"
    rounding = "no requantize" if cell.rounding is None else f"rounds {cell.rounding.value}"
    return f"{rounding}; {cell.accumulator}; {cell.source}"
