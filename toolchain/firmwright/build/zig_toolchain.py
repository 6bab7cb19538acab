"""Zig as a toolchain: compiler, linker and C library from one Python package.

Boards without an operating system use musl's string and math functions, which make no
system calls. Without `.su` files and a disassembler, the worst stack use is unknown.
The linker accepts no symbols on the command line and writes no image if memory
overflows (decision 0063).
"""

import importlib.util
from typing import Final

from firmwright.base.child_process import Word, find_program, python_command
from firmwright.boards import Board
from firmwright.build.compiler_flags import (
    BARE_METAL,
    C_STANDARD,
    language_flags,
    runtime_defines,
)

ZIG_PACKAGE: Final = "ziglang"
INSTALL_COMMAND: Final = "pip install 'firmwright[zig]'"

_UNITS: Final = {
    "-mfpu=fpv4-sp-d16": "+vfp4d16sp",
    "-mfpu=fpv5-sp-d16": "+fp_armv8d16sp",
    "-mfpu=fpv5-d16": "+fp_armv8d16",
}
_EXTRAS: Final = {
    "cortex-m33": "+dsp",
    "cortex-m33+nodsp": "-dsp",
    "cortex-m55": "+mve_fp+fp_armv8d16",
    "cortex-m85": "+mve_fp+fp_armv8d16",
}
"""Features that gcc attributes to the cores and Zig's CPU models do not have."""
_LIBRARY_CORES: Final = dict.fromkeys(
    ("cortex-m52", "cortex-m55", "cortex-m85"), "cortex_m7+fp_armv8d16"
)
"""Cores for whose instruction set clang refuses musl's read of the thread pointer.

They execute the code for these other cores.
"""
_WITHOUT_LIBRARY: Final = ("cortex-m0", "cortex-m0plus")
"""Cores that cannot execute musl's assembly, which targets larger Linux cores."""
_NO_VECTORS_OF_LOOPS: Final = ("-fno-vectorize", "-fno-slp-vectorize")
"""Flags for Zve32f: kernels have their vectors, and clang makes none of loops.

QEMU 7.2 ends with an assertion where a `vfcvt.rtz` of clang's follows no other vector
instruction of floats.
"""


def zig_command() -> tuple[Word, ...]:
    """Return the command that runs Zig from the Python package or the PATH, else ()."""
    if importlib.util.find_spec(ZIG_PACKAGE) is not None:
        return python_command(ZIG_PACKAGE)
    return ("zig",) if find_program("zig") is not None else ()


def zig_flags(board: Board, c_standard: str = C_STANDARD) -> tuple[str, ...]:
    """Return the compiler flags; () if Zig has no C library for the core."""
    if board.is_host:
        return (*language_flags(c_standard), *runtime_defines(board), "-g")
    target = () if board.core in _WITHOUT_LIBRARY else zig_target(board)
    code = (*language_flags(c_standard), *BARE_METAL, "-fomit-frame-pointer")
    more = ("-fno-stack-protector", *runtime_defines(board), "-g")
    if "zve32f" in board.core:
        code += _NO_VECTORS_OF_LOOPS
    return (*target, *code, *more) if target else ()


def zig_target(board: Board) -> tuple[str, ...]:
    """Return the flags that select the core of `board` in Zig; () if it has none."""
    options = dict(flag.split("=", 1) for flag in board.cpu_flags if "=" in flag)
    if board.toolchain == "riscv64-unknown-elf":
        return _riscv_target(options.get("-march", ""))
    if board.toolchain != "arm-none-eabi" or "-mcpu" not in options:
        return ()
    abi = "hf" if "-mfloat-abi=hard" in board.cpu_flags else ""
    name = options["-mcpu"]
    model = name.partition("+")[0].replace("-", "_")
    unit = _UNITS.get(f"-mfpu={options.get('-mfpu')}", "")
    return (
        "-target",
        f"thumb-linux-musleabi{abi}",
        f"-mcpu={model}{_EXTRAS.get(name, '')}{unit}",
    )


def zig_library_target(board: Board) -> tuple[str, ...]:
    """Return the flags that select Zig's C library for `board`; () if it has none."""
    target, core = zig_target(board), _LIBRARY_CORES.get(board.core)
    return (*target[:-1], f"-mcpu={core}") if target and core else target


def _riscv_target(march: str) -> tuple[str, ...]:
    """Return the flags for an architecture (`rv32imc_zba`); () for other bases."""
    if not march.startswith("rv32i"):
        return ()
    letters, *extensions = march.removeprefix("rv32i").split("_")
    core = "+".join(["generic_rv32", *letters, *extensions])
    return ("-target", "riscv32-linux-musl", f"-mcpu={core}", "-mcmodel=medany")
