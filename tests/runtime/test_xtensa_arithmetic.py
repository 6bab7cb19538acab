"""Arithmetic that the LX106 lacks: the functions of the port and of gcc, in QEMU.

They must have the results of this computer, whose floats are those of IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.kernels.cores import LX106
from tests.unit.kernels.images import build_image, run_image

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "runtime_c/port/xtensa").glob("gcc_*.c"))
INCLUDES = [f"-I{ROOT / 'runtime_c/port'}"]
CASES = 600
Values = NDArray[Any]
C_TYPES = {
    "f4": "float",
    "f8": "double",
    "i4": "int32_t",
    "u4": "uint32_t",
    "i8": "int64_t",
    "u8": "uint64_t",
}


@dataclass(frozen=True)
class Operation:
    """An expression of C over `a` and `b`, and its value by NumPy."""

    operand: str
    result: str
    text: str
    value: Callable[[Values, Values], Values]

    @property
    def name(self) -> str:
        return f"{C_TYPES[self.result]} of {self.text} for {C_TYPES[self.operand]}"


def quotient(a: Values, b: Values) -> Values:
    """Return the quotient that is rounded to zero, as that of C."""
    floor, rest = np.floor_divide(a, b), np.remainder(a, b)
    return floor + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def operations() -> list[Operation]:
    """Return all operations that gcc calls functions for."""
    rows = []
    for kind in ("f4", "f8"):
        rows += [
            Operation(kind, kind, "a + b", np.add),
            Operation(kind, kind, "a - b", np.subtract),
            Operation(kind, kind, "a * b", np.multiply),
            Operation(kind, kind, "a / b", np.divide),
            Operation(kind, "i4", "a < b", np.less),
            Operation(kind, "i4", "a <= b", np.less_equal),
            Operation(kind, "i4", "a > b", np.greater),
            Operation(kind, "i4", "a >= b", np.greater_equal),
            Operation(kind, "i4", "a == b", np.equal),
            Operation(kind, "i4", "a != b", np.not_equal),
        ]
        for integer in ("i4", "u4", "i8", "u8"):
            rows.append(
                Operation(kind, integer, "a", lambda a, _, to=integer: a.astype(to))
            )
    rows += [
        Operation("f4", "f8", "a", lambda a, _: a.astype("f8")),
        Operation("f8", "f4", "a", lambda a, _: a.astype("f4")),
    ]
    for kind in ("i4", "u4", "i8", "u8"):
        rows += [
            Operation(kind, "f4", "a", lambda a, _: a.astype("f4")),
            Operation(kind, "f8", "a", lambda a, _: a.astype("f8")),
            Operation(kind, kind, "a * b", np.multiply),
            Operation(kind, kind, "a / b", quotient),
            Operation(kind, kind, "a % b", lambda a, b: a - quotient(a, b) * b),
        ]
    return rows


OPERATIONS = operations()


def special_values(kind: str) -> Values:
    """Return values at the ends of ranges, among them NaN, infinities and subnormals."""
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        facts = np.finfo(dtype)
        sizes = [0, facts.smallest_subnormal, facts.tiny, 1, facts.max, np.inf, np.nan]
        steps = [1 + facts.eps, facts.tiny - facts.smallest_subnormal, 2.0**24 + 1]
        return np.array([s * x for x in (*sizes, *steps) for s in (1, -1)], dtype)
    most = np.iinfo(dtype)
    return np.array([most.min, most.min + 1, 0, 1, 2, 3, most.max - 1, most.max], dtype)


def operands_of(
    operation: Operation, rng: np.random.Generator
) -> tuple[Values, Values]:
    """Return operands that have a result in C, and of which many are near each other."""
    dtype = np.dtype(operation.operand)
    bits = rng.integers(0, 256, (CASES, dtype.itemsize), np.uint8)
    a = bits.view(dtype).ravel()
    near = bits.copy()
    near[:, : rng.integers(1, dtype.itemsize + 1)] ^= 0x5A
    b = np.where(np.arange(CASES) % 2, near.view(dtype).ravel(), rng.permutation(a))
    specials = special_values(operation.operand)
    pairs = np.array([(x, y) for x in specials for y in specials], dtype)
    assert len(pairs) <= CASES * 3 // 4, "random operands are the rest"
    a[: len(pairs)], b[: len(pairs)] = pairs.T
    if dtype.kind == "f" and operation.result[0] in "iu":
        return in_range(operation, rng), b
    if dtype.kind != "f" and operation.text[2:3] in "/%":
        # The quotient of the least integer by -1 has no result either.
        b = np.where((b == 0) | (b + dtype.type(1) == 0), dtype.type(7), b)
    return a, b


def in_range(operation: Operation, rng: np.random.Generator) -> Values:
    """Return floats whose integers are in range: C leaves others undefined."""
    if " " in operation.text:
        return operands_of(Operation(operation.operand, "f4", "", np.add), rng)[0]
    signed = operation.result[0] == "i"
    bits = 8 * np.dtype(operation.result).itemsize - signed
    sizes = np.ldexp(rng.uniform(0.5, 0.999, CASES), rng.integers(-2, bits + 1, CASES))
    signs = rng.choice([-1, 1], CASES) if signed else 1
    return (signs * sizes).astype(operation.operand)


def words(values: Values) -> NDArray[np.uint64]:
    """Return the bytes of each value, in 64 bits."""
    size = values.dtype.itemsize
    padded = np.zeros((len(values), 8), np.uint8)
    padded[:, :size] = np.ascontiguousarray(values).view(np.uint8).reshape(-1, size)
    return padded.view(np.uint64).ravel()


@pytest.mark.qemu("xtensa")
def test_arithmetic_of_functions_is_that_of_this_computer(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    pairs = [operands_of(operation, rng) for operation in OPERATIONS]
    interleaved = [np.stack([words(a), words(b)], axis=1) for a, b in pairs]
    np.concatenate(interleaved).tofile(tmp_path / "operands.bin")
    lines = [
        f"OPERATION({C_TYPES[o.operand]}, {C_TYPES[o.result]}, {o.text})\n"
        for o in OPERATIONS
    ]
    (tmp_path / "operations.inc").write_text("".join(lines))
    flags = ("-O1", "-fno-builtin", f"-I{tmp_path}", f"-DCASES={CASES}")
    flags = (*flags, f"-DOPERATIONS={len(OPERATIONS)}", *INCLUDES)
    sources = [Path(__file__).with_name("xtensa_arithmetic.c"), *SOURCES]
    build_image(LX106, sources, tmp_path, *flags)
    found = run_image(LX106, tmp_path).view(np.uint64).reshape(len(OPERATIONS), CASES)
    with np.errstate(all="ignore"):
        expected = [o.value(*pair) for o, pair in zip(OPERATIONS, pairs, strict=True)]
    wrong = []
    for operation, pair, got, want in zip(
        OPERATIONS, pairs, found, expected, strict=True
    ):
        size = np.dtype(operation.result).itemsize
        rows = got.view(np.uint8).reshape(CASES, 8)[:, :size]
        values = np.ascontiguousarray(rows).view(operation.result).ravel()
        want = want.astype(operation.result)
        same = (words(values) == words(want)) | (np.isnan(values) & np.isnan(want))
        wrong += [
            f"{operation.name}: a = {pair[0][i]!r}, b = {pair[1][i]!r} gives "
            f"{values[i]!r} instead of {want[i]!r}"
            for i in np.flatnonzero(~same)[:3]
        ]
    assert wrong == []
