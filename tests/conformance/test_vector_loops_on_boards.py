"""Default loops over vectors give the results of the reference runtimes in QEMU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from firmwright.conformance.case_tables import ConformanceCase, conformance_cases
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ir.settings import NumericsProfile
from tests.conformance.test_layers_on_boards import marks
from tests.ops.tflite_writer import write_cases

OPERATORS: dict[NumericsProfile, tuple[str, ...]] = {
    "litert": (
        *("abs", "add", "add_n", "bitwise_xor", "cast", "equal", "greater", "less"),
        *("less_equal", "maximum", "minimum", "mul", "neg", "not_equal"),
        *("right_shift", "select", "sign", "squared_difference", "sub"),
    ),
    "tflm": ("filter_bank_log", "pcan", "spectrum_energy", "window"),
}
"""Operators with loops over vectors, by the runtime that has them."""
OTHERS: dict[NumericsProfile, tuple[str, ...]] = {
    "litert": (),
    "tflm": ("filter_bank", "filter_bank_square_root"),
}
"""Operators with vectors of their own."""


def cases(numerics: NumericsProfile) -> Iterator[ConformanceCase]:
    """Yield the cases of integers with one output, under names of their own."""
    for name in (*OPERATORS[numerics], *OTHERS[numerics]):
        for number, case in enumerate(conformance_cases(name)):
            kinds = {each.dtype for each in (*case.inputs, *case.outputs) if each}
            if len(case.outputs) == 1 and "float32" not in kinds:
                yield replace(case, name=f"{name}_{number}")


@pytest.mark.parametrize(
    ("board", "numerics"),
    [
        pytest.param(board, numerics, marks=marks(board, pytest.mark.deep))
        for board, numerics in product(("mps3-an547", "qemu-riscv32-virt-v"), OPERATORS)
    ],
)
def test_loops_over_vectors_match_the_reference_runtimes(
    board: str, numerics: NumericsProfile, tmp_path: Path
) -> None:
    path = tmp_path / "cases.tflite"
    chosen = [case for case in cases(numerics) if numerics in case.oracles]
    path.write_bytes(write_cases(chosen))
    compiled = compile_for(load_model(path), board, numerics=numerics, optimize="speed")
    with_vectors = {
        operator.kind
        for operator in compiled.summary.operators
        if operator.schedule.endswith(".lanes")
    }
    assert with_vectors == set(OPERATORS[numerics])
    result = verify(compiled, samples=6)
    assert result.mismatches == 0
