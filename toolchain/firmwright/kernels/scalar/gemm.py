"""GEMM micro-kernels of cores without SIMD, and of packed RISC-V, as programs.

`FAMILY_LAYOUT_RxP_U` multiplies R weight rows by P columns of `steps` elements and
leaves the R x P sums in registers. A step loads R + P values for R * P products. Sums
begin at `start[row]`. Weights are packed step by step, the R rows of a step adjacent.

In the layout `bytes`, elements are int8 and columns are contiguous, `pixel` elements
apart; in `words` they are too, but an element is a word of four int8, and a step
multiplies four taps. In `tiles`, elements are int16 and the columns of one step are
adjacent, and in `unsigned` they are too, of uint8. The loop over the steps, unrolled by
U, is part of the program. Sums are exact modulo 2^32.

Families differ in their instructions: `mla` of Armv7-M, `rvm` of RV32IM, `rvp` of RV32
with packed SIMD, `xtensa`, and `thumb1` of Armv6-M, whose programs are below.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from firmwright.base.dtypes import INT8, INT16, INT32, UINT8, UINT32, DType
from firmwright.kernels.assembly import ProgramForms
from firmwright.kernels.isa import rv32, rv32_packed, thumb1, thumb2, xtensa
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.program import (
    Distance,
    Index,
    PointerOperand,
    Program,
    VirtualRegister,
)
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import RV32_FILE, THUMB1_FILE, XTENSA_FILE

OperandLayout: TypeAlias = Literal["bytes", "words", "tiles", "unsigned"]
_DTYPES = {"bytes": INT8, "words": UINT32, "tiles": INT16, "unsigned": UINT8}


def taps_per_element(layout: OperandLayout) -> int:
    return 4 if layout == "words" else 1


def is_contiguous(layout: OperandLayout) -> bool:
    """Whether the elements of a column are adjacent, and not those of a step."""
    return layout in ("bytes", "words")


@dataclass(frozen=True, slots=True)
class ScalarMicrokernel:
    """Layout, size and unroll factor of a micro-kernel."""

    layout: OperandLayout
    rows: int
    pixels: int
    unroll: int

    @property
    def sums(self) -> int:
        return self.rows * self.pixels

    @property
    def dtype(self) -> DType:
        return _DTYPES[self.layout]

    @property
    def step(self) -> int:
        """Return the distance in elements between two steps of a column."""
        return 1 if is_contiguous(self.layout) else self.pixels

    def place(self, row: int, pixel: int) -> int:
        return row * self.pixels + pixel

    def tap(self, step: Index, pixel: int) -> Index:
        """Return where the element of a column is."""
        if is_contiguous(self.layout):
            return step + Distance("pixel", pixel) if pixel else step
        return step * self.pixels + pixel


class _Block:
    """A program under construction: its operands, and its sums at their start."""

    def __init__(
        self, family: str, shape: ScalarMicrokernel, load: Instr, copy: Instr
    ) -> None:
        self.shape = shape
        name = f"{family}_{shape.layout}_{shape.rows}x{shape.pixels}"
        self.k = ProgramBuilder(name)
        self.w = self.k.pointer("w", shape.dtype)
        self.x = self.k.pointer("x", shape.dtype)
        start = self.k.pointer("start", INT32)
        self.sums = self.k.registers("c", shape.sums, INT32)
        for row in range(shape.rows):
            self.k(load, start[row], into=self.sums[shape.place(row, 0)])
        for row in range(shape.rows):
            first, *others = self.of_row(row)
            for total in others:
                self.k(copy, first, into=total)

    def of_row(self, row: int) -> list[VirtualRegister]:
        return self.sums[self.shape.place(row, 0) :][: self.shape.pixels]


# ---- mla -----------------------------------------------------------------------------
#
# Eight sums, two pointers, a count and three temporaries take all fourteen registers. A
# two-row shape holds its weights and loads one column after the other; other shapes
# hold the column elements, at most two, and load weights. 2x4 and 4x2 take 14
# instructions for 8 products.


def _mla_program(shape: ScalarMicrokernel, *, is_narrow: bool = False) -> Program:
    """Return the program; if `is_narrow`, one column takes one register fewer."""
    o = _Block("mla", shape, thumb2.ldr, thumb2.mov)
    load = thumb2.ldrsb if shape.layout == "bytes" else thumb2.ldrsh
    with o.k.loop("steps", shape.unroll) as i:
        if shape.rows <= 2 and shape.pixels > 2:
            _hold_weights(o, load, i)
        else:
            # With one column a temporary is free: two loads side by side take a cycle
            # less.
            at_once = 1 if shape.pixels == 2 or is_narrow else 2
            _hold_columns(o, load, i, at_once)
    return o.k.build()


def _hold_weights(o: _Block, load: Instr, i: Index) -> None:
    """Multiply the weights of all rows by one column after the other.

    The first column is loaded between two weights, as an access waits for a pointer
    that has just advanced.
    """
    weights = [o.k(load, o.w[i * o.shape.rows])]
    for place, pixel in enumerate((*range(1, o.shape.pixels), 0)):
        column = o.k(load, o.x[o.shape.tap(i, pixel)])
        if place == 0:
            for row in range(1, o.shape.rows):
                weights.append(o.k(load, o.w[i * o.shape.rows + row]))
        for row, weight in enumerate(weights):
            total = o.of_row(row)[pixel]
            o.k(thumb2.mla, weight, column, total, into=total)


def _hold_columns(o: _Block, load: Instr, i: Index, at_once: int) -> None:
    """Multiply all columns by the weights of `at_once` rows after the others."""
    columns: list[VirtualRegister] = []
    weights: list[VirtualRegister] = []
    if at_once > 1:  # the column is loaded between two weights
        weights.append(o.k(load, o.w[i * o.shape.rows]))
    for pixel in reversed(range(o.shape.pixels)):
        columns.insert(0, o.k(load, o.x[o.shape.tap(i, pixel)]))
    for first in range(0, o.shape.rows, at_once):
        rows = range(first, min(first + at_once, o.shape.rows))
        for row in rows[len(weights) :]:
            weights.append(o.k(load, o.w[i * o.shape.rows + row]))
        for row, weight in zip(rows, weights, strict=True):
            for column, total in zip(columns, o.of_row(row), strict=True):
                o.k(thumb2.mla, weight, column, total, into=total)
        weights = []


@cache
def mla_forms(shape: ScalarMicrokernel) -> ProgramForms:
    narrow = _mla_program(shape, is_narrow=True)
    wide, doc = _mla_program(shape), _doc(shape)
    return ProgramForms(wide, narrow, doc, is_for_helium=False)


# ---- rvm -----------------------------------------------------------------------------
#
# Sixteen sums, the column elements of a step, a weight and two products take 23 of the
# 28 registers available to compilers; pointers and the end address take four more.
# clang also needs one for large frames, so its form has one product.
#
# A step of four rows times four columns is 40 instructions for 16 products. A
# multiplier that is busy until its result, as that of the SiFive E31, decides the time:
# the next multiplication begins before the product is added, and loads are between the
# two.
#
#     mul  a, w0, x0  |#####|
#     mul  b, w0, x1  .     |#####|
#     add  c0, a      .      +
#     lb   w1         .       +
#     mul  a, w1, x0  .           |#####|
#     add  c1, b      .            +


def _rvm_program(shape: ScalarMicrokernel, *, is_narrow: bool = False) -> Program:
    o = _Block("rvm", shape, rv32.lw, rv32.mv)
    load = rv32.lb if shape.layout == "bytes" else rv32.lh
    with o.k.loop("steps", shape.unroll, until=o.x) as i:
        taps = [shape.tap(i, pixel) for pixel in range(shape.pixels)]
        columns = [o.k(load, o.x[tap]) for tap in taps]
        weight = o.k(load, o.w[i * shape.rows])
        waiting: tuple[VirtualRegister, VirtualRegister] | None = None
        for row in range(shape.rows):
            current = weight
            for pixel, total in enumerate(o.of_row(row)):
                product = o.k(rv32.mul, current, columns[pixel])
                if pixel == shape.pixels - 1 and row + 1 < shape.rows:
                    weight = o.k(load, o.w[i * shape.rows + row + 1])
                if is_narrow:
                    o.k(rv32.add, total, product, into=total)
                    continue
                _add_product(o, waiting)
                waiting = total, product
        _add_product(o, waiting)
    return o.k.build()


def _add_product(
    o: _Block, waiting: tuple[VirtualRegister, VirtualRegister] | None
) -> None:
    if waiting is not None:
        total, product = waiting
        o.k(rv32.add, total, product, into=total)


@cache
def rvm_forms(shape: ScalarMicrokernel) -> ProgramForms:
    narrow, doc = _rvm_program(shape, is_narrow=True), _doc(shape)
    wide = _rvm_program(shape)
    return ProgramForms(wide, narrow, doc, RV32_FILE, is_for_helium=False)


# ---- rvp -----------------------------------------------------------------------------
#
# An instruction multiplies four taps of a channel and a pixel, so a step of four rows
# times four columns is 24 instructions for 64 products. Weights are loaded before the
# products of the row above; temporaries are one column each and two weights.


def _rvp_program(shape: ScalarMicrokernel) -> Program:
    o = _Block("rvp", shape, rv32.lw, rv32.mv)
    with o.k.loop("steps", shape.unroll, until=o.x) as i:
        taps = [shape.tap(i, pixel) for pixel in range(shape.pixels)]
        columns = [o.k(rv32.lw, o.x[tap]) for tap in taps]
        weight = o.k(rv32.lw, o.w[i * shape.rows])
        for row in range(shape.rows):
            current = weight
            if row + 1 < shape.rows:
                weight = o.k(rv32.lw, o.w[i * shape.rows + row + 1])
            for column, total in zip(columns, o.of_row(row), strict=True):
                o.k(rv32_packed.smaqa, total, current, column)
    return o.k.build()


@cache
def rvp_forms(shape: ScalarMicrokernel) -> ProgramForms:
    return ProgramForms(_rvp_program(shape), None, _doc(shape), RV32_FILE)


# ---- xtensa --------------------------------------------------------------------------
#
# Eight sums, two columns, a weight, a product and the pointers take fourteen of fifteen
# registers, with that of the return address; the end address is in memory. Byte loads
# are unsigned, and to extend a sign takes two instructions. Therefore columns and
# weights are stored with 128 added. A step of 4x2 is 22 instructions for 8 products;
# the last column's product overwrites the weight. Products are added after the last
# one of their weight, so that an LX6 waits for none.


def _xtensa_program(shape: ScalarMicrokernel) -> Program:
    o = _Block("xtensa", shape, xtensa.l32i, xtensa.mov)
    with o.k.loop("steps", shape.unroll, until=o.x) as i:
        taps = [shape.tap(i, pixel) for pixel in range(shape.pixels)]
        columns = [o.k(xtensa.l8ui, o.x[tap]) for tap in taps]
        for row in range(shape.rows):
            weight = o.k(xtensa.l8ui, o.w[i * shape.rows + row])
            products = [o.k(xtensa.mul16s, weight, column) for column in columns]
            for product, total in zip(products, o.of_row(row), strict=True):
                o.k(xtensa.add, total, product, into=total)
    return o.k.build()


@cache
def xtensa_forms(shape: ScalarMicrokernel) -> ProgramForms:
    return ProgramForms(_xtensa_program(shape), None, _doc(shape), XTENSA_FILE)


# ---- thumb1 --------------------------------------------------------------------------
#
# Only eight registers can be multiplied or addressed with. Two sums are in low
# registers and six in high ones, which ADD can reach. MULS overwrites a factor, here
# the weight. Byte loads with an immediate offset are unsigned, so weights are stored
# with 128 added. A step is 26 instructions for 8 products. Sums end in memory, since
# the compiler has no registers left.

THUMB1_ROWS = 8
_LOW_SUMS = 2


def _thumb1_program(unroll: int) -> Program:
    k = ProgramBuilder("thumb1_8x1")
    w, x = k.pointer("w", UINT8), k.pointer("x", INT8)
    start, sums = k.pointer("start", INT32), k.pointer("sums", INT32, "w")
    totals = _thumb1_begin(k, start)
    with k.loop("steps", unroll, until=x) as i:
        column = k(thumb1.sxtb, k(thumb1.ldrb, x[i]))
        for row, total in enumerate(totals):
            weight = k(thumb1.ldrb, w[i * THUMB1_ROWS + row])
            product = k(thumb1.muls, weight, column)
            if row < _LOW_SUMS:
                k(thumb1.add_low, total, product, into=total)
            else:
                k(thumb1.add, total, product)
    for row, total in enumerate(totals):
        low = total if row < _LOW_SUMS else k(thumb1.mov, total)
        k.store(thumb1.store_word, sums[row], low)
    return k.build()


def _thumb1_begin(
    k: ProgramBuilder, start: PointerOperand
) -> Sequence[VirtualRegister]:
    totals: list[VirtualRegister] = []
    for row in range(THUMB1_ROWS):
        total = k.local(f"sum{row}", RegisterPlace(RegisterClass.CORE, INT32))
        totals.append(total)
        if row < _LOW_SUMS:
            k(thumb1.ldr, start[row], into=total)
        else:
            k(thumb1.mov, k(thumb1.ldr, start[row]), into=total)
    return totals


def thumb1_forms(unroll: int) -> ProgramForms:
    doc = f"Micro-kernel of {THUMB1_ROWS} rows x 1 column, in a loop."
    return ProgramForms(_thumb1_program(unroll), None, doc, THUMB1_FILE)


def _doc(shape: ScalarMicrokernel) -> str:
    columns = "columns" if shape.pixels > 1 else "column"
    kind = "words of four int8" if shape.layout == "words" else shape.dtype.name
    return f"Micro-kernel of {shape.rows} rows x {shape.pixels} {columns}, of {kind}."
