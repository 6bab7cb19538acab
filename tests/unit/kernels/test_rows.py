"""The names of rows, by which programs and C call them."""

from __future__ import annotations

from importlib import import_module

import pytest

from firmwright.base.errors import InternalError
from firmwright.kernels.isa.instruction import BINARY_INT, Instr, InstructionSet
from firmwright.kernels.isa.lanes import wrap_sum

MODULES = (
    "c_numbers",
    "dsp",
    "dsp_lanes",
    "mve",
    "mve_float",
    "mve_lanes",
    "rv32",
    "rv32_bitmanip",
    "rv32_packed",
    "thumb1",
    "thumb2",
    "thumb2_bits",
    "vfp",
    "xtensa",
)


@pytest.mark.parametrize("name", MODULES)
def test_a_row_has_the_name_of_its_variable(name: str) -> None:
    module = import_module(f"firmwright.kernels.isa.{name}")
    rows = {
        name: value for name, value in vars(module).items() if isinstance(value, Instr)
    }
    assert rows
    assert {name: row.name for name, row in rows.items()} == {n: n for n in rows}


def test_a_name_is_the_mnemonic_or_that_of_the_intrinsic() -> None:
    table = InstructionSet("planted", frozenset())
    assert table.row("sext.b {d}, {a}, {b}", BINARY_INT, wrap_sum).name == "sext_b"
    c = "vaddq_s32({a}, {b})"
    assert table.row("vadd {d}", BINARY_INT, wrap_sum, c=c).name == "vaddq_s32"
    with pytest.raises(InternalError, match="planted has two rows sext_b"):
        table.row("sext.b {d}", BINARY_INT, wrap_sum)
