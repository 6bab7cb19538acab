"""Float micro-kernels multiply and add in the order that numerics demand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import z3

from firmwright.kernels.isa.vfp import vadd_f32
from firmwright.kernels.program import Program, Step
from firmwright.kernels.vfp.gemm import FpuTile, MultiplyAdd, RowShape, fpu_gemm
from firmwright.schedules.fpu.microkernels import FPU_TILES
from tests.unit.kernels.proof import FLOAT, Claim, failures, rounded

PITCH, JUMP = 2, 5
STEP = 6


def floats(name: str, count: int) -> list[z3.ExprRef]:
    return [z3.Const(f"{name}{place}", FLOAT) for place in range(count)]


def float_claim(
    tile: FpuTile, program: Program, steps: int, rounds: int, rows: int
) -> Claim:
    """Return the claim that a sum is ((w0 x0 + w1 x1) + w2 x2) + ..., row after row."""
    w = floats("w", rows * steps * tile.lanes)
    x = floats("x", rows * (steps + JUMP) + tile.pixels * PITCH)
    results = {}
    for place in range(tile.sums):
        pixel, lane = divmod(place, tile.lanes)
        first, *others = [
            rounded(
                "mul",
                w[(row * steps + step) * tile.lanes + lane],
                x[row * (steps + JUMP) + step + pixel * PITCH],
            )
            for row in range(rows)
            for step in range(steps)
        ]
        for product in others:
            first = rounded("add", first, product)
        results[f"c{place}"] = first
    numbers = {"pitch": PITCH, "rounds": rounds, "rows": rows, "jump": JUMP}
    return Claim(program, {"w": w, "x": x}, {}, results, numbers=numbers)


@pytest.mark.parametrize("style", MultiplyAdd)
@pytest.mark.parametrize("tile", FPU_TILES, ids=str)
def test_products_are_added_in_order(tile: FpuTile, style: MultiplyAdd) -> None:
    for rest, rounds, rows in ((0, 2, 1), (5, 0, 1), (2, 1, 2)):
        shape = RowShape(rest, STEP, "rounds" * bool(rounds), is_tall=rows > 1)
        program = fpu_gemm("gemm", style, tile, shape)
        steps = 1 + rest + STEP * rounds
        assert not failures(float_claim(tile, program, steps, rounds, rows))


def test_another_order_is_found() -> None:
    tile = FpuTile(4, 1)
    program = fpu_gemm("gemm", MultiplyAdd.SEPARATE, tile, RowShape(2, STEP, ""))
    assert not failures(float_claim(tile, program, 3, 0, 1))
    adds = [
        step
        for step in program.body
        if isinstance(step, Step) and step.instr is vadd_f32
    ]
    first, second = (step for step in adds if step.results[0].name == "c2")
    exchanged = {
        first: replace(first, operands=second.operands),
        second: replace(second, operands=first.operands),
    }
    body = [exchanged.get(node, node) for node in program.body]
    body.sort(key=lambda step: step.instr is vadd_f32)  # products first
    found = failures(float_claim(tile, replace(program, body=tuple(body)), 3, 0, 1))
    assert list(found) == ["c2"]
    assert found["c2"].startswith("gemm: c2 is add(")
