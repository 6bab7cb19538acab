"""Builds images for the LX106 of QEMU, for which there is no board, and runs them.

An image begins with the function `run_all` (lx106_start.h), and writes output.bin.
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
from tests.unit.kernels.cores import LX106
from tests.unit.kernels.machine import write_linker_script

_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu99", "-ffreestanding", f"-I{_HERE}")
_LINK = ("-nostdlib", "-static", "-T", "link.ld", "-o", "image.elf")


def build_image(sources: Sequence[object], folder: Path, *flags: str) -> None:
    write_linker_script(LX106, folder / "link.ld")
    command = [*LX106.compiler, *_FLAGS, *flags, *_LINK, *sources, "-lgcc"]
    _call(command, folder)


def run_image(folder: Path, *options: str) -> Array:
    """Return the bytes of the output; `options` are those of QEMU."""
    command = [*LX106.emulator, "-kernel", "image.elf", *options]
    command += ["-semihosting-config", "enable=on,target=native"]
    _call([*command, "-display", "none", "-monitor", "none"], folder)
    return np.fromfile(folder / "output.bin", np.uint8)


def run_model(
    project: Path, folder: Path, data: Array, output_bytes: int, *flags: str
) -> tuple[Array, int]:
    """Return the int8 output of a compiled model, and the instructions of its run."""
    header = next(path for path in (project / "model").glob("*.h") if _is_model(path))
    name = header.stem
    data.tofile(folder / "input.bin")
    macros = {
        "MODEL_HEADER": f'"{header.name}"',
        "MODEL_NAME": name,
        "MODEL_MACRO": name.upper(),
        "INPUT_BYTES": data.nbytes,
        "OUTPUT_BYTES": output_bytes,
    }
    options = [*flags, f"-I{header.parent}"]
    options += [f"-D{macro}={value}" for macro, value in macros.items()]
    source = header.with_suffix(".c")
    checked = [*LX106.compiler, *_FLAGS, *options, *WARNINGS, "-c", source]
    _call([*checked, "-o", "model.o"], folder)
    build_image([_HERE / "lx106_main.c", "model.o"], folder, *options)
    symbols = _call(["xtensa-lx106-elf-nm", "-S", "image.elf"], folder)
    found = re.search(rf"^(\w+) (\w+) T {name}_run\w*$", symbols, re.M)
    assert found, symbols
    address, size = (int(word, 16) for word in found.groups())
    plugin = build_counter_plugin(folder)
    with InstructionCounter(plugin, address, size) as counter:
        output = run_image(folder, "-plugin", counter.argument)
        executed = sum(row.count for row in counter.read())
    return output.view(np.int8), executed


def _is_model(header: Path) -> bool:
    return header.with_suffix(".c").exists()


def _call(command: Sequence[object], folder: Path) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
