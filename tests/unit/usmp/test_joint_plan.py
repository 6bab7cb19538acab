"""Sequential models in common pools take the memory of the largest one."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from firmwright.base.dtypes import INT64
from firmwright.base.errors import DoesNotFitError, UsageError
from firmwright.ir import tir
from firmwright.ir.core import PoolInfo
from firmwright.ir.module import IoBinding, IRModule
from firmwright.ir.printer import parse_module
from firmwright.ir.tir.interpreter import Interpreter
from firmwright.ir.tir.plan import LiveRange
from firmwright.ir.tir.traversal import walk
from firmwright.ir.tir.verify import verify_module
from firmwright.usmp.heuristics import greedy_by_size
from firmwright.usmp.interference import build_interference
from firmwright.usmp.joint_plan import (
    best_run_order,
    check_concurrent_fit,
    plan_jointly,
)
from firmwright.usmp.memory_planning import plan_memory

Array = npt.NDArray[Any]
POOLS = (PoolInfo("sram"),)
POOL = np.zeros(99_999, np.uint8)


def chain(
    name: str,
    *sizes: int,
    pools: tuple[PoolInfo, ...] = POOLS,
    preserve_input: bool = False,
) -> IRModule:
    """Return a planned model of kernels whose outputs depend on every input element."""
    last = len(sizes) - 1
    kinds = {0: "input", last: "output"}
    lines = [
        f"  allocate t{i}: i8[{size}] align(16) as {kinds.get(i, 'activation')}"
        for i, size in enumerate(sizes)
    ]
    functions = ""
    for i, (before, after) in enumerate(pairwise(sizes)):
        lines.append(
            f"  call @k{i}(ptr(t{i}, 0, {before}, r), ptr(t{i + 1}, 0, {after}, w)) op {i}"
        )
        functions += f"""func @k{i}(in x: i8[{before}], out y: i8[{after}]) {{
  allocate sum: i32[4] align(16)
  sum[0] = 0
  for j in 0..{before} {{ sum[0] = (sum[0] + cast(i32, x[j])) % 61 }}
  for i in 0..{after} {{ y[i] = cast(i8, (sum[0] + cast(i32, i)) % 61) }}
}}
"""
    body = "\n".join(lines)
    module = parse_module(
        f"firmwright ir 2\nmodule @{name}\n{functions}"
        f"func @run() attrs {{aot_main=true}} {{\n{body}\n}}\n"
    )
    io = IoBinding(preserve_input=preserve_input)
    return plan_memory(replace(module, pools=pools, io=io, entry_name="run"))


def run(
    modules: Sequence[IRModule], inputs: Mapping[str, Array], pool: Array
) -> dict[str, Array]:
    """Execute the models of an image: inputs first, then the runs, then the outputs."""
    for module in modules:
        window(module, "input", pool)[:] = inputs[module.name]
    for module in modules:
        main = module.entry
        assert isinstance(main, tir.PrimFunc)
        size = module.plan.pool_bytes["sram"] if module.plan else 0
        Interpreter(module.functions, {}, {}).run("run", {"sram": pool[:size]})
    return {module.name: window(module, "output", pool).copy() for module in modules}


def window(module: IRModule, kind: str, pool: Array) -> Array:
    """Return the bytes of the model's only buffer of that kind."""
    assert module.plan is not None
    (info,) = (info for info in module.plan.buffers if info.kind == kind)
    place = module.plan.placements[info.name]
    return pool[place.offset : place.offset + info.size_bytes].view(np.int8)


def workspace(module: IRModule) -> int:
    assert module.plan is not None
    return module.plan.workspace_bytes


def test_sequential_models_take_the_larger_peak() -> None:
    large, small = chain("large", 16, 2000, 3000, 32), chain("small", 64, 500, 400, 16)
    result = plan_jointly([large, small])
    alone = [workspace(large), workspace(small)]
    assert alone == [3016, 516]
    assert result.order == (1, 0), "the small one first: of it only 16 bytes are kept"
    assert result.plan.workspace_bytes == 3016 + 16
    assert result.plan.workspace_bytes == result.plan.lower_bound_bytes


