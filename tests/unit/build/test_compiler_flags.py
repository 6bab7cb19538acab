"""What the compilers are told for a board."""

from __future__ import annotations

import pytest

from firmwright.boards import Board, list_boards, load_board
from firmwright.build.compiler_flags import clang_flags, compile_flags, link_flags


@pytest.mark.parametrize(
    "board", [board for board in list_boards() if not board.is_host], ids=lambda b: b.name
)
def test_clang_gets_the_core_and_no_gcc_only_flags(board: Board) -> None:
    flags = clang_flags(board)
    assert sum(flag.startswith("--target=") for flag in flags) == 1
    assert not any(flag.startswith("--specs=") or flag == "-mfpu=auto" for flag in flags)
    kept = set(compile_flags(board)) - set(flags)
    assert all(flag.startswith("--specs=") or flag == "-mfpu=auto" for flag in kept)


def test_clang_on_the_host_uses_the_flags_of_gcc() -> None:
    assert clang_flags(load_board("host")) == compile_flags(load_board("host"))


def test_the_linker_gets_the_base_instruction_set() -> None:
    board = load_board("qemu-riscv32-virt-v")
    assert "-march=rv32imac" in link_flags(board)
    assert "-march=rv32imac_zba_zbb_zve32x_zvl64b" in compile_flags(board)
