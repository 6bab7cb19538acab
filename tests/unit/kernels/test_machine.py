"""The comparison with machines finds wrong rows and names them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import pytest

from firmwright.base.dtypes import INT8, INT32, UINT8, UINT32
from firmwright.kernels.isa.instruction import (
    AddressForm,
    Bytes16,
    InstructionSet,
    Int,
    Ints4,
    Lanes,
    LowInt,
    Memory,
    Predicate16,
    RegisterClass,
    RegisterPlace,
    Word,
)
from firmwright.kernels.isa.lanes import wrap_difference, wrap_sum
from firmwright.kernels.isa.vectors import active, add, each
from tests.unit.kernels.cores import CORES
from tests.unit.kernels.machine import wrong_instructions

pytestmark = pytest.mark.qemu("arm")
Ints8 = Annotated[Lanes, RegisterPlace(RegisterClass.VECTOR, INT32, 8)]
BytesInMemory = Annotated[Lanes, Memory(INT8, 16, range(1))]
Byte = Annotated[Lanes, Memory(UINT8, 1, range(-255, 4096), advances=range(256))]
ThreeWords = Annotated[
    Lanes,
    Memory(UINT32, 3, range(1), can_advance=True, form=AddressForm.MULTIPLE),
]
TooWide = Annotated[Lanes, Memory(UINT8, 1, range(-255, 4097))]


def test_wrong_semantics_are_found_with_operands_and_values(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("add {d}, {a}, {b}")
    def right(a: Int, b: Int) -> Int:
        return wrap_sum(a, b)

    @table.instruction("sub {d}, {a}, {b}")
    def reversed_difference(a: Int, b: Int) -> Int:
        return wrap_difference(b, a)

    @table.instruction("add {d}, {a}, {b}")
    def overflows(a: Int, b: Int) -> Int:
        return a + b

    @table.instruction("ldrb {d}, {address}")
    def signed_byte(address: Byte) -> Int:
        return address[0].cast(INT32) - 1

    @table.instruction("str {a}, {address}")
    def writes_more(a: Int) -> Byte:
        return (a.cast(UINT8),)

    wrong = wrong_instructions(CORES["cortex-m3"], table, tmp_path)
    assert list(wrong) == [
        "reversed_difference",
        "overflows",
        "signed_byte",
        "writes_more",
    ]
    assert wrong["reversed_difference"] == (
        "'sub r0, lr, r12': of a = 0x0, b = 0x1 the machine returns d = 0xffffffff, "
        "the semantics d = 0x1"
    )
    assert "its semantics fail: " in wrong["overflows"]
    assert "address = 0x" in wrong["signed_byte"]
    assert "then a5a5a5a5" in wrong["writes_more"]


def test_a_wrong_advance_is_found(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("ldm {address}, {{{d0}, {d1}}}")
    def two_words(address: ThreeWords) -> tuple[Word, Word]:
        return address[0], address[1]

    wrong = wrong_instructions(CORES["cortex-m3"], table, tmp_path)
    machine, semantics = re.findall(r"base = (\d+)", wrong["two_words"])
    assert int(semantics) == int(machine) + 4


def test_a_result_that_destroys_an_operand_is_found(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("mov {d}, #0\n\tadd {d}, {d}, {a}")
    def stated(a: Int) -> Int:
        return a

    @table.instruction("mov {d}, #0; add {d}, {d}, {a}")
    def hidden(a: Int) -> Int:
        return a

    wrong = wrong_instructions(CORES["cortex-m3"], table, tmp_path)
    assert list(wrong) == ["hidden"]
    assert "add lr, lr, lr" in wrong["hidden"]


@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m33"])
def test_a_wrong_register_class_is_found(core: str, tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("movs.n {d}, {a}")
    def low(a: LowInt) -> LowInt:
        return a

    @table.instruction("muls.n {d}, {a}, {d}")
    def core_register(d: Int, a: LowInt) -> Int:
        return d

    wrong = wrong_instructions(CORES[core], table, tmp_path)
    assert list(wrong) == ["core_register"]
    assert wrong["core_register"].startswith("does not assemble: ")


def test_a_wrong_range_of_offsets_is_found(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("ldrb {d}, {address}")
    def right(address: Byte) -> Int:
        return address[0].cast(INT32)

    @table.instruction("ldrb {d}, {address}")
    def too_wide(address: TooWide) -> Int:
        return address[0].cast(INT32)

    wrong = wrong_instructions(CORES["cortex-m3"], table, tmp_path)
    assert list(wrong) == ["too_wide"]
    assert wrong["too_wide"].startswith("does not assemble: ")


def test_an_instruction_that_the_core_lacks_is_found(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("udf #0\n\tmov {d}, {a}")
    def stops(a: Int) -> Int:
        return a

    wrong = wrong_instructions(CORES["cortex-m4"], table, tmp_path)
    assert wrong == {"stops": "'udf #0\\n\\tmov r0, lr': the machine stops"}


def test_a_wrong_lane_is_named(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("vmov {d}[2], {d}[0], {a}, {b}")
    def exchanged(d: Ints4, a: Int, b: Int) -> Ints4:
        return a, d[1], d[2], b

    @table.instruction("vldrbt.u8 {d}, {address}")
    def keeps_lanes(d: Bytes16, address: BytesInMemory, inside: Predicate16) -> Bytes16:
        return active(inside, address, d)

    @table.instruction("vadd.i32 {d}, {a}, {b}", c="vsubq_s32({a}, {b})")
    def other_intrinsic(a: Ints4, b: Ints4) -> Ints4:
        return each(add, a, b)

    wrong = wrong_instructions(CORES["cortex-m55 vectors"], table, tmp_path)
    assert list(wrong) == ["exchanged", "keeps_lanes", "other_intrinsic"]
    assert "lane 2 of d: " in wrong["exchanged"]
    assert re.search(
        r"'vpst\\n\\tvldrbt.u8 q0, .*': lane \d+ of d", wrong["keeps_lanes"]
    )
    assert wrong["other_intrinsic"].startswith("'vsubq_s32(a, b)': lane ")


@pytest.mark.zig
@pytest.mark.qemu("riscv32")
def test_a_wrong_lane_of_a_group_is_named(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("", c="__riscv_vadd_vx_i32m2({a}, {b}, {vl})")
    def adds_to_the_first(a: Ints8, b: Int, vl: Word) -> Ints8:
        return (add(a[0], b), *a[1:])

    wrong = wrong_instructions(CORES["rv32 vectors"], table, tmp_path)
    assert ": lane 1 of d: " in wrong["adds_to_the_first"]


@pytest.mark.qemu("xtensa")
def test_wrong_rows_of_a_core_without_a_board_are_found(tmp_path: Path) -> None:
    table = InstructionSet("planted", frozenset())

    @table.instruction("sub {d}, {a}, {b}")
    def reversed_difference(a: Int, b: Int) -> Int:
        return wrap_difference(b, a)

    @table.instruction("ill\n\tmov {d}, {a}")
    def stops(a: Int) -> Int:
        return a

    wrong = wrong_instructions(CORES["lx106"], table, tmp_path)
    assert list(wrong) == ["reversed_difference", "stops"]
    assert "the machine returns d = 0xffffffff" in wrong["reversed_difference"]
    assert wrong["stops"].endswith(": the machine stops")
