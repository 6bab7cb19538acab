"""All compiler and linker flags, and the packages of the tools.

Floating-point operations are not contracted.
"""

from typing import Final

from firmwright.boards import Board
from firmwright.boards.schema import LINK_PAYLOAD_BYTES

WARNINGS: Final = (
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wshadow",
    "-Wdouble-promotion",
    "-Wcast-align",
    "-Werror",
)
C_STANDARD: Final = "c99"
_SEMANTICS: Final = (
    "-ffp-contract=off",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-common",
)
BARE_METAL: Final = (
    "-fno-pic",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)
"""Flags for code without an operating system."""
HOSTED: Final = ("-fno-tree-vectorize",)
"""Flags for this computer; gcc 12.2 loses half of vectorized sums.

docs/reference/compilers.md describes that defect.
"""
MODEL_OPTIMIZATION: Final = "-O2"
RUNTIME_OPTIMIZATION: Final = "-Os"
STACK_ANALYSIS: Final = ("-fstack-usage",)

LIBRARY_OPTIONS: Final = {
    "arm-none-eabi": ("--specs=nano.specs",),
    "riscv64-unknown-elf": ("--specs=picolibc.specs",),
}
_CLANG_TARGETS: Final = {
    "arm-none-eabi": "arm-none-eabi",
    "riscv64-unknown-elf": "riscv32-unknown-elf",
}
_PACKAGES: Final = {
    "": "gcc",
    "arm-none-eabi": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "riscv64-unknown-elf": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
    "xtensa-lx106-elf": "gcc-xtensa-lx106 picolibc-xtensa-lx106-elf",
}
CLANG_PACKAGE: Final = "clang"


def gnu_tool(board: Board, name: str) -> str:
    """Return the program `name` of a board's GNU tools: `arm-none-eabi-gcc`."""
    return f"{board.toolchain}-{name}" if board.toolchain else name


def debian_packages(toolchain: str) -> str:
    """Return the packages that contain a GNU toolchain, or "" if they are not known."""
    return _PACKAGES.get(toolchain, "")


def language_flags(c_standard: str = C_STANDARD) -> tuple[str, ...]:
    return (f"-std={c_standard}", *_SEMANTICS)


def compile_flags(board: Board, c_standard: str = C_STANDARD) -> tuple[str, ...]:
    """Return the common compiler flags, without warnings and optimization level."""
    system = HOSTED if board.is_host else BARE_METAL
    language = (*language_flags(c_standard), *system, *runtime_defines(board))
    return (*board.cpu_flags, *library_flags(board), *language, *STACK_ANALYSIS, "-g")


def tuning_flags(board: Board) -> tuple[str, ...]:
    """Return the flags that determine a model's machine code and tuning results."""
    hosted = HOSTED if board.is_host else ()
    return (*board.cpu_flags, MODEL_OPTIMIZATION, "-ffp-contract=off", *hosted)


def format_tuning_flags(board: Board) -> tuple[str, str]:
    return (
        f"Tuned for {gnu_tool(board, 'gcc')} with",
        f"  {' '.join(tuning_flags(board))}",
    )


def library_flags(board: Board) -> tuple[str, ...]:
    return LIBRARY_OPTIONS.get(board.toolchain, ())


def clang_flags(board: Board, c_standard: str = C_STANDARD) -> tuple[str, ...]:
    """Return the compiler flags of `board` for clang, which uses gcc's linker."""
    target = _CLANG_TARGETS.get(board.toolchain)
    # clang has no specs files, and derives the floating-point unit from the core.
    unknown = {*library_flags(board), "-mfpu=auto"}
    known = compile_flags(board, c_standard)
    flags = tuple(flag for flag in known if flag not in unknown)
    if target is None:
        return flags
    # Assembly blocks use all registers but one, so frame pointers are omitted.
    return (f"--target={target}", "-ffreestanding", "-fomit-frame-pointer", *flags)


def runtime_defines(board: Board) -> tuple[str, ...]:
    """Return the `fwr_config.h` macros that differ from the defaults on `board`."""
    defines: list[str] = []
    size = board.limits.link_payload_bytes
    if size != LINK_PAYLOAD_BYTES:
        defines.append(f"-DFWR_LINK_PAYLOAD_MAX={size}")
    if board.watchdog is not None:
        defines.append("-DFWR_WATCHDOG=1")
    return tuple(defines)


def link_flags(board: Board) -> tuple[str, ...]:
    """Return the flags for the linker, which gcc calls."""
    if board.is_host:
        return ("-Wl,--gc-sections",)
    script = ("-Tboard/link.ld", "-nostartfiles", "-static")
    linker = ("-Wl,--gc-sections", "-Wl,--no-warn-rwx-segments")
    machine: list[str] = []
    for flag in board.cpu_flags:
        if flag.startswith("-march="):
            # GNU toolchains have C libraries for base instruction sets, not for _zba.
            flag, _, _ = flag.partition("_")
        machine.append(flag)
    return (*machine, *library_flags(board), *script, *linker)
