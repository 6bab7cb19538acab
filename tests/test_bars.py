"""What a model may cost at most: bars beside the rival's figures, and our own budgets.

`benchmarks/budgets.csv` holds what each int8 model took when it was last written; a change that
makes one dearer fails here, one that makes it cheaper is written down with `--update-golden`, so
that the difference stands in review. Another compiler version may differ by a little: SLACK.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.bench.measure import Row, measure
from firmwright.bench.peers import read_peers

BUDGETS = Path(__file__).parents[1] / "benchmarks" / "budgets.csv"
BOARD = "mps2-an386"
SLACK = 1.02
MODELS = (
    "kws_ref_model.tflite",
    "vww_96_int8.tflite",
    "pretrainedResnet_quant.tflite",
    "ad01_int8.tflite",
    "str_ww_ref_model.tflite",
)
COLUMNS = ("model", "board", "instructions", "workspace_bytes", "flash_bytes")

pytestmark = [pytest.mark.qemu, pytest.mark.models]


def _costs(row: Row) -> dict[str, str]:
    values = (row.model, row.board, row.count, row.workspace_bytes, row.flash_bytes)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _budget(model: str) -> dict[str, str]:
    with BUDGETS.open(encoding="utf-8", newline="") as file:
        return next(row for row in csv.DictReader(file) if row["model"] == model)


def _write_budget(costs: dict[str, str]) -> None:
    known: dict[str, dict[str, str]] = {}
    if BUDGETS.exists():
        with BUDGETS.open(encoding="utf-8", newline="") as file:
            known = {row["model"]: row for row in csv.DictReader(file)}
    known[costs["model"]] = costs
    with BUDGETS.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(known[model] for model in sorted(known))


@pytest.mark.parametrize("model", MODELS)
def test_an_int8_model_stays_below_the_bars_and_within_its_budget(
    model: str, model_path: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    (row,) = measure([model_path(model)], [BOARD], read_peers())
    assert row.count is not None, row.problem
    assert row.ratio is not None
    assert row.ratio <= 1.5
    assert row.workspace_bytes is not None
    assert row.rival.workspace_bytes is not None
    assert row.workspace_bytes <= row.rival.workspace_bytes
    costs = _costs(row)
    if request.config.getoption("--update-golden"):
        _write_budget(costs)
    budget = _budget(model)
    for column in COLUMNS[2:]:
        assert int(costs[column]) <= int(budget[column]) * SLACK, (column, costs, budget)
