"""Cores that execute instructions in tests: boards, registers, and access to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from firmwright.boards import load_board
from firmwright.build.compiler_flags import gnu_tool
from firmwright.build.zig_toolchain import zig_command, zig_flags
from firmwright.kernels.isa.dsp import DSP
from firmwright.kernels.isa.dsp_lanes import DSP_LANES
from firmwright.kernels.isa.instruction import InstructionSet, RegisterClass
from firmwright.kernels.isa.mve import MVE
from firmwright.kernels.isa.mve_float import MVE_FLOAT
from firmwright.kernels.isa.mve_lanes import MVE_LANES
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.isa.rv32 import RV32
from firmwright.kernels.isa.rv32_bitmanip import RV32_ZBA, RV32_ZBB
from firmwright.kernels.isa.rv32_packed import RV32_PACKED
from firmwright.kernels.isa.rvv import RVV, RVV_FLOAT
from firmwright.kernels.isa.thumb1 import THUMB1
from firmwright.kernels.isa.thumb2 import THUMB2
from firmwright.kernels.isa.thumb2_bits import THUMB2_BITS
from firmwright.kernels.isa.vfp import VFP
from firmwright.kernels.isa.xtensa import XTENSA


@dataclass(frozen=True)
class Access:
    """The registers of a class, those at its ends first, and how they are accessed.

    Texts load `{register}` from, or store it to, `{offset}` bytes after `{pointer}`.
    `{bits}` is the width of a lane.
    """

    registers: tuple[str, ...]
    load: str
    store: str


_GCC_FLAGS = (
    "-fno-tree-loop-distribute-patterns",
    "-Wl,--no-warn-rwx-segments",
    "-save-temps=obj",
)


_IMAGE_OF_QEMU = (
    *("-kernel", "image.elf"),
    *("-semihosting-config", "enable=on,target=native"),
    *("-display", "none", "-monitor", "none"),
)


@dataclass(frozen=True)
class Machine:
    """What compiles images and executes them, and where these are in its memory.

    `image` are the arguments that name the image, and let it call the host.
    """

    compiler: tuple[object, ...]
    emulator: tuple[str, ...]
    code: int
    data: int
    end: int
    image: tuple[str, ...] = _IMAGE_OF_QEMU


def machine_of(board_name: str) -> Machine:
    """Return the machine of a board, whose compiler is gcc or that of zig."""
    board = load_board(board_name)
    compiler: tuple[object, ...]
    if board.compiler == "zig":
        compiler = (*zig_command(), "cc", *zig_flags(board))
    else:
        compiler = (gnu_tool(board, "gcc"), *board.cpu_flags, *_GCC_FLAGS)
    run = board.run
    emulator = (run.program, "-machine", run.machine, *run.args)
    return Machine(
        compiler, emulator, board.flash.start, board.ram.start, board.ram.end
    )


@dataclass(frozen=True)
class Core:
    """A core and its instruction sets.

    The machine is that of a board, or one that no board has.

    The registers `operands` and `results` point to the data of a case; no class has
    them. `number` loads a number into a register, `add` and `subtract` change one by
    another. Texts may change registers in `scratch`. Operands of a case are
    `place_bytes` apart.
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
    place_bytes: int = 16
    headers: tuple[str, ...] = ()
    flags: tuple[str, ...] = ("-masm-syntax-unified",)
    machine_without_board: Machine | None = None

    @property
    def machine(self) -> Machine:
        return self.machine_without_board or machine_of(self.board_name)

    @property
    def has_vector_groups(self) -> bool:
        """Whether vectors are groups of registers, as those of RISC-V."""
        return not {RVV, RVV_FLOAT}.isdisjoint(self.sets)


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
_XTENSA = {
    RegisterClass.CORE: Access(
        ("a0", "a15", "a4", "a12", "a5", "a14", "a6", "a13", "a7", "a9", "a10", "a11"),
        "l32i {register}, {pointer}, {offset}",
        "s32i {register}, {pointer}, {offset}",
    ),
}

