"""Selection of the compiler for a project, and the check that it is installed."""

import os
from collections.abc import Mapping
from typing import Final, get_args

from firmwright.base.child_process import find_program
from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.boards import Compiler
from firmwright.build.compiler_flags import CLANG_PACKAGE, debian_packages
from firmwright.build.zig_toolchain import INSTALL_COMMAND, zig_command

COMPILER_VARIABLE: Final = "FIRMWRIGHT_TOOLCHAIN"


def choose_compiler(
    compiler: Compiler | None,
    environment: Mapping[str, str] = os.environ,
    *,
    default: str = "gcc",
) -> Compiler:
    """Return the requested compiler, that of FIRMWRIGHT_TOOLCHAIN, or the board's."""
    if compiler is not None:
        return compiler
    requested = environment.get(COMPILER_VARIABLE) or default
    compilers: dict[str, Compiler] = {name: name for name in get_args(Compiler)}
    if requested not in compilers:
        hint = f"one of {', '.join(compilers)}, or unset it."
        what = f"unknown toolchain {requested!r}."
        raise UsageError(what, where=COMPILER_VARIABLE, hint=hint)
    return compilers[requested]


def require_compiler(
    compiler: Compiler, toolchain: str, *, board: str, has_zig_flags: bool
) -> None:
    """Raise ToolMissingError without the tools, UsageError if `board` is unsuitable."""
    if compiler == "zig" and not has_zig_flags:
        what = "zig has no C library for this board's core."
        raise UsageError(what, where=board, hint="--toolchain gcc.")
    if compiler == "clang" and toolchain.startswith("xtensa"):
        what = "clang has no code generator for this board's core."
        raise UsageError(what, where=board, hint="--compiler gcc.")
    if compiler == "zig":
        if not zig_command():
            what = "the compiler zig is not installed."
            raise ToolMissingError(what, where=board, hint=f"{INSTALL_COMMAND}.")
        return
    gcc = f"{toolchain}-gcc" if toolchain else "gcc"
    programs = {gcc: debian_packages(toolchain)}
    if compiler == "clang":
        programs["clang"] = CLANG_PACKAGE
    for program, packages in programs.items():
        if find_program(program) is None:
            hint = f"apt install {packages}" if packages else f"install {program}"
            if has_zig_flags:
                hint += f", or --toolchain zig ({INSTALL_COMMAND})"
            what = f"the compiler {program} is not installed."
            raise ToolMissingError(what, where=board, hint=f"{hint}.")
