"""Selection of the fastest candidates that fit the memory plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.choose.flash_budget import CallCandidates
from firmwright.choose.kernel_selection import KernelSelector, SelectionOracle
from firmwright.choose.program_search import PlanEstimate
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Minimize, Objective
from firmwright.ir.tir.traversal import walk
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.pipeline import OPTIMIZE_GOALS, Options, compile_model, load_module
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.registry import parse_target, target_features
from firmwright.usmp.memory_planning import plan_memory
from tests.fuzz.random_networks import random_network


def select_module(*given):
    return KernelSelector(*given).select()


@pytest.fixture
def digits(digits_path: Path) -> IRModule:
    module = load_module(digits_path)
    return replace(module, targets={"cpu": parse_target("cortex-m -mcpu=cortex-m4")})


def _offers(module: IRModule) -> list[CallCandidates]:
    lowered = Lowering(
        module, op_table(), SCHEDULES, INTRINSICS, target_features
    ).calls()
    return [(item.call, item.candidates) for item in lowered]


def _scratch_bytes(module: IRModule) -> int:
    kernels = [
        f
        for f in module.functions.values()
        if isinstance(f, tir.PrimFunc) and f.name != "run"
    ]
    return sum(
        node.buffer.size_bytes
        for kernel in kernels
        for node in walk(kernel.body)
        if isinstance(node, tir.Allocate) and node.buffer.scope == "global"
    )


def _estimate(module: IRModule) -> PlanEstimate:
    """Estimate a call's need as its scratch and the plan as the largest need."""
    scratch = {
        node.op: _scratch_bytes(
            replace(module, functions={"k": module.functions[node.callee]})
        )
        for node in walk(module.functions["run"].body)
        if isinstance(node, tir.PrimFuncCall)
    }
    return PlanEstimate(max(scratch.values()), scratch)


def no_rows(index: int, band: int) -> None:
    """Return no row kernels."""


GENEROUS = SelectionOracle(lambda module: PlanEstimate(0, {}), lambda module: True)


def test_fastest_candidate_is_chosen_if_memory_is_unlimited(digits: IRModule) -> None:
    digits = digits.with_objective(Objective(Minimize.SPEED))
    offers = _offers(digits)
    selected = select_module(digits, offers, no_rows, GENEROUS)
    for _, result in offers:
        if result:
            fastest = min(item.instructions for item in result)
            remaining = [
                item for item in result if item.function.name in selected.functions
            ]
            chosen = next(
                item
                for item in remaining
                if selected.functions[item.function.name] is item.function
            )
            assert chosen.instructions == fastest


def test_candidates_with_less_scratch_are_chosen_until_the_plan_fits(
    digits: IRModule,
) -> None:
    offers = _offers(digits)
    free = _scratch_bytes(select_module(digits, offers, no_rows, GENEROUS))
    assert free > 0

    def fits(module: IRModule) -> bool:
        return _scratch_bytes(module) < free // 2

    tight = select_module(digits, offers, no_rows, SelectionOracle(_estimate, fits))
    assert _scratch_bytes(tight) < free // 2


def test_least_memory_is_chosen_if_nothing_fits(digits: IRModule) -> None:
    offers = _offers(digits)
    least = max(
        min(item.scratch_bytes for item in result) for _, result in offers if result
    )
    selected = select_module(
        digits, offers, no_rows, SelectionOracle(_estimate, lambda module: False)
    )
    assert _estimate(selected).workspace_bytes == least


def test_the_goal_ram_prefers_little_scratch(digits: IRModule) -> None:
    offers = _offers(digits)
    planner = SelectionOracle(_estimate, lambda module: True)
    small = select_module(
        digits.with_objective(Objective(Minimize.RAM)), offers, no_rows, planner
    )
    fast = select_module(
        digits.with_objective(Objective(Minimize.SPEED)), offers, no_rows, planner
    )
    assert _scratch_bytes(small) < _scratch_bytes(fast)


def test_main_calls_every_kernel_in_order_and_declares_views(digits: IRModule) -> None:
    selected = select_module(digits, _offers(digits), no_rows, GENEROUS)
    main = selected.functions["run"]
    assert isinstance(main, tir.PrimFunc)
    calls = [node for node in walk(main.body) if isinstance(node, tir.PrimFuncCall)]
    assert [node.op for node in calls] == sorted(node.op for node in calls)
    windows = [node for node in walk(main.body) if isinstance(node, tir.DeclBuffer)]
    assert len(windows) == 1
    assert [tensor.name for tensor in selected.io.inputs] == ["image"]


def test_lean_kernels_are_chosen_for_a_small_pool(digits: IRModule) -> None:
    """Test with the real planner: the fast choice does not fit, the lean one does."""
    roomy = plan_memory(select_module(digits, _offers(digits), no_rows, GENEROUS))
    assert roomy.plan is not None
    need = roomy.plan.workspace_bytes
    small = replace(digits, pools=(PoolInfo("sram", need - 16),))

    def fits(module: IRModule) -> bool:
        try:
            plan_memory(module)
        except DoesNotFitError:
            return False
        return True

    fitted = plan_memory(
        select_module(small, _offers(small), no_rows, SelectionOracle(_estimate, fits))
    )
    assert fitted.plan is not None
    assert fitted.plan.workspace_bytes <= need - 16


@pytest.mark.sampled(2)
@pytest.mark.parametrize("goal", OPTIMIZE_GOALS)
def test_a_streamed_input_is_read_by_one_segment_only(goal: str) -> None:
    """One network's input has a reader without rows, the other's has two readers."""
    options = Options(target="c", optimize=goal, stream_input_rows=True)
    with pytest.raises(UsageError, match="cannot be computed row by row together"):
        compile_model(random_network(1), options)
    assert compile_model(random_network(16), options).module.io.stream_input_rows
