"""Operations on floats of cores without an FPU have the bits of numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from firmwright.base.dtypes import Array
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import Model
from firmwright.ir.printer import parse_module

ROWS, DEPTH = 243, 8
DOTS = f"""firmwright ir 2
module @dots

graph @main(%w: f32[{ROWS},{DEPTH}], %x: f32[{ROWS},{DEPTH}]) -> (%y) {{
  %y: f32[{ROWS}] = @dots(%w, %x)
}}

func @dots(in w: f32[{ROWS},{DEPTH}], in x: f32[{ROWS},{DEPTH}], out y: f32[{ROWS}]) {{
  for row in 0..{ROWS} {{
    allocate sum: f32[1] scope(reg) as reg
    soft_dot_f32(ptr(w, row * {DEPTH}, {DEPTH}, r), ptr(x, row * {DEPTH}, {DEPTH}, r), {DEPTH},
        sum[0])
    y[row] = sum[0]
  }}
}}
"""
RESULTS = {
    "sum": "soft_add_f32(a[i], b[i])",
    "quotient": "soft_divide_f32(a[i], b[i])",
    "high": "soft_max_f32(a[i], b[i])",
    "low": "soft_min_f32(a[i], b[i])",
    "product": "soft_multiply_f32(a[i], b[i])",
    "negative": "soft_negative_f32(a[i])",
    "zero": "soft_zero_f32(a[i])",
    "scaled": "soft_scaled_f32(number[i], 0.01)",
}
ANSWERS = {"less": np.less, "less_equal": np.less_equal, "equal": np.equal}
SIZE = ROWS * DEPTH
F32, I32 = f"f32[{SIZE}]", f"i32[{SIZE}]"
INPUTS = f"%a: {F32}, %b: {F32}, %number: {I32}"
NEW_LINE = "\n"
OPERATIONS = f"""firmwright ir 2
module @operations

graph @main({INPUTS}) -> ({", ".join(f"%{name}" for name in (*RESULTS, *ANSWERS))}) {{
  {", ".join(f"%{name}: {F32}" for name in RESULTS)},
      {", ".join(f"%{name}: {I32}" for name in ANSWERS)} = @all(%a, %b, %number)
}}

func @all({INPUTS.replace("%", "in ")}, {", ".join(f"out {name}: {F32}" for name in RESULTS)},
    {", ".join(f"out {name}: {I32}" for name in ANSWERS)}) {{
  for i in 0..{SIZE} {{
{NEW_LINE.join(f"    {name}[i] = {value}:f32" for name, value in RESULTS.items())}
{NEW_LINE.join(f"    {name}[i] = soft_{name}_f32(a[i], b[i]):i32" for name in ANSWERS)}
  }}
}}
"""
BOARDS = [
    pytest.param("mps2-an385", marks=pytest.mark.qemu("arm")),
    pytest.param("qemu-riscv32-virt", marks=pytest.mark.qemu("riscv32")),
    "host",
]
KINDS = {  # exponents (from, to), and the bits of the significand that may be set
    "typical": (120, 134, 0x7FFFFF),
    "ties": (124, 130, 0x7FF000),
    "coarse": (126, 129, 0x700000),
    "wide": (0, 160, 0x7FFFFF),
    "any": (0, 256, 0x7FFFFF),
    "tiny": (50, 80, 0x7FFFFF),
    "small": (0, 3, 0x7FFFFF),
    "large": (150, 165, 0x7FF000),
    "ends": (120, 134, 0x3),
}


def drawn(rng: np.random.Generator, kinds: Array) -> Array:
    """Return a row of numbers of each of `kinds`, numbers of rows of KINDS."""
    first, end, mask = np.array(list(KINDS.values()), np.uint32)[kinds].T[:, :, None]
    exponents = first + rng.integers(0, 1 << 16, (ROWS, DEPTH), np.uint32) % (
        end - first
    )
    bits = rng.integers(0, 1 << 32, (ROWS, DEPTH), np.uint32) & (0x80000000 | mask)
    flipped = (rng.random(bits.shape) < 0.5) & (mask == KINDS["ends"][2])
    bits = np.where(flipped, bits ^ np.uint32(0x7FFFFF), bits)
    numbers = (bits | exponents << np.uint32(23)).view(np.float32)
    numbers[rng.random(numbers.shape) < 0.1] = 0.0
    return numbers


def in_order(w: Array, x: Array) -> Array:
    total = np.zeros(ROWS, np.float32)
    with np.errstate(all="ignore"):
        for k in range(DEPTH):
            total = total + x[:, k] * w[:, k]
    return total


@pytest.mark.parametrize("board", BOARDS)
def test_dot_products_have_the_bits_of_separate_operations(board: str) -> None:
    compiled = compile_for(Model(parse_module(DOTS, "dots.fwir")), board=board)
    rng = np.random.default_rng(4)
    pairs = np.arange(ROWS)
    w, x = drawn(rng, pairs % len(KINDS)), drawn(rng, pairs // len(KINDS) % len(KINDS))
    repeated = rng.random((ROWS, DEPTH - 1)) < 0.15  # such pairs cancel
    x[:, 1:][repeated], w[:, 1:][repeated] = x[:, :-1][repeated], -w[:, :-1][repeated]
    with open_session(compiled) as session:
        actual = session.run_all([{"w": w, "x": x}])[0]["y"]
    expected = in_order(w, x)
    same = expected.view(np.uint32) == actual.view(np.uint32)
    assert (same | (np.isnan(expected) & np.isnan(actual))).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("board", BOARDS)
def test_operations_have_the_bits_of_numpy(board: str) -> None:
    rng, kinds = np.random.default_rng(5), np.arange(ROWS)
    count = len(KINDS)
    a, b = drawn(rng, kinds % count).ravel(), drawn(rng, kinds // count % count).ravel()
    b[::16] = -a[::16]
    values = {"a": a, "b": b, "number": rng.integers(-300, 300, SIZE, np.int32)}
    compiled = compile_for(
        Model(parse_module(OPERATIONS, "operations.fwir")), board=board
    )
    with open_session(compiled) as session:
        actual = session.run_all([values])[0]
    with np.errstate(all="ignore"):
        expected = {
            "sum": a + b,
            "product": a * b,
            "quotient": a / b,
            "high": np.where(a > b, a, b),
            "low": np.where(a < b, a, b),
            "negative": -a,
            "zero": a * np.float32(0),
            "scaled": values["number"].astype(np.float32) * np.float32(0.01),
        }
    for name, value in expected.items():
        same = value.view(np.uint32) == actual[name].view(np.uint32)
        assert (same | (np.isnan(value) & np.isnan(actual[name]))).all(), name
    for name, compare in ANSWERS.items():
        assert (actual[name] == compare(a, b)).all()
