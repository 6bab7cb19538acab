"""Builds images for machines of emulators that no board has, and runs them.

An image begins with the function `run_all` (lx106_start.h, spike_start.h), and writes
output.bin.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.build.compiler_flags import WARNINGS
from firmwright.device.instruction_counter import (
    InstructionCounter,
    build_counter_plugin,
)
from tests.unit.kernels.cores import LX6, LX106, Machine
from tests.unit.kernels.machine import write_linker_script

_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu99", "-ffreestanding", f"-I{_HERE}")
_LINK = ("-nostdlib", "-static", "-T", "link.ld", "-o", "image.elf")


def build_image(
    machine: Machine, sources: Sequence[object], folder: Path, *flags: str
) -> None:
    write_linker_script(machine, folder / "link.ld")
    command = [*machine.compiler, *_FLAGS, *flags, *_LINK, *sources, "-lgcc"]
    _call(command, folder)


def run_image(machine: Machine, folder: Path, *options: str) -> Array:
    """Return the bytes of the output; `options` are those of the emulator."""
    _call([*machine.emulator, *machine.image, *options], folder)
    return np.fromfile(folder / "output.bin", np.uint8)


def run_model(
    machine: Machine,
    project: Path,
    folder: Path,
    data: Array,
    output_bytes: int,
    *flags: str,
) -> tuple[Array, int]:
    """Return the int8 output of a compiled model, and the instructions of its run."""
    header = next(path for path in (project / "model").glob("*.h") if _is_model(path))
    data.tofile(folder / "input.bin")
    macros = {
        "MODEL_HEADER": f'"{header.name}"',
        "MODEL_NAME": header.stem,
        "MODEL_MACRO": header.stem.upper(),
        "INPUT_BYTES": data.nbytes,
        "OUTPUT_BYTES": output_bytes,
    }
    options = [*flags, f"-I{header.parent}"]
    options += [f"-D{macro}={value}" for macro, value in macros.items()]
    source = header.with_suffix(".c")
    checked = [*machine.compiler, *_FLAGS, *options, *WARNINGS, "-c", source]
    _call([*checked, "-o", "model.o"], folder)
    build_image(machine, [_HERE / "model_main.c", "model.o"], folder, *options)
    if machine in (LX106, LX6):
        written, executed = _run_with_plugin(machine, folder, f"{header.stem}_run")
    else:
        written = run_image(machine, folder)
        executed = int(written[:4].view(np.uint32)[0])
    return written[4 : 4 + output_bytes].view(np.int8), executed


def _run_with_plugin(
    machine: Machine, folder: Path, function: str
) -> tuple[Array, int]:
    """Return what is written, and the instructions in a function by QEMU's count."""
    symbols = _call(["xtensa-lx106-elf-nm", "-S", "image.elf"], folder)
    found = re.search(rf"^(\w+) (\w+) T {function}\w*$", symbols, re.M)
    assert found, symbols
    address, size = (int(word, 16) for word in found.groups())
    handlers = re.findall(r"^(\w+) T take_exception$", symbols, re.M)
    skipped = [int(handler, 16) for handler in handlers]
    plugin = build_counter_plugin(folder)
    with InstructionCounter(plugin, address, size, skipped=skipped) as counter:
        written = run_image(machine, folder, "-plugin", counter.argument)
        executed = sum(row.count for row in counter.read())
    return written, executed


def _is_model(header: Path) -> bool:
    return header.with_suffix(".c").exists()


def _call(command: Sequence[object], folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
