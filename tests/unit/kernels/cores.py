"""Cores that execute instructions in tests: boards, registers, and access to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from firmwright.boards import Board, load_board
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.dsp_lanes import DSP_LANES
from firmwright.kernels.isa.instruction import InstructionSet, RegisterClass
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.rv32_bitmanip import RV32_ZBA, RV32_ZBB
from firmwright.kernels.isa.thumb1 import THUMB1
from firmwright.kernels.isa.thumb2 import THUMB2
from firmwright.kernels.isa.thumb2_bits import THUMB2_BITS


@dataclass(frozen=True)
class Access:
    """The registers of a class, those at its ends first, and how they are accessed.

    Texts load `{register}` from, or store it to, `{offset}` bytes after `{pointer}`.
    """

    registers: tuple[str, ...]
    load: str
    store: str


@dataclass(frozen=True)
class Core:
    """A core and its instruction sets.

    The registers `operands` and `results` point to the data of a case; no class has
    them. `number` loads a number into a register, `add` and `subtract` change one by
    another. Texts may change registers in `scratch`.
    """

    board_name: str
    sets: tuple[InstructionSet, ...]
    classes: Mapping[RegisterClass, Access]
    operands: str = "r5"
    results: str = "r6"
    number: str = "ldr {register}, ={value}"
    add: str = "add {register}, {other}"
    subtract: str = "subs {register}, {register}, {other}"
    scratch: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("-masm-syntax-unified",)

    @property
    def board(self) -> Board:
        return load_board(self.board_name)


_LOAD = "ldr {register}, [{pointer}, #{offset}]"
_STORE = "str {register}, [{pointer}, #{offset}]"
_CORE_REGISTERS = (
    "r0",
    "lr",
    "r12",
    "r7",
    "r8",
    "r1",
    "r11",
    "r2",
    "r10",
    "r3",
    "r9",
    "r4",
)
_LOW = Access(("r0", "r7", "r1", "r3", "r2"), _LOAD, _STORE)
_THUMB1 = {
    RegisterClass.CORE: Access(
        _CORE_REGISTERS[:-1],
        f"{_LOAD.format(register='r4', pointer='{pointer}', offset='{offset}')}"
        "\n\tmov {register}, r4",
        f"mov r4, {{register}}\n\t{_STORE.replace('{register}', 'r4')}",
    ),
    RegisterClass.LOW: _LOW,
}
_THUMB2 = {
    RegisterClass.CORE: Access(_CORE_REGISTERS, _LOAD, _STORE),
    RegisterClass.LOW: _LOW,
}
_RISCV = {
    RegisterClass.CORE: Access(
        ("ra", "t6", "t0", "s11", "s1", "a0", "t1", "t5", "a1", "a2", "a3", "t2"),
        "lw {register}, {offset}({pointer})",
        "sw {register}, {offset}({pointer})",
    ),
}

ARMV7_M = (THUMB2, THUMB2_BITS)
ARMV7E_M = (*ARMV7_M, DSP, DSP_LANES)
_RISCV_CORE = Core(
    "qemu-riscv32-virt",
    (RV32, RV32_ZBA, RV32_ZBB),
    _RISCV,
    operands="a4",
    results="a5",
    number="li {register}, {value}",
    add="add {register}, {register}, {other}",
    subtract="sub {register}, {register}, {other}",
    flags=("-march=rv32imac_zba_zbb",),
)
CORES = {
    "cortex-m0": Core("microbit", (THUMB1,), _THUMB1, scratch=("r4",)),
    "cortex-m3": Core("mps2-an385", ARMV7_M, _THUMB2),
    "cortex-m4": Core("mps2-an386", ARMV7E_M, _THUMB2),
    "cortex-m7": Core("mps2-an500", ARMV7E_M, _THUMB2),
    "cortex-m33": Core("mps2-an505", ARMV7E_M, _THUMB2),
    "cortex-m55": Core("mps3-an547", ARMV7E_M, _THUMB2),
    "rv32": _RISCV_CORE,
}
