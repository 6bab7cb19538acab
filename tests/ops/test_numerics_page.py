"""docs/reference/numerics.md agrees with the operator definitions."""

from __future__ import annotations

from pathlib import Path

from firmwright.frontends.tflite.operators.registry import tflite_names
from firmwright.ops.opdef import OpDef
from firmwright.ops.registry import op_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "numerics.md"
ABSENT, ALIKE = "not in this profile", "same"


def _table() -> dict[str, list[str]]:
    _, _, text = PAGE.read_text(encoding="utf-8").partition("\n## Table\n")
    lines = [
        line
        for line in text.partition("\n## ")[0].splitlines()
        if line.startswith("| ")
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in rows[2:]}


def _described(op: OpDef, cells: list[str]) -> tuple[str, str, str, str]:
    """The row of an operator; only the text of its arithmetic is the page's own."""
    names = ", ".join(tflite_names(op.name)) or "(by its types)"
    litert, tflm = (
        cell if profile in op.profiles and cell not in (ABSENT, ALIKE) else ABSENT
        for profile, cell in zip(("litert", "tflm"), cells[2:], strict=True)
    )
    tflm = ALIKE if op.numerics == "both" else tflm
    return names, ", ".join(op.dtypes), litert, tflm


def test_every_operator_with_a_profile_has_its_row() -> None:
    table = _table()
    ops = {name: op for name, op in op_table().items() if op.profiles}
    assert list(table) == sorted(ops)
    assert table == {
        name: [*_described(ops[name], cells)] for name, cells in table.items()
    }
