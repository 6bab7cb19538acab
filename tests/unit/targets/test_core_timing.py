"""The pipelines reproduce the examples of their manuals."""

import re
import shutil
import subprocess

import pytest

from firmwright.boards import load_board
from firmwright.targets.core_timing import core_timings
from firmwright.targets.cycle_model import Executed, modeled_cycles
from firmwright.targets.disassembly import AssemblySyntax, read_disassembly
from firmwright.targets.scoreboard import Scoreboard

REFILL = 2  # of the Cortex-M3 and M4 with a target at a word
PAIRS = {
    # Cortex-M3 Technical Reference Manual, load and store timings
    "ldr r0, [r1]; ldr r1, [r2]; nop": 3 + 1,
    "ldr r0, [r1, r2]; str r0, [r3, #20]; nop": 2 + 1,
    "ldr r0, [r1]; ldr r2, [r0]; nop": 4 + 1,  # the address depends on the first
    "ldr r0, [r1, r5]; ldr r1, [r2]; ldr r2, [r3, #4]; nop": 4 + 1,
    "ldr r0, [r1]; adds r0, #1": 3,
    "adds r1, #4; ldr r0, [r1]; nop": 1 + 1 + 2 + 1,  # the address comes from the ALU
    "ldmia r1!, {r0, r2, r3}": 4,
    "ldrd r2, r3, [r1]": 3,
    "mul r0, r1, r2": 1,
}


def iteration(core: str, source: str) -> float:
    """Return the cycles of one of many executions in a loop that is itself free."""
    loop = [step.instruction for step in executed(source)]
    board = Scoreboard(core_timings()[core], loop * 9)
    board.now = 0.0
    for instruction in loop * 200:
        board.execute(0, instruction)
    return board.now / 200


def executed(
    source: str,
    count: int = 1,
    start: int = 0x100,
    syntax: AssemblySyntax = AssemblySyntax.ARM,
) -> list[Executed]:
    """Return the instructions of `source`, 16 bits each, from `start` on."""
    lines = [
        f"{start + 2 * i:x}:\t0000      \t{line.strip().replace(' ', chr(9), 1)}"
        for i, line in enumerate(source.split(";"))
    ]
    decoded = read_disassembly("\n".join(lines), syntax)
    return [Executed(address, what, count, 0) for address, what in decoded]


@pytest.mark.parametrize(("source", "cycles"), PAIRS.items())
@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4"])
def test_sequences_of_the_manual(core, source, cycles):
    assert modeled_cycles(core_timings()[core], executed(source)) == cycles + REFILL


def test_the_cortex_m3_multiplies_and_adds_in_two_cycles():
    path = executed("mla r0, r1, r2, r3")
    assert modeled_cycles(core_timings()["cortex-m3"], path) == 2 + REFILL
    assert modeled_cycles(core_timings()["cortex-m4"], path) == 1 + REFILL


def test_a_result_of_the_float_unit_is_late():
    m4 = core_timings()["cortex-m4"]
    used = modeled_cycles(m4, executed("vadd.f32 s0, s1, s2; vadd.f32 s3, s0, s2"))
    unused = modeled_cycles(m4, executed("vadd.f32 s0, s1, s2; vadd.f32 s3, s4, s2"))
    assert used == unused + 1


def test_a_branch_to_a_wide_instruction_across_words_takes_one_more_cycle():
    m4 = core_timings()["cortex-m4"]
    wide = "{:x}:\t0000 0000 \tadd.w\tr0, r1, r2"
    cycles = []
    for start in (0x100, 0x102):
        ((address, what),) = read_disassembly(wide.format(start), AssemblySyntax.ARM)
        cycles.append(modeled_cycles(m4, [Executed(address, what, 10, 0)]))
    assert cycles == [10 * (1 + REFILL), 10 * (2 + REFILL)]


def test_a_loop_pays_for_each_taken_branch():
    m4 = core_timings()["cortex-m4"]
    loop = executed("adds r0, #1; bne loop", count=10)
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(m4, loop) == 10 * (2 + REFILL)


def test_tables_without_silicon_are_marked_rough():
    for core, timing in core_timings().items():
        if "rough" in timing.source:
            assert timing.silicon == (0.0, 0.0), core
    assert "rough" in core_timings()["cortex-m7"].source
    assert load_board("qemu-riscv32-virt").core not in core_timings()


E31 = {
    # FE310 manual, chapter 3: latency of results, multiplier, division
    "lw a0,0(a1); nop": 2,
    "lw a0,0(a1); add a2,a0,a0": 3,
    "lbu a0,0(a1); add a2,a0,a0": 4,
    "lbu a0,0(a1); nop; nop; add a2,a0,a0": 4,
    "mul a0,a1,a2; add a3,a0,a0": 6,
    "mul a0,a1,a2; nop; nop; nop; nop; add a3,a0,a0": 6,
    "mul a0,a1,a2; mul a3,a1,a2": 6,  # blocked until the first has ended
}


@pytest.mark.parametrize(("source", "cycles"), E31.items())
def test_results_of_the_e31_are_late(source, cycles):
    assert (
        modeled_cycles(
            core_timings()["sifive-e31"], executed(source, syntax=AssemblySyntax.RISCV)
        )
        == cycles
    )


def test_the_e31_pays_for_mispredicted_branches_only():
    loop = executed("addi a0,a0,-1; bnez a0,100", count=10, syntax=AssemblySyntax.RISCV)
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(core_timings()["sifive-e31"], loop) == 10 * 2 + 3


