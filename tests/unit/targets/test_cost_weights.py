"""Cost weights: defaults, and weights of each target family."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.boards import load_board
from firmwright.ir.tir.cost_model import GENERIC_WEIGHTS, CostWeights
from firmwright.partitioning.target_resolution import board_target
from firmwright.targets.cost_weights import cost_weights_for
from firmwright.targets.registry import parse_target


def of_core(core: str) -> CostWeights:
    return cost_weights_for(parse_target(f"cortex-m -mcpu={core}"))


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m0plus", "cortex-m23"])
def test_thumb1_cores_share_their_own_weights(core: str) -> None:
    own, first = of_core(core), of_core("cortex-m0")
    # Their pipelines differ, so each has its own cycles of a run.
    assert own == replace(first, run_cycles=own.run_cycles)
    for other in ("cortex-m3", "cortex-m4", "cortex-m55"):
        assert own.instructions != of_core(other).instructions
        assert own.code_bytes != of_core(other).code_bytes
        assert own.registers < of_core(other).registers


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_intrinsics_priced_by_name_are_in_every_table(core: str) -> None:
    weights = of_core(core)
    assert weights.instructions.keys() <= weights.code_bytes.keys()
    assert all(price >= 0 for price in weights.instructions.values())
    assert not weights.cycles or weights.cycles.keys() == weights.instructions.keys()


def test_unmeasured_targets_have_generic_weights() -> None:
    assert cost_weights_for(None) is GENERIC_WEIGHTS
    assert cost_weights_for(parse_target("host")) is GENERIC_WEIGHTS


@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33"])
def test_cores_that_rank_better_by_cycles_have_weights_for_them(core: str) -> None:
    weights = of_core(core)
    assert weights.cycles.keys() == weights.instructions.keys()


def test_only_a_named_riscv_core_has_cycles() -> None:
    """The multiplier of the SiFive E31 is busy for five cycles; other cores differ."""
    assert not cost_weights_for(parse_target("riscv32 -march=rv32imac")).cycles
    e31 = cost_weights_for(board_target(load_board("hifive1-revb")))
    assert e31.cycles["multiply_add"] > 2 * e31.instructions["multiply_add"]