def test_inputs_and_outputs_are_live_while_other_models_run() -> None:
    rng = random.Random(4)
    for _ in range(12):
        modules = [
            chain(
                f"m{k}",
                *[16 * rng.randrange(1, 20) for _ in range(rng.randrange(2, 6))],
            )
            for k in range(rng.randrange(2, 4))
        ]
        values = np.random.default_rng(1)
        inputs = {
            m.name: values.integers(-60, 61, window(m, "input", POOL).size, np.int8)
            for m in modules
        }
        apart = {
            m.name: run([m], inputs, np.zeros(99_999, np.uint8))[m.name]
            for m in modules
        }
        output = plan_jointly(modules)
        in_order = [output.modules[index] for index in output.order]
        pool = np.full(output.plan.workspace_bytes, 0x55, np.uint8)
        result = run(in_order, inputs, pool)
        for name, expected in apart.items():
            np.testing.assert_array_equal(result[name], expected)
        assert output.plan.workspace_bytes < sum(
            workspace(module) for module in modules
        )


def test_preserved_input_and_state_are_live_through_all_runs() -> None:
    first, second = (
        chain("first", 160, 320, 16, preserve_input=True),
        chain("second", 16, 640, 16),
    )
    assert first.plan is not None
    buffers = tuple(
        replace(b, kind="state", live=(LiveRange(0, 2),)) if b.name == "t1" else b
        for b in first.plan.buffers
    )
    conflicts = build_interference(buffers)
    stateful = replace(first, plan=greedy_by_size(buffers, conflicts, POOLS))
    result = plan_jointly([stateful, second])
    for name in ("first/t0", "first/t1"):
        (info,) = (b for b in result.plan.buffers if b.name == name)
        assert info.live == (LiveRange(0, 4),), name
        begin = result.plan.placements[name].offset
        for other in result.plan.buffers:
            place = result.plan.placements[other.name]
            above = place.offset >= begin + info.size_bytes
            apart = above or place.offset + other.size_bytes <= begin
            assert other is info or apart, other.name


def test_result_is_independent_of_the_order_of_models() -> None:
    rng = random.Random(5)
    for _ in range(5):
        models = [
            chain(f"m{k}", *[16 * rng.randrange(1, 60) for _ in range(4)])
            for k in range(3)
        ]
        result = [
            plan_jointly([models[i] for i in order]) for order in permutations(range(3))
        ]
        assert len({one.plan.workspace_bytes for one in result}) == 1


def test_a_model_with_a_large_input_runs_first_and_one_with_a_large_output_last() -> (
    None
):
    models = [
        chain("shrinks", 800, 16, 16),
        chain("grows", 16, 16, 800),
        chain("even", 16, 400, 16),
    ]
    plans = [module.plan for module in models if module.plan is not None]
    assert best_run_order(plans) == (0, 2, 1)


def test_replanned_modules_have_the_offsets_of_the_joint_plan() -> None:
    result = plan_jointly([chain("a", 64, 640, 16), chain("b", 32, 320, 16)])
    for module in result.modules:
        main = module.entry
        assert module.plan is not None
        assert isinstance(main, tir.PrimFunc)
        places = {
            f"{module.name}/{n}": place for n, place in module.plan.placements.items()
        }
        assert places == {n: result.plan.placements[n] for n in places}
        windows = {
            part.buffer.name: part.source.offset
            for part in walk(main.body)
            if isinstance(part, tir.DeclBuffer)
        }
        assert windows["t1"] == tir.IntImm(module.plan.placements["t1"].offset, INT64)
        assert windows["k0_sum"] == tir.IntImm(
            module.plan.placements["k0.sum"].offset, INT64
        )
        verify_module(module, {}, {})


def test_models_planned_for_different_pools_are_rejected() -> None:
    narrow = chain("narrow", 16, 32, pools=(PoolInfo("sram", 4096),))
    with pytest.raises(
        UsageError, match="narrow was planned for other pools than wide"
    ):
        plan_jointly([chain("wide", 16, 32), narrow])


def test_concurrent_models_that_do_not_fit_are_rejected() -> None:
    pools = (PoolInfo("sram", 1000),)
    models = [
        chain("a", 64, 640, 16, pools=pools),
        chain("b", 32, 640, 16, pools=pools),
    ]
    assert plan_jointly(models).plan.workspace_bytes <= 1000
    with pytest.raises(
        DoesNotFitError, match="do not fit at the same time: pool sram"
    ) as caught:
        check_concurrent_fit(models)
    assert caught.value.lowest_bytes == sum(workspace(module) for module in models)
    check_concurrent_fit(models[:1])
