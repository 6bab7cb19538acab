"""The pipelines reproduce the examples of their manuals."""

import pytest

from firmwright.boards import load_board
from firmwright.targets.core_timing import core_timings
from firmwright.targets.cycle_model import Executed, modeled_cycles
from firmwright.targets.disassembly import read_disassembly

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


def executed(
    source: str, count: int = 1, start: int = 0x100, *, is_arm: bool = True
) -> list[Executed]:
    """Return the instructions of `source`, 16 bits each, from `start` on."""
    lines = [
        f"{start + 2 * i:x}:\t0000      \t{line.strip().replace(' ', chr(9), 1)}"
        for i, line in enumerate(source.split(";"))
    ]
    decoded = read_disassembly("\n".join(lines), is_arm=is_arm)
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
        ((address, what),) = read_disassembly(wide.format(start), is_arm=True)
        cycles.append(modeled_cycles(m4, [Executed(address, what, 10, 0)]))
    assert cycles == [10 * (1 + REFILL), 10 * (2 + REFILL)]


def test_a_loop_pays_for_each_taken_branch():
    m4 = core_timings()["cortex-m4"]
    loop = executed("adds r0, #1; bne loop", count=10)
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(m4, loop) == 10 * (2 + REFILL)


def test_tables_of_overlapping_cores_are_marked_rough():
    for core in ("cortex-m7", "cortex-m55"):
        assert "rough" in core_timings()[core].source
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
    assert modeled_cycles(core_timings()["sifive-e31"], executed(source, is_arm=False)) == cycles


def test_the_e31_pays_for_mispredicted_branches_only():
    loop = executed("addi a0,a0,-1; bnez a0,100", count=10, is_arm=False)
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(core_timings()["sifive-e31"], loop) == 10 * 2 + 3


def test_a_loop_continues_with_the_results_of_the_iteration_before():
    e31 = core_timings()["sifive-e31"]
    loop = executed("add a1,a0,a1; nop; lw a0,0(a2); bnez a2,100", count=10, is_arm=False)
    loop[-1] = Executed(loop[-1].address, loop[-1].instruction, 10, 9)
    assert modeled_cycles(e31, loop) == 10 * 4 + 3
    tight = [*loop[:1], *executed("lbu a0,0(a2); bnez a2,100", 10, 0x102, is_arm=False)]
    tight[-1] = Executed(tight[-1].address, tight[-1].instruction, 10, 9)
    assert modeled_cycles(e31, tight) == 10 * 4 + 3  # one stall in each iteration


def test_pipelines_of_boards_have_a_table():
    assert load_board("hifive1-revb").pipeline in core_timings()
