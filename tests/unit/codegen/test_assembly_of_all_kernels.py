"""All micro-kernels compile, also those that no model of the tests uses.

All functions of one instruction set are in one file, where none is called. The other
tests that need every micro-kernel are here, too: to make them all takes 20 seconds.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

import firmwright
from firmwright.boards.load import load_board
from firmwright.build.zig_toolchain import zig_command, zig_flags
from firmwright.codegen import kernel_printer
from firmwright.codegen.model_emitter import emit_model
from firmwright.ir.module import IRModule
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.schedules.asm_macros import KEEP_STORES
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
SCHEDULES = Path(firmwright.__file__).parent / "schedules"
STORE = re.compile(r"(?:vst[a-z0-9]*(?:\$\{\w+\})?q|\$\{store\}q)_p_\w+\(([^,]+),")


@cache
def all_intrinsics() -> tuple[Intrinsic, ...]:
    """Return every intrinsic; each is found under its own name."""
    assert [name for name, item in INTRINSICS.items() if item.name != name] == []
    return tuple(INTRINSICS.values())


def write_model(
    module: IRModule, requires: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write a model of an instruction set's intrinsics; return its C file."""
    original = kernel_printer.print_kernels

    def print_kernels(context, *functions) -> str:
        chosen = [
            item for item in all_intrinsics() if item.requires == requires and item.text
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


def check_stores(lines: Sequence[str], place: str) -> int:
    """Check the statement before each predicated store; return how many there are."""
    found = 0
    for before, line in itertools.pairwise(lines):
        store = STORE.search(line)
        if store is not None:
            assert before.strip() == f"KEEP_STORES({store[1]});", f"{place}: {line}"
            found += 1
    return found


def test_every_predicated_store_comes_after_keep_stores() -> None:
    found = 0
    for file in sorted(SCHEDULES.rglob("*.c.in")):
        found += check_stores(file.read_text().splitlines(), file.name)
    for item in all_intrinsics():
        if item.requires.startswith("mve"):
            lines = item.text["gnu"].splitlines()
            found += check_stores(lines, item.name)
    assert found >= 14
    assert not [
        file for file in SCHEDULES.rglob("*.py") if STORE.search(file.read_text())
    ]


def test_an_intrinsic_defines_the_macro_if_its_assembly_uses_it() -> None:
    for item in all_intrinsics():
        is_used = "KEEP_STORES(" in item.text.get("gnu", "")
        assert (KEEP_STORES in item.definitions) == is_used, item.name
