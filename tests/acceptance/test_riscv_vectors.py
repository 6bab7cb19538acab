"""RISC-V vectors: one image for vectors of every length, with equal results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import firmwright as fw
from firmwright.boards import Board, load_board
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.profiling import profile

BOARD = "qemu-riscv32-virt-v"
LENGTHS = (64, 128, 256, 512, 1024)
MOST_INSTRUCTIONS = {
    "ad01_int8": 36_000,
    "kws_ref_model": 440_000,
    "pretrainedResnet_quant": 2_000_000,
    "str_ww_ref_model": 99_000,
    "vww_96_int8": 1_370_000,
}
"""With vectors of 128 bits."""
pytestmark = [pytest.mark.zig, pytest.mark.qemu("riscv32")]


def board_with(length: int) -> Board:
    """The board with vectors of `length` bits.

    QEMU 7.2 has 64 bits only without extension V.
    """
    board = load_board(BOARD)
    cpu = (
        f"rv32,v=true,vlen={length}"
        if length >= 128
        else f"rv32,Zve32f=true,vlen={length}"
    )
    args = tuple(cpu if word.startswith("rv32") else word for word in board.run.args)
    assert args != board.run.args or length == 128
    return replace(board, run=replace(board.run, args=args))


def check(model: Path, most: int | None = None) -> None:
    compiled = fw.compile(fw.load(model), board=BOARD)
    images, expected = set(), None
    for length in LENGTHS:
        at_length = replace(compiled, board=board_with(length))
        # Once with the runtime, then with the outputs of the run before.
        done = fw.verify(at_length, samples=2, expected=expected)
        assert done.exact
        expected = done.outputs
        images.add(build_image(at_length).elf.read_bytes())
    assert len(images) == 1
    if most is not None:
        assert profile(compiled).total <= most


@pytest.mark.deep  # Zig compiles all of musl at its first use, for minutes
def test_one_image_is_exact_with_vectors_of_every_length(digits_path: Path) -> None:
    check(digits_path)


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.parametrize(("model", "most"), MOST_INSTRUCTIONS.items())
def test_the_benchmark_models_are_exact_and_fast(
    model: str, most: int, model_path: Callable[[str], Path]
) -> None:
    check(model_path(f"{model}.tflite"), most)
