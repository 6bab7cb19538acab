"""Cycles of micro-kernels, by the pipelines of the cores that execute them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT32
from firmwright.boards import load_board
from firmwright.ir import tir
from firmwright.ir.tir.cost_model import Cost, CostWeights, estimate_cost
from firmwright.kernels.assembly import ProgramForms
from firmwright.kernels.dsp.gemm import PAIRED_4X2, PAIRED_8X1, gemm_forms
from firmwright.kernels.program_cycles import (
    block_assembly,
    block_cycles,
    executed_cycles,
    repeated_block,
)
from firmwright.kernels.scalar.gemm import ScalarMicrokernel, mla_forms, rvm_forms
from firmwright.partitioning.target_resolution import board_target
from firmwright.schedules.registry import INTRINSICS
from firmwright.targets.core_timing import core_timings
from firmwright.targets.cost_weights import cost_weights_for

ZERO = tir.IntImm(0, INT32)
M7 = core_timings()["cortex-m7"]


def weights_of(board: str) -> CostWeights:
    return cost_weights_for(board_target(load_board(board)))


@pytest.mark.parametrize("steps", [1, 7])
def test_an_unrolled_kernel_takes_the_cycles_of_each_step(steps: int) -> None:
    forms = gemm_forms(PAIRED_4X2, steps)
    assert executed_cycles(forms, "cortex-m7") == steps * block_cycles(forms.wide, M7)


def test_kernels_of_other_sizes_have_the_same_block() -> None:
    one, other = (gemm_forms(PAIRED_8X1, steps).wide for steps in (1, 9))
    blocks = [block_assembly(repeated_block(program)) for program in (one, other)]
    assert blocks[0] == blocks[1]


@pytest.mark.parametrize(
    ("forms", "core", "closing"),
    [
        (mla_forms(ScalarMicrokernel("bytes", 2, 4, 2)), "cortex-m3", (3, 6)),
        (rvm_forms(ScalarMicrokernel("bytes", 4, 4, 2)), "sifive-e31", (1, 4)),
    ],
    ids=["mla", "rvm"],
)
def test_a_loop_takes_more_for_each_iteration(
    forms: ProgramForms, core: str, closing: tuple[int, int]
) -> None:
    block = block_cycles(forms.wide, core_timings()[core])
    few, many = (executed_cycles(forms, core, steps) for steps in (8, 48))
    least, most = closing
    assert least <= (many - few) / 20 - 2 * block <= most


def calling(name: str) -> tir.PrimFunc:
    """Return a function that only calls a micro-kernel, with operands in registers."""
    intrinsic = INTRINSICS[name]
    call = tir.IntrinsicCall(name, (ZERO,) * len(intrinsic.operands), INT32)
    return tir.PrimFunc("f", (), tir.Evaluate(call))


def cost(name: str, weights: CostWeights) -> Cost:
    return estimate_cost(calling(name), INTRINSICS, weights)


@pytest.mark.parametrize("board", ["mps2-an500", "hifive1-revb"])
def test_a_better_order_costs_less(board: str) -> None:
    weights = weights_of(board)
    name = "paired_4x2_8" if board == "mps2-an500" else "rvm_bytes_4x4_4"
    intrinsic = INTRINSICS[name]
    faster = replace(intrinsic, cycles=lambda core, numbers: 1.0)
    function = calling(name)
    before = estimate_cost(function, {name: intrinsic}, weights)
    after = estimate_cost(function, {name: faster}, weights)
    assert after.cycles is not None
    assert before.cycles is not None
    assert after.cycles < before.cycles
    assert after.instructions == before.instructions


@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an385", "mps3-an547"])
def test_other_cores_price_instructions(board: str) -> None:
    weights = weights_of(board)
    assert weights.core == ""
    name = "paired_4x2_8"
    intrinsic = INTRINSICS[name]
    faster = replace(intrinsic, cycles=lambda core, numbers: 1.0)
    function = calling(name)
    assert estimate_cost(function, {name: intrinsic}, weights) == estimate_cost(
        function, {name: faster}, weights
    )
