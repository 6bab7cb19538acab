"""float32 GEMM micro-kernels, as programs, and a copy of words.

A micro-kernel multiplies `lanes` output channels by the windows of `pixels` adjacent
pixels: sum[p, l] = x[0, p] * w[0, l] + x[1, p] * w[1, l] + ..., in this order and
rounded after every product and sum, so the bits equal those of the default loops.
Multiple loads read the weights of a few elements, and the same elements of each pixel
in turn. A window is one run of elements, or several rows of them (`tall`).

`SEPARATE` multiplies into a temporary and adds it a few instructions later, because a
result is available one cycle late. `CHAINED` uses VMLA, which also rounds in between;
on the Cortex-M4 it takes three cycles where VMUL and VADD take two.

The first element initializes the sums. A row is an unrolled rest, then a loop over the
other elements.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from firmwright.base.dtypes import FLOAT32
from firmwright.kernels.isa.instruction import RegisterClass
from firmwright.kernels.isa.vfp import (
    VLDMIA,
    VSTMIA,
    vadd_f32,
    vmla_f32,
    vmul_f32,
)
from firmwright.kernels.program import (
    Lane,
    PointerOperand,
    Program,
    VirtualRegister,
    instruction_count,
)
from firmwright.kernels.program_builder import ProgramBuilder
from firmwright.kernels.register_files import RegisterFile, vfp_file

STEPS_PER_ITERATION = 6
_REGISTERS = 32
_SUMS_MIN = 8
"""Registers at least for sums; the others belong to a micro-kernel."""
_PRODUCTS_MIN, _PRODUCTS_MAX = 4, 8


class MultiplyAdd(enum.Enum):
    """How a product is added to a sum; see the top."""

    SEPARATE = "separate"
    CHAINED = "chained"


@dataclass(frozen=True, slots=True)
class FpuTile:
    """Channels and pixels of a micro-kernel; at most sixteen sums."""

    lanes: int
    pixels: int

    @property
    def sums(self) -> int:
        return self.lanes * self.pixels

    @property
    def first_free(self) -> int:
        """The first register that is not one of the sums, allocated by the compiler."""
        return max(self.sums, _SUMS_MIN)

    @property
    def group(self) -> int:
        """The number of elements that are loaded at once."""
        room = _REGISTERS - self.first_free - _PRODUCTS_MIN
        return min(4, room // (self.lanes + 1))

    @property
    def file(self) -> RegisterFile:
        return vfp_file(self.first_free)


@dataclass(frozen=True, slots=True)
class RowShape:
    """The elements of a row: `rest` after the first one, then `step` in an iteration.

    `rounds` is the number of iterations, a C expression, or "" without a loop. If the
    window `is_tall`, its rows are counted.
    """

    rest: int
    step: int
    rounds: str
    is_tall: bool = False


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The operands of a program under construction."""

    k: ProgramBuilder
    style: MultiplyAdd
    tile: FpuTile
    group: int
    w: PointerOperand
    x: Sequence[PointerOperand]
    sums: Sequence[VirtualRegister]

    def elements(self, count: int, *, starts: bool = False) -> None:
        """Multiply and add elements; if it `starts`, the first sets the sums."""
        for start in range(0, count, self.group):
            size = min(self.group, count - start)
            self._elements_of_group(size, starts=starts and start == 0)

    def _elements_of_group(self, size: int, *, starts: bool) -> None:
        k, lanes = self.k, self.tile.lanes
        w = k(VLDMIA[size * lanes], self.w.next(size * lanes))
        for pixel, pointer in enumerate(self.x):
            x = k(VLDMIA[size], pointer.next(size))
            sums = self.sums[pixel * lanes : (pixel + 1) * lanes]
            terms: list[_Term] = []
            for place in range(size * lanes):
                element, lane = divmod(place, lanes)
                terms.append(_Term(sums[lane], w[place], x[element]))
            fresh = lanes if starts else 0
            for term in terms[:fresh]:
                k(vmul_f32, term.weight, term.value, into=term.total)
            if self.style is MultiplyAdd.CHAINED:
                for term in terms[fresh:]:
                    k(vmla_f32, term.total, term.weight, term.value)
            else:
                self._add_separately(terms[fresh:], size * (lanes + 1))

    def _add_separately(self, terms: Sequence["_Term"], loaded: int) -> None:
        free = _REGISTERS - self.tile.first_free - loaded
        room = min(free, _PRODUCTS_MAX)
        for start in range(0, len(terms), room):
            products: list[tuple[VirtualRegister, VirtualRegister]] = []
            for term in terms[start : start + room]:
                product = self.k(vmul_f32, term.weight, term.value)
                products.append((term.total, product))
            for total, product in products:
                self.k(vadd_f32, total, product, into=total)


@dataclass(frozen=True, slots=True)
class _Term:
    """A product that is added to a sum."""

    total: VirtualRegister
    weight: Lane
    value: Lane


def _begin(name: str, style: MultiplyAdd, tile: FpuTile, group: int) -> _Kernel:
    k = ProgramBuilder(name)
    w, x = k.pointer("w", FLOAT32), k.pointer("x", FLOAT32)
    others = [PointerOperand(f"x{n}", FLOAT32) for n in range(1, tile.pixels)]
    sums = []
    for place in range(tile.sums):
        sums.append(k.register(f"c{place}", FLOAT32, RegisterClass.FLOAT))
    return _Kernel(k, style, tile, group, w, (x, *others), sums)


def fpu_gemm(
    name: str,
    style: MultiplyAdd,
    tile: FpuTile,
    row: RowShape,
    group: int | None = None,
) -> Program:
    """Return the micro-kernel of a tile, which loads `group` elements at once."""
    o = _begin(name, style, tile, group or tile.group)
    for pointer, base in zip(o.x[1:], o.x, strict=False):
        o.k.move(pointer, base, "pitch")
    if not row.is_tall:
        o.elements(1 + row.rest, starts=True)
        _rounds(o, row)
        return o.k.build()
    with o.k.counted_loop("row", "rows"):
        with o.k.first_iteration():
            o.elements(1 + row.rest, starts=True)
        with o.k.other_iterations():
            for pointer in o.x:
                o.k.move(pointer, pointer, "jump")
            o.elements(1 + row.rest)
        _rounds(o, row)
    return o.k.build()


def _rounds(o: _Kernel, row: RowShape) -> None:
    if row.rounds:
        with o.k.counted_loop("i", "rounds", row.rounds):
            o.elements(row.step)


@cache
def element_instructions(style: MultiplyAdd, tile: FpuTile, count: int) -> int:
    """Return the instructions of `count` elements inside of a row."""
    o = _begin("elements", style, tile, tile.group)
    o.elements(count)
    return instruction_count(o.k.build())


def copy_words(count: int) -> Program:
    """Return a copy of at most sixteen words."""
    k = ProgramBuilder("copy")
    x, y = k.pointer("x", FLOAT32), k.pointer("y", FLOAT32, "w")
    k.store(VSTMIA[count], y.next(count), k(VLDMIA[count], x.next(count)))
    return k.build()