_FPU = {
    **_THUMB2,
    RegisterClass.FLOAT: Access(
        ("s0", "s31", "s15", "s16", "s1"),
        "vldr {register}, [{pointer}, #{offset}]",
        "vstr {register}, [{pointer}, #{offset}]",
    ),
}
# A predicate is the signs of the lanes of a vector in memory, and stored as bits.
_HELIUM = {
    RegisterClass.CORE: Access(_CORE_REGISTERS[:-1], _LOAD, _STORE),
    RegisterClass.LOW: _LOW,
    RegisterClass.EVEN: Access(("r0", "lr", "r12", "r2", "r8"), _LOAD, _STORE),
    RegisterClass.VECTOR: Access(
        ("q0", "q6", "q5", "q1", "q3"),
        "vldrw.u32 {register}, [{pointer}, #{offset}]",
        "vstrw.u32 {register}, [{pointer}, #{offset}]",
    ),
    RegisterClass.PREDICATE: Access(
        ("p0",),
        "vldrw.u32 q7, [{pointer}, #{offset}]\n\tvcmp.s{bits} lt, q7, zr",
        "vmrs r4, p0\n\tstr r4, [{pointer}, #{offset}]",
    ),
}

LX106 = machine_of("qemu-xtensa-lx106")
LX6 = replace(
    LX106,
    compiler=(
        os.environ.get("FIRMWRIGHT_LX6_GCC", ""),
        *("-mabi=call0", "-DUSES_LX6", *_GCC_FLAGS),
    ),
    emulator=(*LX106.emulator[:-1], "de212"),
)
"""QEMU's DE212 with a gcc that is configured for the core of the ESP32."""
_PACKED_SET = ("-march=rv32imc_zicsr", "-mabi=ilp32")
SPIKE = Machine(
    ("riscv64-unknown-elf-gcc", *_PACKED_SET, "-DUSES_HTIF", *_GCC_FLAGS),
    (os.environ.get("FIRMWRIGHT_SPIKE", ""), "--isa=rv32imcp"),
    code=0x80000000,
    data=0x80400000,
    end=0x80800000,
    image=("image.elf",),
)
"""Spike, while it had the packed SIMD of the draft: in 2024 at the latest."""
ARMV7_M = (THUMB2, THUMB2_BITS)
ARMV7E_M = (*ARMV7_M, DSP, DSP_LANES)
_RV32 = Core(
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
    "cortex-m0": Core("microbit", (THUMB1,), _THUMB1, scratch=("r4",), place_bytes=4),
    "cortex-m3": Core("mps2-an385", ARMV7_M, _THUMB2),
    "cortex-m4": Core("mps2-an386", (*ARMV7E_M, VFP), _FPU),
    "cortex-m7": Core("mps2-an500", (*ARMV7E_M, VFP), _FPU),
    "cortex-m33": Core("mps2-an505", ARMV7E_M, _THUMB2),
    "cortex-m55": Core("mps3-an547", ARMV7E_M, _THUMB2),
    "cortex-m55 vectors": Core(
        "mps3-an547",
        (MVE, MVE_LANES, MVE_MEMORY, MVE_FLOAT),
        _HELIUM,
        scratch=("r4", "q7"),
        headers=("arm_mve.h",),
    ),
    "rv32 vectors": Core(
        "qemu-riscv32-virt-v",
        (RVV,),
        {},
        place_bytes=128,
        headers=("riscv_vector.h",),
        flags=(),
    ),
    "rv32 float vectors": Core(
        "qemu-riscv32-virt-vf",
        (RVV_FLOAT,),
        {},
        place_bytes=128,
        headers=("riscv_vector.h",),
        flags=(),
    ),
    "rv32": _RV32,
    "rv32 packed": replace(
        _RV32,
        board_name="",
        sets=(RV32_PACKED,),
        flags=(),
        machine_without_board=SPIKE,
    ),
    "lx106": Core(
        "qemu-xtensa-lx106",
        (XTENSA,),
        _XTENSA,
        operands="a2",
        results="a3",
        number="movi {register}, {value}",
        add="add {register}, {register}, {other}",
        subtract="sub {register}, {register}, {other}",
        flags=(),
    ),
}
