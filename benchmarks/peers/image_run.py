# ruff: noqa: INP001  # a module of scripts, not of a package
"""Runs a bare-metal image of any system in QEMU, counts a function, and adds up flash.

The image ends by semihosting, and calls the function for each inference; the last call
counts, as in Firmwright's own figures.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from firmwright.boards import Board
from firmwright.build.elf_reader import read_sections_and_symbols
from firmwright.device.instruction_counter import (
    InstructionCounter,
    build_counter_plugin,
)
from firmwright.flows.board.build_cache import cache_root

IN_FLASH = ("text", "rodata", "data")
TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True)
class ImageRun:
    """The instructions of the function's last call, and what the image printed."""

    instructions: int
    text: str


def machine_command(board: Board) -> list[str]:
    """Return the command that runs an image, whose path follows, on a board in QEMU."""
    run = board.run
    machine = [run.program, "-M", run.machine, *run.args, "-nographic"]
    return [*machine, "-semihosting", "-kernel"]


def run_image(elf: Path, emulator: list[str], function: str = "root") -> ImageRun:
    """Run an image by a command and count its function.

    Raises:
        StopIteration: the image has no such function.
        DeviceError: the image never called it.
    """
    _, symbols = read_sections_and_symbols(elf)
    root = next(symbol for symbol in symbols if symbol.name == function)
    plugin = build_counter_plugin(cache_root() / "plugins")
    with InstructionCounter(plugin, root.address & ~1, root.size_bytes) as counter:
        command = [emulator[0], "-plugin", counter.argument, *emulator[1:], str(elf)]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=TIMEOUT_S,
        )
        instructions = sum(cell.count for cell in counter.read())
    return ImageRun(instructions, done.stdout.decode("latin-1"))


def flash_bytes(elf: Path) -> int:
    """Return the bytes of code and constants of an image, and of initial values."""
    sections, _ = read_sections_and_symbols(elf)
    return sum(item.size_bytes for item in sections if item.kind in IN_FLASH)
