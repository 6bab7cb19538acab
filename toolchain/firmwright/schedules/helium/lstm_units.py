"""The end of an LSTM's step on Helium: cells and hidden values, four units at a time.

Gates and cells are int16, and products of two are words. VRSHL rounds halves up, but
both references round them away from zero: 1 is first subtracted from negative values.
"""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import INT8, INT16, INT32
from firmwright.base.rounding import divide_up
from firmwright.ir.tir.builder import (
    ArithExpr,
    binary_expr,
    call_intrinsic,
    maximum,
    minimum,
)
from firmwright.ir.tir.intrinsic import Intrinsic, immediates, pointers
from firmwright.kernels.elementwise import ElementLoop, element_intrinsics, helium_text
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.lanes import constant
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.vector_requantize import limit_lanes

FRACTION_BITS = 15
"""The fraction bits of an activated gate."""
_GATES = ("input", "forget", "cell")
_VECTOR = 4
_HALF = 1 << 30
"""The multiplier of a quantized factor of 1/2."""


def cell_kernel(*, twice: bool) -> str:
    """Return the name of the micro-kernel of cells; `twice`: that of TFLM."""
    return "mve_lstm_cells_twice" if twice else "mve_lstm_cells"


def cell_shift(shift: int, *, twice: bool) -> int:
    """Return what the micro-kernel of cells shifts by for a factor of 2^shift.

    TFLM's products are halved before, and rounded `twice`.
    """
    return shift + twice


def _divided(twice: bool, x: ArithExpr, shift: ArithExpr | int) -> ArithExpr:
    """Return x * 2^shift to nearest; `twice`: halved before."""
    if twice:
        return call_intrinsic("requantize_twice", [x, _HALF, shift], INT32)
    right = 0 - shift
    half = binary_expr("shl", constant(1, INT32), right - 1)
    return binary_expr("shr", x + half - (x < 0).cast(INT32), right)


def cell_value(twice: bool, **x: ArithExpr) -> ArithExpr:
    """Return forget * cells + input * cell, with the values of these gates."""
    retained = x["forget"].cast(INT32) * x["cells"].cast(INT32)
    added = x["input"].cast(INT32) * x["cell"].cast(INT32)
    total = _divided(twice, retained, cell_shift(-FRACTION_BITS, twice=twice))
    total = total + _divided(twice, added, x["shift"])
    return minimum(maximum(total, x["low"]), x["high"]).cast(INT16)


def _nudge(k: VectorBuilder, value: VirtualRegister) -> VirtualRegister:
    """Return one less where `value` is negative."""
    return k(mve.vaddq_s32, value, k(mve.vshrq_n_s32, value, 31))


def _compute_cell(
    twice: bool, k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    def divided(
        name: str, a: VirtualRegister, b: VirtualRegister, shift: VirtualRegister | int
    ) -> VirtualRegister:
        value = k.named(name, mve.vmulq_s32, a, b)
        if twice:
            k(mve.vrshlq_n_s32, value, -1, into=value)
        k(mve.vrshlq_n_s32, _nudge(k, value), shift, into=value)
        return value

    cells, into, forget, cell = lanes
    retained = divided(
        "retained", forget, cells, cell_shift(-FRACTION_BITS, twice=twice)
    )
    added = divided("added", into, cell, k.number("shift"))
    total = k.named("total", mve.vaddq_s32, retained, added)
    limit_lanes(k, total, INT16)
    return total


def cell_loop(*, twice: bool) -> ElementLoop:
    gates = [PointerOperand(name, INT16) for name in _GATES]
    cells = PointerOperand("cells", INT16, "rw")
    return ElementLoop((cells, *gates), cells, INT32, partial(_compute_cell, twice))


def _cells(*, twice: bool) -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        cell_kernel(twice=twice),
        (
            *pointers(INT16, "rw", cells=1),
            *pointers(INT16, **dict.fromkeys(_GATES, 1)),
            *immediates("shift", "low", "high", "count"),
        ),
        partial(cell_value, twice),
        "Updates `count` cells of an LSTM.",
        "mve",
        helium_text(cell_loop(twice=twice)),
        lambda args: 15 + divide_up(args[-1], _VECTOR) * (23 + 2 * twice),
        (KEEP_STORES,),
    )


def hidden_value(**x: ArithExpr) -> ArithExpr:
    """Return output * tanh(cells), of which `cells` is the tanh, quantized."""
    product = x["output"].cast(INT32) * x["cells"].cast(INT32)
    scale = [product, x["multiplier"], x["shift"]]
    moved = call_intrinsic("requantize_twice", scale, INT32) + x["zero_point"]
    return minimum(maximum(moved, INT8.min), INT8.max).cast(INT8)


def _compute_hidden(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    product = k(mve.vmulq_s32, *lanes)
    total = k.named("total", mve.vqrdmulhq_n_s32, product, k.number("multiplier"))
    k(mve.vrshlq_n_s32, _nudge(k, total), k.number("shift"), into=total)
    k(mve.vqaddq_n_s32, total, k.number("zero_point"), into=total)
    k(narrow_words_twice_in_place, total, into=total)
    return total


HIDDEN_LOOP = ElementLoop(
    (PointerOperand("output", INT16), PointerOperand("cells", INT16)),
    PointerOperand("y", INT8, "w"),
    INT32,
    _compute_hidden,
)
HIDDEN_KERNEL = "mve_lstm_hidden"


def _hidden() -> tuple[Intrinsic, ...]:
    return element_intrinsics(
        HIDDEN_KERNEL,
        (
            *pointers(INT16, output=1, cells=1),
            *pointers(INT8, "w", y=1),
            *immediates("multiplier", "shift", "zero_point", "count"),
        ),
        hidden_value,
        "Computes `count` hidden values of an LSTM from activated cells; shifts right.",
        "mve",
        helium_text(HIDDEN_LOOP),
        lambda args: 15 + divide_up(args[-1], _VECTOR) * 15,
        (KEEP_STORES,),
    )


INTRINSICS = (*_cells(twice=False), *_cells(twice=True), *_hidden())
