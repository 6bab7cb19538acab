"""Conversions of storage types: generated C and numpy agree, for all numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from firmwright.base.dtypes import (
    BFLOAT16,
    FLOAT4_E2M1FN,
    FLOAT8_E5M2,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    INT4,
    INT32,
    STORAGE_DTYPES,
    DType,
)
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.graph_builder import GraphBuilder
from firmwright.ops.storage_types import convert

Array = NDArray[Any]
FLOATS = [dtype for dtype in STORAGE_DTYPES if dtype.has_fractions]
BOARDS = ("mps2-an386", "qemu-riscv32-virt", "microbit")


def all_numbers(dtype: DType) -> Array:
    """Return every number of the type, once or more often."""
    codes = np.arange(1 << dtype.bits)
    bits = codes.astype(f"u{dtype.size_bytes}")
    if dtype.computed is INT32:
        return np.arange(dtype.min, dtype.max + 1).astype(dtype.np)
    return bits.view(dtype.np)[: 16 if dtype is FLOAT4_E2M1FN else None]


def floats_around(dtype: DType) -> Array:
    """Return all numbers of a type, the ties between them, neighbors, and extremes."""
    numbers = all_numbers(dtype).astype(np.float32)
    known = np.unique(numbers[np.isfinite(numbers)])
    middles = (known[1:].astype(np.float64) + known[:-1]) / 2
    if dtype.size_bytes == 2:
        known, middles = known[::97], middles[::89]
    edges = np.concatenate([known, middles.astype(np.float32)])
    above = np.nextafter(edges, np.float32(np.inf))
    below = np.nextafter(edges, np.float32(-np.inf))
    extremes = [0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, -1e-45, 6e-39]
    return np.concatenate([edges, above, below, np.array(extremes, np.float32)])


def integers(dtype: DType) -> Array:
    return np.array([*range(-40, 40), 2**31 - 1, -(2**31)], np.int32)


def both_ways(dtype: DType, board: str) -> tuple[Array, Array, dict[str, Array]]:
    """Return the inputs of conversions from and to a type, and the results of C."""
    stored = all_numbers(dtype)
    make: Callable[[DType], Array] = integers
    if dtype.computed is FLOAT32:
        make = floats_around
    numbers = make(dtype)
    graph = GraphBuilder("conversions")
    x = graph.input("x", (len(stored),), dtype.name)
    u = graph.input("u", (len(numbers),), dtype.computed.name)
    reading = f"{dtype.computed.name}(a)"
    read = graph.call("expression", x, name="read", formula=reading)
    made = graph.call("expression", u, name="made", formula=f"{dtype.name}(a)")
    module = graph.module(read, made).with_numerics("onnx")
    compiled = compile_for(module, board=board)
    with open_session(compiled, in_process=board == "host") as session:
        (results,) = session.run_all([{"x": stored, "u": numbers}])
    return stored, numbers, results


def assert_same_numbers(got: Array, want: Array) -> None:
    """Compare the bits of all but NaN."""
    unsigned = f"u{want.itemsize}"
    are_bits = got.view(unsigned) == want.view(unsigned)
    if want.dtype.kind in "fV":
        wide = (got.astype(np.float32), want.astype(np.float32))
        are_bits |= np.isnan(wide[0]) & np.isnan(wide[1])
    assert are_bits.all(), (got[~are_bits][:5], want[~are_bits][:5])


def check_both_ways(dtype: DType, board: str) -> None:
    stored, numbers, results = both_ways(dtype, board)
    assert_same_numbers(results["read"], stored.astype(dtype.computed.np))
    made = results["made"]
    with np.errstate(all="ignore"):
        want = convert(numbers, dtype)
        if dtype.computed is INT32:
            made, want = made.astype(np.int8), want.astype(np.int8)
        assert_same_numbers(made, want)


@pytest.mark.host_c
@pytest.mark.parametrize("dtype", STORAGE_DTYPES, ids=lambda dtype: dtype.name)
def test_generated_c_converts_every_number_both_ways(dtype: DType) -> None:
    check_both_ways(dtype, "host")


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize(
    "dtype", [FLOAT16, BFLOAT16, FLOAT8_E5M2, INT4], ids=lambda dtype: dtype.name
)
def test_a_board_converts_every_number_both_ways(dtype: DType, board: str) -> None:
    if dtype.size_bytes == 2 and board == "microbit":
        pytest.skip("65,536 numbers do not fit its memory")
    check_both_ways(dtype, board)


def test_powers_of_two_are_rounded_up() -> None:
    numbers = np.array([1.0, 1.25, 2.0**127, 2.0**-127, 3e38, 0.0, -1.0], np.float32)
    codes = convert(numbers, FLOAT8_E8M0FNU).view(np.uint8)
    assert codes.tolist() == [127, 128, 254, 0, 255, 255, 255]
