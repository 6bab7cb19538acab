"""Versions of the tools that determine an image and its run in an emulator."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib import metadata
from typing import Final

from firmwright.base.child_process import Word, run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.version import VERSION
from firmwright.boards import Board, Compiler
from firmwright.build.compiler_flags import gnu_tool, library_flags
from firmwright.build.zig_toolchain import zig_command
from firmwright.flows.evidence.record import ToolVersions

_TIMEOUT_S: Final = 20.0
_LIBRARY: Final = re.compile(
    r'^#define (?:_(NEWLIB)_VERSION|__(PICOLIBC)_VERSION__) "([\w.+-]+)"$',
    re.MULTILINE,
)

_VERSION: Final = re.compile(r"version (\d[\w.]*)")


def find_tool_versions(
    board: Board, compiler: Compiler, *, has_emulator: bool
) -> ToolVersions:
    """Return the versions here; "" for a tool that is absent or plays no part."""
    zig = (*zig_command(), "version")
    commands: dict[Compiler, Sequence[Word]] = {
        "gcc": (gnu_tool(board, "gcc"), "--version"),
        "clang": ("clang", "--version"),
        "zig": zig,
    }
    emulator = ""
    if has_emulator:
        emulator = _first_line((board.run.program, "--version"))
    return ToolVersions(
        firmwright=VERSION,
        compiler=_first_line(commands[compiler]),
        c_library="" if compiler == "zig" else _c_library(board),
        emulator=emulator,
    )


def installed_emulator(board: Board) -> str:
    """Return the version of the emulator of a board; "" if none is installed.

    That of a transport plug-in is the version of the package with its name.
    """
    if board.run.kind == "qemu":
        return _program_version(board.run.program)
    if board.emulator is None:
        return ""
    try:
        return metadata.version(board.emulator.transport)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache
def _program_version(program: str) -> str:
    found = _VERSION.search(_first_line((program, "--version")))
    return "" if found is None else found[1]


def _c_library(board: Board) -> str:
    """Return the name and version of an embedded C library, as its headers state it."""
    gcc = gnu_tool(board, "gcc")
    command = (gcc, *library_flags(board), "-dM", "-E", "-x", "c", "-")
    found = _LIBRARY.search(_output(command, "#include <string.h>\n"))
    if found is None:
        return ""
    newlib, picolibc, version = found.groups()
    return f"{(newlib or picolibc).lower()} {version}"


def _first_line(command: Sequence[Word]) -> str:
    line, _, _ = _output(command).partition("\n")
    return line.strip()[:200]


def _output(command: Sequence[Word], stdin: str = "") -> str:
    """Return the output of a command; "" if it fails or is not installed."""
    try:
        status, output = run_program(
            command, "the tool", timeout_s=_TIMEOUT_S, stdin=stdin
        )
    except (ToolFailedError, ToolMissingError):
        return ""
    return "" if status else output
