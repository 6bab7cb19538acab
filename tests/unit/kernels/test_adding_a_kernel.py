"""The micro-kernel of the page about micro-kernels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from firmwright.kernels.assembly import ProgramForms, body_text, macro_definitions
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.portable import portable_text
from firmwright.kernels.program import Program

PAGE = (
    Path(__file__).resolve().parents[3] / "docs" / "developing" / "adding-a-kernel.md"
)
STEPS = 3


@pytest.fixture(scope="module")
def example() -> dict[str, object]:
    """Return what the code of the page defines."""
    _, *blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    defined: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), defined)
    return defined


def program_of(example: dict[str, object]) -> Program:
    make = example["points_2x2"]
    assert callable(make)
    program = make(STEPS)
    assert isinstance(program, Program)
    return program


def test_its_sums_are_those_of_a_matrix_product(example: dict[str, object]) -> None:
    rng = np.random.default_rng(1)
    w = rng.integers(-32768, 32768, (STEPS, 2, 2), np.int16)
    x = rng.integers(-32768, 32768, (STEPS, 2, 2), np.int16)
    starts = rng.integers(-(1 << 31), 1 << 31, 4)
    state = run_program(
        program_of(example),
        evaluate,
        {"w": w.view(np.uint32).reshape(-1, 1), "x": x.view(np.uint32).reshape(-1, 1)},
        {f"c{i}": [np.array([start], np.int32)] for i, start in enumerate(starts)},
    )
    sums = np.einsum("sct,spt->cp", w.astype(np.int64), x.astype(np.int64)).ravel()
    for place, exact in enumerate(starts + sums):
        (total,) = state.registers[f"c{place}"]
        assert total == np.int64(exact).astype(np.int32)


def test_its_assembly_and_its_c_follow(example: dict[str, object]) -> None:
    program = program_of(example)
    forms = ProgramForms(program, None, "Two channels times two pixels.")
    macros = "\n".join(macro_definitions(forms))
    assert '"smlad %[c3], %[v], %[p], %[c3]\\n\\t"' in macros
    assert "POINTS_2X2(STEPS_3(POINTS_2X2_STEP));" in body_text(forms)
    assert "c3 = @smlad(t1, t3, c3);" in portable_text(program)


def test_the_search_of_an_order_finds_a_faster_one(example: dict[str, object]) -> None:
    block_cycles, timing = example["block_cycles"], example["cortex_m7"]
    assert callable(block_cycles)
    better, written = example["better"], example["program"]
    assert block_cycles(better, timing) < block_cycles(written, timing)


def test_its_vectors_are_scaled_on_a_condition(example: dict[str, object]) -> None:
    assert (
        example["scale"]
        == """\
if (shift < 0) {
    total = vrshlq_n_s32(total, shift);
}"""
    )
