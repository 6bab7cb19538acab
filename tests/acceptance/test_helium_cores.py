"""Code for the Cortex-M52 and M85 runs on QEMU's Cortex-M55, with equal results."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import firmwright as fw
from firmwright.boards import load_board
from firmwright.build.zig_toolchain import zig_command, zig_target
from firmwright.flows.board.firmware_images import build_image
from tests import mlperf_tiny

BOARDS = ("mps3-an547-m52", "mps3-an547-m85", "mps3-an547")
DISASSEMBLERS = (
    ("arm-none-eabi-objdump", "-d"),
    ("llvm-objdump", "-d", "--mcpu=cortex-m55"),
)
LACKING = re.compile(r"\t(?:pacg|autg|bxaut)\b.*|<unknown>")
"""PACBTI apart from its hints, which other cores ignore, and what is no instruction."""
pytestmark = [pytest.mark.zig, pytest.mark.qemu("arm")]


def instructions_that_the_m55_lacks(file: Path) -> list[str]:
    found: list[str] = []
    for command in DISASSEMBLERS:
        try:
            done = subprocess.run(
                [*command, file], check=True, capture_output=True, text=True
            )
        except FileNotFoundError:
            pytest.skip(f"needs {command[0]}")
        found += LACKING.findall(done.stdout)
    return found


def test_an_instruction_that_the_m55_lacks_is_found(tmp_path: Path) -> None:
    source, made = tmp_path / "pacg.s", tmp_path / "pacg.o"
    source.write_text(".thumb\npacg r0, r1, r2\nbti\n")
    *target, core = zig_target(load_board("mps3-an547-m85"))
    command = [*zig_command(), "cc", *target, f"{core}+pacbti", "-c", source]
    subprocess.run([*command, "-o", made], check=True)
    assert instructions_that_the_m55_lacks(made) == ["\tpacg\tr0, r1, r2"]


@pytest.mark.deep  # Zig compiles all of musl at its first use, for minutes
@pytest.mark.models
@pytest.mark.parametrize("board", BOARDS)
@pytest.mark.parametrize("model", mlperf_tiny.MODELS)
def test_a_model_is_exact_by_instructions_of_the_m55(
    model: str,
    board: str,
    model_path: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIRMWRIGHT_TOOLCHAIN", "zig")
    compiled = fw.compile(fw.load(model_path(f"{model}.tflite")), board=board)
    assert fw.verify(compiled, samples=2).exact
    assert not instructions_that_the_m55_lacks(build_image(compiled).elf)
