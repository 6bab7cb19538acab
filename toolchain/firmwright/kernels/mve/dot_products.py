"""Dot products of columns with rows of weights on Helium, as programs.

VMLADAV adds the products of a vector into an even core register; there are eight of
those, the sums of eight rows of one column or of four rows of two. `head` steps are
unrolled, a `deep` loop iterates over eight further steps, and `tail` is a predicated
last step that reads no value after the column:

    | head steps | deep: 8 steps per iteration ... | tail |

A step loads a vector of each column, then those of all rows. With `INT4`, a byte holds
the weights of two rows, 16 odd + even. Shifted left by four, it is 16 even; as it is,
its sum is 16 times the odd sum plus the even one. Loads that are saved make up for the
shifts.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import BOOL, INT8, INT16, INT32, UINT32, DType
from firmwright.kernels.isa.instruction import Instr, RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import (
    vmov_lanes_2_0,
    vmov_lanes_3_1,
    vshlq_n_s8,
    vshrq_n_s32,
)
from firmwright.kernels.isa.mve_lanes import (
    vctp8q,
    vctp16q,
    vmladavaq_s8,
    vmladavaq_s16,
    vmladavq_s8,
    vmladavq_s16,
    vmrs,
    vmsr,
)
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.isa.thumb2 import mov_immediate
from firmwright.kernels.isa.thumb2_bits import sub_asr
from firmwright.kernels.program import (
    Address,
    Index,
    PointerOperand,
    Program,
    VirtualRegister,
)
from firmwright.kernels.program_builder import ProgramBuilder

BYTES_PER_STEP = 16
STEPS_PER_ITERATION = 8
_SUMS = 8
_VECTORS = 4
"""The registers of columns and weights."""
_OFFSET_BYTES = 127
"""The largest offset of a load, in bytes."""


class Weights(enum.Enum):
    """The values of a column, and how its weights are stored."""

    INT8 = "int8"
    INT4 = "int4"
    INT16 = "int8, of columns of int16"

    @property
    def column(self) -> DType:
        return INT16 if self is Weights.INT16 else INT8

    @property
    def width(self) -> int:
        """The values in a vector."""
        return BYTES_PER_STEP // self.column.size_bytes


@dataclass(frozen=True, slots=True)
class _Rows:
    """The instructions of a step."""

    load: Instr
    load_some: Instr
    load_weights: Instr
    multiply: Instr
    multiply_add: Instr
    predicate: Instr


def _named(name: str) -> Instr:
    return MVE_MEMORY.rows[name]


_BYTES = _Rows(
    _named("vldrbq_s8"),
    _named("vldrbq_z_s8"),
    _named("vldrbq_s8"),
    vmladavq_s8,
    vmladavaq_s8,
    vctp8q,
)
_HALVES = _Rows(
    _named("vldrhq_s16"),
    _named("vldrhq_z_s16"),
    _named("vldrbq_s16"),
    vmladavq_s16,
    vmladavaq_s16,
    vctp16q,
)


@dataclass(frozen=True, slots=True)
class DotProductLoop:
    """`head` unrolled steps, optionally a `deep` loop and a predicated `tail` step."""

    head: int
    deep: bool
    tail: bool

    @property
    def suffix(self) -> str:
        deep = "_deep" if self.deep else ""
        tail = "_tail" if self.tail else ""
        return f"{self.head}{deep}{tail}"

    @property
    def least_taps(self) -> int:
        return BYTES_PER_STEP * self.head + self.tail

    @property
    def advances(self) -> bool:
        """Whether column pointers advance: in a loop, and beyond the offsets."""
        last = BYTES_PER_STEP * (self.head + self.tail - 1)
        return self.deep or last > _OFFSET_BYTES


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The operands of a program under construction."""

    k: ProgramBuilder
    weights: Weights
    w: PointerOperand
    columns: Sequence[PointerOperand]
    sums: Sequence[VirtualRegister]

    @property
    def rows(self) -> _Rows:
        return _HALVES if self.weights is Weights.INT16 else _BYTES

    def step(
        self,
        at: Index | None,
        *,
        starts: bool = False,
        inside: VirtualRegister | None = None,
    ) -> None:
        """Multiply a vector of each column by those of all weight rows.

        Columns advance, or have their vector at an index. If it `starts`, products set
        the sums. A predicate may limit the columns. It is in force until the last of
        them is loaded; without one, a column is loaded where its first product needs
        it, as a Cortex-M55 loads a vector while it multiplies others.
        """
        loaded: list[VirtualRegister] = []
        if inside:
            loaded = [self._column(column, at, inside) for column in self.columns]
        count = len(self.columns)
        for row in range(_SUMS // count):
            if self.weights is not Weights.INT4:
                weights = self.k(self.rows.load_weights, self._next(self.w))
            elif row % 2 == 0:
                both = self.k(self.rows.load_weights, self._next(self.w))
                weights = self.k(vshlq_n_s8, both, 4)
            else:
                weights = both
            for place, pointer in enumerate(self.columns):
                if place == len(loaded):
                    loaded.append(self._column(pointer, at, inside))
                column = loaded[place]
                total = self.sums[_SUMS // count * place + row]
                if starts:
                    self.k(self.rows.multiply, column, weights, into=total)
                else:
                    self.k(self.rows.multiply_add, total, column, weights)

    def _next(self, pointer: PointerOperand) -> Address:
        return pointer.next(self.weights.width)

    def _column(
        self, column: PointerOperand, at: Index | None, inside: VirtualRegister | None
    ) -> VirtualRegister:
        address = self._next(column) if at is None else column[at * self.weights.width]
        if inside:
            return self.k(self.rows.load_some, address, inside)
        return self.k(self.rows.load, address)

    def last_step(self, at: Index | None, *, starts: bool) -> None:
        """Multiply the values that are left, `rest`.

        Compilers have no common name of the predicate register for lists of clobbered
        registers, so it is restored.
        """
        k = self.k
        rest = k.register("rest", UINT32)
        before = k.local("p0", RegisterPlace(RegisterClass.PREDICATE, BOOL, 16))
        core = RegisterPlace(RegisterClass.CORE, UINT32)
        kept = k(vmrs, before, into=k.local("kept", core))
        inside = k(self.rows.predicate, rest)
        self.step(at, starts=starts, inside=inside)
        k(vmsr, kept)

    def collect(self) -> None:
        """Collect the sums in the vectors `first` and `second`."""
        k, place = self.k, RegisterPlace(RegisterClass.VECTOR, INT32, 4)
        if self.weights is Weights.INT4:
            for even, odd in zip(self.sums[::2], self.sums[1::2], strict=True):
                k(sub_asr, odd, even, 4, into=odd)
        names = ("first", "second")
        vectors = [k.operand(name, place, is_output=True) for name in names]
        for number, vector in enumerate(vectors):
            a, b, c, d = self.sums[4 * number : 4 * number + 4]
            k(vmov_lanes_2_0, vector, a, c)
            k(vmov_lanes_3_1, vector, b, d)
        if self.weights is Weights.INT4:
            for vector in vectors:
                k(vshrq_n_s32, vector, 4, into=vector)


def _begin(name: str, columns: Sequence[str], weights: Weights) -> _Kernel:
    k = ProgramBuilder(name)
    w = k.pointer("w", INT8)
    pointers = [k.pointer(column, weights.column) for column in columns]
    even = RegisterPlace(RegisterClass.EVEN, INT32)
    sums = [k.local(f"sum{number}", even) for number in range(_SUMS)]
    return _Kernel(k, weights, w, pointers, sums)


def dot_products(
    columns: Sequence[str], loop: DotProductLoop, weights: Weights = Weights.INT8
) -> Program:
    """Return the program that leaves the sums in the vectors `first` and `second`.

    Its loop has `rounds` iterations, and its tail `rest` values.
    """
    o = _begin(f"dot_products_{loop.suffix}", columns, weights)
    if loop.head:
        o.step(None if loop.advances else Index(0), starts=True)
    if loop.head > 1:
        with o.k.repeat(loop.head - 1) as i:
            o.step(None if loop.advances else i + 1)
    if loop.deep:
        with o.k.counted_loop("i", "rounds"), o.k.repeat(STEPS_PER_ITERATION):
            o.step(None)
    if loop.tail:
        o.last_step(
            None if loop.advances else Index(0, loop.head), starts=not loop.head
        )
    o.collect()
    return o.k.build()


def dot_products_in_turn(
    columns: Sequence[str], weights: Weights, *, has_tail: bool
) -> Program:
    """Return the shortest program of the same sums, of a column of `taps` bytes."""
    o = _begin("dot_products", columns, weights)
    for total in o.sums:
        o.k(mov_immediate, 0, into=total)
    with o.k.counted_loop("i", "steps", f"taps / {BYTES_PER_STEP}"):
        o.step(None)
    if has_tail:
        o.last_step(None, starts=False)
    o.collect()
    return o.k.build()
