"""The instructions of a linked image by address, from objdump."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from firmwright.base.child_process import Word, find_program, run_program
from firmwright.base.errors import ToolMissingError
from firmwright.boards import Board
from firmwright.build.compiler_flags import debian_packages, gnu_tool
from firmwright.targets.disassembly import Instruction, read_disassembly, syntax_of

_TIMEOUT_S = 60.0
_HELIUM = ("cortex-m52", "cortex-m55", "cortex-m85")
"""Cores with the instructions of the Cortex-M55, which llvm-objdump 14 knows."""


def disassemble(board: Board, elf: Path) -> Mapping[int, Instruction]:
    """Return the instructions of `elf`; raise ToolMissingError without objdump."""
    return dict(read_disassembly(disassembly_of(board, elf), syntax_of(board.core)))


def disassembly_of(board: Board, elf: Path) -> str:
    """Return the text of objdump; raise ToolMissingError without it."""
    tools = [gnu_tool(board, "objdump"), "llvm-objdump"]
    if board.core in _HELIUM:
        # GNU objdump decodes most of Helium as coprocessor instructions.
        tools.reverse()
    tool = next((tool for tool in tools if find_program(tool)), "")
    if not tool:
        what = f"{' and '.join(tools)} are not installed."
        hint = f"apt install {debian_packages(board.toolchain) or 'binutils'}, or llvm."
        raise ToolMissingError(what, hint=hint)
    command: list[Word] = [tool, "-d", elf]
    if tool == "llvm-objdump" and board.core.startswith("cortex-m"):
        core = "cortex-m55" if board.core in _HELIUM else board.core.partition("+")[0]
        command.append(f"--mcpu={core}")
    failure = "the firmware could not be disassembled."
    _, text = run_program(command, tool, timeout_s=_TIMEOUT_S, failure=failure)
    return text


def source_lines(
    board: Board, elf: Path, addresses: Sequence[int]
) -> list[tuple[str, int]]:
    """Return the file and line of each address by debug information, or ("??", 0)."""
    tools = (gnu_tool(board, "addr2line"), "llvm-addr2line")
    tool = next(filter(find_program, tools), "")
    if not tool or not addresses:
        return [("??", 0)] * len(addresses)
    command: list[Word] = [tool, "-e", elf, *map(hex, addresses)]
    failure = "the source lines of the firmware are unknown."
    _, text = run_program(command, tool, timeout_s=_TIMEOUT_S, failure=failure)
    places: list[tuple[str, int]] = []
    for line in text.splitlines():
        place, _, _ = line.partition(" ")
        file, _, number = place.rpartition(":")
        places.append((Path(file).name, int(number) if number.isdigit() else 0))
    return places
