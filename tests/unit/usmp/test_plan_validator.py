"""The validator detects each kind of error in an otherwise valid plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from firmwright.base.errors import InternalError
from firmwright.ir.core import PoolInfo
from firmwright.ir.tir.plan import BufferInfo, OffsetConstraint, Placement, Plan
from firmwright.usmp.interference import build_interference
from firmwright.usmp.plan_validator import check_plan

POOLS = (PoolInfo("sram", 64), PoolInfo("flash", None, "ro"))


@pytest.fixture(name="buffers")
def _buffers(make_buffer: Callable[..., BufferInfo]) -> tuple[BufferInfo, ...]:
    a = make_buffer("a", 16, (0, 2), alignment=8)
    b = make_buffer("b", 16, (1, 3), alignment=8, pools=("sram", "flash"))
    return a, b


def plan_of(
    a: int, b: int, pool_bytes: int, *, pool: str = "sram", bound: int = 0
) -> Plan:
    placements = {"a": Placement("sram", a), "b": Placement(pool, b)}
    return Plan("test", placements, {"sram": pool_bytes}, bound)


def complaint(
    plan: Plan, buffers: tuple[BufferInfo, ...], *conflicts: OffsetConstraint[str]
) -> str:
    with pytest.raises(InternalError) as caught:
        check_plan(plan, buffers, conflicts, POOLS)
    return str(caught.value).removeprefix("planner test made an invalid plan: ")


def test_valid_plan_passes(buffers: tuple[BufferInfo, ...]) -> None:
    check_plan(
        plan_of(0, 16, 32, bound=32), buffers, build_interference(buffers), POOLS
    )


def test_overlap_of_two_live_buffers_is_reported(
    buffers: tuple[BufferInfo, ...],
) -> None:
    assert complaint(plan_of(0, 8, 24), buffers) == (
        "b at 8 and a at 0 of pool sram overlap and are alive at once."
    )


def test_violated_constraint_is_reported(buffers: tuple[BufferInfo, ...]) -> None:
    assert complaint(plan_of(0, 8, 24), buffers, *build_interference(buffers)) == (
        "a at 0 and b at 8 of pool sram conflict: 8 is in (-16, 16)."
    )


def test_relaxed_constraint_allows_only_its_differences(
    buffers: tuple[BufferInfo, ...],
) -> None:
    below = OffsetConstraint("a", "b", -8, 16)
    check_plan(plan_of(8, 0, 24), buffers, (below,), POOLS)
    assert complaint(plan_of(0, 8, 24), buffers, below).startswith("a at 0 and b at 8")
    at_one_place = OffsetConstraint("a", "b", -16, 16, modulus=16)
    check_plan(plan_of(0, 0, 16), buffers, (at_one_place,), POOLS)
    assert "conflict" in complaint(plan_of(0, 8, 24), buffers, at_one_place)


@pytest.mark.parametrize(("lo", "hi"), [(-16, 9), (7, 16)])
def test_interval_forbids_differences_next_to_its_ends(
    lo: int, hi: int, buffers: tuple[BufferInfo, ...]
) -> None:
    """The difference 8 is in both intervals, next to one end."""
    assert "conflict" in complaint(
        plan_of(0, 8, 24), buffers, OffsetConstraint("a", "b", lo, hi)
    )
    check_plan(plan_of(0, 8, 24), buffers, (OffsetConstraint("a", "b", lo, 8),), POOLS)
    check_plan(plan_of(0, 8, 24), buffers, (OffsetConstraint("a", "b", 8, hi),), POOLS)


def test_pool_that_is_not_permitted_is_reported(
    make_buffer: Callable[..., BufferInfo],
) -> None:
    pools = (PoolInfo("sram"), PoolInfo("fast"))
    plan = Plan("test", {"a": Placement("fast", 0)}, {"fast": 16}, 0)
    with pytest.raises(InternalError, match="a may not be in pool 'fast'"):
        check_plan(plan, (make_buffer("a", 16, (0, 2)),), (), pools)


def test_missing_placement_is_reported(buffers: tuple[BufferInfo, ...]) -> None:
    plan = Plan("test", {"a": Placement("sram", 0)}, {"sram": 16}, 0)
    assert complaint(plan, buffers) == "it places ['a'], the buffers are ['a', 'b']."


def test_misalignment_and_negative_offsets_are_reported(
    buffers: tuple[BufferInfo, ...],
) -> None:
    expected = "b at offset 20 is not aligned to 8."
    assert (
        complaint(plan_of(0, 20, 36), buffers, *build_interference(buffers)) == expected
    )
    assert (
        complaint(plan_of(-8, 16, 32), buffers) == "a at offset -8 is not aligned to 8."
    )


def test_small_read_only_and_unknown_pools_are_reported(
    buffers: tuple[BufferInfo, ...],
) -> None:
    assert (
        complaint(plan_of(0, 56, 72), buffers)
        == "b ends at 72 in pool sram of 64 bytes."
    )
    assert complaint(plan_of(0, 0, 16, pool="flash"), buffers) == (
        "b is in pool flash, which cannot be written."
    )
    assert (
        complaint(plan_of(0, 0, 16, pool="ccm"), buffers)
        == "b may not be in pool 'ccm'."
    )


def test_wrong_totals_are_reported(buffers: tuple[BufferInfo, ...]) -> None:
    assert complaint(plan_of(0, 16, 48), buffers) == (
        "it has {'sram': 48} bytes, its placements take {'sram': 32}."
    )
    assert complaint(plan_of(0, 16, 32, bound=40), buffers) == (
        "its 32 bytes are below its bound of 40."
    )


def test_plan_of_other_buffers_is_rejected(buffers: tuple[BufferInfo, ...]) -> None:
    renamed = (buffers[0], replace(buffers[1], name="c"))
    assert complaint(plan_of(0, 16, 32), renamed).startswith("it places ['a', 'b']")
