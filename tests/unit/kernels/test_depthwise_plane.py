"""Windows of a channel's plane: sums of the programs, and their scaling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.kernels.evaluation import evaluate
from firmwright.kernels.execution import run_program
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.mve.depthwise_plane import (
    SUMS,
    block_sums,
    load_weights,
    scale_by_numbers,
)
from firmwright.kernels.program import Node, Program, Step, VirtualRegister
from firmwright.kernels.vector_program import VectorProgram
from firmwright.schedules.helium import vector_requantize

LANES = 16


def values(numbers: Iterable[int]) -> list[Array]:
    """Return one value for each number, of one execution."""
    return [np.array([number]) for number in numbers]


def gathered(program: Program) -> Program:
    """Return the program with loads of adjacent elements in place of gathers."""
    load = MVE_MEMORY.rows["vldrbq_s8"]
    body: list[Node] = []
    for step in program.body:
        assert isinstance(step, Step)
        if step.instr.memory:
            address, _ = step.operands
            step = replace(step, instr=load, operands=(address,))
        body.append(step)
    return replace(program, body=tuple(body))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_block_has_the_sums_of_its_windows(groups: int) -> None:
    each = SUMS // groups
    rng = np.random.default_rng(groups)
    windows = rng.integers(-128, 128, (groups, LANES))
    weights = rng.integers(-128, 128, (each, LANES))
    names = ["from", "from + group", "from + 2 * group", "from + 3 * group"][:groups]
    memory = {
        name: values(window.astype(np.int8))
        for name, window in zip(names, windows, strict=True)
    }
    registers = {f"w{number}": values(row) for number, row in enumerate(weights)}
    registers |= {"taps": values(range(LANES)), "bias": values([1234])}
    program = gathered(block_sums(groups).chosen({"bias": 1234}))
    state = run_program(program, evaluate, memory, registers)
    expected = (windows @ weights.T + 1234).reshape(-1)
    assert [int(lane[0]) for lane in state.registers["sums"]] == expected.tolist()


@pytest.mark.parametrize("rounding", [0, 1, 2])
@pytest.mark.parametrize("shift", [0, -1, -7])
def test_sums_are_scaled_as_specified(rounding: int, shift: int) -> None:
    sums = np.array([-1000, 37, 123456, 1 << 20])
    if rounding == 0:
        sums = np.abs(sums)  # halves of negative sums are clamped
    if rounding == 1 and shift == 0:
        shift = -2  # every channel is shifted
    multiplier = 0x5A82799A
    numbers = {"multiplier": multiplier, "shift": shift, "rounding": rounding}
    registers = {name: values([value]) for name, value in numbers.items()}
    state = run_program(
        scale_by_numbers().chosen(numbers),
        evaluate,
        {},
        {**registers, "sums": values(sums.astype(np.int32))},
    )
    expected = vector_requantize.scale_lanes(sums, multiplier, shift, rounding)
    assert [int(lane[0]) for lane in state.registers["sums"]] == expected.tolist()


def written(program: VectorProgram) -> set[str]:
    results = (node.results[0] for node in program.nodes if isinstance(node, Step))
    return {item.name for item in results if isinstance(item, VirtualRegister)}


def test_blocks_read_the_weights_that_were_loaded() -> None:
    assert written(load_weights(2)) >= {"taps", "target", "w0", "w1"}
    assert "w2" not in written(load_weights(2))
