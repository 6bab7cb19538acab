"""Programs compute what their specification says, on random and extreme words."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from firmwright.base.dtypes import INT32, UINT32, Array
from firmwright.base.errors import InternalError
from firmwright.kernels.dsp.gemm import (
    BYTES_8X1,
    FRESH_2X4,
    MAC_2X4,
    MAC_4X2,
    MAC_8X1,
    MAC_BYTES_8X1,
    PAIRED_2X4,
    PAIRED_4X2,
    PAIRED_8X1,
    WIDE_2X4,
    GemmTile,
    Packing,
    gemm_program,
)
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.dsp import smlad
from firmwright.kernels.isa.thumb2 import ldr, store_word
from firmwright.kernels.program import Distance, Loop, Program
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.schedules.cortex_m_dsp.microkernels import (
    ACCUMULATORS,
    sums_of_products,
)

TILES = (
    *(WIDE_2X4, FRESH_2X4),
    *(MAC_2X4, MAC_4X2, MAC_8X1),
    *(PAIRED_2X4, PAIRED_4X2, PAIRED_8X1),
    *(BYTES_8X1, MAC_BYTES_8X1),
)
LOOPED = tuple(tile for tile in TILES if tile.packing.words == 1)
EXTREMES = (0, 0xFFFFFFFF, 0x80008000, 0x7FFF7FFF, 0x80808080, 0x7F807F80, 0x80007FFF)
CASES = 64


def drawn_words(rng: np.random.Generator, count: int) -> Array:
    """Return words [word, case], some of which are extreme."""
    words = rng.integers(0, 1 << 32, (count, CASES), np.uint32)
    extremes = rng.choice(np.array(EXTREMES, np.uint32), words.shape)
    return np.where(rng.random(words.shape) < 0.5, extremes, words)


def assert_sums_of_products(tile: GemmTile, program: Program, steps: int) -> None:
    rng = np.random.default_rng(steps)
    w = drawn_words(rng, tile.words * steps)
    x = drawn_words(rng, tile.column_words * steps)
    sums = drawn_words(rng, len(ACCUMULATORS)).astype(np.int32)
    registers = {name: [total] for name, total in zip(ACCUMULATORS, sums, strict=True)}
    memory = {"w": w, "x": x}
    state = run_program(program, evaluate, memory, registers, {"steps": steps})
    starts = () if tile.packing is Packing.FRESH else sums
    expected = sums_of_products(tile, w, x, *starts)
    for name, total in zip(ACCUMULATORS, expected, strict=True):
        np.testing.assert_array_equal(state.registers[name][0], total, name)
    if any(isinstance(node, Loop) for node in program.body):
        assert state.positions == {"w": len(w), "x": len(x)}


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_gemm_programs_are_sums_of_products(tile: GemmTile, is_narrow: bool) -> None:
    for steps in (1, 2, 5):
        program = gemm_program(tile, steps, is_narrow=is_narrow)
        assert_sums_of_products(tile, program, steps)


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("tile", LOOPED, ids=lambda tile: tile.name)
def test_gemm_loops_are_sums_of_products(tile: GemmTile, is_narrow: bool) -> None:
    for steps, iterations in product((1, 3), (1, 2, 4)):
        program = gemm_program(tile, steps, is_narrow=is_narrow, is_loop=True)
        assert_sums_of_products(tile, program, steps * iterations)


def built(*, is_loop: bool = False) -> Program:
    """Return a program that multiplies words and copies others."""
    k = ProgramBuilder("planted")
    w, y = k.pointer("w", UINT32), k.pointer("y", UINT32, "w")
    total = k.register("total", INT32)
    if is_loop:
        with k.loop("count", 1) as i:
            k(smlad, k(ldr, w[i]), k(ldr, w[i + 1]), total, into=total)
        return k.build()
    with k.repeat(2) as i:
        k(smlad, k(ldr, w[i]), k(ldr, w[i + 1]), total, into=total)
        there = y[i + Distance("apart", 2)]
        k.store(store_word, there, k(ldr, w[i * 2]))
    return k.build()


def run_on_three_words(
    program: Program, *, has_total: bool = True, words: int = 4, count: int = 0
) -> Array:
    memory = {
        "w": np.array([[1], [2], [3]], np.uint32),
        "y": np.zeros((words, 1), np.uint32),
    }
    registers = {"total": [np.array([10], np.int32)]} if has_total else {}
    numbers = {"apart": 1, "count": count}
    state = run_program(program, evaluate, memory, registers, numbers)
    return np.array([*state.registers["total"], *state.memory["y"]]).reshape(-1)


def test_stores_write_the_memory_of_the_state() -> None:
    assert run_on_three_words(built()).tolist() == [10 + 2 + 6, 0, 0, 1, 3]


def test_accesses_outside_of_memory_are_errors() -> None:
    with pytest.raises(InternalError, match=r"store_word of planted accesses y\[3:4\]"):
        run_on_three_words(built(), words=3)
    assert run_on_three_words(built(is_loop=True), count=2)[0] == 10 + 2 + 6
    with pytest.raises(InternalError, match=r"ldr of planted accesses w\[3:4\], outsi"):
        run_on_three_words(built(is_loop=True), count=3)


def test_a_register_is_written_before_it_is_read() -> None:
    with pytest.raises(InternalError, match="smlad of planted reads total too early"):
        run_on_three_words(built(), has_total=False)
