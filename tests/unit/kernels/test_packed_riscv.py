"""Rows of packed RISC-V agree with the proposal: with its operations and its encodings.

The operations are the pseudo code of the proposal on Python's integers. Where Spike
is at hand, test_instructions_on_machines.py executes the rows, too.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.isa.instruction import Immediate, Instr, RegisterPlace
from firmwright.kernels.isa.rv32_packed import RV32_PACKED
from tests.unit.kernels.layout import EXTREMES

MAX, MIN = 2**31 - 1, -(2**31)
NUMBERS = (0, 1, 7, 8, 15, 30, 31)


def parts(word: int, bits: int, *, signed: bool) -> list[int]:
    """Return the parts of a word, the lowest first."""
    values = [word >> at & (1 << bits) - 1 for at in range(0, 32, bits)]
    if signed:
        return [value - (value >> bits - 1 << bits) for value in values]
    return values


def s8(word: int) -> list[int]:
    return parts(word, 8, signed=True)


def u8(word: int) -> list[int]:
    return parts(word, 8, signed=False)


def s16(word: int) -> list[int]:
    return parts(word, 16, signed=True)


def u16(word: int) -> list[int]:
    return parts(word, 16, signed=False)


def joined(high: int, low: int) -> int:
    return (high & 0xFFFF) << 16 | low & 0xFFFF


def bytes_of(values: list[int]) -> int:
    return sum((value & 0xFF) << 8 * at for at, value in enumerate(values))


def dot(a: list[int], b: list[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def limited(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def word(value: int) -> int:
    (signed,) = parts(value, 32, signed=True)
    return signed


OPERATIONS: dict[str, Callable[[int, int, int], int]] = {
    "smaqa": lambda d, a, b: d + dot(s8(a), s8(b)),
    "smaqa_su": lambda d, a, b: d + dot(s8(a), u8(b)),
    "umaqa": lambda d, a, b: d + dot(u8(a), u8(b)),
    "kmada": lambda d, a, b: limited(word(d) + dot(s16(a), s16(b)), MIN, MAX),
    "smbb16": lambda d, a, b: s16(a)[0] * s16(b)[0],
    "smbt16": lambda d, a, b: s16(a)[0] * s16(b)[1],
    "smtt16": lambda d, a, b: s16(a)[1] * s16(b)[1],
    "sunpkd810": lambda d, a, b: joined(s8(a)[1], s8(a)[0]),
    "sunpkd820": lambda d, a, b: joined(s8(a)[2], s8(a)[0]),
    "sunpkd831": lambda d, a, b: joined(s8(a)[3], s8(a)[1]),
    "sunpkd832": lambda d, a, b: joined(s8(a)[3], s8(a)[2]),
    "zunpkd820": lambda d, a, b: joined(u8(a)[2], u8(a)[0]),
    "zunpkd831": lambda d, a, b: joined(u8(a)[3], u8(a)[1]),
    "pkbt16": lambda d, a, b: joined(u16(a)[0], u16(b)[1]),
    "pktb16": lambda d, a, b: joined(u16(a)[1], u16(b)[0]),
    "smax8": lambda d, a, b: bytes_of([*map(max, s8(a), s8(b))]),
    "smin8": lambda d, a, b: bytes_of([*map(min, s8(a), s8(b))]),
    "sclip32": lambda n, a, b: limited(word(a), -(2**n), 2**n - 1),
    "uclip32": lambda n, a, b: limited(word(a), 0, 2**n - 1),
}
"""Rd by the old Rd, or by the number in the text, and by Rs1 and Rs2."""

ENCODINGS = {
    "smaqa": 0xC8000077,
    "smaqa_su": 0xCA000077,
    "umaqa": 0xCC000077,
    "kmada": 0x48001077,
    "smbb16": 0x08001077,
    "smbt16": 0x18001077,
    "smtt16": 0x28001077,
    "sunpkd810": 0xAC800077,
    "sunpkd820": 0xAC900077,
    "sunpkd831": 0xACB00077,
    "sunpkd832": 0xAD300077,
    "zunpkd820": 0xACD00077,
    "zunpkd831": 0xACF00077,
    "pkbt16": 0x1E001077,
    "pktb16": 0x3E001077,
    "smax8": 0x8A000077,
    "smin8": 0x88000077,
    "sclip32": 0xE4000077,
    "uclip32": 0xF4000077,
}
"""Instructions with zeros as registers and number."""


def operands() -> tuple[Array, Array, Array]:
    """Return Rd, Rs1 and Rs2: extreme values in all combinations, and random ones."""
    rng = np.random.default_rng(11)
    extremes = np.array([*product(EXTREMES[:16], repeat=3)], np.uint32)
    drawn = rng.integers(0, 1 << 32, (300, 3)).astype(np.uint32)
    rows = np.concatenate([extremes, drawn])
    return rows[:, 0], rows[:, 1], rows[:, 2]


def differences(instr: Instr, number: int) -> list[str]:
    given = dict(zip("dab", operands(), strict=True))
    values: list[list[Array] | int] = []
    for operand in instr.operands:
        if isinstance(operand.place, RegisterPlace):
            values.append([given[operand.name].view(operand.place.dtype.np)])
        else:
            values.append(number)
    ((found,),) = evaluate(instr, values)
    has_number = any(isinstance(each.place, Immediate) for each in instr.operands)
    rows = zip(*(each.tolist() for each in given.values()), strict=True)
    wrong = []
    for (d, a, b), result in zip(rows, found.tolist(), strict=True):
        expected = OPERATIONS[instr.name](number if has_number else d, a, b)
        if (expected - result) % 2**32:
            wrong.append(f"{instr.name}({d:#x}, {a:#x}, {b:#x}) is not {result:#x}")
    return wrong


@pytest.mark.parametrize("instr", [*RV32_PACKED], ids=lambda instr: instr.name)
def test_semantics_are_the_operations_of_the_proposal(instr: Instr) -> None:
    has_number = any(isinstance(each.place, Immediate) for each in instr.operands)
    for number in NUMBERS if has_number else NUMBERS[:1]:
        assert not differences(instr, number)


@pytest.mark.qemu("riscv32")
def test_texts_assemble_to_the_encodings_of_the_proposal(tmp_path: Path) -> None:
    lines = [instr.asm.format(d="x0", a="x0", b="x0", bits=0) for instr in RV32_PACKED]
    (tmp_path / "rows.s").write_text("\n".join([*lines, ""]))
    tools = "riscv64-unknown-elf-"
    command = [f"{tools}gcc", "-march=rv32im", "-mabi=ilp32", "-c", "rows.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run(
        [f"{tools}objdump", "-d", "rows.o"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    words = [int(text, 16) for text in re.findall(r"^ +\w+:\t(\w{8})", said, re.M)]
    assert dict(zip([row.name for row in RV32_PACKED], words, strict=True)) == ENCODINGS


@pytest.mark.qemu("riscv32")
@pytest.mark.parametrize("macro", ["", "__riscv_dsp", "FIRMWRIGHT_RISCV_P"])
def test_a_macro_selects_the_assembly_of_a_model(
    macro: str, fw, digits_path: Path, tmp_path: Path
) -> None:
    target = "riscv32 -march=rv32imacp"
    done = fw("compile", digits_path, "--target", target, "-o", tmp_path)
    assert done.status == 0
    command = ["riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32"]
    command += ["-O2", "-ffreestanding", *[f"-D{macro}=1"] * bool(macro)]
    command += ["-S", "-o", "-", "model/digits.c"]
    text = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    used = set(re.findall(r"# (smaqa|sclip32)$", text, re.M))
    assert used == ({"smaqa", "sclip32"} if macro else set())
