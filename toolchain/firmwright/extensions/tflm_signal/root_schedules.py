"""Square roots of filter banks on RISC-V vectors, by divisions of 32 bits.

The formulas are those of bank_schedules.py, on the words of each number.
"""

from functools import partial

from firmwright.base.dtypes import INT32, UINT32, UINT64
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    call_intrinsic,
    immediate,
    logical_and,
    minimum,
    select,
)
from firmwright.kernels.rvv_loops import RISCV
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.vector_loops import mark_vector_loops

_LEAST_CHANNELS = 4
_HALF = 0xFFFF
"""The greatest number of 16 bits."""


def _root(b: Kernel, top: ArithExpr, low: ArithExpr) -> ArithExpr:
    """Return the rounded square root of a number of 64 bits, given its words."""

    def let(name: str, value: ArithExpr) -> ArithExpr:
        return b.let(name, value, UINT32)

    is_short = top.equal(0)
    length = call_intrinsic("bit_length", [select(is_short, low, top)], INT32)
    width = select(is_short, _word(64), _word(32))
    left = let("left", (width - length.cast(UINT32)) >> 1)
    shift = let("shift", left * 2 & 31)
    shifted = let("shifted", low << shift)
    both = binary_expr("or", top << shift, low >> 1 >> (_word(31) - shift))
    high = let("high", select(is_short, shifted, both))
    rest = let("rest", select(is_short, _word(0), shifted))
    root = let("root", (high >> 17) + (high >> 19) + 24576)  # within 1 / 16
    for _ in range(2):
        root = let("root", (root + high / root) >> 1)
    root = let("root", minimum(root, _HALF))
    root = let("root", root - (root * root > high).cast(UINT32))
    parts = (high - root * root) << 15, rest >> 17
    more = binary_expr("or", *parts) / root
    whole = (root << 16) + minimum(more, _HALF)
    result = let("result", whole >> minimum(left, 31))
    square = _square(b, result)
    is_above = binary_expr(
        "or",
        square[0] > top,
        logical_and(square[0].equal(top), square[1] > low),
    )
    result = let("result", result - is_above.cast(UINT32))
    square = _square(b, result)
    difference = let("difference", low - square[1])
    is_wide = binary_expr("ne", top - square[0] - (low < square[1]).cast(UINT32), 0)
    rounds_up = binary_expr("or", is_wide, difference > result)
    limit = select(is_short, _word(_HALF), _word(UINT32.max))
    has_room = binary_expr("ne", result, limit)
    return result + logical_and(rounds_up, has_room).cast(UINT32)


def _word(value: int) -> ArithExpr:
    return ArithExpr(immediate(value, UINT32))


def _square(b: Kernel, x: ArithExpr) -> tuple[ArithExpr, ArithExpr]:
    """Return the words of the square, the high one first."""
    wide = x.cast(UINT64)
    high = b.let("square_top", (wide * wide >> 32).cast(UINT32), UINT32)
    return high, b.let("square_low", x * x, UINT32)


def _configs(call: OpCall) -> tuple[ScheduleConfig, ...]:
    return (NO_CONFIG,) if call.output.elements >= _LEAST_CHANNELS else ()


def _build(call: OpCall, config: ScheduleConfig, b: Kernel) -> None:
    count = call.output.elements
    words = b.view("words", b.input(0), 0, (count, 2), dtype=UINT32)
    bits = b.view("bits", b.input(1), 0, (1,))
    y = b.view("out", b.y, 0, (count,), access="w")
    shift = b.let("shift", b.load(bits, [0]).cast(UINT32) & 31, UINT32)
    with b.for_("i", count) as i:
        low = b.let("low", b.load(words, [i, 0]), UINT32)
        top = b.let("top", b.load(words, [i, 1]), UINT32)
        b.store(y, [i], _root(b, top, low) >> shift)
    b.transform = partial(mark_vector_loops, target=RISCV)


SCHEDULES = (
    Schedule(
        "rvv.filter_bank_square_root.vectors",
        "filter_bank_square_root",
        frozenset({"rvv"}),
        _configs,
        _build,
    ),
)
