"""Instructions that LabWired lacks: their replacements equal QEMU's, in place."""

import itertools
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.boards import Board, load_board
from firmwright.extensions.labwired.simulated_image import make_simulated_image
from firmwright.extensions.labwired.thumb_replacements import branch

RESULTS = 0x2000_2000
INSTRUCTIONS = (
    "ssat {d}, #8, {n}",
    "ssat {d}, #8, {n}, asr #12",
    "ssat {d}, #1, {n}, asr #31",
    "ssat {d}, #16, {n}, lsl #3",
    "ssat {d}, #32, {n}",
    "usat {d}, #7, {n}, asr #12",
    "usat {d}, #31, {n}, lsl #2",
    "pkhbt {d}, {n}, {m}, lsl #16",
    "pkhbt {d}, {n}, {m}, lsl #5",
    "pkhtb {d}, {n}, {m}, asr #16",
    "pkhtb {d}, {n}, {m}, asr #32",
    "sxtb16 {d}, {n}",
    "sxtb16 {d}, {n}, ror #8",
    "sxtab16 {d}, {n}, {m}",
    "sxtab16 {d}, {n}, {m}, ror #8",
    "uxtb16 {d}, {n}, ror #24",
    "uxtab16 {d}, {n}, {m}, ror #16",
)
REGISTERS = (("r3", "r1", "r2"), ("r0", "r0", "r1"), ("r12", "lr", "r12"))
VALUES = (0xFFF9_1234, 0x0034_5678, 0x80C0_F0FF, 0x7FFF_FFFF, 0, 0xFFFF_FF80)
FLAGS = (0x8000_0000, 0x7FFF_FFFF)
"""Twice the first sets Z, C and V; twice the second sets N and V."""

PROGRAM = """
    .syntax unified
    .thumb
    .section .vectors, "a"
    .word 0x20001000, start + 1
    .section .text
    .thumb_func
    .type start, %function
start:
    ldr r8, ={results}
    {lines}
    b finish
    .ltorg
    .size start, . - start
    .thumb_func
    .type finish, %function
finish:
    movs r0, #1             // SYS_OPEN of the console
    adr r1, console
    bkpt 0xab
    adr r1, block
    str r0, [r8]
    ldr r2, [r1, #4]
    ldr r3, [r1, #8]
    push {{r0, r2, r3}}
    mov r1, sp
    movs r0, #5             // SYS_WRITE
    bkpt 0xab
    movs r0, #0x18          // SYS_EXIT
    ldr r1, =0x20026
    bkpt 0xab
    b .
    .align 2
console: .word name, 4, 3
block: .word 0, {results}, {size}
name: .asciz ":tt"
    .align 2
    .ltorg
    .size finish, . - finish
"""
CASE = """
    ldr r7, ={flags}
    adds r7, r7, r7
    ldr {n}, ={a}
    ldr {m}, ={b}
    {instruction}
    str {d}, [r8], #4
    mrs r7, apsr
    and r7, r7, #0xF0000000
    str r7, [r8], #4
"""
LAYOUT = """
SECTIONS {
  . = 0x08000000;
  .text : { KEEP(*(.vectors)) *(.text) }
}
"""


def assemble(lines: str, folder: Path, size: int = 0) -> Path:
    text = PROGRAM.format(lines=lines, results=RESULTS, size=size)
    (folder / "program.S").write_text(text)
    (folder / "layout.ld").write_text(LAYOUT)
    elf = folder / "program.elf"
    flags = ["-mcpu=cortex-m4", "-mthumb", "-nostdlib", "-Wl,--no-warn-rwx-segments"]
    command = ["arm-none-eabi-gcc", *flags, "-Wl,-Tlayout.ld", "program.S", "-o", elf]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return elf


@pytest.fixture
def board() -> Board:
    return load_board("netduinoplus2")


@pytest.mark.qemu
def test_replacements_equal_the_instructions_in_qemu(
    tmp_path: Path, board: Board
) -> None:
    labwired = pytest.importorskip(
        "labwired", reason="needs LabWired (pip install labwired)"
    )
    pairs = list(itertools.product(VALUES, repeat=2))[::5]
    cases: list[str] = []
    for text, (d, n, m), (a, b) in itertools.product(INSTRUCTIONS, REGISTERS, pairs):
        instruction = text.format(d=d, n=n, m=m)
        for flags in FLAGS:
            values = {"d": d, "n": n, "m": m, "a": a, "b": b, "flags": flags}
            cases.append(CASE.format(instruction=instruction, **values))
        cases.append("b 1f\n.ltorg\n1:\n")
    size = 8 * len(INSTRUCTIONS) * len(REGISTERS) * len(pairs) * len(FLAGS)
    elf = assemble("\n".join(cases), tmp_path, size)
    command = ["qemu-system-arm", "-machine", "netduinoplus2", "-nographic"]
    command += ["-semihosting", "-monitor", "none", "-serial", "none", "-kernel", elf]
    expected = subprocess.run(command, capture_output=True, timeout=60, check=False)
    image = make_simulated_image(elf, board)
    assert image is not None
    simulated = tmp_path / "simulated.elf"
    simulated.write_bytes(image)
    with labwired.Sim(simulated, chip="stm32f405") as simulation:
        simulation.run_for("1ms")
        results = simulation.read_memory(RESULTS, size)
    assert len(expected.stdout) == size
    assert results == expected.stdout


@pytest.mark.qemu
def test_an_image_of_known_instructions_stays(tmp_path: Path, board: Board) -> None:
    elf = assemble("ssat16 r0, #8, r0\nusat r0, #8, r0\npkhbt r0, r1, r2", tmp_path)
    assert make_simulated_image(elf, board) is None


@pytest.mark.qemu
def test_literals_are_not_instructions(tmp_path: Path, board: Board) -> None:
    # The literal is the encoding of SSAT; so is the second half of the immediate move.
    elf = assemble("ldr r0, =0x3307f321\nssat r1, #8, r1", tmp_path)
    original = elf.read_bytes()
    image = make_simulated_image(elf, board)
    assert image is not None
    literal = struct.pack("<I", 0x3307_F321)
    assert original.count(literal) == image.count(literal) == 1
    changed = sum(a != b for a, b in zip(original[52:], image[52:], strict=False))
    assert 0 < changed <= 4


@pytest.mark.qemu
def test_a_conditional_instruction_is_refused(tmp_path: Path, board: Board) -> None:
    elf = assemble("ite eq\nmoveq r0, r1\nssatne r0, #8, r1", tmp_path)
    with pytest.raises(UsageError, match=r"executed conditionally, at 0x08000010\."):
        make_simulated_image(elf, board)
    elf = assemble("it eq\nmoveq r0, r1\nssat r0, #8, r1", tmp_path)
    assert make_simulated_image(elf, board) is not None


@pytest.mark.qemu
def test_a_full_flash_is_refused(tmp_path: Path, board: Board) -> None:
    elf = assemble("ssat r0, #8, r1", tmp_path)
    flash = replace(board.flash, size_bytes=96)
    full = replace(board, memory=(flash, *board.memory[1:]))
    with pytest.raises(UsageError, match="the flash has no space"):
        make_simulated_image(elf, full)


def test_a_far_branch_is_refused() -> None:
    assert branch(0x0800_0000, 0x0800_0000) == (0xF7FF, 0xBFFE)
    with pytest.raises(ValueError, match="too far away"):
        branch(0x2000_0000, 0x0800_0000)