def test_a_loop_continues_with_the_results_of_the_iteration_before():
    e31 = core_timings()["sifive-e31"]
    loop = executed(
        "add a1,a0,a1; nop; lw a0,0(a2); bnez a2,100",
        count=10,
        syntax=AssemblySyntax.RISCV,
    )
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(e31, loop) == 10 * 4 + 3
    tight = [
        *loop[:1],
        *executed("lbu a0,0(a2); bnez a2,100", 10, 0x102, syntax=AssemblySyntax.RISCV),
    ]
    tight[-1] = Executed(tight[-1].address, tight[-1].instruction, 10, 9)
    assert modeled_cycles(e31, tight) == 10 * 4 + 3  # one stall in each iteration


@pytest.mark.parametrize("board", ["hifive1-revb", "esp32-c3-devkitm-1"])
def test_pipelines_of_boards_have_a_table(board):
    assert load_board(board).pipeline in core_timings()


def test_the_esp32_c3_pays_for_taken_branches_and_loaded_values():
    c3 = core_timings()["esp32-c3"]
    loop = executed(
        "lw a1,0(a0); add a2,a1,a1; bnez a2,100",
        count=10,
        syntax=AssemblySyntax.RISCV,
    )
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(c3, loop) == 10 * (3 + 1 + 2)


M7 = {
    # jnk0le's measurements on the STM32H743
    "ldr r0, [r1]; add r2, r0, r0": 1,
    "ldrb r0, [r1]; add r2, r0, r0": 2,
    "ldr r0, [r1]; add r2, r3, r0, lsl #2": 2,  # a shifted operand is needed earlier
    "ldr r0, [r1]; smlad r2, r0, r4, r2": 2,
    "ldrb r0, [r1]; str r0, [r2]": 1,  # the value may come late
    "smlad r0, r1, r2, r0": 1,  # the accumulator as well
    "smlad r0, r1, r2, r0; str r3, [r4]": 2,
    "sxtb16 r3, r4; sxtb16 r5, r4": 2,  # bit fields in the first slot only
    "sxtb16 r3, r4; smlad r0, r1, r2, r0": 1,
    "add r0, r1, r2, lsl #3; add r3, r4, r5, lsl #2": 2,
    "ldr r0, [r1], #4; ldr r2, [r3], #4": 1,
    "ldmia r1, {r0, r2, r3, r4}": 2,
    "vfma.f32 s0, s1, s2": 3,
    "vmul.f32 s0, s1, s2; vadd.f32 s3, s1, s2": 2,
}


@pytest.mark.parametrize(("source", "cycles"), M7.items())
def test_pairs_of_the_cortex_m7(source, cycles):
    assert iteration("cortex-m7", source) == pytest.approx(cycles, abs=0.1)


M55 = {
    # the examples in LLVM's scheduling model
    "vldrw.u32 q0, [r0]; vadd.i32 q1, q0, q2; vmul.i32 q3, q1, q2; vstrw.32 q3, [r1]": 5,
    "vldrw.u32 q0, [r0]; vldrw.u32 q4, [r0]; vadd.i32 q1, q0, q2; vstrw.32 q3, [r1]": 6,
    # pipes, latencies and pairs
    "vldrb.u8 q0, [r0], #16; vmladava.s8 r2, q0, q1": 2,
    "vadd.i32 q0, q1, q2; vshl.s32 q3, q4, q5": 4,
    "vmul.i32 q0, q1, q2; vadd.i32 q1, q0, q2": 3,
    "ldr r0, [r1]; adds r2, #1": 1,
    "ldr r0, [r1]; adds r0, #1": 3,
    "vldrb.u8 q0, [r0], #16; vmladava.s8 r2, q0, q1; le lr, 100": 2,
}


@pytest.mark.parametrize(("source", "cycles"), M55.items())
def test_overlapping_beats_of_the_cortex_m55(source, cycles):
    assert iteration("cortex-m55", source) == pytest.approx(cycles, abs=0.1)


def test_an_early_addition_issues_with_its_user():
    m7 = core_timings()["cortex-m7"]
    assert modeled_cycles(m7, executed("add r0, r1, r2; eor r3, r0, r4")) == 1
    assert modeled_cycles(m7, executed("eor r0, r1, r2; eor r3, r0, r4")) == 2


@pytest.mark.skipif(
    shutil.which("llvm-mca") is None, reason="llvm-mca is not installed"
)
@pytest.mark.parametrize(
    "source",
    [
        "add r0, r1, r2; add r3, r1, r2",
        "smlad r0, r1, r2, r0; smlad r3, r1, r2, r3",
        "ldr r0, [r1]; ldr r2, [r3]",
        "str r0, [r1]; add r2, r3, r4",
        "mul r0, r1, r2; add r3, r0, r0",
        "uxtb r0, r1; uxtb r2, r3",
    ],
)
def test_the_cortex_m7_agrees_with_llvm(source):
    command = [
        "llvm-mca",
        "-mtriple=thumbv7em",
        "-mcpu=cortex-m7",
        "-iterations=200",
        "-",
    ]
    text = source.replace(";", "\n")
    report = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True
    ).stdout
    (cycles,) = re.findall(r"Total Cycles: +(\d+)", report)
    assert iteration("cortex-m7", source) == pytest.approx(int(cycles) / 200, abs=0.1)
