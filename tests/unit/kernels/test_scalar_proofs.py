"""GEMM micro-kernels of single multiplications are proven, for all their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import z3

from firmwright.base.dtypes import INT8, INT32, UINT8, DType
from firmwright.kernels.program import Address, Loop, Program
from firmwright.kernels.scalar.gemm import (
    THUMB1_ROWS,
    ScalarMicrokernel,
    is_contiguous,
    thumb1_forms,
)
from firmwright.schedules.scalar.microkernels import FAMILIES, MicrokernelFamily
from tests.unit.kernels.proof import Claim, converted, failures
from tests.unit.kernels.test_scalar_gemm import programs

STEPS, PIXEL = 2, 5


def elements(name: str, count: int, dtype: DType) -> list[z3.BitVecRef]:
    return [z3.BitVec(f"{name}{place}", dtype.bits) for place in range(count)]


def wide(values: Sequence[z3.BitVecRef], dtype: DType) -> list[z3.BitVecRef]:
    return [converted(value, dtype, INT32) for value in values]


def taps(element: z3.BitVecRef, shape: ScalarMicrokernel) -> list[z3.BitVecRef]:
    """Return the taps that an element of memory holds, as int32."""
    if shape.layout != "words":
        return wide([element], shape.dtype)
    return wide([z3.Extract(8 * i + 7, 8 * i, element) for i in range(4)], INT8)


def product(
    weight: z3.BitVecRef, column: z3.BitVecRef, shape: ScalarMicrokernel
) -> z3.BitVecRef:
    """Return the sum of the products of two elements of memory."""
    pairs = zip(taps(weight, shape), taps(column, shape), strict=True)
    return sum(a * b for a, b in pairs)


def scalar_claim(
    shape: ScalarMicrokernel, program: Program, *, is_loop_only: bool = False
) -> Claim:
    """Return the claim that sums are plain sums of products.

    They begin at `start`, or, of the program's loop only, at any values.
    """
    apart = PIXEL if is_contiguous(shape.layout) else 1
    count = shape.step * (STEPS - 1) + apart * (shape.pixels - 1) + 1
    w = elements("w", shape.rows * STEPS, shape.dtype)
    x = elements("x", count, shape.dtype)
    start = elements("start", shape.rows, INT32)
    names = [value.name for value in program.registers]
    registers = {}
    if is_loop_only:
        body = tuple(node for node in program.body if isinstance(node, Loop))
        program = replace(program, body=body)
        registers = {name: z3.BitVec(name, 32) for name in names}
    results = {}
    for place, name in enumerate(names):
        row, pixel = divmod(place, shape.pixels)
        results[name] = registers.get(name, start[row]) + sum(
            product(
                w[step * shape.rows + row], x[step * shape.step + pixel * apart], shape
            )
            for step in range(STEPS)
        )
    memory = {"w": w, "x": x, "start": start}
    numbers = {"steps": STEPS, "pixel": PIXEL}
    return Claim(program, memory, registers, results, numbers=numbers)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_sums_begin_anywhere_and_add_products(family: MicrokernelFamily) -> None:
    for shape, program in programs(family):
        assert not failures(scalar_claim(shape, program))
        assert not failures(scalar_claim(shape, program, is_loop_only=True))


def thumb1_claim(program: Program) -> Claim:
    """Return the claim that stored sums are those of unsigned weights."""
    w, x = elements("w", THUMB1_ROWS * STEPS, UINT8), elements("x", STEPS, INT8)
    start, sums = (elements(name, THUMB1_ROWS, INT32) for name in ("start", "sums"))
    weights, taps = wide(w, UINT8), wide(x, INT8)
    after = [
        start[row]
        + sum(weights[step * THUMB1_ROWS + row] * taps[step] for step in range(STEPS))
        for row in range(THUMB1_ROWS)
    ]
    memory = {"w": w, "x": x, "start": start, "sums": sums}
    return Claim(
        program, memory, {}, {}, numbers={"steps": STEPS}, stores={"sums": after}
    )


def test_the_thumb1_kernel_stores_sums_of_products() -> None:
    assert not failures(thumb1_claim(thumb1_forms(1).wide))


def moved(program: Program, change: Callable[[Address], Address]) -> Program:
    """Return the program with other addresses of columns in its loop."""
    body = []
    for node in program.body:
        if isinstance(node, Loop):
            steps = []
            for step in node.body:
                operands = tuple(
                    change(given) if isinstance(given, Address) else given
                    for given in step.operands
                )
                steps.append(replace(step, operands=operands))
            node = replace(node, body=tuple(steps))
        body.append(node)
    return replace(program, body=tuple(body))


def test_weights_of_another_row_are_found() -> None:
    def change(address: Address) -> Address:
        if address.pointer.name != "w" or address.index.offset != 3:
            return address
        return address.pointer[address.index + -1]

    program = moved(thumb1_forms(1).wide, change)
    found = failures(thumb1_claim(program))
    assert list(found) == ["sums[3]"]
    assert found["sums[3]"].startswith("thumb1_8x1: sums[3] is ")
