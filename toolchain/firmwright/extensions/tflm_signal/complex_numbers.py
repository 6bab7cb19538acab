"""Complex int16 numbers in registers: pairs of int32, or halves of words.

Scaled numbers are at most 2^14, and a sum or difference of four of them fits in 16 bits
or wraps when it is stored. Words use the DSP extension.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from firmwright.base.dtypes import INT16, INT32, UINT32, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    ArithExpr,
    ExprLike,
    call_intrinsic,
    immediate,
    select,
)
from firmwright.kernels.instruction_intrinsics import instruction_intrinsic
from firmwright.kernels.isa.dsp import smladx, smlsd
from firmwright.kernels.isa.dsp_lanes import (
    pkhbt_in_place,
    pkhtb,
    pkhtb_asr15,
    sasx,
    shadd16,
    shsub16,
    ssax,
)
from firmwright.ops.kernel import KERNEL_ALIGNMENT, Kernel

BITS = 15
"""Fraction bits of numbers and factors."""
_HALF = 1 << (BITS - 1)
Number: TypeAlias = tuple[ArithExpr, ...]
"""The registers of a complex number."""


@dataclass(frozen=True, slots=True)
class ComplexNumbers(ABC):
    """Emits arithmetic on complex numbers, the elements [..., part] of views."""

    b: Kernel

    keeps_factors: ClassVar[bool]
    """Whether registers suffice for three factors besides the numbers."""

    @property
    @abstractmethod
    def stored(self) -> DType:
        """The type of the elements that make up a number in memory."""

    @property
    def held(self) -> DType:
        """The type of the registers of a number."""
        return INT32 if self.stored == INT16 else self.stored

    def view(
        self,
        name: str,
        source: tir.Buffer,
        shape: Sequence[int],
        access: tir.AccessMode = "r",
    ) -> tir.Buffer:
        """Declare a view of int16 numbers (real, imaginary) as [*shape, part]."""
        whole = (*shape, 4 // self.stored.size_bytes)
        return self.b.view(
            name,
            source,
            0,
            whole,
            dtype=self.stored,
            access=access,
            alignment=KERNEL_ALIGNMENT,
        )

    def bind(self, name: str, registers: Sequence[ArithExpr]) -> Number:
        held = self.held
        return tuple(self.b.let(name, register, held) for register in registers)

    def load(self, source: tir.Buffer, *at: ExprLike) -> Number:
        parts = range(source.shape[-1])
        return tuple(self.b.load(source, [*at, k]).cast(self.held) for k in parts)

    def store(self, target: tir.Buffer, at: Sequence[ExprLike], x: Number) -> None:
        for k, part in enumerate(x):
            self.b.store(target, [*at, k], part.cast(self.stored))

    def zero_unless(self, condition: ArithExpr, x: Number) -> Number:
        return tuple(select(condition, part, 0) for part in x)

    @abstractmethod
    def real(self, real: ArithExpr) -> Number:
        """Return the number without imaginary part of an int32."""

    @abstractmethod
    def parts(self, x: Number) -> tuple[ArithExpr, ArithExpr]:
        """Return real and imaginary part as int32."""

    @abstractmethod
    def scale(self, x: Number, divisor: int) -> Number:
        """Return x times (2^15 - 1) // divisor / 2^15, rounded."""

    @abstractmethod
    def multiply(self, x: Number, factor: Number) -> Number:
        """Return the product, rounded and modulo 2^16."""

    @abstractmethod
    def scale_conjugate(self, x: Number, divisor: int) -> Number:
        """Return the conjugate of x, which wraps to 16 bits, scaled."""

    @abstractmethod
    def sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Return x + y and x - y."""

    @abstractmethod
    def turned_sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Return x - i y and x + i y."""

    @abstractmethod
    def halves(self, x: Number, y: Number) -> tuple[Number, Number]:
        """Return (x + y) / 2 and the conjugate of (x - y) / 2, rounded down."""


