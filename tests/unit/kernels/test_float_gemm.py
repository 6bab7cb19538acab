"""Float programs: their sums, their bits in C, their loops, and their registers."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.errors import InternalError
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.portable import portable_text
from firmwright.kernels.program import Program
from firmwright.kernels.register_files import vfp_file
from firmwright.kernels.statement import statement_text
from firmwright.kernels.vfp.gemm import (
    FpuTile,
    MultiplyAdd,
    RowShape,
    copy_words,
    fpu_gemm,
)
from firmwright.schedules.fpu.microkernels import sums_of_products

TILES = (FpuTile(4, 4), FpuTile(3, 2), FpuTile(8, 1), FpuTile(1, 3))
PITCH, JUMP = 2, 5
SOURCE = """\
#include <stdint.h>
void run(const float *w, const float *x, int32_t steps, int32_t pitch, int32_t rows,
         int32_t jump, float *sums)
{{
    float {sums};
    (void)rows;
    (void)jump;
{body}
{stores}
}}
"""


def gemm(style: MultiplyAdd, tile: FpuTile, rest: int, *, tall: bool) -> Program:
    row = RowShape(rest, 6, "(steps - 1) / 6", is_tall=tall)
    return fpu_gemm("gemm", style, tile, row)


def one_by_one(tile: FpuTile, *, tall: bool) -> Program:
    row = RowShape(0, 1, "steps - 1", is_tall=tall)
    return fpu_gemm("gemm", MultiplyAdd.CHAINED, tile, row, group=1)


def drawn(tile: FpuTile, steps: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and columns whose products and sums are rounded."""
    rng = np.random.default_rng(steps * rows)
    elements = rows * (steps + JUMP) + tile.pixels * PITCH
    w = rng.standard_normal(rows * steps * tile.lanes)
    return w.astype(np.float32), rng.standard_normal(elements).astype(np.float32)


@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize("style", MultiplyAdd)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_programs_are_sums_in_order(
    tile: FpuTile, style: MultiplyAdd, tall: bool
) -> None:
    for rest, rounds, rows in ((0, 1, 2), (5, 2, 3), (3, 1, 1)):
        height = rows if tall else 1
        steps = 1 + rest + 6 * rounds
        w, x = drawn(tile, steps, height)
        program = gemm(style, tile, rest, tall=tall)
        memory = {"w": list(w), "x": list(x)}
        numbers = {"pitch": PITCH, "rounds": rounds, "rows": height, "jump": JUMP}
        state = run_program(program, evaluate, memory, {}, numbers)
        expected = sums_of_products(tile, w, x, steps, PITCH, height, JUMP)
        for place, total in enumerate(expected):
            assert state.registers[f"c{place}"][0] == total


@pytest.mark.parametrize("tall", [False, True])
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_portable_c_has_the_bits_of_the_sums(
    tile: FpuTile, tall: bool, tmp_path: Path
) -> None:
    names = [f"c{place}" for place in range(tile.sums)]
    source = tmp_path / "gemm.c"
    text = SOURCE.format(
        sums=", ".join(names),
        body=portable_text(one_by_one(tile, tall=tall)),
        stores="".join(f"sums[{i}] = c{i};" for i in range(tile.sums)),
    )
    source.write_text(text.replace("(void)rows;", "(void)rows; (void)pitch;"))
    library = tmp_path / "gemm.so"
    checks = ("-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-ffp-contract=off")
    command = ["gcc", "-std=c99", *checks, "-shared", "-fPIC", source, "-o", library]
    subprocess.run(command, check=True, timeout=60)
    steps, rows = 9, 3 if tall else 1
    w, x = drawn(tile, steps, rows)
    sums = np.zeros(tile.sums, np.float32)
    at = [array.ctypes.data_as(ctypes.c_void_p) for array in (w, x, sums)]
    ctypes.CDLL(str(library)).run(at[0], at[1], steps, PITCH, rows, JUMP, at[2])
    expected = sums_of_products(tile, w, x, steps, PITCH, rows, JUMP)
    np.testing.assert_array_equal(sums, np.array(expected))


def test_rows_and_rounds_are_nested_loops() -> None:
    text = statement_text(gemm(MultiplyAdd.CHAINED, FpuTile(1, 2), 0, tall=True), FILE)
    places = ["b 2f", "1:", "add %[x], %[x], %[jump]", "2:", "mov %[rounds]", "3:"]
    places += ["subs %[rounds], #1", "bne 3b", "subs %[rows], #1", "bne 1b"]
    assert sorted(places, key=text.index) == places


FILE = vfp_file(8)


@pytest.mark.parametrize("style", MultiplyAdd)
@pytest.mark.parametrize("tall", [False, True])
def test_executed_instructions_follow_from_the_text(
    style: MultiplyAdd, tall: bool
) -> None:
    """With one iteration of each loop, all lines but labels and `others` execute."""
    tile = FpuTile(4, 2)
    program = gemm(style, tile, 2, tall=tall)
    lines = [x for x in statement_text(program, FILE).split("\n") if "\\n\\t" in x]
    texts = [line.strip()[1:-5] for line in lines]
    if tall:
        texts = texts[: texts.index("1:")] + texts[texts.index("2:") :]
    written = [text for text in texts if not text.endswith(":")]
    assert count_executed(program, {"rounds": 1, "rows": 1}) == len(written)
    again = count_executed(program, {"rounds": 4, "rows": 1})
    loop = written[written.index("mov %[rounds], %[all_rounds]") + 1 :]
    body = loop.index("bne 3b" if tall else "bne 1b") + 1
    assert again == len(written) + 3 * body


def test_a_group_takes_adjacent_registers() -> None:
    text = statement_text(copy_words(3), vfp_file(20, 3))
    assert "vldmia %[x]!, {s20-s22}" in text
    assert '"s20", "s21", "s22", "memory"' in text
    with pytest.raises(InternalError, match="copy needs more than the 2 registers"):
        statement_text(copy_words(3), vfp_file(20, 2))


def test_a_pointer_is_known_in_c_before_it_is_used() -> None:
    text = portable_text(one_by_one(FpuTile(1, 2), tall=True))
    assert text.startswith("const float *x1 = x + pitch;\n")
    assert "    x1 += jump;\n" in text
