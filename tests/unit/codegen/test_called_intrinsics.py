"""Functions that only the portable C of an intrinsic calls cause no warnings."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.base.dtypes import INT8
from firmwright.boards.load import load_board
from firmwright.build.zig_toolchain import zig_command, zig_flags
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import Builder
from firmwright.schedules.registry import INTRINSICS

VECTORS = "qemu-riscv32-virt-v"
CHECK = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")


def square() -> Builder:
    """Square x by a vector loop, whose portable C calls a function of an element."""
    b = Builder("square_0")
    x = b.buffer_param("x", INT8, (8,), "in", 1)
    y = b.buffer_param("y", INT8, (8,), "out", 1)
    pointers = [b.pointer(x, 0, 8), b.pointer(x, 0, 8), b.pointer(y, 0, 8, "w")]
    zeros, multiplier, shift, zero_point = (0, 0), 1 << 30, 0, 0
    limits, rounding = (-128, 127), 0
    numbers = [*zeros, multiplier, shift, zero_point, *limits, rounding, 8]
    b.evaluate("rvv_mul_int8", [*pointers, *numbers])
    return b


@pytest.mark.zig
@pytest.mark.parametrize("flags", [(), ("-DM_NO_INLINE_ASM",)], ids=["asm", "c"])
def test_a_function_of_elements_may_be_unused(
    flags: tuple[str, ...], tmp_path: Path, module_of: Callable[..., IRModule]
) -> None:
    emit_model(module_of(square()), INTRINSICS).write(tmp_path)
    file = tmp_path / "model" / "m.c"
    assert "_element(" in file.read_text()
    command = [*zig_command(), "cc", *zig_flags(load_board(VECTORS)), *flags, *CHECK]
    command += [f"-I{file.parent}", "-c", str(file), "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
