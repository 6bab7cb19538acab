"""The most accessed buffers are in the fastest pool, as far as it has room."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.tir.memory_traffic import (
    MemoryTraffic,
    count_traffic,
    transfer_cycles,
)
from firmwright.ir.tir.plan import BufferInfo, LiveRange
from firmwright.usmp.heuristics import best_first_fit_planner, greedy_by_size
from firmwright.usmp.interference import build_interference
from firmwright.usmp.memory_planning import (
    can_rank_pools,
    first_choice_only,
    place_buffers,
    plan_memory,
    rank_pools,
)
from firmwright.usmp.plan_validator import check_plan

FAST = PoolInfo("fast", 100, read_bandwidth=8, write_bandwidth=8)
MIDDLE = PoolInfo("middle", 400, read_bandwidth=4, write_bandwidth=4, read_latency=1)
SLOW = PoolInfo("slow", None, read_bandwidth=1, write_bandwidth=0.5, read_latency=4)
NAMES = ("slow", "fast", "middle")


def buffer(name: str, size_bytes: int, *live: tuple[int, int]) -> BufferInfo:
    ranges = tuple(LiveRange(first, end) for first, end in live or ((0, 1),))
    return BufferInfo(name, size_bytes, 4, ranges, "activation", NAMES)


def chosen(*found: BufferInfo) -> dict[str, str]:
    return {one.name: one.pools[0] for one in found}


def test_buffer_with_most_accesses_per_byte_goes_to_the_fastest_pool() -> None:
    buffers = (
        buffer("hot", 80),
        buffer("cold", 80),
        buffer("large", 300),
        buffer("huge", 500),
    )
    traffic = {
        "hot": MemoryTraffic(8000, 80, 8000, 80),
        "cold": MemoryTraffic(80, 80, 20, 20),
        "large": MemoryTraffic(9000, 300, 2250, 75),
        "huge": MemoryTraffic(90_000, 300, 90_000, 75),
    }
    result = rank_pools(
        buffers, build_interference(buffers), (SLOW, FAST, MIDDLE), traffic
    )
    assert chosen(*result) == {
        "hot": "fast",
        "cold": "middle",
        "large": "middle",
        "huge": "slow",
    }
    assert result[0].pools == ("fast", "middle", "slow")
    assert result[3].pools == ("slow", "fast", "middle")


def test_buffers_that_are_never_alive_at_once_share_the_fastest_pool() -> None:
    buffers = tuple(buffer(f"b{t}", 100, (t, t + 1)) for t in range(5))
    traffic = {one.name: MemoryTraffic(1000, 1000, 1000, 1000) for one in buffers}
    result = rank_pools(
        buffers, build_interference(buffers), (FAST, SLOW, MIDDLE), traffic
    )
    assert set(chosen(*result).values()) == {"fast"}
    output = place_buffers(
        greedy_by_size, result, build_interference(buffers), (FAST, SLOW, MIDDLE)
    )
    assert output.pool_bytes == {"fast": 100}
    assert output.buffers == result, "the plan remembers every pool that would do"


def test_pools_keep_their_order_if_a_speed_is_unknown() -> None:
    pools = (SLOW, FAST, replace(MIDDLE, write_bandwidth=None))
    buffers = (buffer("a", 50), buffer("b", 60))
    assert not can_rank_pools(buffers, pools)
    assert rank_pools(buffers, (), pools, {"a": MemoryTraffic(9, 9, 9, 9)}) == buffers


def test_transfer_cycles_use_bandwidth_and_latency() -> None:
    moved = MemoryTraffic(read_bytes=80, written_bytes=20, reads=10, writes=5)
    assert transfer_cycles(moved, FAST) == 10 + 2.5
    assert transfer_cycles(moved, SLOW) == 80 + 40 + 10 * 4


def test_every_buffer_is_in_its_best_pool() -> None:
    pools = (FAST, MIDDLE, SLOW)
    for seed in range(30):
        rng = random.Random(seed)
        buffers = tuple(
            buffer(f"b{i}", 4 * rng.randrange(1, 60), _life(rng))
            for i in range(rng.randrange(2, 20))
        )
        traffic = {
            b.name: MemoryTraffic(rng.randrange(9999), rng.randrange(999), 50, 50)
            for b in buffers
        }
        conflicts = build_interference(buffers)
        result = rank_pools(buffers, conflicts, pools, traffic)
        output = place_buffers(best_first_fit_planner, result, conflicts, pools)
        check_plan(output, result, conflicts, pools)
        assert {name: at.pool for name, at in output.placements.items()} == chosen(
            *result
        )


def _life(rng: random.Random) -> tuple[int, int]:
    first = rng.randrange(9)
    return first, first + rng.randrange(1, 4)


def test_other_pools_are_used_if_the_first_choice_does_not_fit() -> None:
    buffers = (buffer("a", 60), buffer("b", 60))
    both_fast = tuple(replace(one, pools=("fast", "middle")) for one in buffers)
    result = place_buffers(
        greedy_by_size, both_fast, build_interference(buffers), (FAST, MIDDLE)
    )
    assert result.pool_bytes == {"fast": 60, "middle": 60}
    with pytest.raises(DoesNotFitError):
        place_buffers(
            greedy_by_size,
            first_choice_only(both_fast),
            build_interference(buffers),
            (FAST, MIDDLE),
        )


# The first kernel reads its input eight times over and has scratch; the second copies.
TWO_KERNELS = """firmwright ir 2
module @net
pool @slow {read_bandwidth=1.0, write_bandwidth=1.0, read_latency=3, write_latency=3}
pool @fast {size_bytes=80, read_bandwidth=8.0, write_bandwidth=8.0}
attrs {entry="run"}
func @often(in x: i8[64], out y: i8[64]) {
  allocate sum: i32[4]
  sum[0] = 0
  for again in 0..8 {
    for i in 0..64 { sum[0] = (sum[0] + cast(i32, x[i])) % 61 }
  }
  for i in 0..64 { y[i] = cast(i8, sum[0]) }
}
func @once(in x: i8[64], out y: i8[64]) {
  for i in 0..64 { y[63 - i] = x[i] }
}
func @run() attrs {aot_main=true PINS} {
  allocate t: i8[64] as input
  allocate u: i8[64] as activation
  allocate v: i8[64] as output
  call @often(ptr(t, 0, 64, r), ptr(u, 0, 64, w)) op 0
  for k in 0..3 { call @once(ptr(u, 0, 64, r), ptr(v, 0, 64, w)) op 1 }
}
"""


def two_kernels(pins: str = "") -> IRModule:
    return parse_module(
        TWO_KERNELS.replace(" PINS", pins and f", pool_assignments={pins}")
    )


def test_traffic_is_counted_through_loops_and_calls() -> None:
    module = two_kernels()
    main, often = module.functions["run"], module.functions["often"]
    assert isinstance(main, tir.PrimFunc)
    assert isinstance(often, tir.PrimFunc)
    inside = count_traffic(often, module.functions)
    assert inside["x"] == MemoryTraffic(512, 0, 512, 0)
    assert inside["y"] == MemoryTraffic(0, 64, 0, 64)
    assert inside["sum"] == MemoryTraffic(4 * 576, 4 * 513, 576, 513)
    assert count_traffic(main, module.functions) == {
        "t": MemoryTraffic(512, 0, 512, 0),
        "u": MemoryTraffic(192, 64, 192, 64),
        "v": MemoryTraffic(0, 192, 0, 192),
    }


def test_most_accessed_buffers_are_in_the_fast_pool() -> None:
    planned = plan_memory(two_kernels())
    assert planned.plan is not None
    places = {name: place.pool for name, place in planned.plan.placements.items()}
    assert places == {"often.sum": "fast", "t": "fast", "u": "fast", "v": "slow"}
    assert planned.plan.placements["t"] == planned.plan.placements["u"], (
        "u may lie on t"
    )
    assert list(planned.plan.pool_bytes) == ["slow", "fast"]


def test_pinned_buffer_is_in_its_pool() -> None:
    planned = plan_memory(two_kernels('[["v", "fast"], ["t", "slow"]]'))
    assert planned.plan is not None
    assert planned.plan.placements["v"].pool == "fast"
    assert planned.plan.placements["t"].pool == "slow"
    (info,) = (info for info in planned.plan.buffers if info.name == "v")
    assert info.pools == ("fast",)


def test_buffer_without_memory_cannot_be_pinned() -> None:
    with pytest.raises(
        UsageError, match="w cannot be pinned to pool fast: it has no memory"
    ):
        plan_memory(two_kernels('[["w", "fast"]]'))
