"""The knapsack of flash over calls compared with enumeration; the default budget."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.errors import DoesNotFitError
from firmwright.choose.flash_budget import (
    CallCandidates,
    CodeKey,
    apply_default_flash_budget,
    dedupe_code_cost,
    fastest_candidates,
    fit_flash_budget,
    solve_knapsack,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ops.schedule import NO_CONFIG, LoweringCandidate


def offer(name: str, *rows: tuple[int, int, int]) -> CallCandidates:
    """Return a call with 1000 bytes of weights; rows: instructions, constants, code."""
    weights = Value("w", TensorType((1000,), INT8), f"{name}/weights")
    y = Value(name, TensorType((1,), INT8))
    kernel = tir.PrimFunc(name, (), tir.Seq(()))
    result = tuple(
        LoweringCandidate(
            "r",
            NO_CONFIG,
            kernel,
            flash_bytes=flash,
            code_bytes=code,
            instructions=time,
        )
        for time, flash, code in rows
    )
    return Call("conv2d", (weights,), (y,)), result


def module(*offers: CallCandidates) -> IRModule:
    constants = {
        f"{call.outputs[0].name}/weights": Constant.from_array(
            f"{call.outputs[0].name}/weights", np.zeros(1000, np.int8), INT8
        )
        for call, _ in offers
    }
    return IRModule("m", {}, constants)


@pytest.mark.parametrize("seed", range(20))
def test_knapsack_equals_enumeration(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    times = [rng.integers(1, 100, rng.integers(1, 5)).tolist() for _ in range(5)]
    sizes = [rng.integers(1, 200, len(own)).tolist() for own in times]
    budget = int(rng.integers(50, 600))
    ways = [
        sum(own[pick] for own, pick in zip(times, picks, strict=True))
        for picks in product(*(range(len(own)) for own in times))
        if sum(own[pick] for own, pick in zip(sizes, picks, strict=True)) <= budget
    ]
    result = solve_knapsack(times, sizes, budget)
    assert (result is None) == (not ways)
    if result is not None:
        assert sum(own[pick] for own, pick in zip(sizes, result, strict=True)) <= budget
        assert sum(own[pick] for own, pick in zip(times, result, strict=True)) == min(
            ways
        )


def test_merged_states_keep_within_the_budget() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    times = [rng.integers(1, 10**6, 8).tolist() for _ in range(30)]
    sizes = [rng.integers(1, 10**6, 8).tolist() for _ in range(30)]
    least = sum(map(min, sizes))
    for budget in (least, least + 1, 2 * least):
        result = solve_knapsack(times, sizes, budget)
        assert result is not None
        assert sum(own[pick] for own, pick in zip(sizes, result, strict=True)) <= budget
    assert solve_knapsack(times, sizes, least - 1) is None


def test_every_combination_of_limited_candidates_fits_the_budget() -> None:
    offers = [
        offer("a", (10, 900, 0), (50, 100, 0)),
        offer("b", (10, 800, 0), (90, 90, 0)),
    ]
    allowed = fit_flash_budget(offers, 1000)
    assert [item.instructions for _, result in allowed for item in result] == [
        50,
        10,
        90,
    ]
    assert (
        sum(max(item.image_bytes for item in result) for _, result in allowed) <= 1000
    )


def test_error_for_a_small_budget_names_the_least_budget() -> None:
    with pytest.raises(
        DoesNotFitError, match="at least 190 bytes of flash, as predicted"
    ):
        fit_flash_budget([offer("a", (1, 100, 0)), offer("b", (1, 90, 0))], 189)


def test_shared_code_counts_once() -> None:
    offers = [offer("a", (1, 0, 900)), offer("b", (1, 0, 900)), offer("c", (1, 0, 300))]
    parts = dedupe_code_cost(offers, lambda kernel: CodeKey(kernel.name == "c"))
    sizes = [result[0].code_bytes for _, result in parts]
    assert sizes[0] == sizes[1] == sizes[2] + 150
    assert sizes[0] < 500


def test_expensive_constants_are_used_if_the_model_has_many_constants() -> None:
    plain = [offer(name, (90, 1000, 50), (50, 4000, 50)) for name in "abcdefghijklmnop"]
    allowed = apply_default_flash_budget(module(*plain), plain)
    times = [item.instructions for item in fastest_candidates(allowed)]
    assert times.count(50) == 1
    assert times.count(90) == 15


def test_expensive_constants_are_dropped_if_code_exceeds_the_budget() -> None:
    plain = [offer("a", (90, 1000, 900), (50, 4000, 900), (99, 900, 50))]
    ((_, result),) = apply_default_flash_budget(module(*plain), plain)
    assert [item.instructions for item in result] == [90, 99]


@pytest.mark.deep
def test_programs_that_stream_the_input_keep_the_budget_or_are_refused(
    digits_path: Path,
) -> None:
    model = load_model(digits_path)
    compile_for(model, "mps2-an386", flash_bytes=9000, stream_input_rows=True)
    with pytest.raises(
        DoesNotFitError, match="bytes of flash, as predicted, and may take 8000"
    ):
        compile_for(model, "mps2-an386", flash_bytes=8000, stream_input_rows=True)
