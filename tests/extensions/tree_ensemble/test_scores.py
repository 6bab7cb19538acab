"""Scores of trees from integer sums have the bits of float32 products."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.ir.printer import parse_module

SIZE = 512
I32, F32 = f"i32[{SIZE}]", f"f32[{SIZE}]"
UNITS = {"small": 2.0**-120, "share": 2.0**-30, "one": 1.0, "great": 2.0**90}
NEW_LINE = "\n"
SCORES = f"""firmwright ir 2
module @scores

graph @main(%number: {I32}, %other: {I32}) -> ({", ".join(f"%{name}" for name in UNITS)}, %more) {{
  {", ".join(f"%{name}: {F32}" for name in UNITS)}, %more: {I32} = @all(%number, %other)
}}

func @all(in number: {I32}, in other: {I32}, {", ".join(f"out {name}: {F32}" for name in UNITS)},
    out more: {I32}) {{
  for i in 0..{SIZE} {{
{NEW_LINE.join(f"    {name}[i] = scaled_sum(number[i], {unit!r}):f32" for name, unit in UNITS.items())}
    more[i] = greater_score(scaled_sum(number[i], 1.0):f32, scaled_sum(other[i], 1.0):f32):i32
  }}
}}
"""
BOARDS = [
    pytest.param("microbit", marks=pytest.mark.qemu("arm")),
    pytest.param("mps2-an386", marks=pytest.mark.qemu("arm")),
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    "host",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("board", BOARDS)
def test_scores_have_the_bits_of_products(board: str) -> None:
    rng = np.random.default_rng(6)
    bits = rng.integers(0, 32, (2, SIZE))
    numbers = rng.integers(-(1 << 31), 1 << 31, (2, SIZE)) >> bits
    ties = np.arange(1, 1 << 7) << 24 | 1 << 6
    numbers[0, : len(ties)] = ties + rng.integers(-1, 2, len(ties))
    numbers[0, -4:] = 0, -(1 << 31), (1 << 31) - 1, -1
    numbers[1, ::3] = numbers[0, ::3] + 1
    number, other = np.clip(numbers, -(1 << 31), (1 << 31) - 1).astype(np.int32)
    compiled = compile_for(Model(parse_module(SCORES, "scores.fwir")), board=board)
    with open_session(compiled) as session:
        actual = session.run_all([{"number": number, "other": other}])[0]
    for name, unit in UNITS.items():
        expected = number.astype(np.float32) * np.float32(unit)
        assert np.array_equal(actual[name].view(np.int32), expected.view(np.int32))
    more = number.astype(np.float32) > other.astype(np.float32)
    assert np.array_equal(actual["more"], more.astype(np.int32))
