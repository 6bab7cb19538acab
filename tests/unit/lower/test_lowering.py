"""Tests of lowering: candidates sorted by cost, one report of unsupported calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import NotSupportedError, UnsupportedError
from firmwright.choose.streaming_candidates import SegmentBuilder, SegmentCandidates
from firmwright.ir.core import PoolInfo
from firmwright.ir.graph.nodes import Call, Function
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.module import IRModule
from firmwright.ir.settings import Objective
from firmwright.ir.weight_stand_ins import StandIn, with_stand_ins
from firmwright.lower.kernel_memo import BuiltKernel, KernelMemo, KernelRequest
from firmwright.lower.lowered_call import LoweredCall
from firmwright.lower.lowering import Lowering
from firmwright.ops.registry import op_table
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.passes.graph.assign_pools import assign_tensor_pools
from firmwright.pipeline import load_module
from firmwright.schedules.registry import INTRINSICS, SCHEDULES
from firmwright.targets.cost_weights import cost_weights_for
from firmwright.targets.registry import parse_target, target_features


@pytest.fixture
def digits(digits_path: Path) -> IRModule:
    module = load_module(digits_path)
    return replace(module, targets={"cpu": parse_target("cortex-m -mcpu=cortex-m4")})


def _lowered(module: IRModule, ops=None) -> tuple[LoweredCall, ...]:
    return Lowering(
        module, ops or op_table(), SCHEDULES, INTRINSICS, target_features
    ).calls()


def test_candidates_are_sorted_by_cost_and_include_the_default(
    digits: IRModule,
) -> None:
    for lowered in _lowered(digits):
        costs = [item.instructions for item in lowered.candidates]
        assert costs == sorted(costs)
        names = [item.rule for item in lowered.candidates]
        assert lowered.call.op == "reshape" or "default" in names


def test_a_view_needs_no_kernel_unless_it_is_a_result(digits: IRModule) -> None:
    entry = digits.entry
    assert isinstance(entry, Function)
    views = [item for item in _lowered(digits) if item.call.op == "reshape"]
    assert views
    assert all(not item.candidates for item in views)
    shown = replace(entry, results=(*entry.results, views[0].call.outputs[0]))
    copied = [
        item
        for item in _lowered(digits.with_function(shown))
        if item.call.op == "reshape"
    ]
    assert copied[0].candidates


def test_schedules_require_their_target_features(digits: IRModule) -> None:
    plain = replace(digits, targets={"cpu": parse_target("cortex-m -mcpu=cortex-m0")})
    rules = {item.rule for lowered in _lowered(plain) for item in lowered.candidates}
    assert not [name for name in rules if name.startswith(("dsp", "helium"))]


def test_all_unsupported_calls_are_reported_at_once(digits: IRModule) -> None:
    def refuse(call, kernel) -> None:
        raise NotSupportedError("not today")

    def is_refused(call: Call) -> bool:
        return call.op in ("max_pool2d", "softmax")

    entry = digits.entry
    assert isinstance(entry, Function)
    ops = {
        name: replace(opdef, lower=refuse)
        if name in ("max_pool2d", "softmax")
        else opdef
        for name, opdef in op_table().items()
    }
    with pytest.raises(UnsupportedError) as caught:
        _lowered(digits, ops)
    assert len(caught.value.items) == sum(map(is_refused, entry.body))
    assert {item.why for item in caught.value.items} == {"not today"}


def test_a_schedule_may_depend_on_memory_scopes(digits: IRModule) -> None:
    """A schedule for fast memory applies only to a call whose input is there."""

    def configs(call: OpCall) -> list[ScheduleConfig]:
        return [NO_CONFIG] if call.input_scope(0) == "fast" else []

    def build(call: OpCall, config: object, kernel: object) -> None:
        op_table()[call.op].lower(call, kernel)

    rule = Schedule("from-fast-memory", "conv2d", frozenset(), configs, build)
    entry = digits.entry
    assert isinstance(entry, Function)
    convolutions = [call for call in entry.body if call.op == "conv2d"]
    second = convolutions[1].variables[0].name
    module = assign_tensor_pools(
        replace(digits, pools=(PoolInfo("fast"),)), [(second, "fast")]
    )
    found = Lowering(
        module, op_table(), (*SCHEDULES, rule), INTRINSICS, target_features
    ).calls()
    offered = [
        any(item.rule == rule.name for item in lowered.candidates)
        for lowered in found
        if lowered.call.op == "conv2d"
    ]
    assert offered[:2] == [False, True]


class CountingMemo(KernelMemo):
    """A memo that counts the kernels that had to be built."""

    added = 0

    def add(self, request: KernelRequest, kernel: BuiltKernel) -> None:
        object.__setattr__(self, "added", self.added + 1)
        super().add(request, kernel)


def _lowering_with(module: IRModule, kernels: KernelMemo) -> Lowering:
    lowering = Lowering(module, op_table(), SCHEDULES, INTRINSICS, target_features)
    return replace(lowering, kernels=kernels, weights=cost_weights_for)


def test_lowerings_with_one_memo_build_a_kernel_once(digits: IRModule) -> None:
    kernels = CountingMemo()
    once = _lowering_with(digits, kernels).calls()
    built = kernels.added
    budget = digits.with_objective(Objective(ram_bytes=2048))
    again = _lowering_with(budget, kernels).calls()
    assert built > len(once)
    for one, other in zip(once, again, strict=True):
        names = {id(item.function) for item in other.candidates}
        assert names >= {id(item.function) for item in one.candidates}


def test_a_core_with_the_same_features_has_the_same_kernels_at_another_cost(
    digits: IRModule,
) -> None:
    kernels = CountingMemo()
    once = _lowering_with(digits, kernels).calls()
    before = kernels.added
    other_core = {"cpu": parse_target("cortex-m -mcpu=cortex-m7")}
    costs = dict[int, int]()
    for lowered in _lowering_with(replace(digits, targets=other_core), kernels).calls():
        for item in lowered.candidates:
            costs[id(item.function)] = item.time
    assert kernels.added == before
    assert any(costs[id(i.function)] != i.time for one in once for i in one.candidates)


def test_kernels_of_other_weights_are_not_taken_from_the_memo(
    digits: IRModule,
) -> None:
    kernels = CountingMemo()
    _lowering_with(digits, kernels).calls()
    before = kernels.added
    _lowering_with(with_stand_ins(digits, StandIn.FULL_RANGE), kernels).calls()
    assert kernels.added > before


def test_the_memory_of_a_segment_is_known_before_its_kernels_are_built(
    digits: IRModule,
) -> None:
    kernels = CountingMemo()
    lowering = _lowering_with(digits, kernels)
    builder = SegmentBuilder(lowering.entry, lowering.rows)
    whole = SegmentCandidates(digits, lowering.entry, builder, bytes_max=100)
    assert whole.regions(set(range(3))) == []
    assert kernels.added == 0
    segments = replace(whole, bytes_max=None).regions(set(range(3)))
    assert segments
    assert kernels.added > 0
