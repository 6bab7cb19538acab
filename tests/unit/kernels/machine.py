"""Executes instructions in QEMU and compares the results with their semantics."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import InternalError
from firmwright.build.compiler_flags import gnu_tool
from firmwright.kernels.isa.instruction import Immediate, Instr, Memory
from tests.unit.kernels.cores import Core
from tests.unit.kernels.trials import (
    CASE_DATA,
    Trial,
    inputs,
    lane_type,
    size_bytes,
    trials_of,
)

_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu99", "-O1", "-ffreestanding", "-nostdlib", "-fomit-frame-pointer")
_MORE = ("-ffunction-sections", "-fno-tree-loop-distribute-patterns", "-static")
_LINKER_SCRIPT = """\
ENTRY(start)
SECTIONS
{{
    . = {flash:#x};
    .text : {{ KEEP(*(.vectors)) *(.text .text.* .rodata .rodata.*) }}
    . = {ram:#x};
    .bss : {{ *(.bss .bss.* COMMON) }}
    stack_high = {ram_end:#x};
}}
"""
_TRIAL = """\
static void {name}(const uint8_t *from, uint8_t *to)
{{
    register const uint8_t *operands __asm__("{operands}") = from;
    register uint8_t *results __asm__("{results}") = to;
    __asm__ volatile(
{lines}
        : "+r"(operands), "+r"(results) : : {clobbers}, "cc", "memory");
}}
"""
_CASES = """\
__asm__(".section .rodata.cases, \\"a\\"\\n\\t.balign 16\\n\\t.globl cases\\n"
        "cases:\\n\\t.incbin \\"cases.bin\\"\\n\\t.previous");
"""


def wrong_instructions(
    core: Core, instrs: Iterable[Instr], folder: Path
) -> dict[str, str]:
    """Return what is wrong with instructions of `core`, by their name.

    All run in one image. If the assembler rejects some, these alone are returned.
    """
    trials = [trial for instr in instrs for trial in trials_of(instr, core)]
    rejected = _compile(core, trials, folder)
    if rejected:
        return rejected
    data = _run(core, folder)
    wrong: dict[str, str] = {}
    for trial in trials:
        size = len(CASE_DATA) * trial.result_bytes
        found = (
            data[:size].reshape(-1, trial.result_bytes) if size <= len(data) else None
        )
        data = data[size:]
        problem = _compare(trial, found)
        if problem and trial.instr.name not in wrong:
            wrong[trial.instr.name] = f"{trial.text!r}: {problem}"
        if found is None:
            break  # the machine stopped
    return wrong


def _compare(trial: Trial, found: Array | None) -> str:
    if found is None:
        return "the machine stops"
    try:
        expected = trial.expected()
    except InternalError as error:
        return f"its semantics fail: {error}"
    bad = np.zeros(len(found), bool)
    differences = found != expected
    for result, first in trial.result_places():
        size = size_bytes(result)
        part = slice(first, first + size)
        if lane_type(result).is_float:
            differences[:, part] = _differing_floats(found[:, part], expected[:, part])
    bad = differences.any(axis=1)
    if not bad.any():
        return ""
    case = int(np.flatnonzero(bad)[0])
    operands = ", ".join(_describe(trial, case))
    names = _result_values(trial, found[case]), _result_values(trial, expected[case])
    return f"of {operands} the machine returns {names[0]}, the semantics {names[1]}"


def _differing_floats(found: Array, expected: Array) -> Array:
    a, b = (np.ascontiguousarray(x).view(np.float32) for x in (found, expected))
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return np.repeat(~same, 4, axis=1)


def _describe(trial: Trial, case: int) -> list[str]:
    words = []
    values = inputs(trial.instr, tuple(trial.immediates.values()))
    for operand, given in zip(trial.instr.operands, values, strict=True):
        if isinstance(operand.place, Immediate):
            continue
        assert not isinstance(given, int)
        words.append(f"{operand.name} = {_values([lane[case] for lane in given])}")
    return words


def _result_values(trial: Trial, data: Array) -> str:
    values = []
    for result, first in trial.result_places():
        part = data[first : first + size_bytes(result)]
        values.append(f"{result.name} = {_values(part.view(lane_type(result).np))}")
        if isinstance(result.place, Memory):
            end = first + size_bytes(result)
            values.append(f"then {data[end : end + 4].tobytes().hex()}")
    if trial.address is not None:
        values.append(f"base = {int(data[-4:].view(np.int32)[0])}")
    return ", ".join(values)


def _values(lanes: Sequence[object] | Array) -> str:
    words = []
    for lane in lanes:
        if isinstance(lane, np.integer):
            words.append(f"{int(lane) & (1 << 8 * lane.itemsize) - 1:#x}")
        else:
            words.append(str(lane))
    return words[0] if len(words) == 1 else f"[{' '.join(words)}]"


def _compile(core: Core, trials: Sequence[Trial], folder: Path) -> dict[str, str]:
    """Compile the image, and return what the assembler rejects by instruction."""
    board = core.board
    (folder / "trials.c").write_text(_trial_functions(core, trials))
    CASE_DATA.tofile(folder / "cases.bin")
    ram = board.ram
    script = _LINKER_SCRIPT.format(
        flash=board.flash.start, ram=ram.start, ram_end=ram.end
    )
    (folder / "link.ld").write_text(script)
    sizes = {
        "TRIALS": len(trials),
        "CASES": CASE_DATA.shape[0],
        "CASE_BYTES": CASE_DATA.shape[1],
        "RESULT_BYTES_MAX": max(trial.result_bytes for trial in trials),
    }
    command = [gnu_tool(board, "gcc"), *board.cpu_flags, *core.flags, *_FLAGS, *_MORE]
    command += [f"-D{name}={value}" for name, value in sizes.items()]
    command += [f"-I{_HERE}", "-T", "link.ld", "trials.c", str(_HERE / "machine.c")]
    command += ["-Wl,--no-warn-rwx-segments", "-save-temps=obj", "-o", "image.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    rejected = _rejected(folder, done.stderr)
    assert done.returncode == 0 or rejected, done.stderr
    return rejected


def _rejected(folder: Path, messages: str) -> dict[str, str]:
    """Return errors of the assembler by the instruction whose function has the line."""
    rejected: dict[str, str] = {}
    for file, at, what in re.findall(r"^(\S+\.s):(\d+): Error: (.*)", messages, re.M):
        lines = (folder / file).read_text().splitlines()[: int(at)]
        name = re.findall(r"/\* instruction (\w+) \*/", "\n".join(lines))[-1]
        rejected.setdefault(name, f"does not assemble: {what}")
    return rejected


def _trial_functions(core: Core, trials: Sequence[Trial]) -> str:
    parts = ['#include "machine.h"\n']
    for at, trial in enumerate(trials):
        address = trial.address
        used = {*trial.registers.values(), *core.scratch}
        if address is not None:
            used |= {address.base, address.index} - {""}
        lines = [f"/* instruction {trial.instr.name} */", *trial.assembly(core)]
        parts.append(
            _TRIAL.format(
                name=f"trial_{at}",
                operands=core.operands,
                results=core.results,
                lines="\n".join(f'        "{line}\\n\\t"' for line in lines),
                clobbers=", ".join(f'"{name}"' for name in sorted(used)),
            )
        )
    rows = [f"    {{trial_{at}, {t.result_bytes}}}," for at, t in enumerate(trials)]
    parts.append("const struct trial trials[TRIALS] = {\n" + "\n".join(rows) + "\n};\n")
    parts.append(_CASES)
    return "\n".join(parts)


def _run(core: Core, folder: Path) -> Array:
    run = core.board.run
    command = [run.program, "-machine", run.machine, *run.args, "-kernel", "image.elf"]
    command += ["-semihosting-config", "enable=on,target=native"]
    command += ["-display", "none", "-monitor", "none", "-serial", "none"]
    result = folder / "results.bin"
    result.unlink(missing_ok=True)
    subprocess.run(command, cwd=folder, capture_output=True, timeout=60)
    return np.fromfile(result, np.uint8)
