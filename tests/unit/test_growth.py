"""The work of a compilation grows in proportion to the length of the network."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType

import numpy as np
import pytest

from firmwright.flows.predict.cost_prediction import count_kernel_calls
from firmwright.graph_builder import GraphBuilder
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.plan import BufferInfo, LiveRange, Plan, Planner
from firmwright.ir.tir.verify_plan import diagnose_plan
from firmwright.pipeline import Options, compile_model, selection_oracle
from firmwright.usmp.heuristics import greedy_by_size
from firmwright.usmp.interference import build_interference
from firmwright.usmp.lower_bound import lower_bound_bytes, min_bytes_by_time
from firmwright.usmp.memory_planning import Workspace, plan_workspace
from firmwright.usmp.plan_validator import check_plan
from firmwright.usmp.planning_input import PlanningInput

POOL = PoolInfo("sram")


def chain(length: int) -> tuple[Sequence[BufferInfo], Plan]:
    """Return buffers, each alive with the next one, and their plan."""
    lives = [(LiveRange(time, time + 2),) for time in range(length)]
    buffers = [
        BufferInfo(f"b{time}", 16 + time % 3, 1, live, "activation", ("sram",))
        for time, live in enumerate(lives)
    ]
    return buffers, greedy_by_size(buffers, build_interference(buffers), [POOL])


def calls_in(work: Callable[[], object]) -> int:
    """Count the calls of Python and C functions in `work`."""
    count = 0

    def observe(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(observe)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


WORK: dict[str, Callable[[Sequence[BufferInfo], Plan], object]] = {
    "interference": lambda buffers, plan: build_interference(buffers),
    "lower bound": lambda buffers, plan: lower_bound_bytes(buffers, plan.conflicts),
    "bytes by time": lambda buffers, plan: min_bytes_by_time(buffers, plan.conflicts),
    "validator": lambda buffers, plan: check_plan(
        plan, buffers, plan.conflicts, [POOL]
    ),
    "verifier": lambda buffers, plan: diagnose_plan(
        plan, IRModule("m", {}, {}, pools=(POOL,))
    ),
}


@pytest.mark.parametrize("name", WORK)
def test_calls_grow_in_proportion(name: str) -> None:
    short, long = chain(100), chain(400)
    few, many = (calls_in(partial(WORK[name], *problem)) for problem in (short, long))
    assert many < 6 * few  # four times the buffers; a square would be sixteen times


def nested_main(length: int) -> tir.Stmt:
    """Return calls, each inside the scopes of the ones before it."""
    body: tir.Stmt = tir.PrimFuncCall("last", ())
    for step in range(length):
        call = tir.PrimFuncCall("kernel", (), op=step)
        offset = tir.Var(f"offset_{step}", INDEX)
        body = tir.Let(offset, tir.IntImm(step, INDEX), tir.Seq((call, body)))
    return body


def test_counting_the_calls_of_a_nested_main_grows_in_proportion() -> None:
    short, long = nested_main(25), nested_main(100)
    few, many = (calls_in(partial(count_kernel_calls, body)) for body in (short, long))
    assert many < 6 * few


def network(length: int) -> IRModule:
    """Return convolutions of different weights and sums, alternating."""
    g = GraphBuilder("chain")
    y = g.input("x", (1, 2, 2, 4), scale=0.05)
    for step in range(length // 2):
        weights = np.full((4, 1, 1, 4), step, np.int8)
        w, b = (
            g.constant(weights, scale=0.01),
            g.constant(np.zeros(4, np.int32), scale=0.0005),
        )
        window = {"stride": (1, 1), "dilation": (1, 1), "padding": (0, 0, 0, 0)}
        z = g.call("conv2d", y, w, b, activation="none", scale=0.05, **window)
        y = g.call("add", y, z, activation="none", scale=0.05)
    return g.module(y)


def test_compilation_grows_in_proportion() -> None:
    options = Options(board="mps2-an386")
    compile_model(network(2), options)  # fills the caches
    few, many = (calls_in(partial(compile_model, network(n), options)) for n in (4, 16))
    assert many < 5 * few  # four times the operators


def test_selection_plans_the_same_buffers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[PlanningInput] = []

    def plan(workspace: Workspace, planner: str | Planner) -> Plan:
        planned.append(workspace.content)
        return plan_workspace(workspace, planner)

    monkeypatch.setattr(selection_oracle, "plan_workspace", plan)
    compile_model(network(8), Options(board="mps2-an386"))
    assert planned
    assert len(set(planned)) == len(planned)
