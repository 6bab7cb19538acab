"""All micro-kernels compile, also those that no model of the tests uses.

All functions of one instruction set are in one file, where none is called.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from firmwright.boards.load import load_board
from firmwright.build.zig_toolchain import zig_command, zig_flags
from firmwright.codegen import kernel_printer
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir.module import IRModule
from firmwright.schedules.registry import INTRINSICS
from tests.unit.codegen.adder_models import adder

ARM = ("arm-none-eabi-gcc", "-mthumb", "-mfloat-abi=hard")
CHECK = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
CORES = {
    "dsp": "-mcpu=cortex-m4",
    "fpu": "-mcpu=cortex-m4",
    "mla": "-mcpu=cortex-m4",
    "mve": "-mcpu=cortex-m55",
    "mvefp": "-mcpu=cortex-m55",
}
VECTORS = "qemu-riscv32-virt-v"


def write_model(
    module: IRModule, requires: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write a model of an instruction set's intrinsics; return its C file."""
    original = kernel_printer.print_kernels

    def print_kernels(context, *functions) -> str:
        chosen = [
            item
            for item in INTRINSICS.values()
            if item.requires == requires and item.text
        ]
        assert chosen
        context.used.intrinsics.update(
            (context.names.c(item.name), item) for item in chosen
        )
        dtypes = {operand.dtype for item in chosen for operand in item.operands}
        context.used.aliases.update(
            (context.names.alias(dtype), dtype) for dtype in dtypes
        )
        return original(context, *functions)

    monkeypatch.setattr(kernel_printer, "print_kernels", print_kernels)
    emit_model(module, INTRINSICS).write(folder)
    return folder / "model" / "m.c"


def compiler_messages(command: Sequence[object], file: Path) -> str:
    words = [
        *map(str, command),
        *CHECK,
        f"-I{file.parent}",
        "-c",
        str(file),
        "-o",
        "/dev/null",
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=120).stderr


@pytest.mark.qemu
@pytest.mark.parametrize("requires", sorted(CORES))
def test_every_function_of_an_arm_instruction_set_compiles(
    requires: str,
    tmp_path: Path,
    module_of: Callable[..., IRModule],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write_model(module_of(adder()), requires, tmp_path, monkeypatch)
    assert compiler_messages([*ARM, CORES[requires]], file) == ""


@pytest.mark.zig
def test_every_function_of_riscv_vectors_compiles(
    tmp_path: Path, module_of: Callable[..., IRModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_model(module_of(adder()), "rvv", tmp_path, monkeypatch)
    command = [*zig_command(), "cc", *zig_flags(load_board(VECTORS))]
    assert compiler_messages(command, file) == ""
