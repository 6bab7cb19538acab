"""`firmwright doctor`: check the tools and packages that Firmwright uses."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from itertools import groupby
from typing import Final

from firmwright.base.child_process import Word, find_program, run_program
from firmwright.base.errors import ToolFailedError, ToolMissingError
from firmwright.base.text_sections import read_sections
from firmwright.build.compiler_flags import (
    CLANG_PACKAGE,
    LIBRARY_OPTIONS,
    debian_packages,
)
from firmwright.build.zig_toolchain import INSTALL_COMMAND as INSTALL_ZIG
from firmwright.build.zig_toolchain import zig_command
from firmwright.cli.text_table import Cell, format_table
from firmwright.cli.verb import Outcome
from firmwright.device.flash_tools import TOOLS
from firmwright.device.qemu_process import PACKAGES as EMULATORS
from firmwright.flows.board.gdb_session import DEBUGGER


def run(args: argparse.Namespace) -> Outcome:
    findings = check_tools()
    rows: list[Sequence[Cell]] = []
    for area, items in groupby(findings, key=lambda item: item.area):
        for item in items:
            state = item.version or "–"
            if item.version and item.problem:
                state = f"{item.version}: {item.problem}"
            rows.append([area, item.name, state, item.enables])
            area = ""
    table = format_table(["", "tool", "installed", "purpose"], rows)
    data = {
        "findings": [status_to_json(item) for item in findings],
        "install": install_commands(findings),
        "tried": TRIED,
    }
    lines = [f"  {line}" for line in TRIED]
    tried = "\n".join(["All tests pass with the versions of:", *lines])
    return Outcome(data, f"{table}\n\n{tried}\n\n{_advice(findings)}")


def _advice(findings: Sequence[ToolStatus]) -> str:
    """Return how to install each missing tool: a command or a remark."""
    missing = [item for item in findings if not item.usable]
    if not missing:
        return "All tools are installed."
    lines = [f"  {command}" for command in install_commands(findings)]
    others: dict[str, list[str]] = {}
    for item in missing:
        if not item.install.startswith((_APT, _PIP)):
            others.setdefault(item.install, []).append(item.name)
    lines += [f"  {how} ({', '.join(names)})" for how, names in others.items()]
    return "\n".join(["Install the missing tools with:", *lines])


def status_to_json(item: ToolStatus) -> dict[str, object]:
    return {
        "area": item.area,
        "name": item.name,
        "problem": item.problem,
        "enables": item.enables,
        "install": item.install,
        "usable": item.usable,
        "found": item.version or None,
    }


# ---- checks --------------------------------------------------------------------------

TIMEOUT_S: Final = 20.0
_APT: Final = "apt install "
_PIP: Final = "pip install "
LINE_OF_C: Final = (
    "#include <math.h>\n#include <stdint.h>\n#include <string.h>\nint32_t x;\n"
)


@dataclass(frozen=True, slots=True)
class ToolStatus:
    """A tool: `version` is "" if absent, `install` the remedy of a `problem`."""

    area: str
    name: str
    enables: str
    install: str
    version: str = ""
    problem: str = ""

    @property
    def usable(self) -> bool:
        return bool(self.version) and not self.problem


def check_tools() -> tuple[ToolStatus, ...]:
    return (*_python(), *_compilers(), *_programs())


def install_commands(findings: Sequence[ToolStatus]) -> tuple[str, ...]:
    """Return a command of apt and one of pip that install all they can."""
    missing = [tool.install for tool in findings if not tool.usable]
    commands = []
    quote = '"' if platform.system() == "Windows" else "'"
    for manager, command in (
        (_APT, _APT if _is_root() else f"sudo {_APT}"),
        (_PIP, _pip()),
    ):
        packages: dict[str, None] = {}
        for text in missing:
            if text.startswith(manager):
                packages[text.split(",")[0].removeprefix(manager)] = None
        extras = ",".join(filter(None, map(_extra, packages)))
        others = [package for package in packages if not _extra(package)]
        if packages:
            ours = [f"{quote}firmwright[{extras}]{quote}"] if extras else []
            commands.append(command + " ".join([*ours, *others]))
    return tuple(commands)


def _is_root() -> bool:
    return not hasattr(os, "geteuid") or os.geteuid() == 0


def _pip() -> str:
    """Return the words before the packages to install for the Python that runs this."""
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable
    if find_spec("pip") is None:
        return f"uv pip install --python {python} "
    found = find_program("pip")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return _PIP
    return f"{python} -m {_PIP}"


def _extra(package: str) -> str:
    """Return X for 'firmwright[X]', else ""."""
    extra = re.match(r"'firmwright\[(\w+)\]'", package)
    return extra[1] if extra else ""


_SECTIONS: Final = read_sections(__file__, ".txt")
_PACKAGES: Final = _SECTIONS["packages"].splitlines()
TRIED: Final = tuple(_SECTIONS["tried"].splitlines())
"""The systems whose versions of the tools pass all tests."""
_WITH_ZIG: Final = "not needed with --toolchain zig"


def _python() -> Iterator[ToolStatus]:
    version = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield ToolStatus("Python", "python", "everything", "", version)
    for line in _PACKAGES:
        name, package, enables = line.split(" ", 2)
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = ""
        yield ToolStatus("Python", name, enables, f"pip install {package}", installed)


def _compilers() -> Iterator[ToolStatus]:
    command = zig_command()
    zig_version = ((_run([*command, "version"]) if command else "") or "").strip()
    instead = _WITH_ZIG if zig_version else f"{INSTALL_ZIG}, or gcc"
    for toolchain, enables in (
        ("", "--board host: firmware as a library of this machine"),
        ("arm-none-eabi", "boards with Cortex-M"),
        ("riscv64-unknown-elf", "boards with RISC-V"),
        ("xtensa-lx106-elf", "boards with Xtensa"),
    ):
        program = f"{toolchain}-gcc" if toolchain else "gcc"
        is_xtensa = toolchain.startswith("xtensa")
        install = _remedy(debian_packages(toolchain), "" if is_xtensa else instead)
        status = _program("compilers", program, enables, install)
        problem = _compiles(status, LIBRARY_OPTIONS.get(toolchain, ()))
        yield replace(status, problem=problem)
    install = _remedy(CLANG_PACKAGE)
    clang = _program("compilers", "clang", "--compiler clang", install)
    yield replace(clang, problem=_compiles(clang, ()))
    enables = "--toolchain zig: boards without gcc, but not Cortex-M0 or Xtensa"
    yield ToolStatus("compilers", "zig", enables, INSTALL_ZIG, zig_version)


def _programs() -> Iterator[ToolStatus]:
    enables = "run, verify and profile without a board"
    for program, package in EMULATORS.items():
        install = _remedy(package, "QEMU, from qemu.org")
        yield _program("emulation", program, enables, install)
    yield _program("emulation", DEBUGGER, "debug", _remedy(DEBUGGER))
    for name, tool in TOOLS.items():
        packages = tool.install.removeprefix("apt install ")
        is_debian = packages != tool.install
        install = _remedy(packages) if is_debian else tool.install
        yield _program("flashing", tool.program, f"flash --runner {name}", install)


def _remedy(packages: str, instead: str = "") -> str:
    """Return how to install Debian's packages, or `instead` where that is unknown."""
    if find_program("apt") is not None and (_is_root() or find_program("sudo")):
        return f"{_APT}{packages}"
    known = _SECTIONS.get(platform.system(), "").splitlines()
    commands = dict(line.split(" ", 1) for line in known)
    equivalent = f"the equivalent of Debian's {packages} on this system"
    return commands.get(packages) or instead or equivalent


