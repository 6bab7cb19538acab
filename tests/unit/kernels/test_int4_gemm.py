"""Programs for int4 weights: their sums, and the macros that they share."""

from __future__ import annotations

import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from firmwright.base.dtypes import UINT32
from firmwright.base.errors import InternalError
from firmwright.kernels.assembly import body_text, macro_definitions
from firmwright.kernels.assembly_text import AssemblyText
from firmwright.kernels.dsp.int4_gemm import (
    STEPS_MAX,
    Int4Form,
    int4_forms,
    int4_program,
    int4_shares,
)
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.vfp import VLDMIA_INTS, vmov_to_core
from firmwright.kernels.portable import portable_text
from firmwright.kernels.program import Program, instruction_count
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import FPU_THUMB2_FILE
from firmwright.schedules.cortex_m_dsp.int4_microkernels import (
    INTRINSIC_MAKERS,
    int4_sums,
)
from firmwright.schedules.cortex_m_dsp.int4_shares import shares_of_columns
from tests.unit.kernels.test_execution import drawn_words

SUMS = [f"c{place}" for place in range(8)]


@pytest.mark.parametrize("form", Int4Form)
@pytest.mark.parametrize("has_end", [False, True])
def test_programs_are_sums_of_products(form: Int4Form, has_end: bool) -> None:
    for steps in (1, 2, STEPS_MAX):
        rng = np.random.default_rng(steps)
        w = drawn_words(rng, steps)
        x = drawn_words(rng, 8 * steps + 4 * has_end)
        sums = drawn_words(rng, 8).astype(np.int32)
        registers = {name: [total] for name, total in zip(SUMS, sums, strict=True)}
        program = int4_program(form, steps, has_end=has_end)
        state = run_program(program, evaluate, {"w": w, "x": x}, registers)
        expected = int4_sums(steps, w, x, *sums)
        for name, total in zip(SUMS, expected, strict=True):
            np.testing.assert_array_equal(state.registers[name][0], total, name)


def test_shares_are_sums_of_columns() -> None:
    rng = np.random.default_rng(0)
    x, sums = drawn_words(rng, 12), rng.integers(-1000, 1000, (4, 64), np.int32)
    registers = {f"s{place}": [total] for place, total in enumerate(sums)}
    factors = {"factors": [np.full(64, 0xFFF8FFF8, np.uint32)]}
    program = int4_shares(3).wide
    state = run_program(program, evaluate, {"x": x}, registers | factors)
    for place, total in enumerate(shares_of_columns(x, *sums)):
        np.testing.assert_array_equal(state.registers[f"s{place}"][0], total)


def test_a_step_takes_25_instructions_with_weights_in_the_fpu() -> None:
    counts = []
    for form, steps in product((Int4Form.FLOAT, Int4Form.WIDE), (3, 4)):
        counts.append(instruction_count(int4_program(form, steps)))
    assert counts == [76, 101, 78, 104]


def test_all_numbers_of_steps_share_their_macros() -> None:
    every = set()
    for steps in range(1, STEPS_MAX + 1):
        definitions = macro_definitions(int4_forms(steps, has_end=True))
        every |= {text for text in definitions if "INT4_2X4" in text}
    (shared,) = every
    assert '"vldmia %[r11], {" #group "}\\n\\t"' in shared
    assert '"vmov %[r11], s" #i "\\n\\t"' in shared


def test_the_loaded_group_has_a_register_for_each_step() -> None:
    groups = [body_text(int4_forms(steps, has_end=False)) for steps in (1, 2, 16)]
    assert [text[text.rindex(",") :] for text in groups] == [
        ", s0);",
        ", s0-s1);",
        ", s0-s15);",
    ]


def test_the_end_follows_the_last_column_in_c() -> None:
    text = portable_text(int4_program(Int4Form.NARROW, 3, has_end=True))
    assert "for (int32_t i = 0; i < 3; ++i) {\n" in text
    assert "\nconst uint32_t t3 = x[27];\n" in text


def two_groups() -> Program:
    k = ProgramBuilder("groups")
    w = k.pointer("w", UINT32)
    groups = k(VLDMIA_INTS[2], w[0]), k(VLDMIA_INTS[2], w[0])
    with k.repeat(2) as i:
        for group in groups:
            k(vmov_to_core, group[i])
    return k.build()


def test_a_group_that_repeats_begins_with_register_0() -> None:
    program = two_groups()
    text = AssemblyText(program, FPU_THUMB2_FILE)
    (repeat,) = program.body[2:]
    first, second = repeat.body
    assert text.step(first).endswith('s" #i "')
    with pytest.raises(InternalError, match="groups cannot repeat s2"):
        text.step(second)


def assembled(name: str) -> str:
    """Return the assembly of a micro-kernel as a C function, without its macros."""
    item = INTRINSIC_MAKERS[name]()
    registers = "".join(f", int32_t c{place}" for place in range(8))
    sums = " + ".join(SUMS)
    head = f"int32_t {name}(const uint32_t *w, const uint32_t *x{registers})"
    return f"{head}\n{{\n{item.text['gnu']}\nreturn {sums};\n}}\n"


@pytest.mark.qemu
@pytest.mark.parametrize("floats", ["hard", "soft"])
def test_micro_kernels_assemble(floats: str, tmp_path: Path) -> None:
    definitions: dict[str, None] = {}
    for make in INTRINSIC_MAKERS.values():
        definitions |= dict.fromkeys(make().definitions)
    functions = [assembled(name) for name in INTRINSIC_MAKERS]
    source = tmp_path / "int4.c"
    source.write_text("\n".join(["#include <stdint.h>", *definitions, *functions]))
    core = ["-mcpu=cortex-m4", "-mthumb", f"-mfloat-abi={floats}"]
    command = ["arm-none-eabi-gcc", *core, "-O2", "-c", source, "-o", "/dev/null"]
    subprocess.run(command, check=True, timeout=60)
