"""Limits on the programs that a board file may start, and on their arguments.

Unless the user trusts a program by name, a board file, which may come from anywhere,
starts only compilers, QEMU's system emulators and known flash tools, with arguments
that name parts of a processor or tool and no files. Semihosting is no such argument:
with it, firmware opens files and starts programs of this computer.
"""

import re
from typing import Final

from firmwright.base.trust import trusts_program
from firmwright.boards.toml_table import TomlTable

TOOL_PREFIX: Final = r"([A-Za-z0-9][\w.-]*)?"
MACHINE_FLAG: Final = r"-m(?!llvm|mcu|devices)[a-z][a-z0-9-]*(=[\w.+,-]+)?"
_EMULATOR: Final = re.compile(r"qemu-system-[a-z0-9_]+")
_PROPERTIES: Final = r"[\w.+-]+(,[\w.-]+=(true|false|on|off|\d+))*"
_MACHINE: Final = re.compile(_PROPERTIES, re.ASCII)
_EMULATOR_ARGS: Final = re.compile(
    rf"(-bios none|-cpu {_PROPERTIES}|-m \d+[MGk]?|-smp \d+|-global [\w.-]+=\d+| )*",
    re.ASCII,
)
_FLASH_ARGUMENT: Final = re.compile(r"[\w.:+=, -]*", re.ASCII)
_OPENOCD_FILES: Final = re.compile(
    r"((interface|board|target)/[\w-]+(\.[\w-]+)*\.cfg *)*", re.ASCII
)


def check_toolchain(table: TomlTable, toolchain: str) -> None:
    """Raise BoardError unless this is the prefix of a compiler on PATH."""
    if not re.fullmatch(TOOL_PREFIX, toolchain, re.ASCII):
        what = f"{toolchain!r} is not a compiler's prefix."
        hint = "the prefix of a compiler on PATH, such as arm-none-eabi."
        raise table.error("toolchain", what, hint)


def check_cpu_flags(table: TomlTable, cpu_flags: tuple[str, ...]) -> None:
    """Raise BoardError unless these are options for a processor."""
    for flag in cpu_flags:
        if not re.fullmatch(MACHINE_FLAG, flag, re.ASCII):
            what = f"{flag!r} is not a machine option of gcc."
            hint = "options such as -mcpu=cortex-m4 only."
            raise table.error("cpu_flags", what, hint)


def check_emulator(
    table: TomlTable, program: str, machine: str, args: tuple[str, ...]
) -> None:
    """Raise BoardError unless the emulator is trusted, or harmless with its arguments.

    The user trusts a program with --trust.
    """
    if trusts_program(program):
        return
    hint = f"read the board file; if you trust it, add --trust {program}."
    if not _EMULATOR.fullmatch(program):
        what = f"the board starts {program!r}, which is not QEMU."
        raise table.error("program", what, hint)
    if not _MACHINE.fullmatch(machine):
        raise table.error("machine", f"{machine!r} is not the name of a machine.", hint)
    if not _EMULATOR_ARGS.fullmatch(" ".join(args)):
        what = f"these arguments of {program} may access files: {' '.join(args)!r}."
        raise table.error("args", what, hint)


def check_flash_argument(table: TomlTable, tool: str, argument: str) -> None:
    """Raise BoardError if the argument could make a flash tool read other files."""
    if tool == "openocd":
        pattern = _OPENOCD_FILES
        folders = "interface, board and target"
        expected = f"files in OpenOCD's folders {folders}, separated by blanks"
    else:
        pattern = _FLASH_ARGUMENT
        expected = "letters, digits and any of _ . : + = , -"
    if not pattern.fullmatch(argument):
        hint = f"{expected}; run the tool yourself with any other argument."
        raise table.error(tool, f"{argument!r} is not an argument for {tool}.", hint)
