"""Frama-C's EVA on the C of a model: no run-time error for any input.

The driver runs a model on bytes of which nothing is known, and with each argument that
it refuses. The analyzer follows every path: an alarm is an access, an overflow or a
shift that it cannot prove defined. Nothing is assumed; `loop unroll` in the sources
only names the loops to follow one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from firmwright.base.child_process import run_program
from firmwright.base.errors import ToolFailedError

MACHINE = "gcc_x86_32"
"""The ABI with the sizes of types of the boards: all of 32-bit processors are alike."""
_STATES = 4000
"""Paths that EVA keeps apart in a helper function with a loop."""
_PATHS_OF_DRIVER = 50

_POOL = re.compile(r"^    uint8_t \*(\w+);$", re.M)
_MEMBER = re.compile(r"^    \w+ \*(\w+);$", re.M)
_HELPER = re.compile(r"^\w+_INLINE \w+ (\w+)\(.*?^}", re.M | re.S)
_ALARMS = re.compile(r"^ +(\d+) alarms? generated", re.M)
_REACHED = re.compile(r"(\d+) statements reached \(out of (\d+)\)")
_ALARM = re.compile(r"\[eva:alarm\] (\S+?):(\d+): Warning:\s+(.*?);", re.S)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A claim that the analyzer cannot prove, at a line of a file."""

    file: str
    line: int
    claim: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """The alarms of an analysis, and how much of the code it reached."""

    alarms: tuple[Alarm, ...]
    reached: int
    statements: int
    command: tuple[str, ...]
    log: str


def write_driver(model: Path, name: str, path: Path) -> Path:
    """Write a program to `path` that runs the model in the folder `model`."""
    header = (model / f"{name}.h").read_text(encoding="utf-8")
    macro = name.upper()
    pools = _POOL.findall(_struct(header, f"{name}_workspace_pools"))
    first_input = _MEMBER.findall(_struct(header, f"{name}_inputs"))[0]
    lines = [
        '#include "__fc_builtin.h"',
        "#include <stddef.h>",
        f'#include "{name}.h"',
    ]
    for pool in pools:
        size = f"{macro}_{pool.upper()}_SIZE"
        align = f"__attribute__((aligned({macro}_{pool.upper()}_ALIGN)))"
        lines.append(f"static uint8_t {pool}[{size} + 1] {align};")
    lines += [
        "int main(void)",
        "{",
        f"    struct {name}_workspace_pools pools, bad;",
        f"    struct {name}_inputs in, wrong;",
        f"    struct {name}_outputs out;",
    ]
    for pool in pools:
        lines.append(f"    Frama_C_make_unknown((char *){pool}, sizeof {pool});")
        lines.append(f"    pools.{pool} = {pool};")
    lines += [
        f"    if ({name}_map_io(&pools, &in, &out) != {macro}_OK) return 1;",
        "    bad = pools;",
        f"    bad.{pools[0]} = NULL;",
        f"    {name}_map_io(NULL, &in, &out);",
        f"    {name}_map_io(&bad, &in, &out);",
        f"    {name}_map_io(&pools, NULL, &out);",
        f"    {name}_map_io(&pools, &in, NULL);",
        f"    {name}_run(NULL, &out, &pools);",
        f"    {name}_run(&in, NULL, &pools);",
        f"    {name}_run(&in, &out, NULL);",
        f"    {name}_run(&in, &out, &bad);",
        "    wrong = in;",
        f"    wrong.{first_input} += 1;",
        f"    {name}_run(&wrong, &out, &pools);",
        "    bad = pools;",
        f"    bad.{pools[0]} += 1;",
        f"    {name}_map_io(&bad, &wrong, &out);",
        f"    {name}_run(&in, &out, &bad);",
        f"    return {name}_run(&in, &out, &pools);",
        "}",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    return path


def analyze(model: Path, name: str, timeout_s: float) -> Analysis:
    """Analyze the portable form of the C in the folder `model`."""
    driver = write_driver(model, name, model.parent / "frama_c_driver.c")
    folder = model.parent
    return run_analysis(
        analysis_command(folder, model, name, driver), folder, timeout_s
    )


def analysis_command(
    folder: Path, model: Path, name: str, driver: Path
) -> tuple[str, ...]:
    """Return the command that analyzes a model's C, to be run in `folder`."""
    source = model / f"{name}.c"
    include = model.relative_to(folder).as_posix()
    command = [
        "frama-c",
        *("-machdep", MACHINE),
        f"-cpp-extra-args=-I{include} -D{name.upper()}_NO_INLINE_ASM",
        "-eva",
        "-eva-msg-key=-initial-state,-final-states",
        *("-eva-precision", "0"),
        *("-eva-split-return", "full"),
        *("-eva-slevel-function", f"main:{_PATHS_OF_DRIVER}"),
    ]
    for helper in _functions_with_loops(source.read_text(encoding="utf-8")):
        command += ["-eva-slevel-function", f"{helper}:{_STATES}"]
    for file in (driver, source):
        command.append(file.relative_to(folder).as_posix())
    return tuple(command)


def run_analysis(command: tuple[str, ...], folder: Path, timeout_s: float) -> Analysis:
    """Run an analysis.

    Raise ToolFailedError if it breaks off: it then has no alarms, and proves nothing.
    """
    failure = "the C could not be analyzed."
    _, log = run_program(
        command, "frama-c", timeout_s=timeout_s, folder=folder, failure=failure
    )
    count = _ALARMS.search(log)
    reached = _REACHED.search(log)
    alarms: list[Alarm] = []
    for file, line, claim in _ALARM.findall(log):
        alarms.append(Alarm(Path(file).name, int(line), " ".join(claim.split())))
    if count is None or reached is None or len(alarms) != int(count[1]):
        what = "the output of Frama-C has no complete summary."
        hint = "use the Frama-C of Debian 12 or later."
        raise ToolFailedError(what, command=command, output=log, hint=hint)
    return Analysis(tuple(alarms), int(reached[1]), int(reached[2]), command, log)


def _struct(header: str, name: str) -> str:
    start = header.index(f"struct {name} {{")
    return header[start : header.index("\n};", start)]


def _functions_with_loops(source: str) -> list[str]:
    """Return the helper functions of a model that contain a loop."""
    names: list[str] = []
    for match in _HELPER.finditer(source):
        if re.search(r"\b(for|while) \(", match[0]):
            names.append(match[1])
    return names
