"""Executes instructions in an emulator and compares the results with their semantics."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import BOOL, UINT32, Array
from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import Immediate, Instr, Memory
from tests.unit.kernels.c_trials import c_trials_of
from tests.unit.kernels.cores import Core, Machine
from tests.unit.kernels.layout import CASES, lane_type, layout_of, size_bytes
from tests.unit.kernels.trials import Trial, trials_of

_HERE = Path(__file__).parent
_FLAGS = (
    "-std=gnu99",
    "-O1",
    "-ffreestanding",
    "-nostdlib",
    "-fomit-frame-pointer",
    "-fno-builtin",
)
_MORE = ("-ffunction-sections", "-static")
_LINKER_SCRIPT = """\
ENTRY(start)
SECTIONS
{{
    . = {flash:#x};
    .text : {{
        KEEP(*(.vectors))
        *(.literal .literal.*)
        *(.text .text.* .rodata .rodata.*)
    }}
    . = {ram:#x};
    .data : {{ *(.data .data.*) }}
    .bss : {{ *(.bss .bss.* COMMON) }}
    stack_high = {ram_end:#x};
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

    All run in one image, with their assembly and their C intrinsics. If the assembler
    rejects some, these alone are returned.
    """
    trials: list[Trial] = []
    for instr in instrs:
        trials += trials_of(instr, core) if instr.asm else []
        trials += c_trials_of(instr, core) if instr.c else []
    rejected = _compile(core, trials, folder)
    if rejected:
        return rejected
    data = _run(core, folder)
    wrong: dict[str, str] = {}
    for trial in trials:
        size = CASES * trial.result_bytes
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
    return (
        f"{_differing_lane(trial, differences[case])}of {operands} "
        f"the machine returns {names[0]}, the semantics {names[1]}"
    )


def _differing_lane(trial: Trial, differences: Array) -> str:
    """Return the first lane of a vector that differs, or "" if results are numbers."""
    for result, first in trial.result_places():
        kind = lane_type(result)
        part = differences[first : first + size_bytes(result)]
        if part.any() and part.size > kind.size_bytes and kind is not BOOL:
            lane = int(np.flatnonzero(part)[0]) // kind.size_bytes
            return f"lane {lane} of {result.name}: "
    return ""


def _differing_floats(found: Array, expected: Array) -> Array:
    a, b = (np.ascontiguousarray(x).view(np.float32) for x in (found, expected))
    same = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return np.repeat(~same, 4, axis=1)


def _describe(trial: Trial, case: int) -> list[str]:
    words = []
    for operand, given in zip(trial.instr.operands, trial.inputs(), strict=True):
        if isinstance(operand.place, Immediate):
            continue
        assert not isinstance(given, int)
        words.append(f"{operand.name} = {_values([lane[case] for lane in given])}")
    return words


def _result_values(trial: Trial, data: Array) -> str:
    values = []
    for result, first in trial.result_places():
        part = data[first : first + size_bytes(result)]
        kind = UINT32 if lane_type(result) is BOOL else lane_type(result)
        values.append(f"{result.name} = {_values(part.view(kind.np))}")
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
    machine = core.machine
    (folder / "trials.c").write_text(_trial_functions(core, trials))
    data = layout_of(core.place_bytes).data
    data.tofile(folder / "cases.bin")
    write_linker_script(machine, folder / "link.ld")
    sizes = {
        "TRIALS": len(trials),
        "CASES": data.shape[0],
        "CASE_BYTES": data.shape[1],
        "RESULT_BYTES_MAX": max(trial.result_bytes for trial in trials),
    }
    command = [*machine.compiler, *core.flags, *_FLAGS, *_MORE]
    command += [f"-D{name}={value}" for name, value in sizes.items()]
    command += [f"-I{_HERE}", "-T", "link.ld", "trials.c", str(_HERE / "machine.c")]
    command += ["-o", "image.elf"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    rejected = _rejected(folder, done.stderr)
    assert done.returncode == 0 or rejected, done.stderr
    return rejected


def write_linker_script(machine: Machine, path: Path) -> None:
    text = _LINKER_SCRIPT.format(
        flash=machine.code, ram=machine.data, ram_end=machine.end
    )
    path.write_text(text)


def _rejected(folder: Path, messages: str) -> dict[str, str]:
    """Return errors of the assembler by the instruction whose function has the line."""
    rejected: dict[str, str] = {}
    for file, at, what in re.findall(r"^(\S+\.s):(\d+): Error: (.*)", messages, re.M):
        lines = (folder / file).read_text().splitlines()[: int(at)]
        name = re.findall(r"/\* instruction (\w+) \*/", "\n".join(lines))[-1]
        rejected.setdefault(name, f"does not assemble: {what}")
    return rejected


def _trial_functions(core: Core, trials: Sequence[Trial]) -> str:
    headers = [f"#include <{name}>\n" for name in core.headers]
    parts = ['#include "machine.h"\n', *headers]
    parts += [t.function(core, f"trial_{at}") for at, t in enumerate(trials)]
    rows = [f"    {{trial_{at}, {t.result_bytes}}}," for at, t in enumerate(trials)]
    parts.append("const struct trial trials[TRIALS] = {\n" + "\n".join(rows) + "\n};\n")
    parts.append(_CASES)
    return "\n".join(parts)


def _run(core: Core, folder: Path) -> Array:
    command = [*core.machine.emulator, *core.machine.image]
    result = folder / "results.bin"
    result.unlink(missing_ok=True)
    subprocess.run(command, cwd=folder, capture_output=True, timeout=60)
    return np.fromfile(result, np.uint8)
