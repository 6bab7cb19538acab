"""The end of an LSTM's step on Helium: cells and hidden values, four units at a time.

Gates and cells are int16, and products of two are words. VRSHL rounds halves up, but
both references round them away from zero: 1 is first subtracted from negative values.
"""

from collections.abc import Sequence
from functools import partial

from firmwright.base.dtypes import INT16
from firmwright.ir.tir.intrinsic import Intrinsic
from firmwright.kernels.elementwise import ElementLoop, helium_text
from firmwright.kernels.isa import mve
from firmwright.kernels.isa.mve_lanes import narrow_words_twice_in_place
from firmwright.kernels.program import VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.schedules.asm_macros import KEEP_STORES
from firmwright.schedules.helium.vector_requantize import limit_lanes
from firmwright.schedules.lstm_units import (
    FRACTION_BITS,
    FamilyText,
    cell_kernels,
    cell_loop,
    cell_shift,
    hidden_kernels,
    hidden_loop,
)

_VECTOR = 4
_ONCE = 15
"""Instructions of a micro-kernel besides its vectors."""


def cell_kernel(*, twice: bool) -> str:
    """Return the name of the micro-kernel of cells; `twice`: that of TFLM."""
    return "mve_lstm_cells_twice" if twice else "mve_lstm_cells"


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


def helium_cell_loop(*, twice: bool) -> ElementLoop:
    return cell_loop(partial(_compute_cell, twice))


def _family(loop: ElementLoop, instructions: int) -> FamilyText:
    return FamilyText(
        requires="mve",
        text=helium_text(loop),
        lanes=_VECTOR,
        instructions=instructions,
        once=_ONCE,
        definitions=(KEEP_STORES,),
    )


def _cells(*, twice: bool) -> tuple[Intrinsic, ...]:
    family = _family(helium_cell_loop(twice=twice), 23 + 2 * twice)
    return cell_kernels(cell_kernel(twice=twice), family, twice=twice)


def _compute_hidden(
    k: VectorBuilder, lanes: Sequence[VirtualRegister]
) -> VirtualRegister:
    product = k(mve.vmulq_s32, *lanes)
    total = k.named("total", mve.vqrdmulhq_n_s32, product, k.number("multiplier"))
    k(mve.vrshlq_n_s32, _nudge(k, total), k.number("shift"), into=total)
    k(mve.vqaddq_n_s32, total, k.number("zero_point"), into=total)
    k(narrow_words_twice_in_place, total, into=total)
    return total


HIDDEN_LOOP = hidden_loop(_compute_hidden)
HIDDEN_KERNEL = "mve_lstm_hidden"
INTRINSICS = (
    *_cells(twice=False),
    *_cells(twice=True),
    *hidden_kernels(HIDDEN_KERNEL, _family(HIDDEN_LOOP, 15)),
)
