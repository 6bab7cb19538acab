"""Random layers in every schedule that a board's core has, as firmware in QEMU.

The assembly of each family is what runs here. Poison lies around every argument; with another one
there nothing may change; program and constants stay as they were.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from families import BOARDS
from kernels import batch
from on_board import wrong_on
from oracles import ask
from random_layers import layer

LAYERS = 300
BLOCK = 20
FEW = {"mps2-an386": (0, 1, 3, 6), "mps3-an547": (2, 3, 5, 7, 14)}
"""Layers that are tried always, one of each kind that has assembly."""
PROFILES = ("litert", "tflm")


def marks(board: str, *more: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    return [pytest.mark.qemu("riscv32") if "riscv" in board else pytest.mark.qemu, *more]


def check(board: str, numbers: list[int], samples: tuple[int, ...], folder: Path) -> None:
    cases = [layer(n) for n in numbers]
    made = batch(cases, (BOARDS[board],), PROFILES)
    expected = ask(cases, PROFILES, samples)
    assert list(wrong_on(cases, made.kernels, expected, samples, board, folder)) == []


@pytest.mark.parametrize("board", [pytest.param(name, marks=marks(name)) for name in FEW])
def test_some_layers_compute_what_the_reference_runtimes_do(board: str, tmp_path: Path) -> None:
    check(board, list(FEW[board]), (0, 1), tmp_path)


@pytest.mark.parametrize("first", range(0, LAYERS, BLOCK))
@pytest.mark.parametrize(
    "board", [pytest.param(name, marks=marks(name, pytest.mark.deep)) for name in BOARDS]
)
def test_many_layers_compute_what_the_reference_runtimes_do(
    board: str, first: int, tmp_path: Path
) -> None:
    check(board, list(range(first, first + BLOCK)), (0, 1, 2), tmp_path)
