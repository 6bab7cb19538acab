"""The order of programs, by the pipeline models of the cores that execute them."""

from __future__ import annotations

import pytest

from firmwright.base.dtypes import INT32, UINT32
from firmwright.base.errors import InternalError
from firmwright.kernels.dsp.gemm import (
    BYTES_8X1,
    MAC_2X4,
    PAIRED_2X4,
    PAIRED_4X2,
    PAIRED_8X1,
    WIDE_2X4,
    GemmTile,
    gemm_program,
)
from firmwright.kernels.isa.dsp import smlad, sxtb16
from firmwright.kernels.isa.thumb2 import ldr, ldrd
from firmwright.kernels.program import Program, Repeat, Step
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import CLANG_THUMB2_FILE, THUMB2_FILE
from firmwright.kernels.registers import assign_registers
from firmwright.kernels.scheduling import block_cycles, depends, find_order
from firmwright.targets.core_timing import core_timings

TILES = (BYTES_8X1, MAC_2X4, PAIRED_2X4, PAIRED_4X2, PAIRED_8X1, WIDE_2X4)
WIDE_CORES = ("cortex-m4", "cortex-m33", "cortex-m7")


def block(tile: GemmTile, *, is_narrow: bool) -> tuple[Step, ...]:
    (repeat,) = gemm_program(tile, 1, is_narrow=is_narrow).body
    assert isinstance(repeat, Repeat)
    return repeat.body


def suits(tile: GemmTile, body: tuple[Step, ...], *, is_narrow: bool) -> bool:
    """Return whether an order needs no more registers than compilers leave."""
    program = gemm_program(tile, 1, is_narrow=is_narrow)
    ordered = Program(
        program.name, program.pointers, program.registers, (Repeat(1, body),)
    )
    try:
        assign_registers(ordered, CLANG_THUMB2_FILE if is_narrow else THUMB2_FILE)
    except InternalError:
        return False
    return True


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.sampled(2)
def test_a_search_finds_no_better_order_than_that_of_a_gemm_kernel(
    tile: GemmTile,
) -> None:
    timings = [core_timings()[core] for core in WIDE_CORES]
    written = block(tile, is_narrow=False)
    found = find_order(
        written, timings, lambda body: suits(tile, tuple(body), is_narrow=False)
    )
    for core, timing in zip(WIDE_CORES, timings, strict=True):
        assert block_cycles(found, timing) == block_cycles(written, timing), core


def slow_block() -> tuple[Step, ...]:
    """Return a step of four pairs of channels, in which each product waits."""
    k = ProgramBuilder("slow")
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    sums = k.registers("c", 4, INT32)
    with k.repeat(1) as i:
        column = k(ldr, x[i])
        for pair in range(2):
            word = k(ldr, w[i * 2 + pair])
            odd, even = sums[2 * pair + 1], sums[2 * pair]
            k(smlad, word, column, odd, into=odd)
            k(smlad, k(sxtb16, word), column, even, into=even)
    (repeat,) = k.build().body
    assert isinstance(repeat, Repeat)
    return repeat.body


def test_a_search_separates_instructions_from_those_that_they_wait_for() -> None:
    timing = core_timings()["cortex-m7"]
    slow = slow_block()
    found = find_order(slow, [timing])
    assert set(found) == set(slow)
    assert block_cycles(found, timing) < block_cycles(slow, timing)
    assert find_order(slow, [timing]) == found
    for place, step in enumerate(found):
        for later in found[place + 1 :]:
            assert not (slow.index(later) < slow.index(step) and depends(step, later))


def test_an_order_that_is_slower_on_one_core_does_not_count() -> None:
    timings = [core_timings()[core] for core in ("cortex-m7", "cortex-m4")]
    slow = slow_block()
    found = find_order(slow, timings)
    for timing in timings:
        assert block_cycles(found, timing) <= block_cycles(slow, timing)


def test_steps_stay_behind_those_that_move_their_pointer() -> None:
    k = ProgramBuilder("moving")
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    k(ldr, w.next(1))
    k(ldr, w[0])
    k.pair(ldrd, x[0])
    first, second, other = k.build().body
    assert isinstance(first, Step)
    assert isinstance(second, Step)
    assert isinstance(other, Step)
    assert depends(second, first)
    assert not depends(other, first)
