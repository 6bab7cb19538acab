"""Example 13: a secure model, called by the non-secure world through a veneer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firmwright.flows.export.package_export import export_model
from firmwright.flows.samples.reference_outputs import run_oracle_reference
from firmwright.pipeline import Compilation

ROOT = Path(__file__).resolve().parents[2]
COUNT = 40


@pytest.mark.qemu
def test_a_secure_model_answers_and_its_memory_is_out_of_reach(
    compiled: Callable[..., Compilation], tmp_path: Path
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(ROOT / "examples/13_trustzone", folder)
    model = compiled("digits", board="mps2-an505")
    export_model(model, "makefile", folder / "digits")
    made = subprocess.run(
        ["make", "-s"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    symbols = ["arm-none-eabi-nm", folder / "nonsecure.elf"]
    visible = subprocess.run(symbols, capture_output=True, text=True, check=True).stdout
    assert "secure_classify" in visible
    assert "digits" not in visible
    images = np.load(ROOT / "examples/01_digits/digits_test.npz")["input_1"][:COUNT]
    samples = [{"image": image.astype(np.int8)} for image in images]
    outputs = run_oracle_reference(model, samples, "litert").outputs
    expected = [f"digit {int(np.argmax(one['digit']))}" for one in outputs]
    commands = [b"d" + sample["image"].tobytes() for sample in samples]
    assert answers(folder, [*commands, b"p", b"r"]) == [
        *expected,
        "refused",
        "secure fault",
    ]


def answers(folder: Path, commands: list[bytes]) -> list[str]:
    """Return the line that the firmware prints for each command."""
    loader = ["-kernel", "secure.elf", "-device", "loader,file=nonsecure.elf"]
    emulator = [
        "timeout",
        "60",
        "qemu-system-arm",
        "-machine",
        "mps2-an505",
        "-nographic",
        *loader,
    ]
    lines = []
    with subprocess.Popen(
        emulator, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as board:
        assert board.stdin is not None
        assert board.stdout is not None
        for command in commands:
            board.stdin.write(command)
            board.stdin.flush()
            lines.append(board.stdout.readline().decode().strip())
        board.terminate()
    return lines
