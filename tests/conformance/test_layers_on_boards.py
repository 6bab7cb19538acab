"""Random layers in every schedule that a board's core has, as firmware in QEMU.

What is expected of floats are the bits that this computer computes, after it was held against the
reference runtimes.
The assembly of each family is what runs here. Poison lies around every argument; with another one
there nothing may change; program and constants stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from families import BOARDS
from kernels import batch
from on_board import wrong_on
from on_host import with_own_floats
from oracles import ask
from other_layers import FIRST, other_layer
from random_layers import layer

LAYERS = 300
OTHERS = 60
BLOCK = 60
SMALL_BLOCK = 20
"""Of layers on a board with little flash: what does not fit is built three times."""
FEW = {
    "mps2-an386": (0, 1, 3, 6, FIRST, FIRST + 3, FIRST + 10),
    "mps3-an547": (2, 3, 5, 7, 14),
}
"""Layers that are tried always, one of each kind that has assembly."""
PROFILES = ("litert", "tflm")


def marks(board: str, *more: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    return [pytest.mark.qemu("riscv32") if "riscv" in board else pytest.mark.qemu, *more]


def check(board: str, numbers: Sequence[int], samples: tuple[int, ...], folder: Path) -> None:
    cases = [other_layer(n) if n >= FIRST else layer(n) for n in numbers]
    made = batch(cases, (BOARDS[board],), PROFILES, is_quick=True)
    expected = with_own_floats(cases, ask(cases, PROFILES, samples), samples, folder / "own")
    assert list(wrong_on(made, expected, samples, board, folder)) == []


@pytest.mark.parametrize("board", [pytest.param(name, marks=marks(name)) for name in FEW])
def test_some_layers_compute_what_the_reference_runtimes_do(board: str, tmp_path: Path) -> None:
    check(board, FEW[board], (0, 1), tmp_path)


def blocks() -> Iterator[object]:
    """A board and the numbers of the layers of one image."""
    for board in BOARDS:
        size = SMALL_BLOCK if board == "microbit" else BLOCK
        for first in (*range(0, LAYERS, size), *range(FIRST, FIRST + OTHERS, size)):
            numbers = range(first, first + size)
            marked = marks(board, pytest.mark.deep)
            yield pytest.param(board, numbers, marks=marked, id=f"{board}-{first}")


@pytest.mark.parametrize(("board", "numbers"), list(blocks()))
def test_many_layers_compute_what_the_reference_runtimes_do(
    board: str, numbers: range, tmp_path: Path
) -> None:
    check(board, numbers, (0, 1, 2), tmp_path)
