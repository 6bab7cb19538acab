"""Portable C of the integer intrinsics against their numpy meaning at edge values."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.ops.float32_requantize import REQUANTIZE_FLOAT32
from firmwright.ops.gate_functions import (
    GATE_FUNCTIONS,
    WITHIN_QUARTER,
    GateFunction,
    powers_within_quarter,
)
from firmwright.ops.intrinsics import BASE_INTRINSICS

CLZ = BASE_INTRINSICS["clz"]
FLOAT_OF_BITS = BASE_INTRINSICS["float_of_bits"]
INVERSE_ROOT = BASE_INTRINSICS["inverse_root"]
INVERSE_ROOT_SHIFT = BASE_INTRINSICS["inverse_root_shift"]
LOGARITHM = BASE_INTRINSICS["logarithm"]
NEAREST_INT8 = BASE_INTRINSICS["nearest_int8"]
POWER_I32 = BASE_INTRINSICS["power_i32"]
LOW_POWER_I32 = BASE_INTRINSICS["low_power_i32"]
RECIPROCAL = BASE_INTRINSICS["reciprocal"]
REQUANTIZE_DOUBLED = BASE_INTRINSICS["requantize_doubled"]
REQUANTIZE_ONCE = BASE_INTRINSICS["requantize_once"]
REQUANTIZE_TWICE = BASE_INTRINSICS["requantize_twice"]
FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")
SANITIZERS = (
    "-fsanitize=undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
    "-fsanitize-undefined-trap-on-error",
)


def compiled(item: Intrinsic, folder: Path) -> ctypes.CDLL:
    """Return a library with a function `run` that applies the intrinsic to arrays."""
    names = [operand.name for operand in item.operands]
    kinds = [operand.dtype.c_type for operand in item.operands]
    result = item.result.c_type if item.result else "void"
    typed = list(zip(kinds, names, strict=True))
    params = ", ".join(f"{kind} {name}" for kind, name in typed)
    arrays = ", ".join(f"const {kind} *{name}" for kind, name in typed)
    values = ", ".join(f"{name}[i]" for name in names)
    rare = f"static {result} rare({params})\n{{\n{item.rare}\n}}\n" if item.rare else ""
    end = f"return rare({', '.join(names)});\n" if item.rare else ""
    source = folder / f"{item.name}.c"
    source.write_text(
        f"#include <stdint.h>\n{rare}static {result} f({params})\n{{\n{item.portable}\n{end}}}\n"
        f"void run(int32_t n, {arrays}, {result} *y);\n"
        f"void run(int32_t n, {arrays}, {result} *y)\n"
        f"{{\n    for (int32_t i = 0; i < n; ++i) {{\n        y[i] = f({values});\n    }}\n}}\n"
    )
    library = source.with_suffix(".so")
    compiler = (
        shutil.which("gcc") or shutil.which("clang") or shutil.which("cc") or "cc"
    )
    command = [
        compiler,
        *FLAGS,
        *SANITIZERS,
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def in_c(item: Intrinsic, columns: Sequence[np.ndarray], folder: Path) -> np.ndarray:
    assert item.result is not None
    result = np.zeros(len(columns[0]), item.result.np)
    pointers = [column.ctypes.data_as(ctypes.c_void_p) for column in (*columns, result)]
    compiled(item, folder).run(ctypes.c_int32(len(result)), *pointers)
    return result


def requantize_edges(item: Intrinsic) -> np.ndarray:
    """Return rows of (x, multiplier, shift) that do not overflow 32 bits."""
    near = [
        0,
        1,
        2,
        3,
        5,
        127,
        128,
        (1 << 15) - 1,
        1 << 20,
        (1 << 30) - 1,
        (1 << 31) - 1,
    ]
    xs = sorted({sign * x for x in near for sign in (1, -1)} | {-(1 << 31)})
    multipliers = (0, 1 << 30, (1 << 30) + 1, 1518500250, (1 << 31) - 1)
    shifts = (-31, -30, -17, -8, -2, -1, 0, 1, 2, 7, 12)
    rows = np.array(list(itertools.product(xs, multipliers, shifts)), np.int64)
    x, multiplier, shift = rows.T
    if item is REQUANTIZE_ONCE:
        reach = np.abs(x * multiplier) / 2.0 ** (31 - shift)
    else:
        reach = np.abs(x) * 2.0 ** np.maximum(shift, 0)
    fits = reach < (1 << 31) - 1
    return np.ascontiguousarray(rows[fits].T.astype(np.int32))


@pytest.mark.host_c
@pytest.mark.parametrize(
    "item", [REQUANTIZE_ONCE, REQUANTIZE_TWICE], ids=lambda item: item.name
)
def test_requantization_in_c_equals_numpy(item: Intrinsic, tmp_path: Path) -> None:
    columns = requantize_edges(item)
    assert columns.shape[1] > 700
    np.testing.assert_array_equal(in_c(item, columns, tmp_path), item.meaning(*columns))


@pytest.mark.host_c
def test_rounding_multiply_high_in_c_equals_the_rounding_of_two_steps(
    tmp_path: Path,
) -> None:
    x, multiplier, shift = requantize_edges(REQUANTIZE_TWICE)
    is_fitting = (shift <= 0) & (np.abs(x.astype(np.int64)) < 1 << 30)
    x, multiplier, shift = (column[is_fitting] for column in (x, multiplier, shift))
    result = in_c(REQUANTIZE_DOUBLED, np.stack([x * 2, multiplier, -shift]), tmp_path)
    assert len(result) > 300
    np.testing.assert_array_equal(
        result, REQUANTIZE_TWICE.meaning(x, multiplier, shift)
    )
    ends = np.array(
        np.meshgrid([-(1 << 31), (1 << 31) - 1], [(1 << 31) - 1], [0, 1, 31])
    )
    ends = ends.reshape(3, -1).astype(np.int32)
    np.testing.assert_array_equal(
        in_c(REQUANTIZE_DOUBLED, ends, tmp_path), REQUANTIZE_DOUBLED.meaning(*ends)
    )


@pytest.mark.host_c
def test_requantization_in_float32_in_c_equals_numpy(tmp_path: Path) -> None:
    """Draw 24-bit multipliers, marked as odd, and sums that are ties or near ties."""
    rng = np.random.Generator(np.random.PCG64(4))
    multiplier = rng.integers(1 << 23, 1 << 24, 3000) << 7
    multiplier[::5] = 1 << 30
    shift = rng.integers(-14, 1, multiplier.size)
    step = multiplier * 2.0 ** (shift - 31)
    tie = (rng.integers(-300, 300, multiplier.size) + 0.5) / step
    x = np.rint(tie + rng.integers(-2, 3, multiplier.size))
    edges = np.array([[0, (1 << 31) - 1, -(1 << 31)], [1 << 30] * 3, [-20, 0, 0]])
    columns = np.concatenate([np.stack([x, multiplier, shift]), edges], axis=1).astype(
        np.int64
    )
    columns[1] += 1
    columns = np.ascontiguousarray(columns.astype(np.int32))
    expected = REQUANTIZE_FLOAT32.meaning(*columns)
    factor = np.ldexp((columns[1] & -128).astype(np.float32), columns[2] - 31)
    floats = np.rint(columns[0].astype(np.float32) * factor).clip(
        -(2.0**31), 2.0**31 - 1
    )
    np.testing.assert_array_equal(
        expected, floats.astype(np.float64).clip(max=(1 << 31) - 1)
    )
    np.testing.assert_array_equal(in_c(REQUANTIZE_FLOAT32, columns, tmp_path), expected)


@pytest.mark.host_c
def test_infinities_and_nan_are_converted_to_integers_as_c_defines(
    tmp_path: Path,
) -> None:
    ends = np.array([np.nan, -np.inf, -1e38, 0.0, 2.0, 1e38, np.inf], np.float32)
    low, high = (np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(ends, ends))
    points = in_c(BASE_INTRINSICS["dynamic_zero_point"], (low, high), tmp_path)
    assert (abs(points) <= 128).all()
    nearest = in_c(NEAREST_INT8, (ends, np.zeros(len(ends), np.int32)), tmp_path)
    assert nearest.tolist() == [-128, -128, -128, 0, 2, 127, 127]


def sums() -> np.ndarray:
    """Return positive sums at and near powers of two, and some between."""
    rng = np.random.Generator(np.random.PCG64(5))
    powers = (np.int64(1) << np.arange(31))[:, None] + np.arange(-1, 2)
    drawn = np.exp2(rng.uniform(0, 31, 500)).astype(np.int64)
    values = np.concatenate([powers.reshape(-1), drawn, [(1 << 31) - 1]])
    return values[values > 0].astype(np.int32)


@pytest.mark.host_c
def test_count_leading_zeros_in_c_equals_numpy(tmp_path: Path) -> None:
    columns = sums()[None]
    expected = [32 - int(value).bit_length() for value in columns[0]]
    assert CLZ.meaning(columns[0]).tolist() == expected
    assert in_c(CLZ, columns, tmp_path).tolist() == expected


@pytest.mark.host_c
def test_reciprocal_in_c_equals_numpy_and_is_accurate(tmp_path: Path) -> None:
    total = sums()
    columns = np.ascontiguousarray(np.stack([total, CLZ.meaning(total)]))
    found = in_c(RECIPROCAL, columns, tmp_path)
    np.testing.assert_array_equal(found, RECIPROCAL.meaning(*columns))
    normal = columns[0].astype(np.float64) * 2.0 ** columns[1] / 2.0**31
    np.testing.assert_allclose(found / 2.0**31, 1 / normal, atol=1e-8)


@pytest.mark.host_c
def test_rounding_to_int8_in_c_equals_numpy(tmp_path: Path) -> None:
    halves = np.arange(-540, 541, dtype=np.float32) / 2
    below, above = (
        np.nextafter(halves, np.float32(-500)),
        np.nextafter(halves, np.float32(500)),
    )
    wide = np.array([0.0, -0.0, 1e-40, -1e-40, 1e6, -1e6, 5e8, -5e8], np.float32)
    values = np.concatenate([halves, below, above, wide])
    offsets = np.array([-128, 0, 7, 127], np.int32)
    columns = np.tile(values, len(offsets)), np.repeat(offsets, len(values))
    found = in_c(NEAREST_INT8, columns, tmp_path)
    np.testing.assert_array_equal(found, NEAREST_INT8.meaning(*columns))
    nearest = NEAREST_INT8.meaning(np.float32([0.5, -0.5, 1.49, -1.5]), 3)
    assert nearest.tolist() == [4, 2, 4, 1]


@pytest.mark.host_c
def test_bits_are_reinterpreted_as_float(tmp_path: Path) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.5, 1e-40, 3e38], np.float32)
    columns = values.view(np.int32)[None]
    assert in_c(FLOAT_OF_BITS, columns, tmp_path).tobytes() == values.tobytes()
    assert FLOAT_OF_BITS.meaning(columns[0]).tobytes() == values.tobytes()


@pytest.mark.host_c
@pytest.mark.parametrize("function", GATE_FUNCTIONS, ids=lambda each: each.name)
def test_gate_functions_in_c_equal_numpy_and_are_accurate(
    function: GateFunction, tmp_path: Path
) -> None:
    x = np.arange(-(1 << 15), 1 << 15).astype(np.int32)
    found = in_c(BASE_INTRINSICS[function.name], x[None], tmp_path)
    np.testing.assert_array_equal(found, function.apply(x))
    real = x / 2.0 ** (15 - function.integer_bits)
    exact = np.tanh(real) if function.is_tanh else 1 / (1 + np.exp(-real))
    np.testing.assert_allclose(found / 2.0**15, exact, atol=4e-4)


@pytest.mark.host_c
@pytest.mark.parametrize(
    "function",
    [each for each in GATE_FUNCTIONS if each.has_table],
    ids=lambda each: each.name,
)
def test_gate_functions_by_table_equal_those_by_series(
    function: GateFunction, tmp_path: Path
) -> None:
    x = np.arange(-(1 << 15), 1 << 15).astype(np.int32)
    distance = (np.abs(x) << function.distance_shift) - 1
    powers = powers_within_quarter()[distance % WITHIN_QUARTER].astype(np.int32)
    columns = np.stack([x, distance, powers])
    found = in_c(BASE_INTRINSICS[function.table_name], columns, tmp_path)
    np.testing.assert_array_equal(found, function.apply(x))
    np.testing.assert_array_equal(function.apply_to_power(*columns), found)


@pytest.mark.host_c
def test_inverse_root_in_c_equals_numpy_and_is_accurate(tmp_path: Path) -> None:
    x = np.concatenate([sums(), [0]]).astype(np.int32)
    root, shift = (
        in_c(item, x[None], tmp_path) for item in (INVERSE_ROOT, INVERSE_ROOT_SHIFT)
    )
    np.testing.assert_array_equal(root, INVERSE_ROOT.meaning(x))
    np.testing.assert_array_equal(shift, INVERSE_ROOT_SHIFT.meaning(x))
    exact = 1 / np.sqrt(np.maximum(x, 1).astype(np.float64))
    np.testing.assert_allclose(root * 2.0 ** (shift - 31), exact, rtol=1e-4)


@pytest.mark.host_c
def test_logarithm_in_c_equals_numpy_and_is_accurate(tmp_path: Path) -> None:
    x = sums()[sums() >= 1 << 19]
    found = in_c(LOGARITHM, x[None], tmp_path)
    np.testing.assert_array_equal(found, LOGARITHM.meaning(x))
    np.testing.assert_allclose(found / 2.0**26, np.log(x / 2.0**19), atol=1e-6)


def bases_and_exponents() -> np.ndarray:
    bases = (-(1 << 31), -46341, -3, -2, -1, 0, 1, 2, 7, 46340, 46341, (1 << 31) - 1)
    exponents = (*range(-1, 35), (1 << 31) - 2, (1 << 31) - 1)
    rows = np.array(list(itertools.product(bases, exponents)), np.int32)
    return np.ascontiguousarray(rows.T)


@pytest.mark.host_c
def test_low_bits_of_a_power_in_c_equal_numpy(tmp_path: Path) -> None:
    columns = bases_and_exponents()
    found = in_c(LOW_POWER_I32, columns, tmp_path)
    np.testing.assert_array_equal(found, LOW_POWER_I32.meaning(*columns))


@pytest.mark.host_c
def test_integer_power_in_c_equals_numpy(tmp_path: Path) -> None:
    columns = bases_and_exponents()
    found = in_c(POWER_I32, columns, tmp_path)
    np.testing.assert_array_equal(found, POWER_I32.meaning(*columns))
    with np.errstate(over="ignore"):
        floats = np.float64(columns[0]) ** np.maximum(columns[1], 0)
    fits = (floats >= -(2.0**31)) & (floats < 2.0**31)
    assert found.tolist() == np.where(fits, floats, -(2.0**31)).tolist()
