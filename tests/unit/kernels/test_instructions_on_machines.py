"""Every instruction does on its cores what its semantics say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.kernels.cores import CORES
from tests.unit.kernels.machine import wrong_instructions

ARM_CORES = [name for name in CORES if name.startswith("cortex")]


def check(name: str, folder: Path) -> None:
    core = CORES[name]
    instrs = [instr for table in core.sets for instr in table]
    assert wrong_instructions(core, instrs, folder) == {}


@pytest.mark.qemu("arm")
@pytest.mark.parametrize("name", ARM_CORES)
def test_instructions_of_arm_cores(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.zig
@pytest.mark.qemu("riscv32")
@pytest.mark.parametrize("name", ["rv32 vectors", "rv32 float vectors"])
def test_instructions_of_riscv_vectors(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.qemu("riscv32")
def test_instructions_of_riscv(tmp_path: Path) -> None:
    check("rv32", tmp_path)


@pytest.mark.qemu("xtensa")
def test_instructions_of_xtensa(tmp_path: Path) -> None:
    check("lx106", tmp_path)


@pytest.mark.spike
def test_instructions_of_packed_riscv(tmp_path: Path) -> None:
    check("rv32 packed", tmp_path)
