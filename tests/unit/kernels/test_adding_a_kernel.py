"""The micro-kernel of the page about micro-kernels."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.dsp.gemm import MAC_2X4, MAC_4X2, MAC_8X1, gemm_program
from firmwright.kernels.program import instruction_count
from tests.unit.kernels.proof import Claim, failures

PAGE = (
    Path(__file__).resolve().parents[3] / "docs" / "developing" / "adding-a-kernel.md"
)
STEPS = 3


@pytest.fixture(scope="module")
def example() -> dict[str, object]:
    """Return what the code of the page defines."""
    blocks = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    defined: dict[str, object] = {}
    with redirect_stdout(StringIO()) as printed:
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), defined)
    return {**defined, "printed": printed.getvalue().splitlines()}


def test_its_counts_are_those_of_programs(example: dict[str, Any]) -> None:
    counts = ["11 instructions for 6", "14 instructions for 8"]
    assert example["printed"][:2] == counts
    assert "7 instructions for 8 products" in example["printed"]
    row = re.compile(r"^\| (\d) x (\d) \| .* \| (\d+) \| 4 \|$", re.MULTILINE)
    told = [tuple(map(int, each)) for each in row.findall(PAGE.read_text())]
    assert told == [
        (tile.channels, tile.pixels, instruction_count(gemm_program(tile, 1)))
        for tile in (MAC_2X4, MAC_4X2, MAC_8X1)
    ]


def test_its_sums_are_compared_and_proven(example: dict[str, object]) -> None:
    """The page's own assertions hold; a claim of other sums does not."""
    claim, variables = example["claim"], example["variables"]
    assert isinstance(claim, Claim)
    assert callable(variables)
    ((other,),) = variables("s", 1, 1)
    found = failures(replace(claim, results={**claim.results, "c3": other}))
    assert list(found) == ["c3"]


def test_its_assembly_and_its_c_follow(example: dict[str, object]) -> None:
    make = example["points_intrinsic"]
    assert callable(make)
    intrinsic = make(STEPS)
    assert isinstance(intrinsic, Intrinsic)
    macros = "\n".join(intrinsic.definitions)
    assert '"smlad %[c3], %[v], %[p], %[c3]\\n\\t"' in macros
    assert "POINTS_2X2(STEPS_3(POINTS_2X2_STEP));" in intrinsic.text["gnu"]
    assert "c3 = @smlad(t1, t3, c3);" in intrinsic.portable
    assert (intrinsic.calls, intrinsic.instructions) == (("smlad",), 7 * STEPS)


def test_the_meaning_of_its_intrinsic_is_that_of_its_program(
    example: dict[str, Any],
) -> None:
    intrinsic = example["points_intrinsic"](STEPS)
    words, starts = example["words"], example["starts"].astype(np.int32)
    packed = words(example["weights"]), words(example["columns"])
    state = example["state"]
    for place, total in enumerate(intrinsic.meaning(*packed, *starts)):
        np.testing.assert_array_equal(total, state.registers[f"c{place}"][0])


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
