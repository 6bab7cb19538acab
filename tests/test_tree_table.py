"""The table of tree ensembles in docs/models.md is that of the measured file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "models.md"
FORMS = ("speed", "balanced", "emlearn inline", "emlearn table")
BEGIN, END = "<!-- list: tree ensembles -->\n", "<!-- end: tree ensembles -->\n"


def measured() -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """Return the rows of each ensemble and board by form."""
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    path = ROOT / "benchmarks" / "peers" / "tree_ensembles.csv"
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["ensemble"], row["board"]), {})[row["form"]] = row
    return found


def ensemble_table() -> str:
    lines = [
        "| ensemble | board | `speed` | `balanced` | emlearn, inline | emlearn, table |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for (ensemble, board), rows in measured().items():
        cells = [_cell(rows.get(form)) for form in FORMS]
        lines.append(f"| {ensemble} | {board} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, str] | None) -> str:
    if row is None:
        return "–"
    shown = f"{int(row['instructions']):,} / {int(row['flash_bytes']):,}"
    equal = float(row["equal"])
    return shown if equal == 1 else f"{shown} ({equal:.0%})"


def test_the_table_of_ensembles_is_current(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    current = head + BEGIN + ensemble_table() + END + tail
    if request.config.getoption("--update-golden"):
        PAGE.write_text(current, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == current, (
        "--update-golden rewrites the table"
    )


def test_every_result_of_an_ensemble_equals_that_of_scikit_learn() -> None:
    for key, rows in measured().items():
        for form in ("speed", "balanced"):
            if form in rows:
                assert rows[form]["equal"] == "1.00", (*key, form)
