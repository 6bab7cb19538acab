"""Programs of cores without SIMD are sums of products, in registers of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from firmwright.base.dtypes import INT32, UINT8, UINT32, Array
from firmwright.base.errors import InternalError
from firmwright.kernels.assembly import executed_instructions
from firmwright.kernels.assembly_text import AssemblyText
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa import thumb2
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.program import Address, Loop, Program, Step, VirtualRegister
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import (
    CLANG_THUMB2_FILE,
    THUMB1_FILE,
    THUMB2_FILE,
    RegisterFile,
)
from firmwright.kernels.registers import Holder, assign_registers
from firmwright.kernels.scalar.gemm import (
    ScalarMicrokernel,
    is_contiguous,
    mla_forms,
    rvp_forms,
    thumb1_forms,
    xtensa_forms,
)
from firmwright.schedules.scalar import thumb1_conv2d_fully_connected
from firmwright.schedules.scalar.microkernels import (
    FAMILIES,
    MicrokernelFamily,
    make_microkernel,
)

STEPS, PIXEL, CASES = 6, 11, 16


def drawn(rng: np.random.Generator, count: int, kind: type[np.generic]) -> Array:
    limits = np.iinfo(kind)
    extremes = rng.choice(np.array([limits.min, limits.max, 0, 1]), (count, CASES))
    values = rng.integers(limits.min, limits.max, (count, CASES))
    return np.where(rng.random(extremes.shape) < 0.5, extremes, values).astype(kind)


def programs(family: MicrokernelFamily) -> Iterator[tuple[ScalarMicrokernel, Program]]:
    for layout, rows, pixels in family.shapes:
        shape = ScalarMicrokernel(layout, rows, pixels, 2)
        forms = family.forms(shape)
        yield shape, forms.wide
        if forms.narrow:
            yield shape, forms.narrow


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_programs_are_sums_of_products(family: MicrokernelFamily) -> None:
    rng = np.random.default_rng(3)
    for shape, program in programs(family):
        kind = shape.dtype.np
        w = drawn(rng, shape.rows * STEPS, kind)
        x = drawn(rng, shape.step * STEPS + PIXEL * shape.pixels, kind)
        start = drawn(rng, shape.rows, np.int32)
        numbers = {"steps": STEPS, "pixel": PIXEL}
        memory = {"w": w, "x": x, "start": start}
        state = run_program(program, evaluate, memory, {}, numbers)
        meaning = make_microkernel(family, shape).meaning
        pixel = PIXEL if is_contiguous(shape.layout) else 1
        expected = meaning(w, x, start, pixel, STEPS)
        for place, total in enumerate(expected):
            np.testing.assert_array_equal(state.registers[f"c{place}"][0], total)


def test_the_thumb1_program_is_sums_of_products() -> None:
    rng = np.random.default_rng(4)
    w, x = drawn(rng, 8 * STEPS, UINT8.np), drawn(rng, STEPS, np.int8)
    start, sums = drawn(rng, 8, np.int32), np.zeros((8, CASES), np.int32)
    memory = {"w": w, "x": x, "start": start, "sums": sums}
    program = thumb1_forms(3).wide
    state = run_program(program, evaluate, memory, {}, {"steps": STEPS})
    (block, *_) = thumb1_conv2d_fully_connected.INTRINSICS
    expected = block.meaning(w, x, start, sums, STEPS)
    np.testing.assert_array_equal(
        np.array(state.memory["sums"]).astype(np.int32), expected
    )


# ---- Registers -----------------------------------------------------------------------

MLA_2X4 = ScalarMicrokernel("bytes", 2, 4, 8)


def scaled() -> Program:
    """Return a program with a value that only its loop uses."""
    k = ProgramBuilder("scaled")
    w, start = k.pointer("w", INT32), k.pointer("start", INT32)
    total = k.register("c0", INT32)
    factor = k.local("factor", RegisterPlace(RegisterClass.CORE, INT32))
    k(thumb2.ldr, start[0], into=factor)
    k(thumb2.ldr, start[1], into=total)
    with k.loop("steps", 1) as i:
        weight = k(thumb2.mul, k(thumb2.ldr, w[i]), factor)
        k(thumb2.mla, weight, k(thumb2.ldr, w[i]), total, into=total)
    return k.build()


def every_program() -> Iterator[tuple[Program, RegisterFile]]:
    for family in FAMILIES:
        for layout, rows, pixels in family.shapes:
            forms = family.forms(ScalarMicrokernel(layout, rows, pixels, 2))
            yield forms.wide, forms.file
            if forms.narrow is not None:
                yield forms.narrow, forms.file
                yield forms.narrow, forms.file.without_last()
    yield thumb1_forms(1).wide, THUMB1_FILE
    yield scaled(), THUMB2_FILE


def executed_steps(program: Program) -> Iterator[Step | Loop]:
    """Yield the steps, those of a loop twice, each time followed by the loop."""
    for node in program.body:
        if isinstance(node, Loop):
            yield from (*node.body, node, *node.body, node)
        elif isinstance(node, Step):
            yield node


def holders(given: object) -> Iterator[Holder]:
    if isinstance(given, Address):
        yield given.pointer
    elif isinstance(given, VirtualRegister) and not given.is_operand:
        yield given


@pytest.mark.parametrize(
    ("program", "file"), [*every_program()], ids=lambda item: getattr(item, "name", "")
)
def test_registers_hold_what_is_read(program: Program, file: RegisterFile) -> None:
    assigned = assign_registers(program, file)
    inputs = set(AssemblyText(program, file).inputs)
    held: dict[str, Holder] = {}
    for holder in inputs & assigned.registers.keys():
        held[assigned.registers[holder]] = holder

    def read(holder: Holder) -> None:
        if holder in assigned.registers:
            assert held.get(assigned.registers[holder]) is holder

    for step in executed_steps(program):
        if isinstance(step, Loop):
            if assigned.scratch:
                held.pop(assigned.scratch, None)
            for holder in (*step.pointers(), step.limit):
                read(holder)
            continue
        addresses = (item for item in step.results if isinstance(item, Address))
        for given in (*step.operands, *addresses):
            for holder in holders(given):
                read(holder)
        for given in step.results:
            for holder in holders(given):
                if isinstance(holder, VirtualRegister):
                    held[assigned.registers[holder]] = holder


def test_the_results_of_a_sequence_have_registers_of_their_own() -> None:
    k = ProgramBuilder("greater")
    w, total = k.pointer("w", INT32), k.register("c0", INT32)
    first, second = k(thumb2.ldr, w[0]), k(thumb2.ldr, w[1])
    greater = k(thumb2.greater, first, second)
    k(thumb2.mla, greater, greater, total, into=total)
    registers = assign_registers(k.build(), THUMB2_FILE).registers
    assert registers[greater] not in {registers[first], registers[second]}


def test_both_results_of_an_instruction_differ_if_one_is_not_read() -> None:
    k = ProgramBuilder("second")
    w, total = k.pointer("w", UINT32), k.register("c0", INT32)
    first, second = k.pair(thumb2.ldrd, w[0])
    k(thumb2.mla, second, second, total, into=total)
    registers = assign_registers(k.build(), THUMB2_FILE).registers
    assert registers[first] != registers[second]


def test_a_counter_without_a_register_is_in_memory() -> None:
    forms = mla_forms(MLA_2X4)
    assert forms.narrow is not None
    assert AssemblyText(forms.wide, THUMB2_FILE).closing()[0] == "subs %[left], #1"
    narrow = AssemblyText(forms.narrow, CLANG_THUMB2_FILE).closing()
    assert [line.split()[0] for line in narrow] == ["ldr", "subs", "str", "bne"]


def test_a_program_that_needs_more_registers_is_refused() -> None:
    file = CLANG_THUMB2_FILE.without_last()
    with pytest.raises(
        InternalError,
        match=r"mla_bytes_2x4 needs more than the 4 registers left, at step 11, ldrsb; "
        r"held: w; x; the result of step 9, ldrsb; the result of step 10, ldrsb$",
    ):
        assign_registers(mla_forms(MLA_2X4).wide, file)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: mla_forms(MLA_2X4), 8 + 3 * (8 * 14 + 2)),
        (
            lambda: xtensa_forms(ScalarMicrokernel("unsigned", 4, 2, 4)),
            8 + 6 * (4 * 22 + 4),
        ),
        (
            lambda: rvp_forms(ScalarMicrokernel("words", 4, 4, 4)),
            16 + 6 * (4 * 24 + 3),
        ),
        (lambda: thumb1_forms(4), 14 + 6 * (4 * 26 + 4) + 14),
    ],
)
def test_executed_instructions_are_those_of_the_assembly(
    make: Callable, expected: int
) -> None:
    assert executed_instructions(make(), 24) == expected
