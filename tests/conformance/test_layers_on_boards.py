"""Random layers with every schedule of a board's core, as firmware in QEMU.

These tests execute the assembly of each family. Guard bytes surround every argument,
and results must not depend on them. Expected float results are the bits computed on the
host, which are compared with the reference runtimes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from firmwright.boards import load_board
from tests.conformance.board_runner import failures_on_board
from tests.conformance.core_families import BOARDS
from tests.conformance.expected_results import run_oracles
from tests.conformance.host_runner import with_host_floats
from tests.conformance.kernel_batches import make_batch
from tests.conformance.random_layers import layer
from tests.conformance.random_other_layers import FIRST, other_layer
from tests.emulators import tool_family

LAYERS = 300
OTHERS = 60
BLOCK = 60
SMALL_BLOCK = 20
"""Layers per image on boards with little flash; an image that does not fit is split."""
FEW = {
    "mps2-an386": (0, 1, 3, 6, FIRST, FIRST + 3, FIRST + 10),
    "mps3-an547": (2, 3, 5, 7, 14),
    "qemu-riscv32-virt-v": (0, 1, 2, 3, 5, 7, FIRST, FIRST + 7, FIRST + 9),
    "qemu-riscv32-virt-vf": (*range(FIRST + 1, FIRST + 20),),
    "qemu-xtensa-lx106": (0, 1, FIRST),
}
"""Layers that always run, one of each kind that has assembly."""
PROFILES = ("litert", "tflm")
ZIG_BOARDS = "-v", "-vf"


def marks(board: str, *more: pytest.MarkDecorator) -> list[pytest.MarkDecorator]:
    emulator = pytest.mark.qemu(tool_family(load_board(board)))
    return [emulator, *([pytest.mark.zig] if board.endswith(ZIG_BOARDS) else []), *more]


def check(
    board: str, numbers: Sequence[int], samples: tuple[int, ...], folder: Path
) -> None:
    cases = [other_layer(n) if n >= FIRST else layer(n) for n in numbers]
    batch = make_batch(cases, (BOARDS[board],), PROFILES, is_quick=True)
    expected = with_host_floats(
        cases, run_oracles(cases, PROFILES, samples), samples, folder / "own"
    )
    assert list(failures_on_board(batch, expected, samples, board, folder)) == []


def selected() -> Iterator[object]:
    """Return the boards of FEW; that of Zig is deep: Zig compiles a C library first."""
    for board in FEW:
        more = [pytest.mark.deep] if board.endswith(ZIG_BOARDS) else []
        yield pytest.param(board, marks=marks(board, *more))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("board", list(selected()))
def test_selected_layers_match_the_reference_runtimes(
    board: str, tmp_path: Path
) -> None:
    check(board, FEW[board], (0, 1), tmp_path)


def blocks() -> Iterator[object]:
    """Return parameters: a board and the numbers of the layers of one image."""
    for board in BOARDS:
        size = SMALL_BLOCK if board == "microbit" else BLOCK
        for first in (*range(0, LAYERS, size), *range(FIRST, FIRST + OTHERS, size)):
            numbers = range(first, first + size)
            marked = marks(board, pytest.mark.deep)
            yield pytest.param(board, numbers, marks=marked, id=f"{board}-{first}")


@pytest.mark.parametrize(("board", "numbers"), list(blocks()))
def test_many_layers_match_the_reference_runtimes(
    board: str, numbers: range, tmp_path: Path
) -> None:
    check(board, numbers, (0, 1, 2), tmp_path)
