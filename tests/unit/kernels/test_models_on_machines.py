"""A whole model on cores without a board: the outputs of the host, and faster code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.kernels.cores import LX6, LX106, SPIKE, Machine
from tests.unit.kernels.images import run_model

INPUT_BYTES, OUTPUT_BYTES = 64, 10
PACKED = "riscv32 -march=rv32imacp"
MACHINES = [
    pytest.param(LX106, "xtensa", "c", marks=pytest.mark.qemu("xtensa"), id="lx106"),
    pytest.param(
        LX6,
        "xtensa -mcpu=lx6",
        "c",
        marks=[pytest.mark.qemu("xtensa"), pytest.mark.lx6],
        id="lx6",
    ),
    pytest.param(SPIKE, PACKED, "riscv32", marks=pytest.mark.spike, id="packed riscv"),
]


@pytest.mark.host_c
@pytest.mark.parametrize(("machine", "target", "other_target"), MACHINES)
def test_digits_has_the_outputs_of_the_host(
    fw,
    digits_path: Path,
    machine: Machine,
    target: str,
    other_target: str,
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(3)
    data = rng.integers(-128, 128, INPUT_BYTES).astype(np.int8)
    files = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(files[0], image=data.reshape(1, 8, 8, 1))
    assert fw("run", digits_path, "--input", files[0], "--output", files[1]).status == 0
    (expected,) = np.load(files[1]).values()
    instructions = []
    options = "-O2", "-DFIRMWRIGHT_RISCV_P=1"
    for name in (target, other_target):
        project = tmp_path / f"model{len(instructions)}"
        assert fw("compile", digits_path, "--target", name, "-o", project).status == 0
        output, count = run_model(
            machine, project, tmp_path, data, OUTPUT_BYTES, *options
        )
        assert output.tolist() == expected.ravel().tolist()
        instructions.append(count)
    assert instructions[0] < 0.65 * instructions[1]
