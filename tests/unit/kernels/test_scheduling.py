"""The order of programs, by the pipeline models of the cores that execute them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firmwright.base.dtypes import INT32, UINT32
from firmwright.kernels.advancing_pointers import advance_pointers
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
from firmwright.kernels.program import Loop, Program, Repeat, Step
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.program_cycles import block_cycles, repeated_block
from firmwright.kernels.register_files import CLANG_THUMB2_FILE, THUMB2_FILE
from firmwright.kernels.scalar.gemm import ScalarMicrokernel, mla_forms
from firmwright.kernels.scheduling import (
    depends,
    find_order,
)
from firmwright.targets.core_timing import core_timings

TILES = (BYTES_8X1, MAC_2X4, PAIRED_2X4, PAIRED_4X2, PAIRED_8X1, WIDE_2X4)
WIDE_CORES = ("cortex-m4", "cortex-m33", "cortex-m7")


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.sampled(2)
def test_a_search_finds_no_better_order_than_that_of_a_gemm_kernel(
    tile: GemmTile,
) -> None:
    timings = [core_timings()[core] for core in WIDE_CORES]
    written = gemm_program(tile, 1)
    # The tile of one int16 column leaves a register to the loops around it.
    file = CLANG_THUMB2_FILE if tile == PAIRED_8X1 else THUMB2_FILE
    found = find_order(written, timings, file)
    for core, timing in zip(WIDE_CORES, timings, strict=True):
        assert block_cycles(found, timing) == block_cycles(written, timing), core


def slow_program() -> Program:
    """Return a step of two pairs of channels, in which each product waits."""
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
    return k.build()


def test_a_search_separates_instructions_from_those_that_they_wait_for() -> None:
    timing = core_timings()["cortex-m7"]
    slow = slow_program()
    found = find_order(slow, [timing], THUMB2_FILE)
    assert block_cycles(found, timing) < block_cycles(slow, timing)
    assert find_order(slow, [timing], THUMB2_FILE).body == found.body
    before, after = repeated_block(slow).body, repeated_block(found).body
    assert set(before) == set(after)
    for place, step in enumerate(after):
        for later in after[place + 1 :]:
            was_behind = before.index(later) < before.index(step)
            assert not (was_behind and depends(step, later))


def test_an_order_that_is_slower_on_one_core_does_not_count() -> None:
    timings = [core_timings()[core] for core in ("cortex-m7", "cortex-m4")]
    slow = slow_program()
    found = find_order(slow, timings, THUMB2_FILE)
    for timing in timings:
        assert block_cycles(found, timing) <= block_cycles(slow, timing)


@pytest.mark.parametrize(("rows", "pixels"), [(4, 1), (8, 1)])
def test_cycles_of_a_loop_are_those_of_pointers_that_advance(
    rows: int, pixels: int
) -> None:
    """An advanced pointer stalls an access after it, which an offset does not."""
    timing = core_timings()["cortex-m3"]
    program = mla_forms(ScalarMicrokernel("bytes", rows, pixels, 1)).wide
    loop = repeated_block(program)
    assert isinstance(loop, Loop)
    unrolled = replace(program, body=(Repeat(1, loop.body),))
    assert block_cycles(program, timing) > block_cycles(unrolled, timing)
    found = find_order(program, [timing], THUMB2_FILE, tries=60)
    assert block_cycles(found, timing) <= block_cycles(program, timing)
    assert advance_pointers(repeated_block(found))


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
