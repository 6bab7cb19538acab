"""Sums of depthwise taps of sixteen adjacent channels on Helium, as programs.

Products of int8 are added in pairs of taps: VMULLB and VMULLT give int16 products of
even and odd channels. The sum of a pair must fit int16. It is widened into four vectors
of int32: channels 0, 4, 8, 12, then those starting at 2, 1 and 3. With the four others,
all eight registers are taken, so both products of a second tap load its weights.
"""

from dataclasses import dataclass

from firmwright.base.dtypes import INT8, INT32
from firmwright.kernels.isa.instruction import Register, RegisterClass
from firmwright.kernels.isa.mve import (
    vaddq_s16,
    vaddq_s32,
    vmullbq_int_s8,
    vmulltq_int_s8,
)
from firmwright.kernels.isa.mve_lanes import vmovlbq_s16, vmovltq_s16
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import Pointer, Program, ProgramBuilder, Value

CHANNELS = 16
SUMS = ("a", "b", "c", "d")
_LOAD = MVE_MEMORY.rows["vldrbq_s8"]
_LOAD_BIASES = MVE_MEMORY.rows["vldrwq_s32"]


@dataclass(frozen=True, slots=True)
class VisibleTaps:
    """The valid taps of a window of `width` columns."""

    rows: int
    columns: int
    width: int

    @property
    def name(self) -> str:
        rest = "" if self.columns == self.width else f"_of_{self.width}"
        return f"mve_depthwise_16ch_{self.rows}x{self.columns}{rest}"

    @property
    def count(self) -> int:
        return self.rows * self.columns

    @property
    def unused(self) -> int:
        """The weights between two rows that are not used."""
        return CHANNELS * (self.width - self.columns)


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The operands of a program under construction."""

    k: ProgramBuilder
    x: Pointer
    w: Pointer
    sums: tuple[Value, ...]

    def first(self, weights: int) -> tuple[Value, Value]:
        """Return the products of the first tap of a pair, of even and odd channels.

        The pointer to weights advances.
        """
        values = self.k(_LOAD, self.x[0])
        taps = self.k(_LOAD, self.w.next(weights))
        return self.k(vmullbq_int_s8, values, taps), self.k(
            vmulltq_int_s8, values, taps
        )

    def second(self, pair: tuple[Value, Value], weights: int) -> tuple[Value, Value]:
        """Return the sums of products of both taps of a pair."""
        k, (even, odd) = self.k, pair
        values = k(_LOAD, self.x[0])
        product = k(vmulltq_int_s8, values, k(_LOAD, self.w[0]))
        odd = k(vaddq_s16, odd, product)
        product = k(vmullbq_int_s8, values, k(_LOAD, self.w.next(weights)))
        return k(vaddq_s16, even, product), odd

    def widen(self, pair: tuple[Value, Value]) -> None:
        """Add a pair to the sums."""
        for number, products in enumerate(pair):
            lower = self.k(vmovlbq_s16, products)
            upper = self.k(vmovltq_s16, products)
            for total, part in zip(
                self.sums[2 * number :], (lower, upper), strict=False
            ):
                self.k(vaddq_s32, total, part, into=total)


def _begin(name: str) -> _Kernel:
    k = ProgramBuilder(name)
    x, w = k.pointer("x", INT8), k.pointer("w", INT8)
    vector = Register(RegisterClass.VECTOR, INT32, 4)
    return _Kernel(k, x, w, tuple(k.operand(name, vector) for name in SUMS))


def depthwise_taps(taps: VisibleTaps) -> Program:
    """Return the program that adds all taps to the sums.

    Values advance by `column`, at the end of a row by `row`.
    """
    o = _begin(taps.name)
    pair: tuple[Value, Value] | None = None
    for tap in range(taps.count):
        ends_row = (tap + 1) % taps.columns == 0
        weights = CHANNELS + (taps.unused if ends_row else 0)
        pair = o.second(pair, weights) if pair else o.first(weights)
        if tap + 1 < taps.count:
            o.k.move(o.x, o.x, "row" if ends_row else "column")
        if tap % 2 or tap + 1 == taps.count:
            o.widen(pair)
            pair = None
    return o.k.build()


def depthwise_taps_in_turn(taps: VisibleTaps) -> Program:
    """Return the shortest program of the same sums, which begin with the biases."""
    o = _begin(taps.name)
    bias = o.k.pointer("bias", INT32)
    for number, total in enumerate(o.sums):
        o.k(_LOAD_BIASES, bias[4 * number], into=total)
    with o.k.counted_loop("i", "i", str(taps.rows)):
        with o.k.counted_loop("j", "j", str(taps.columns)):
            o.widen(o.first(CHANNELS))
            o.k.move(o.x, o.x, "x_column")
        o.k.move(o.x, o.x, f"x_row - {taps.columns} * x_column")
        if taps.unused:
            o.k.move(o.w, o.w, str(taps.unused))
    return o.k.build()
