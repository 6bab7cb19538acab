"""The functions of an LSTM's units on RISC-V vectors, in LiteRT's arithmetic.

Halves are rounded away from zero: 1 is subtracted from negative values before a shift
that rounds up.
"""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir.tir.builder import (
    ArithExpr,
    call_intrinsic,
)
from firmwright.ir.tir.intrinsic import immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, element_intrinsics, riscv_text
from firmwright.kernels.isa.c_numbers import left_shift, less, right_shift
from firmwright.kernels.isa.lanes import saturate
from firmwright.kernels.isa.rvv import riscv_row
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.lstm_units import (
    FRACTION_BITS,
    FamilyText,
    cell_kernels,
    cell_loop,
    hidden_kernels,
    hidden_loop,
)
from firmwright.schedules.rvv.endings import NOMINAL_LANES, limit_lanes

LANES = 16
"""The lanes of products, of which several are alive."""
_WORDS = partial(riscv_row, LANES, INT32)


def _nudge(k: VectorBuilder, value: VirtualRegister, lanes: int) -> VirtualRegister:
    """Return one less where `value` is negative."""
    words = partial(riscv_row, lanes, INT32)
    return k(words("vadd_vv"), value, k(words("vsra_vx"), value, 31))


# ---- gates ---------------------------------------------------------------------------


def _gate(**x: ArithExpr) -> ArithExpr:
    """Return the sum of both products of a gate, in steps."""

    def scaled(name: str) -> ArithExpr:
        numbers = [x[name], x[f"{name}_multiplier"], x[f"{name}_shift"]]
        return call_intrinsic("requantize_twice", numbers, INT32)

    steps = saturate(scaled("input"), INT16) + scaled("hidden")
    return saturate(steps, INT16).cast(INT16)


def _compute_gate(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    words = partial(riscv_row, NOMINAL_LANES, INT32)

    def scaled(name: str, lanes: VirtualRegister) -> VirtualRegister:
        multiplier, shift = (k.number(f"{name}_{x}") for x in ("multiplier", "shift"))
        wide = k(words("vsll_vx"), lanes, k(left_shift, shift))
        value = k.named(f"scaled_{name}", words("vsmul_vx"), wide, multiplier)
        with k.when(k(less, shift, 0)):
            amount = k(right_shift, shift)
            nudged = _nudge(k, value, NOMINAL_LANES)
            k(words("vssra_vx"), nudged, amount, into=value)
        return value

    narrow = riscv_row(NOMINAL_LANES, INT16, "vnclip_wx")
    first, second = lanes
    steps = k.named("steps", narrow, scaled("input", first), 0)
    total = scaled("hidden", second)
    k(words("vwadd_wv"), total, steps, into=total)
    return k(narrow, total, 0)


GATE_LOOP = ElementLoop(
    (PointerOperand("input", INT32), PointerOperand("hidden", INT32)),
    PointerOperand("y", INT16, "w"),
    INT32,
    _compute_gate,
)
GATE_KERNEL = "rvv_lstm_gate"
_FACTORS = ("input_multiplier", "input_shift", "hidden_multiplier", "hidden_shift")
_GATE = element_intrinsics(
    GATE_KERNEL,
    (
        *pointers(INT32, input=1, hidden=1),
        *pointers(INT16, "w", y=1),
        *immediates(*_FACTORS, "count"),
    ),
    _gate,
    "Adds the products of a gate for `count` units.",
    "rvv",
    riscv_text(GATE_LOOP, NOMINAL_LANES),
    lambda args: 10 + divide_up(args[-1], NOMINAL_LANES) * 24,
)

# ---- cells ---------------------------------------------------------------------------


def _compute_cell(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    cells, into, forget, cell = lanes

    def divided(
        name: str, a: VirtualRegister, b: VirtualRegister, right: VirtualRegister | int
    ) -> VirtualRegister:
        value = k.named(name, _WORDS("vwmul_vv"), a, b)
        k(_WORDS("vssra_vx"), _nudge(k, value, LANES), right, into=value)
        return value

    total = divided("retained", forget, cells, FRACTION_BITS)
    added = divided("added", into, cell, k(right_shift, k.number("shift")))
    k(_WORDS("vadd_vv"), total, added, into=total)
    narrow = riscv_row(LANES, INT16, "vnclip_wx")
    return limit_lanes(k, k.named("half", narrow, total, 0), LANES, None, INT16)


CELL_LOOP = cell_loop(_compute_cell)
CELL_KERNEL = "rvv_lstm_cells"

# ---- hidden values -------------------------------------------------------------------


def _compute_hidden(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    product = k(_WORDS("vwmul_vv"), *lanes)
    total = k.named("total", _WORDS("vsmul_vx"), product, k.number("multiplier"))
    right = k(right_shift, k.number("shift"))
    narrow = riscv_row(LANES, INT16, "vnclip_wx")
    half = k.named("half", narrow, _nudge(k, total, LANES), right)
    moved = k(riscv_row(LANES, INT16, "vsadd_vx"), half, k.number("zero_point"))
    return k(riscv_row(LANES, INT8, "vnclip_wx"), moved, 0)


HIDDEN_LOOP = hidden_loop(_compute_hidden)
HIDDEN_KERNEL = "rvv_lstm_hidden"


def _family(loop: ElementLoop, instructions: int) -> FamilyText:
    text = riscv_text(loop, LANES)
    return FamilyText("rvv", text, lanes=LANES, instructions=instructions, once=10)


INTRINSICS = (
    *_GATE,
    *cell_kernels(CELL_KERNEL, _family(CELL_LOOP, 24)),
    *hidden_kernels(HIDDEN_KERNEL, _family(HIDDEN_LOOP, 16)),
)
