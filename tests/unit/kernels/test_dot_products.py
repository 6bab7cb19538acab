"""Dot products of Helium: their sums, the same sums in C, and their instructions."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.kernels.counted_loops import count_executed
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.mve.dot_products import (
    BYTES_PER_STEP,
    DotProductLoop,
    Weights,
    dot_products,
)
from firmwright.kernels.mve.weight_layout import WeightRows, column_values
from firmwright.kernels.program import Program
from firmwright.kernels.register_files import mve_file
from firmwright.kernels.statement import statement_text
from firmwright.schedules.helium.dot_product_loop import choose_loop, portable_frame

COLUMNS = (("x",), ("x0", "x1"))
CASES = 2
SOURCE = """\
#include <stdint.h>
void run(const int8_t *w, {columns}, int32_t taps, int32_t *sums)
{{
    {frame}
    for (int32_t n = 0; n < 8; ++n) {{
        sums[n] = (n < 4 ? first : second)[n % 4];
    }}
}}
"""
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def drawn(columns: int, weights: Weights, taps: int) -> tuple[Array, Array]:
    """Return weights as they are in memory, and columns, of extreme bytes too."""
    rng = np.random.default_rng(taps)
    rows = 8 // columns
    steps = -(-taps // BYTES_PER_STEP)
    size = steps * rows * weights.width // (2 if weights is Weights.INT4 else 1)
    extremes = np.array([-128, 127, -1, 0], np.int8)
    w = rng.choice(np.arange(-128, 128), (size, CASES)).astype(np.int8)
    x = rng.choice(extremes, (columns, taps, CASES))
    return w, x


def expected_sums(columns: int, weights: Weights, w: Array, x: Array) -> Array:
    """Return the sums [column, row, case] of products of plain numbers."""
    values = [column_values(weights, column) for column in x]
    matrix = WeightRows(8 // columns, weights).unpack_block(w)
    used = matrix[:, : len(values[0])]
    return np.stack([(used * column).sum(axis=1) for column in values])


def assert_sums(
    make: Callable[[tuple[str, ...]], Program],
    names: tuple[str, ...],
    weights: Weights,
    taps: int,
) -> None:
    w, x = drawn(len(names), weights, taps)
    memory: dict[str, list[Array]] = {"w": list(w)}
    for name, column in zip(names, x, strict=True):
        memory[name] = list(column_values(weights, column))
        # A predicated load names lanes that it does not read.
        memory[name] += [np.full(CASES, 99)] * weights.width
    numbers = {"rounds": (taps // 16 - 1) // 8, "steps": taps // 16}
    rest = np.full(CASES, taps % 16 // weights.column.size_bytes, np.uint32)
    any_lanes = [np.full(CASES, 77, np.int32)] * 4
    registers = {"rest": [rest], "first": any_lanes, "second": any_lanes}
    registers["p0"] = [np.ones(CASES, np.bool_)] * 16
    state = run_program(make(names), evaluate, memory, registers, numbers)
    found = [*state.registers["first"], *state.registers["second"]]
    expected = expected_sums(len(names), weights, w, x).reshape(8, CASES)
    np.testing.assert_array_equal(np.array(found), expected)


@pytest.mark.parametrize("weights", Weights)
@pytest.mark.parametrize("names", COLUMNS)
def test_programs_are_sums_of_products(
    names: tuple[str, ...], weights: Weights
) -> None:
    for taps in (6, 48, 13 * 16 + 6):
        loop = choose_loop(taps)
        assert_sums(
            lambda x, loop=loop: dot_products(x, loop, weights), names, weights, taps
        )


@pytest.mark.parametrize("weights", Weights)
@pytest.mark.parametrize("names", COLUMNS)
def test_portable_c_has_the_same_sums(
    names: tuple[str, ...], weights: Weights, tmp_path: Path
) -> None:
    for taps in (50, 17 * 16):
        w, x = drawn(len(names), weights, taps)
        source = tmp_path / f"dot_{taps}.c"
        pointers = ", ".join(f"const int8_t *{name}" for name in names)
        frame = portable_frame(choose_loop(taps), names, weights)
        source.write_text(SOURCE.format(columns=pointers, frame=frame))
        library = source.with_suffix(".so")
        sanitized = ("-fsanitize=undefined", "-fno-sanitize-recover")
        flags = (*STRICT, *sanitized, "-shared", "-fPIC", "-o", library)
        subprocess.run(["gcc", *flags, source], check=True, timeout=60)
        run = ctypes.CDLL(str(library)).run
        expected = expected_sums(len(names), weights, w, x).reshape(8, CASES)
        for case in range(CASES):
            arrays = [w[:, case], *(column[:, case] for column in x)]
            given = [np.ascontiguousarray(each).ctypes for each in arrays]
            sums = np.zeros(8, np.int32)
            run(
                *(each.data_as(ctypes.c_void_p) for each in given),
                taps,
                sums.ctypes.data_as(ctypes.c_void_p),
            )
            np.testing.assert_array_equal(sums, expected[:, case])


@pytest.mark.parametrize("weights", Weights)
@pytest.mark.parametrize("names", COLUMNS)
def test_text_and_count_agree(names: tuple[str, ...], weights: Weights) -> None:
    for head, deep, tail in product((1, 3, 8), (False, True), (False, True)):
        loop = DotProductLoop(head, deep, tail)
        program = dot_products(names, loop, weights)
        text = statement_text(program, mve_file(4, has_core_sums=True))
        lines = [line for line in text.splitlines() if line.startswith('    "')]
        operations = [line for line in lines if r":\n" not in line and r"\n" in line]
        assert count_executed(program, {"rounds": 1}) == len(operations)
        assert text.count("vpst") == tail
        assert text.count("], #16") > 0 or weights is Weights.INT16
