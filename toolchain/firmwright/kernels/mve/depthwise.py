"""Sums of depthwise taps of sixteen adjacent channels on Helium, as programs.

Products of int8 are added in pairs of taps: VMULLB and VMULLT give int16 products of
even and odd channels. The sum of a pair must fit int16. It is widened into four vectors
of int32: channels 0, 4, 8, 12, then those starting at 2, 1 and 3. With the four others,
all eight registers are taken, so both products of a second tap load its weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import INT8, INT32
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import (
    vaddq_s16,
    vaddq_s32,
    vmullbq_int_s8,
    vmulltq_int_s8,
)
from firmwright.kernels.isa.mve_lanes import vmovlbq_s16, vmovltq_s16
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, Program, VirtualRegister
from firmwright.kernels.program_builder import ProgramBuilder

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
class _Tap:
    """How far weights advance after a tap, and the distance of the next values."""

    weights: int = CHANNELS
    distance: str = ""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The operands of a program under construction."""

    k: ProgramBuilder
    x: PointerOperand
    w: PointerOperand
    sums: tuple[VirtualRegister, ...]

    def _values(self, tap: _Tap) -> VirtualRegister:
        values = self.k(_LOAD, self.x[0])
        if tap.distance:
            self.k.move(self.x, self.x, tap.distance)
        return values

    def two_taps(self, first: _Tap, second: _Tap) -> None:
        """Add the products of two taps to the sums.

        Those of odd channels are widened while those of even ones are computed, and
        halves before they are added, so that few instructions wait for another.
        """
        k = self.k
        taps = k(_LOAD, self.w.next(first.weights))
        values = self._values(first)
        even = k(vmullbq_int_s8, values, taps)
        others = self._values(second)
        odd = k(vmulltq_int_s8, values, taps)
        product = k(vmulltq_int_s8, others, k(_LOAD, self.w[0]))
        odd = k(vaddq_s16, odd, product)
        product = k(vmullbq_int_s8, others, k(_LOAD, self.w.next(second.weights)))
        upper_odd = k(vmovltq_s16, odd)
        even = k(vaddq_s16, even, product)
        lower_odd = k(vmovlbq_s16, odd)
        lower, upper = k(vmovlbq_s16, even), k(vmovltq_s16, even)
        self._add((lower, upper, lower_odd, upper_odd))

    def one_tap(self, tap: _Tap) -> None:
        """Add the products of one tap to the sums."""
        k = self.k
        taps = k(_LOAD, self.w.next(tap.weights))
        values = self._values(tap)
        odd = k(vmulltq_int_s8, values, taps)
        even = k(vmullbq_int_s8, values, taps)
        lower_odd, upper_odd = k(vmovlbq_s16, odd), k(vmovltq_s16, odd)
        lower, upper = k(vmovlbq_s16, even), k(vmovltq_s16, even)
        self._add((lower, upper, lower_odd, upper_odd))

    def _add(self, parts: Sequence[VirtualRegister]) -> None:
        for total, part in zip(self.sums, parts, strict=True):
            self.k(vaddq_s32, total, part, into=total)


def _begin(name: str) -> _Kernel:
    k = ProgramBuilder(name)
    x, w = k.pointer("x", INT8), k.pointer("w", INT8)
    vector = RegisterPlace(RegisterClass.VECTOR, INT32, 4)
    return _Kernel(k, x, w, tuple(k.operand(name, vector) for name in SUMS))


def depthwise_taps(taps: VisibleTaps) -> Program:
    """Return the program that adds all taps to the sums.

    Values advance by `column`, at the end of a row by `row`.
    """
    o = _begin(taps.name)
    each: list[_Tap] = []
    for tap in range(taps.count):
        ends_row = (tap + 1) % taps.columns == 0
        weights = CHANNELS + (taps.unused if ends_row else 0)
        distance = "row" if ends_row else "column"
        each.append(_Tap(weights, distance if tap + 1 < taps.count else ""))
    for first, second in zip(each[0::2], each[1::2], strict=False):
        o.two_taps(first, second)
    if taps.count % 2:
        o.one_tap(each[-1])
    return o.k.build()


def depthwise_taps_in_turn(taps: VisibleTaps) -> Program:
    """Return the shortest program of the same sums, which begin with the biases."""
    o = _begin(taps.name)
    bias = o.k.pointer("bias", INT32)
    for number, total in enumerate(o.sums):
        o.k(_LOAD_BIASES, bias[4 * number], into=total)
    with o.k.counted_loop("i", "i", str(taps.rows)):
        with o.k.counted_loop("j", "j", str(taps.columns)):
            o.one_tap(_Tap(distance="x_column"))
        o.k.move(o.x, o.x, f"x_row - {taps.columns} * x_column")
        if taps.unused:
            o.k.move(o.w, o.w, str(taps.unused))
    return o.k.build()
