"""Upper bounds on a model's cost: bars relative to the peer's figures, and budgets.

`benchmarks/budgets.csv` has the cost of each int8 model, and names the compiler and the
emulator that it was measured with. A change that increases one fails here; a decrease
is recorded with `--update-golden`, so that it is visible in review. Other versions are
compared with a wider tolerance (`figure_slack`) and record nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.bench.model_benchmark import BALANCED, BenchmarkRow, measure_models
from firmwright.bench.peer_figures import read_peers
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model

BUDGETS = Path(__file__).parents[1] / "benchmarks" / "budgets.csv"
BOARD = "mps2-an386"
KEYS = ("model", "board", "mode")
"""The columns that identify a row."""
COSTS = ("instructions", "workspace_bytes", "flash_bytes")
COLUMNS = (*KEYS, *COSTS, "measured_with")
LIMITS = {
    ("kws_ref_model.tflite", "balanced"): 9_700,
    ("kws_ref_model.tflite", "ram"): 7_200,
    ("kws_ref_model.tflite", "ram+rows"): 6_900,
    ("vww_96_int8.tflite", "balanced"): 28_900,
    ("vww_96_int8.tflite", "ram"): 28_900,
    ("vww_96_int8.tflite", "ram+rows"): 16_000,
    ("pretrainedResnet_quant.tflite", "balanced"): 28_000,
    ("pretrainedResnet_quant.tflite", "ram"): 18_500,
    ("pretrainedResnet_quant.tflite", "ram+rows"): 15_500,
    ("ad01_int8.tflite", "balanced"): 2_100,
    ("ad01_int8.tflite", "ram"): 1_400,
    ("str_ww_ref_model.tflite", "balanced"): 5_300,
    ("str_ww_ref_model.tflite", "ram"): 4_700,
}
"""The maximum workspace in bytes that the implemented techniques must reach."""
FLASH_LIMITS = {
    "kws_ref_model.tflite": 39_000,
    "vww_96_int8.tflite": 72_000,
    "pretrainedResnet_quant.tflite": 104_500,
    "ad01_int8.tflite": 278_500,
    "str_ww_ref_model.tflite": 61_000,
}
"""Bytes of flash that a balanced model may take at most."""
SIZE_LIMITS = {
    "kws_ref_model.tflite": (24_368 + 5_500, 1.25),
    "vww_96_int8.tflite": (33_528 + 7_000, 1.25),
    "ad01_int8.tflite": (270_880 + 2_000, 1.10),
    "str_ww_ref_model.tflite": (49_412 + 7_000, 1.15),
    "pretrainedResnet_quant.tflite": (78_744 + 6_000, 1.20),
}
"""With `size`: most bytes (the file's weights and biases, and more), and instructions.

The instructions are relative to the budget of `balanced`.
"""
FLASH_BUDGETS = {
    "kws_ref_model.tflite": (24_368 + 10_000, 1.10),
    "vww_96_int8.tflite": (33_528 + 10_000, 1.10),
    "ad01_int8.tflite": (270_880 + 4_000, 1.10),
    "str_ww_ref_model.tflite": (49_412 + 10_000, 1.10),
    "pretrainedResnet_quant.tflite": (78_744 + 10_000, 1.10),
}
"""The same for balanced programs within a flash budget, which the images keep."""
RAM_INSTRUCTIONS = 1.5
"""The mode `ram` executes at most that many times the instructions of `balanced`."""
ALWAYS = ("kws_ref_model.tflite", "ram")
"""The mode other than balanced that is measured by default."""

pytestmark = [pytest.mark.qemu, pytest.mark.models]


def _costs(row: BenchmarkRow, tools: str) -> dict[str, str]:
    costs = (row.count, row.workspace_bytes, row.flash_bytes)
    values = (row.model, row.board, row.mode, *costs, tools)
    return dict(zip(COLUMNS, map(str, values), strict=True))


def _key(costs: dict[str, str]) -> tuple[str, ...]:
    return tuple(costs[column] for column in KEYS)


def _budgets() -> dict[tuple[str, ...], dict[str, str]]:
    with BUDGETS.open(encoding="utf-8", newline="") as file:
        return {_key(row): row for row in csv.DictReader(file)}


def _write_budget(costs: dict[str, str]) -> None:
    known = {**_budgets(), _key(costs): costs}
    with BUDGETS.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(known[key] for key in sorted(known))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("model", "mode"), LIMITS)
def test_int8_models_are_within_their_budgets(
    model: str,
    mode: str,
    model_path: Callable[[str], Path],
    request: pytest.FixtureRequest,
    measuring_tools: str,
    recorded_tools: str,
    figure_slack: float,
    deep: bool,
) -> None:
    is_small = mode == BALANCED and not model.startswith("vww")
    if not is_small and (model, mode) != ALWAYS and not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    (row,) = measure_models([model_path(model)], [BOARD], read_peers(), [mode])
    assert row.count is not None, row.problem
    assert row.ratio is not None
    assert row.ratio <= 1.5
    assert row.workspace_bytes is not None
    assert row.peer.workspace_bytes is not None
    assert row.workspace_bytes <= min(row.peer.workspace_bytes, LIMITS[model, mode])
    if mode == BALANCED:
        assert row.flash_bytes is not None
        assert row.flash_bytes <= FLASH_LIMITS[model]
    costs = _costs(row, measuring_tools)
    if request.config.getoption("--update-golden"):
        if measuring_tools != recorded_tools:
            pytest.skip(
                f"figures are recorded with {recorded_tools}, not {measuring_tools}"
            )
        _write_budget(costs)
    budgets = _budgets()
    budget = budgets[_key(costs)]
    for column in COSTS:
        limit = int(budget[column]) * figure_slack
        assert int(costs[column]) <= limit, (column, costs, budget)
    balanced = budgets[model, BOARD, BALANCED]
    assert row.count <= RAM_INSTRUCTIONS * int(balanced["instructions"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", SIZE_LIMITS)
def test_small_images_are_within_their_limits(
    model: str, model_path: Callable[[str], Path], deep: bool
) -> None:
    if model != ALWAYS[0] and not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    (row,) = measure_models([model_path(model)], [BOARD], read_peers(), ["size"])
    assert row.count is not None, row.problem
    assert row.flash_bytes is not None
    limit, ratio = SIZE_LIMITS[model]
    assert row.flash_bytes <= limit
    assert row.count <= ratio * int(_budgets()[model, BOARD, BALANCED]["instructions"])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", FLASH_BUDGETS)
def test_programs_within_a_flash_budget_are_nearly_as_fast_as_balanced(
    model: str, model_path: Callable[[str], Path], deep: bool
) -> None:
    if model != ALWAYS[0] and not deep:
        pytest.skip("part of the larger grid; --deep runs it")
    limit, ratio = FLASH_BUDGETS[model]
    compiled = compile_for(load_model(model_path(model)), BOARD, flash_bytes=limit)
    assert build_image(compiled).model_flash_bytes <= limit
    balanced = int(_budgets()[model, BOARD, BALANCED]["instructions"])
    assert measure_instructions(compiled).total.instructions <= ratio * balanced
