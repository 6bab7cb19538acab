"""Every row of `compile --pareto` is the program compiled by `--ram` with its bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from firmwright.compilation_summary import MemoryTradeoff
from firmwright.flows.model.compilation import module_after, options_for
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.predict.cost_prediction import count_kernel_calls
from firmwright.flows.predict.pareto_rows import distinct_rows, pareto_rows
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.cost_model import estimate_cost
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.cost_weights import cost_weights_for
from tests import mlperf_tiny

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ("01_digits/digits_float", "02_keyword/keyword")


def predicted(module: IRModule) -> int:
    """Predict a lowered module's instructions, also of rows that segments move."""
    total, main = 0, module.entry
    assert isinstance(main, tir.PrimFunc)
    for call, times in count_kernel_calls(main.body).items():
        kernel = module.functions[call.callee]
        assert isinstance(kernel, tir.PrimFunc)
        weights = cost_weights_for(module.targets["cpu"])
        total += times * estimate_cost(kernel, INTRINSICS, weights).instructions
    return total


def check_rows(path: Path) -> int:
    model, given = load_model(path), {"board": "mps2-an386"}
    rows = pareto_rows(model.module, options_for(model.module, given))
    for row in rows:
        options = options_for(model.module, {**given, "ram_bytes": row.workspace_bytes})
        lowered = module_after(model, "lower-select", options)
        plan = module_after(Model(lowered), "usmp", options).plan
        assert plan is not None
        actual = plan.workspace_bytes, predicted(lowered)
        assert actual == (row.workspace_bytes, row.instructions)
    for roomier, tighter in pairwise(rows):
        assert roomier.workspace_bytes > tighter.workspace_bytes
        assert roomier.instructions < tighter.instructions
    return len(rows)


def test_more_memory_for_hardly_fewer_instructions_is_no_row() -> None:
    costs = [(9536, 2_803_556), (8576, 2_803_577), (8000, 2_806_300), (5332, 3_371_627)]
    rows = [MemoryTradeoff(size, count, ()) for size, count in costs]
    assert [row.workspace_bytes for row in distinct_rows(rows)] == [8000, 5332]
    assert [row.workspace_bytes for row in distinct_rows(rows[:1])] == [9536]
    # Each is compared with the first of its group, so that small steps do not add up.
    slow = [MemoryTradeoff(900 - n, 100_000 + 60 * n, ()) for n in range(4)]
    assert [row.instructions for row in distinct_rows(slow)] == [100_060, 100_180]


def example(name: str) -> Path:
    return ROOT / "examples" / f"{name}.tflite"


def test_each_row_compiles_to_its_bytes_and_instructions() -> None:
    assert sum(check_rows(example(name)) for name in EXAMPLES) >= 3


@pytest.mark.deep
def test_each_row_of_an_int8_model() -> None:
    assert check_rows(example("01_digits/digits")) >= 4


@pytest.mark.models
@pytest.mark.deep
@pytest.mark.parametrize("name", mlperf_tiny.MODELS)
def test_each_row_of_a_public_model(
    name: str, model_path: Callable[[str], Path]
) -> None:
    assert check_rows(model_path(f"{name}.tflite")) >= 1
