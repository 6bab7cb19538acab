"""What the compilers are told for a board."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.boards import Board, list_boards, load_board
from firmwright.build.compiler_flags import (
    MODEL_OPTIMIZATION,
    clang_flags,
    compile_flags,
    link_flags,
)
from firmwright.build.compiler_selection import require_compiler

HALVES = """
#include <stdint.h>
#include <stdio.h>

static inline int32_t add_halves(uint32_t a, int32_t acc)
{
    const int32_t low = (int32_t)(int16_t)(a & 0xffffu);
    const int32_t high = (int32_t)(int16_t)(a >> 16);
    return (int32_t)((uint32_t)acc + (uint32_t)low + (uint32_t)high);
}

__attribute__((noinline)) void sums(const uint32_t *words, const int32_t *bias, int32_t *y)
{
    int32_t sum0 = 0;
    int32_t sum1 = 0;
    for (int32_t j = 0; j < 18; ++j) {
        sum0 = add_halves(words[j * 2], sum0);
        sum1 = add_halves(words[j * 2 + 1], sum1);
    }
    for (int32_t k = 0; k < 2; ++k) {
        const uint32_t start = (uint32_t)bias[4 * k];
        y[4 * k] = (int32_t)(start + (uint32_t)sum0);
        y[4 * k + 1] = (int32_t)(start + (uint32_t)sum1);
        y[4 * k + 2] = (int32_t)(start + (uint32_t)sum0 * 0x0101u);
        y[4 * k + 3] = (int32_t)(start + (uint32_t)sum1 * 0x0101u);
    }
}

int main(void)
{
    uint32_t words[36];
    const int32_t bias[8] = {0};
    int32_t y[8];
    for (int32_t i = 0; i < 36; ++i) {
        words[i] = 0xff80ff80u;
    }
    sums(words, bias, y);
    printf("%ld %ld", (long)y[0], (long)y[2]);
    return 0;
}
"""
"""Both halves of each word are added, as by SMLAD's portable form: 36 times -128."""


@pytest.mark.parametrize(
    "board",
    [board for board in list_boards() if board.port in ("cortex_m", "riscv32")],
    ids=lambda b: b.name,
)
def test_clang_gets_the_core_and_no_gcc_only_flags(board: Board) -> None:
    flags = clang_flags(board)
    assert sum(flag.startswith("--target=") for flag in flags) == 1
    assert not any(
        flag.startswith("--specs=") or flag == "-mfpu=auto" for flag in flags
    )
    kept = set(compile_flags(board)) - set(flags)
    assert all(flag.startswith("--specs=") or flag == "-mfpu=auto" for flag in kept)


def test_clang_is_refused_for_xtensa() -> None:
    with pytest.raises(UsageError, match="clang has no code generator"):
        require_compiler("clang", "xtensa-lx106-elf", board="b", has_zig_flags=False)


def test_clang_on_the_host_uses_the_flags_of_gcc() -> None:
    assert clang_flags(load_board("host")) == compile_flags(load_board("host"))


def test_the_linker_gets_the_base_instruction_set() -> None:
    board = load_board("qemu-riscv32-virt-v")
    assert "-march=rv32imac" in link_flags(board)
    assert "-march=rv32imac_zba_zbb_zve32x_zvl64b" in compile_flags(board)


@pytest.mark.gcc
def test_gcc_on_the_host_keeps_both_halves_of_a_vectorizable_sum(
    tmp_path: Path,
) -> None:
    (tmp_path / "halves.c").write_text(HALVES)
    program = tmp_path / "halves"
    flags = (*compile_flags(load_board("host")), MODEL_OPTIMIZATION)
    command = ["gcc", *flags, "-o", str(program), "halves.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    said = subprocess.run(
        [program], capture_output=True, text=True, check=True, timeout=10
    )
    assert said.stdout == "-4608 -1184256"
