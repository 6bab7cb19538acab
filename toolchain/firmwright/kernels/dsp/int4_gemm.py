"""GEMM micro-kernel of the DSP extension for int4 weights, as programs.

A step multiplies four taps of two channels and four pixels. Its word of weights has
bytes 16 b + a + 8 (weight_packing.py), two taps by SXTB16 without and two with
rotation. The extracted words are the operands of the odd channel, and a mask leaves
those of the even one, which contain 8. The odd accumulator holds 16 times the odd sum
plus the even one. The end separates them, and adds to the even sums the word after each
column: -8 times its sum (`int4_shares`).

Weights are loaded to registers of the FPU, if there is one, all at once; the register
of their pointer is then free. That takes 25 instructions for 32 products, else 26.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT32, UINT32
from firmwright.kernels.assembly import ProgramForms
from firmwright.kernels.dsp.gemm import ACCUMULATORS
from firmwright.kernels.isa.dsp import smlad, sxtb16, sxtb16_ror8
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.isa.thumb2 import add, and_immediate, ldr, ldrd, load_four, sub
from firmwright.kernels.isa.vfp import VLDMIA_INTS, vmov_to_core
from firmwright.kernels.program import Index, PointerOperand, Program, VirtualRegister
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import NAMED_THUMB2_FILE

PIXELS = 4
STEPS_MAX = 16
"""Steps at most; their weights fill half of the registers of the FPU."""
_EVEN_WEIGHTS = 0x000F000F
_STEP_COLUMNS = 2 * PIXELS
"""The words of columns that a step reads: two for each pixel."""


class Int4Form(enum.Enum):
    """Where the weights are, and how many registers there are for the others."""

    NARROW = "loaded twice in a step, three temporaries"
    WIDE = "loaded in a step, four temporaries"
    FLOAT = "in registers of the FPU, five temporaries"


@dataclass(frozen=True, slots=True)
class _Int4:
    """The operands of a program under construction."""

    k: ProgramBuilder
    w: PointerOperand
    x: PointerOperand
    sums: Sequence[VirtualRegister]

    def add(
        self,
        pixel: int,
        even: VirtualRegister,
        odd: VirtualRegister,
        column: VirtualRegister,
    ) -> None:
        """Add the products of two taps to both accumulators of a pixel."""
        for weights, place in ((even, pixel), (odd, pixel + PIXELS)):
            total = self.sums[place]
            self.k(smlad, weights, column, total, into=total)

    def split(
        self, extract: Instr, word: VirtualRegister
    ) -> tuple[VirtualRegister, VirtualRegister]:
        """Return the weights of the even and of the odd channel for two taps."""
        odd = self.k(extract, word)
        return self.k(and_immediate, odd, _EVEN_WEIGHTS), odd

    def half(self, at: Index, extract: Instr, word: VirtualRegister) -> None:
        """Multiply two taps; pixels are loaded in pairs."""
        columns = self.k.pair(ldrd, self.x[at])
        even, odd = self.split(extract, word)
        for pixel in range(PIXELS):
            if pixel == 2:
                columns = self.k.pair(ldrd, self.x[at + pixel])
            self.add(pixel, even, odd, columns[pixel % 2])


def _narrow_step(o: _Int4, i: Index) -> None:
    for half, extract in enumerate((sxtb16, sxtb16_ror8)):
        even, odd = o.split(extract, o.k(ldr, o.w[i]))
        for pixel in range(PIXELS):
            at = i * _STEP_COLUMNS + half * PIXELS + pixel
            o.add(pixel, even, odd, o.k(ldr, o.x[at]))


def _wide_step(o: _Int4, i: Index) -> None:
    """Extract the odd weights of the first half twice, for want of a register."""
    k, at = o.k, i * _STEP_COLUMNS
    word = k(ldr, o.w[i])

    def multiply(
        weights: VirtualRegister, first: int, columns: Sequence[VirtualRegister]
    ) -> None:
        for place, column in enumerate(columns, first):
            k(smlad, weights, column, o.sums[place], into=o.sums[place])

    columns = k.pair(ldrd, o.x[at])
    odd = k(sxtb16, word)
    multiply(odd, PIXELS, columns)
    even = k(and_immediate, odd, _EVEN_WEIGHTS)
    multiply(even, 0, columns)
    columns = k.pair(ldrd, o.x[at + 2])
    multiply(even, 2, columns)
    multiply(k(sxtb16, word), PIXELS + 2, columns)
    o.half(at + PIXELS, sxtb16_ror8, word)


def _float_step(words: VirtualRegister) -> Callable[[_Int4, Index], None]:
    def multiply(o: _Int4, i: Index) -> None:
        word = o.k(vmov_to_core, words[i])
        o.half(i * _STEP_COLUMNS, sxtb16, word)
        o.half(i * _STEP_COLUMNS + PIXELS, sxtb16_ror8, word)

    return multiply


def int4_program(form: Int4Form, steps: int, *, has_end: bool = False) -> Program:
    """Return the program of `steps` steps, and of the end if it has one."""
    k = ProgramBuilder("int4_2x4")
    w, x = k.pointer("w", UINT32), k.pointer("x", UINT32)
    o = _Int4(k, w, x, k.registers("c", ACCUMULATORS, INT32))
    step: Callable[[_Int4, Index], None] = _wide_step
    if form is Int4Form.NARROW:
        step = _narrow_step
    if form is Int4Form.FLOAT:
        step = _float_step(k(VLDMIA_INTS[steps], w[0]))
    with k.repeat(steps) as i:
        step(o, i)
    if has_end:
        with k.repeat(1, start=steps) as i:
            _separate(o, i * _STEP_COLUMNS)
    return k.build()


def _separate(o: _Int4, at: Index) -> None:
    even, odd = o.sums[:PIXELS], o.sums[PIXELS:]
    for mixed, total in zip(odd, even, strict=True):
        o.k(sub, mixed, total, into=mixed)
    for first in range(0, PIXELS, 2):
        shares = o.k.pair(ldrd, o.x[at + first])
        for total, share in zip(even[first:], shares, strict=False):
            o.k(add, total, share, into=total)


def int4_forms(steps: int, *, has_end: bool) -> ProgramForms:
    forms = {each: int4_program(each, steps, has_end=has_end) for each in Int4Form}
    return ProgramForms(
        forms[Int4Form.WIDE],
        forms[Int4Form.NARROW],
        "Micro-kernel of 2 channels x 4 pixels, int4 weights.",
        fpu=forms[Int4Form.FLOAT],
    )


def int4_shares(steps: int) -> ProgramForms:
    """Return the program that adds products of columns and `factors` to sums.

    The columns of four pixels have `steps` words each.
    """
    k = ProgramBuilder("int4_shares")
    x = k.pointer("x", UINT32)
    sums = k.registers("s", PIXELS, INT32)
    factors = k.register("factors", UINT32)
    with k.repeat(steps):
        for total, word in zip(sums, k.several(load_four, x.next(4)), strict=True):
            k(smlad, word, factors, total, into=total)
    doc = "Sums of the columns of four pixels, times factors."
    return ProgramForms(k.build(), None, doc, NAMED_THUMB2_FILE)
