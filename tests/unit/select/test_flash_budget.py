"""The knapsack of flash over calls, against trying all ways, and what is bought unasked."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import INT8
from firmwright.base.errors import DoesNotFitError
from firmwright.ir import tir
from firmwright.ir.core import Constant
from firmwright.ir.graph.nodes import Call, TensorType, Value
from firmwright.ir.module import IRModule
from firmwright.ir.tir.schedule import LoweringCandidate
from firmwright.select.flash_budget import (
    CallCandidates,
    apply_default_flash_budget,
    dedupe_code_cost,
    fastest_candidates,
    fit_flash_budget,
    solve_knapsack,
)


def offer(name: str, *rows: tuple[int, int, int]) -> CallCandidates:
    """A call with weights of 1000 bytes; rows are (instructions, constants, code)."""
    weights = Value("w", TensorType((1000,), INT8), f"{name}/weights")
    y = Value(name, TensorType((1,), INT8))
    kernel = tir.PrimFunc(name, (), tir.Seq(()))
    found = tuple(
        LoweringCandidate("r", {}, kernel, flash_bytes=flash, code_bytes=code, instructions=time)
        for time, flash, code in rows
    )
    return Call("conv2d", (weights,), (y,)), found


def module(*offers: CallCandidates) -> IRModule:
    constants = {
        f"{call.outputs[0].name}/weights": Constant.from_array(
            f"{call.outputs[0].name}/weights", np.zeros(1000, np.int8), INT8
        )
        for call, _ in offers
    }
    return IRModule("m", {}, constants)


@pytest.mark.parametrize("seed", range(20))
def test_the_knapsack_finds_what_trying_all_ways_finds(seed: int) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    times = [rng.integers(1, 100, rng.integers(1, 5)).tolist() for _ in range(5)]
    sizes = [rng.integers(1, 200, len(own)).tolist() for own in times]
    budget = int(rng.integers(50, 600))
    ways = [
        sum(own[pick] for own, pick in zip(times, picks, strict=True))
        for picks in product(*(range(len(own)) for own in times))
        if sum(own[pick] for own, pick in zip(sizes, picks, strict=True)) <= budget
    ]
    found = solve_knapsack(times, sizes, budget)
    assert (found is None) == (not ways)
    if found is not None:
        assert sum(own[pick] for own, pick in zip(sizes, found, strict=True)) <= budget
        assert sum(own[pick] for own, pick in zip(times, found, strict=True)) == min(ways)


def test_coarse_sums_never_leave_the_budget_nor_miss_a_way() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    times = [rng.integers(1, 10**6, 8).tolist() for _ in range(30)]
    sizes = [rng.integers(1, 10**6, 8).tolist() for _ in range(30)]
    least = sum(map(min, sizes))
    for budget in (least, least + 1, 2 * least):
        found = solve_knapsack(times, sizes, budget)
        assert found is not None
        assert sum(own[pick] for own, pick in zip(sizes, found, strict=True)) <= budget
    assert solve_knapsack(times, sizes, least - 1) is None


def test_what_may_be_taken_is_within_the_budget_whatever_is_chosen() -> None:
    offers = [offer("a", (10, 900, 0), (50, 100, 0)), offer("b", (10, 800, 0), (90, 90, 0))]
    allowed = fit_flash_budget(offers, 1000)
    assert [item.instructions for _, found in allowed for item in found] == [50, 10, 90]
    assert sum(max(item.image_bytes for item in found) for _, found in allowed) <= 1000


def test_a_budget_below_the_least_is_refused_with_the_least() -> None:
    with pytest.raises(DoesNotFitError, match="at least 190 bytes of flash, as predicted"):
        fit_flash_budget([offer("a", (1, 100, 0)), offer("b", (1, 90, 0))], 189)


def test_code_that_calls_can_have_in_common_counts_once() -> None:
    offers = [offer("a", (1, 0, 900)), offer("b", (1, 0, 900)), offer("c", (1, 0, 300))]
    parts = dedupe_code_cost(offers, lambda kernel: kernel.name == "c")
    sizes = [found[0].code_bytes for _, found in parts]
    assert sizes[0] == sizes[1] == sizes[2] + 150
    assert sizes[0] < 500


def test_dear_constants_are_bought_where_the_model_has_many_of_its_own() -> None:
    plain = [offer(name, (90, 1000, 50), (50, 4000, 50)) for name in "abcdefghijklmnop"]
    allowed = apply_default_flash_budget(module(*plain), plain)
    times = [item.instructions for item in fastest_candidates(allowed)]
    assert times.count(50) == 1
    assert times.count(90) == 15


def test_nothing_is_bought_where_code_alone_is_beyond_the_budget() -> None:
    plain = [offer("a", (90, 1000, 900), (50, 4000, 900), (99, 900, 50))]
    ((_, found),) = apply_default_flash_budget(module(*plain), plain)
    assert [item.instructions for item in found] == [90, 99]
