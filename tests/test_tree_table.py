"""The tables of tree ensembles and classical models in docs/models.md are measured."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "models.md"
FORMS = ("speed", "balanced", "emlearn inline", "emlearn table")
PEERS = ("firmwright", "emlearn", "micromlgen", "m2cgen")


def measured(file: str, first: str) -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """Return the rows of a file with the same first column and board, by form."""
    found: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    path = ROOT / "benchmarks" / "peers" / file
    with path.open(encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            found.setdefault((row[first], row["board"]), {})[row["form"]] = row
    return found


def ensembles() -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    return measured("tree_ensembles.csv", "ensemble")


def classical_models() -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    return measured("classical_models.csv", "model")


def ensemble_table() -> str:
    lines = [
        "| ensemble | board | `speed` | `balanced` | emlearn, inline | emlearn, table |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for (ensemble, board), rows in ensembles().items():
        cells = [_cell(rows.get(form)) for form in FORMS]
        lines.append(f"| {ensemble} | {board} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def model_table() -> str:
    lines = [
        "| model | Firmwright | emlearn | micromlgen | m2cgen |",
        "| --- | --: | --: | --: | --: |",
    ]
    for (model, _), rows in classical_models().items():
        cells = [_cell(rows.get(form)) for form in PEERS]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: dict[str, str] | None) -> str:
    if row is None:
        return "–"
    shown = f"{int(row['instructions']):,} / {int(row['flash_bytes']):,}"
    equal = float(row["equal"])
    return shown if equal == 1 else f"{shown} ({equal:.0%})"


@pytest.mark.parametrize(
    ("name", "table"),
    [("tree ensembles", ensemble_table), ("classical models", model_table)],
)
def test_the_table_is_current(
    name: str, table: Callable[[], str], request: pytest.FixtureRequest
) -> None:
    begin, end = f"<!-- list: {name} -->\n", f"<!-- end: {name} -->\n"
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    current = head + begin + table() + end + tail
    if request.config.getoption("--update-golden"):
        PAGE.write_text(current, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == current, (
        "--update-golden rewrites the table"
    )


def test_every_result_equals_that_of_scikit_learn() -> None:
    for key, rows in (ensembles() | classical_models()).items():
        for form in ("speed", "balanced", "firmwright"):
            if form in rows:
                assert rows[form]["equal"] == "1.00", (*key, form)
