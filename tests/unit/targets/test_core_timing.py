"""The Cortex-M4 timing table matches its manual."""

import pytest

from firmwright.boards import load_board
from firmwright.targets.core_timing import CORE_TIMINGS
from firmwright.targets.instruction_decoders import Instruction

M4 = CORE_TIMINGS["cortex-m4"]


@pytest.mark.parametrize(
    ("kind", "registers", "after_load", "cycles"),
    [
        ("alu", 1, False, 1),
        ("multiply", 1, False, 1),
        ("multiply_long", 1, False, 1),
        ("load", 1, False, 2),
        ("load", 1, True, 1),
        ("load_multiple", 2, False, 3),
        ("load_multiple", 4, True, 5),
        ("store", 1, True, 1),
        ("store_multiple", 2, False, 3),
    ],
)
def test_each_kind_has_its_published_cost(kind, registers, after_load, cycles):
    instruction = Instruction(4, kind, registers)
    assert M4.of(instruction, 10, 0, after_load=after_load) == 10 * cycles


def test_a_taken_branch_costs_three_cycles():
    branch = Instruction(2, "branch")
    assert M4.of(branch, 10, 0, after_load=False) == 10
    assert M4.of(branch, 10, 10, after_load=False) == 30


def test_tables_of_overlapping_cores_are_marked_rough():
    for core in ("cortex-m7", "cortex-m33", "cortex-m55"):
        assert "rough" in CORE_TIMINGS[core].source
    assert load_board("qemu-riscv32-virt").core not in CORE_TIMINGS