def _program(area: str, program: str, enables: str, install: str) -> ToolStatus:
    version = ""
    if find_program(program) is not None:
        lines = (_run([program, "--version"]) or "").splitlines()
        first = lines[0] if lines else ""
        number = re.search(r"\d+\.\d+\.\d+", first) or re.search(r"\d+(\.\d+)*", first)
        version = number[0] if number else "of unknown version"
    return ToolStatus(area, program, enables, install, version)


def _compiles(compiler: ToolStatus, options: Sequence[str]) -> str:
    """Compile a line of C that includes the C library; return the error, "" if none."""
    if not compiler.version:
        return ""
    command = [compiler.name, *options, "-x", "c", "-fsyntax-only", "-"]
    output = _run(command, LINE_OF_C, fails=True)
    if output is None:
        return ""
    return f"does not compile: {output.strip().splitlines()[0]}"


def _run(
    command: Sequence[Word], stdin: str = "", *, fails: bool = False
) -> str | None:
    """Return the command's output; None on failure, or with `fails` on success."""
    try:
        status, output = run_program(
            command, "the tool", timeout_s=TIMEOUT_S, stdin=stdin
        )
    except (ToolFailedError, ToolMissingError) as error:
        return str(error) if fails else None
    if fails:
        return None if status == 0 else output or f"status {status}"
    return output