class Pairs(ComplexNumbers):
    """Numbers as real and imaginary part in int32."""

    keeps_factors = False

    @property
    def stored(self) -> DType:
        return INT16

    def real(self, real: ArithExpr) -> Number:
        return real, ArithExpr(immediate(0, INT32))

    def parts(self, x: Number) -> tuple[ArithExpr, ArithExpr]:
        return x[0], x[1]

    def scale(self, x: Number, divisor: int) -> Number:
        factor = ((1 << BITS) - 1) // divisor
        return self.bind("scaled", [(part * factor + _HALF) >> BITS for part in x])

    def multiply(self, x: Number, factor: Number) -> Number:
        real = x[0] * factor[0] + _HALF - x[1] * factor[1]
        imaginary = x[0] * factor[1] + _HALF + x[1] * factor[0]
        return self.bind("turned", [real >> BITS, imaginary >> BITS])

    def scale_conjugate(self, x: Number, divisor: int) -> Number:
        conjugate = x[0], (x[1] * -1).cast(INT16).cast(INT32)
        return self.scale(conjugate, divisor)

    def sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        total = self.bind("total", [x[0] + y[0], x[1] + y[1]])
        return total, self.bind("rest", [x[0] - y[0], x[1] - y[1]])

    def turned_sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        return (x[0] + y[1], x[1] - y[0]), (x[0] - y[1], x[1] + y[0])

    def halves(self, x: Number, y: Number) -> tuple[Number, Number]:
        real, imaginary = (part.cast(INT16).cast(INT32) for part in y)
        turned = self.bind("wrapped", [real, imaginary])
        near = (x[0] + turned[0]) >> 1, (x[1] + turned[1]) >> 1
        return near, ((x[0] - turned[0]) >> 1, (turned[1] - x[1]) >> 1)


class Words(ComplexNumbers):
    """Numbers as words: the real part is the low half, the imaginary part the high."""

    keeps_factors = True

    @property
    def stored(self) -> DType:
        return UINT32

    def real(self, real: ArithExpr) -> Number:
        return (real.cast(UINT32) & 0xFFFF,)

    def parts(self, x: Number) -> tuple[ArithExpr, ArithExpr]:
        high = (x[0] >> 16).cast(INT16).cast(INT32)
        return x[0].cast(INT16).cast(INT32), high

    def scale(self, x: Number, divisor: int) -> Number:
        return self._scale(x[0], x[0], divisor)

    def scale_conjugate(self, x: Number, divisor: int) -> Number:
        zero = immediate(0, UINT32)
        negative = call_intrinsic("ssub16", [zero, x[0]], UINT32)
        return self._scale(x[0], negative, divisor)

    def _scale(self, low: ArithExpr, high: ArithExpr, divisor: int) -> Number:
        """Return the low half of `low` and the high half of `high`, scaled."""
        # Twice the factor, so that the results are the high halves of the sums.
        factor = immediate(((1 << BITS) - 1) // divisor * 2, UINT32)
        real = call_intrinsic("smlabb", [low, factor, 2 * _HALF], INT32)
        imaginary = call_intrinsic("smlabt", [factor, high, 2 * _HALF], INT32)
        halves = imaginary.cast(UINT32), real.cast(UINT32)
        return self.bind("scaled", [call_intrinsic(pkhtb.name, halves, UINT32)])

    def multiply(self, x: Number, factor: Number) -> Number:
        operands: Sequence[ExprLike] = [x[0], factor[0], _HALF]
        real = call_intrinsic(smlsd.name, operands, INT32)
        imaginary = call_intrinsic(smladx.name, operands, INT32)
        doubled = imaginary.cast(UINT32) << 1
        word = call_intrinsic(pkhtb_asr15.name, [doubled, real], UINT32)
        return self.bind("turned", [word])

    def sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        return self._combine("sadd16", x, y), self._combine("ssub16", x, y)

    def turned_sums(self, x: Number, y: Number) -> tuple[Number, Number]:
        return self._combine(ssax.name, x, y), self._combine(sasx.name, x, y)

    def halves(self, x: Number, y: Number) -> tuple[Number, Number]:
        real, imaginary = (
            self._combine(shsub16.name, *two) for two in ((x, y), (y, x))
        )
        far = self._combine(pkhbt_in_place.name, real, imaginary)
        return self._combine(shadd16.name, x, y), far

    def _combine(self, instruction: str, x: Number, y: Number) -> Number:
        word = call_intrinsic(instruction, [x[0], y[0]], UINT32)
        return self.bind("sum", [word])


_INSTRUCTIONS = (
    *(smladx, smlsd),
    *(pkhbt_in_place, pkhtb, pkhtb_asr15, sasx, shadd16, shsub16, ssax),
)
INTRINSICS = tuple(instruction_intrinsic(instr, "dsp") for instr in _INSTRUCTIONS)
