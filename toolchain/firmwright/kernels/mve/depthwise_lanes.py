"""Sums of depthwise taps of eight adjacent channels on Helium, as programs.

Values and weights are halves in memory, or bytes that loads widen. VMULLB and VMULLT
give products of int32 of even and odd channels, so a pixel has two vectors of sums. Two
pixels share the weights and take all registers: four of sums, the others in turn.

    weights    | w7 w6 w5 w4 w3 w2 w1 w0 |
    VMULLB  -> even | w6 x6 | w4 x4 | w2 x2 | w0 x0 |
    VMULLT  -> odd  | w7 x7 | w5 x5 | w3 x3 | w1 x1 |
"""

from collections.abc import Sequence
from dataclasses import dataclass

from firmwright.base.dtypes import BOOL, INT8, INT32, UINT32, DType
from firmwright.kernels.isa.instruction import RegisterClass, RegisterPlace
from firmwright.kernels.isa.mve import vaddq_s32, vmullbq_int_s16, vmulltq_int_s16
from firmwright.kernels.isa.mve_lanes import vctp16q, vmrs, vmsr
from firmwright.kernels.isa.mve_memory import MVE_MEMORY
from firmwright.kernels.program import PointerOperand, Program, VirtualRegister
from firmwright.kernels.program_builder import ProgramBuilder

CHANNELS = 8
_LOAD_BIASES = MVE_MEMORY.rows["vldrwq_s32"]
_SUMS = RegisterPlace(RegisterClass.VECTOR, INT32, 4)


@dataclass(frozen=True, slots=True)
class LaneWindow:
    """Windows of `columns` columns and any number of rows, of one or two pixels.

    If it `is_partial`, only the first `lanes` channels are loaded.
    """

    pixels: int
    columns: int
    values: DType
    weights: DType
    is_partial: bool = False

    @property
    def values_of_pixels(self) -> tuple[str, ...]:
        """The names of the pointers to the values of each pixel."""
        return ("x", "x1")[: self.pixels]

    @property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """The names of the sums of even and of odd channels of each pixel."""
        return tuple((f"even{pixel}", f"odd{pixel}") for pixel in range(self.pixels))


@dataclass(frozen=True, slots=True)
class _Pixel:
    """The pointer to a pixel's values, and its sums."""

    x: PointerOperand
    even: VirtualRegister
    odd: VirtualRegister


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The operands of a program under construction."""

    k: ProgramBuilder
    w: PointerOperand
    pixels: Sequence[_Pixel]
    inside: VirtualRegister | None

    def load(self, pointer: PointerOperand) -> VirtualRegister:
        stem = "vldrbq" if pointer.dtype == INT8 else "vldrhq"
        if self.inside:
            load = MVE_MEMORY.rows[f"{stem}_z_s16"]
            return self.k(load, pointer[0], self.inside)
        return self.k(MVE_MEMORY.rows[f"{stem}_s16"], pointer[0])

    def tap(self, x_step: str, w_step: str) -> None:
        """Add the products of a tap; values and weights then advance by a step.

        An instruction stands between each product and its addition.
        """
        k = self.k
        weights, first = self.load(self.w), self.pixels[0]
        values = self.load(first.x)
        k.move(self.w, self.w, w_step)
        even = k(vmullbq_int_s16, values, weights)
        k.move(first.x, first.x, x_step)
        for pixel in self.pixels[1:]:
            others = self.load(pixel.x)
            k(vaddq_s32, first.even, even, into=first.even)
            odd = k(vmulltq_int_s16, values, weights)
            k.move(pixel.x, pixel.x, x_step)
            even = k(vmullbq_int_s16, others, weights)
            k(vaddq_s32, first.odd, odd, into=first.odd)
            first, values = pixel, others
        odd = k(vmulltq_int_s16, values, weights)
        k(vaddq_s32, first.even, even, into=first.even)
        k(vaddq_s32, first.odd, odd, into=first.odd)

    def tap_in_turn(self) -> None:
        """Add the products of a tap, in the shortest order."""
        k = self.k
        weights = self.load(self.w)
        values = [self.load(pixel.x) for pixel in self.pixels]
        k.move(self.w, self.w, "w_column")
        for pixel in self.pixels:
            k.move(pixel.x, pixel.x, "x_column")
        for pixel, value in zip(self.pixels, values, strict=True):
            even = k(vmullbq_int_s16, value, weights)
            k(vaddq_s32, pixel.even, even, into=pixel.even)
            odd = k(vmulltq_int_s16, value, weights)
            k(vaddq_s32, pixel.odd, odd, into=pixel.odd)


def _begin(window: LaneWindow, k: ProgramBuilder) -> _Kernel:
    pixels: list[_Pixel] = []
    for name, (even, odd) in zip(window.values_of_pixels, window.sums, strict=True):
        x = k.pointer(name, window.values)
        pixels.append(_Pixel(x, k.operand(even, _SUMS), k.operand(odd, _SUMS)))
    inside = None
    if window.is_partial:
        inside = k(vctp16q, k.register("count", UINT32))
    return _Kernel(k, k.pointer("w", window.weights), pixels, inside)


def depthwise_lanes(window: LaneWindow) -> Program:
    """Return the program that adds all taps to the sums.

    Values advance by `x_column` and weights by `w_column`, at the end of a row by
    `x_end` and `w_end`. `count` is the number of lanes of a partial block. Compilers
    have no common name of the predicate register for lists of clobbered registers, so
    it is restored.
    """
    k = ProgramBuilder("depthwise_lanes")
    if window.is_partial:
        before = k.local("p0", RegisterPlace(RegisterClass.PREDICATE, BOOL, 16))
        core = RegisterPlace(RegisterClass.CORE, UINT32)
        kept = k(vmrs, before, into=k.local("kept", core))
    o = _begin(window, k)
    with k.counted_loop("i", "rows"):
        for column in range(window.columns):
            step = "column" if column < window.columns - 1 else "end"
            o.tap(f"x_{step}", f"w_{step}")
    if window.is_partial:
        k(vmsr, kept)
    return k.build()


def depthwise_lanes_in_turn(window: LaneWindow) -> Program:
    """Return the shortest program of the same sums, which begin with the biases."""
    k = ProgramBuilder("depthwise_lanes_in_turn")
    o = _begin(window, k)
    bias = k.pointer("bias", INT32)
    for pixel in o.pixels:
        for number, total in enumerate((pixel.even, pixel.odd)):
            k(_LOAD_BIASES, bias[4 * number], into=total)
    columns = str(window.columns)
    with k.counted_loop("i", "i", "rows"):
        with k.counted_loop("j", "j", columns):
            o.tap_in_turn()
        for pixel in o.pixels:
            k.move(pixel.x, pixel.x, f"x_row - {columns} * x_column")
        k.move(o.w, o.w, f"w_row - {columns} * w_column")
    return k.build()
