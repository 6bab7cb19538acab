"""Constants in RAM: the most profitable ones within the budget, if speeds are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.printer import parse_module, print_module
from firmwright.ir.settings import FlashTiming, Objective, ReadSpeed, Settings
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.verify import verify_module
from firmwright.usmp.cache_constants import (
    copy_constants_to_ram,
    describe_program_memory,
)
from firmwright.usmp.memory_planning import plan_memory

# `often` reads its 16 bytes of constants 64 times a run, `once` its 32 bytes once.
TEXT = """firmwright ir 2
module @net
attrs {entry="run"}
const @often.w = i8[16] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
const @once.w = i8[2,16] [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4,
    3, 3, 8, 3, 2, 7, 9, 5]
func @often(in x: i8[64], out y: i8[64]) {
  alloc_const w: i8[16] scope(const) = @often.w
  allocate sum: i32[1]
  for i in 0..64 {
    sum[0] = cast(i32, x[i])
    for j in 0..16 { sum[0] = (sum[0] + cast(i32, w[j])) % 100 }
    y[i] = cast(i8, sum[0])
  }
}
func @once(in x: i8[64], out y: i8[32]) {
  alloc_const w: i8[2,16] scope(const) = @once.w
  for i in 0..2 {
    for j in 0..16 { y[i * 16 + j] = max(x[i * 16 + j], w[i, j]) }
  }
}
func @run() attrs {aot_main=true} {
  allocate t: i8[64] as input
  allocate u: i8[64] as activation
  allocate v: i8[32] as output
  call @often(ptr(t, 0, 64, r), ptr(u, 0, 64, w)) op 0
  call @once(ptr(u, 0, 64, r), ptr(v, 0, 32, w)) op 1
}
"""
RAM = PoolInfo("sram", 1024, read_bandwidth=4.0, write_bandwidth=4.0)
SLOW = ReadSpeed(4.0, 3)
BUDGET = Objective(ram_bytes=1024)


def net(
    *pools: PoolInfo, speed: ReadSpeed | None = None, budget: Objective | None = None
) -> IRModule:
    settings = Settings(
        objective=budget or Objective(), flash=FlashTiming(program_memory=speed)
    )
    return replace(parse_module(TEXT), pools=pools or (RAM,), settings=settings)


def kept(module: IRModule) -> dict[str, str]:
    """Return the pools of the constants that the planned module has in RAM."""
    planned = plan_memory(copy_constants_to_ram(module, "search"))
    assert planned.plan is not None
    verify_module(planned, {}, {})
    assert parse_module(print_module(planned)) == planned
    return {
        buffer.name: planned.plan.placements[buffer.name].pool
        for buffer in planned.plan.buffers
        if buffer.kind == "const"
    }


def test_constants_stay_in_flash_unless_flash_is_declared_slow() -> None:
    module = net()
    assert describe_program_memory(module) is None
    assert copy_constants_to_ram(module, "search") is module
    fast = net(speed=ReadSpeed(4.0, 0))
    assert copy_constants_to_ram(fast, "search") is fast, "nothing is gained"
    unknown = net(PoolInfo("sram"), speed=SLOW)
    assert copy_constants_to_ram(unknown, "search") is unknown


def test_constant_with_most_reads_per_byte_comes_first() -> None:
    assert kept(net(speed=SLOW, budget=BUDGET)) == {
        "often_w_ram": "sram",
        "once_w_ram": "sram",
    }
    need = plan_memory(net()).plan
    assert need is not None
    small = replace(RAM, size_bytes=need.workspace_bytes + 16 + 16)
    assert kept(net(small, speed=SLOW, budget=BUDGET)) == {"often_w_ram": "sram"}
    full = replace(RAM, size_bytes=need.workspace_bytes)
    assert kept(net(full, speed=SLOW, budget=BUDGET)) == {}


def test_constants_take_half_of_the_free_bytes_without_a_budget() -> None:
    alone = plan_memory(net()).plan
    assert alone is not None
    many = TEXT.replace("i8[16]", "i8[64]").replace("0..16 { sum", "0..64 { sum")
    values = ", ".join(["1"] * 64)
    many = many.replace(
        "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]", f"[{values}]"
    )
    room = replace(RAM, size_bytes=alone.workspace_bytes + 112)
    module = replace(
        parse_module(many), pools=(room,), settings=net(speed=SLOW).settings
    )
    assert kept(module) == {"once_w_ram": "sram"}, "64 bytes are more than half of 112"
    assert set(kept(module.with_objective(BUDGET))) == {"often_w_ram", "once_w_ram"}


def test_faster_pool_is_filled_first() -> None:
    slower = PoolInfo("other", 1024, read_bandwidth=2.0, write_bandwidth=2.0)
    actual = kept(
        net(
            slower,
            replace(RAM, size_bytes=112),
            speed=SLOW,
            budget=Objective(ram_bytes=4096),
        )
    )
    assert actual == {"often_w_ram": "sram", "once_w_ram": "other"}


def test_constant_in_ram_is_always_live_and_disjoint() -> None:
    planned = plan_memory(copy_constants_to_ram(net(speed=SLOW), "search"))
    assert planned.plan is not None
    output = planned.plan
    end = max(live.end for b in output.buffers for live in b.live)
    for buffer in output.buffers:
        if buffer.kind != "const":
            continue
        assert [(live.first, live.end) for live in buffer.live] == [(0, end)]
        begin = output.placements[buffer.name].offset
        for other in output.buffers:
            offset = output.placements[other.name].offset
            apart = (
                offset >= begin + buffer.size_bytes
                or offset + other.size_bytes <= begin
            )
            assert apart or other is buffer


def test_interpreter_results_are_unchanged() -> None:
    plain, moved = (
        plan_memory(net()),
        plan_memory(copy_constants_to_ram(net(speed=SLOW), "search")),
    )
    x = np.random.default_rng(3).integers(-20, 20, 64, np.int8)
    np.testing.assert_array_equal(result(moved, x), result(plain, x))


def result(module: IRModule, x: np.ndarray) -> np.ndarray:
    assert module.plan is not None
    pool = np.zeros(module.plan.workspace_bytes, np.uint8)
    begin, end = (module.plan.placements[name].offset for name in ("t", "v"))
    pool[begin : begin + 64] = x.view(np.uint8)
    functions = {
        n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)
    }
    Interpreter(functions, {}, module.constants).run("run", {"sram": pool})
    return pool[end : end + 32].view(np.int8)


@pytest.mark.parametrize("planner", ["greedy_by_size", "search"])
def test_every_planner_reports_spare_memory(planner: str) -> None:
    assert copy_constants_to_ram(net(speed=SLOW), planner) != net(speed=SLOW)
