"""Tables and TIR of the FFT that fft.py defines, with the same order of roundings.

Complex numbers are elements [..., 2]. Twiddle factors are fractions of `bits` bits, or
floats if `bits` is 0. Integer sums use double width and wrap when stored; floats are
neither scaled nor rounded.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import INT16, INT32, INT64, Array, DType
from firmwright.ir import tir
from firmwright.ir.tir.builder import (
    INDEX,
    ArithExpr,
    ExprLike,
    as_expr,
    minimum,
    select,
)
from firmwright.ops.kernel import Kernel


def fraction_bits(dtype: DType) -> int:
    return 0 if dtype.is_float else dtype.bits - 1


@dataclass(frozen=True, slots=True)
class FftStage:
    """A radix stage: `blocks` transforms, each of `radix` parts of `size` numbers."""

    radix: int
    size: int
    blocks: int


@cache
def radix_stages(count: int) -> tuple[FftStage, ...]:
    steps: list[FftStage] = []
    blocks, remaining = 1, count
    while remaining > 1:
        radix = 4 if remaining % 4 == 0 else 2
        remaining //= radix
        steps.append(FftStage(radix, remaining, blocks))
        blocks *= radix
    return tuple(reversed(steps))


@cache
def digit_reversal(count: int) -> tuple[int, ...]:
    """Return for each position of the transform the index of the number to load."""
    order = np.zeros(1, np.int64)
    stride = 1
    for stage in reversed(radix_stages(count)):
        order = (order[:, None] + stride * np.arange(stage.radix)).reshape(-1)
        stride *= stage.radix
    return tuple(order.tolist())


@cache
def circle_points(
    divisions: int, first: float, count: int, bits: int, *, reverse: bool
) -> Array:
    """Return `count` points of the unit circle, `divisions` per turn, from `first` on.

    They turn backwards unless `reverse` is set.
    """
    sign = 1 if reverse else -1
    angle = 2 * np.pi * (np.arange(count) + first) / divisions * sign
    points = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    if bits == 0:
        return points
    return np.asarray(np.floor(0.5 + ((1 << bits) - 1) * points), np.int64)


def twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """Return the powers of the root of unity for a transform of `count` numbers."""
    return circle_points(count, 0, count, bits, reverse=reverse)


def real_twiddle_factors(count: int, bits: int, *, reverse: bool) -> Array:
    """Return the factors that split bins k and n - k, for k from 1 to n / 2.

    They are those of a transform of real numbers, and n is `count`.
    """
    return circle_points(2 * count, 1 + count / 2, count // 2, bits, reverse=reverse)


Complex: TypeAlias = tuple[ArithExpr, ArithExpr]
"""Real and imaginary parts in the type of sums."""


@dataclass(frozen=True)
class FftBuilder:
    """Emits a complex transform of `count` numbers of type `dtype`."""

    b: Kernel
    dtype: DType
    count: int
    reverse: bool

    @property
    def bits(self) -> int:
        return fraction_bits(self.dtype)

    @property
    def wide(self) -> DType:
        return {INT16: INT32, INT32: INT64}.get(self.dtype, self.dtype)

    # ---- parts -----------------------------------------------------------------------

    def load_samples(
        self,
        samples: tir.Buffer,
        frame: ExprLike,
        numbers: tir.Buffer,
        window: tir.Buffer | None = None,
    ) -> None:
        """Copy the zero-padded sample pairs to `numbers` in digit-reversed order.

        Each is multiplied by its weight in the window.
        """
        have = samples.shape[1]
        with self._digit_reversed() as (position, source):
            for part in (0, 1):
                index = source * 2 + part
                value = self.b.load(samples, [frame, minimum(index, have - 1)])
                if window is not None:
                    value = value * self.b.load(window, [index])
                if have < 2 * self.count:
                    value = select(index < have, value, 0)
                self.b.store(numbers, [position, part], value)

    def load_permuted(self, source: tir.Buffer, numbers: tir.Buffer) -> None:
        with self._digit_reversed() as (position, index):
            for part in (0, 1):
                value = self.b.load(source, [index, part])
                self.b.store(numbers, [position, part], value)

    def transform(self, numbers: tir.Buffer) -> None:
        table = twiddle_factors(self.count, self.bits, reverse=self.reverse)
        circle = self.b.constant("turns", table, self.dtype, 4)
        for stage in radix_stages(self.count):
            base = stage.radix * stage.size
            with (
                self.b.for_("block", stage.blocks) as block,
                self.b.for_("i", stage.size) as i,
            ):
                positions: list[ArithExpr] = []
                for q in range(stage.radix):
                    positions.append(block * base + i + q * stage.size)
                self._butterfly(numbers, positions, stage, i, circle)

    def unpack_real_bins(
        self, numbers: tir.Buffer, bins: tir.Buffer, frame: ArithExpr
    ) -> None:
        """Store the bins of real samples, given the transform of the sample pairs."""
        b, count = self.b, self.count
        circle = self._real_twiddle_table()
        first = self._bind("first", self._scale(self._load(numbers, 0), 2))
        self._store(bins, [frame, 0], (first[0] + first[1], self._zero))
        self._store(bins, [frame, count], (first[0] - first[1], self._zero))
        with b.for_("k", count // 2) as k:
            near = self._load(numbers, k + 1)
            far = self._load(numbers, (k * -1) + (count - 1))
            total, difference = self._sum_and_difference(near, far, circle, k)
            sums = total[0] + difference[0], total[1] + difference[1]
            self._store(bins, [frame, k + 1], self._halve(sums))
            sums = total[0] - difference[0], difference[1] - total[1]
            self._store(bins, [frame, (k * -1) + (count - 1)], self._halve(sums))

    def pack_real_bins(
        self, bins: tir.Buffer, frame: ArithExpr, joined: tir.Buffer
    ) -> None:
        """Store the transform of the sample pairs, given the bins of real samples."""
        b, count = self.b, self.count
        circle = self._real_twiddle_table()
        first = b.load(bins, [frame, 0, 0]).cast(self.wide)
        last = b.load(bins, [frame, count, 0]).cast(self.wide)
        e = self._bind("ends", (self._wrap(first + last), self._wrap(first - last)))
        self._store(joined, [0], self._scale(e, 2))
        with b.for_("k", count // 2) as k:
            near = self._load(bins, k + 1, frame)
            far = self._load(bins, (k * -1) + (count - 1), frame)
            total, difference = self._sum_and_difference(near, far, circle, k)
            sums = total[0] + difference[0], total[1] + difference[1]
            self._store(joined, [k + 1], sums)
            sums = total[0] - difference[0], difference[1] - total[1]
            self._store(joined, [(k * -1) + (count - 1)], sums)

    def normalize_floats(self, numbers: tir.Buffer) -> None:
        """Divide floats by the length; integers were scaled in every stage."""
        if self.bits:
            return
        with self.b.for_("k", self.count) as k, self.b.for_("part", 2) as part:
            value = self.b.load(numbers, [k, part])
            self.b.store(numbers, [k, part], value * (0.5 / self.count))

    # ---- a step ----------------------------------------------------------------------

    def _butterfly(
        self,
        numbers: tir.Buffer,
        positions: Sequence[ArithExpr],
        stage: FftStage,
        i: ArithExpr,
        circle: tir.Buffer,
    ) -> None:
        parts: list[Complex] = []
        for q, position in enumerate(positions):
            name = "abcd"[q]
            scaled = self._scale(self._load(numbers, position), stage.radix)
            part = self._bind(name, scaled)
            if q:
                place, is_unity = i * (q * stage.blocks), stage.size == 1
                turn = self._twiddle(circle, place, is_unity=is_unity)
                part = self._bind(f"{name}_turned", self._multiply(part, turn))
            parts.append(part)
        sums = parts if stage.radix == 2 else self._even_odd_sums(parts)
        for position, number in zip(positions, self._add(sums), strict=True):
            self._store(numbers, [position], number)

    def _even_odd_sums(self, parts: Sequence[Complex]) -> list[Complex]:
        a, b, c, d = parts
        rows = (
            ("even", a[0] + c[0], a[1] + c[1]),
            ("odd", a[0] - c[0], a[1] - c[1]),
            ("outer", b[0] + d[0], b[1] + d[1]),
            ("across", b[0] - d[0], b[1] - d[1]),
        )
        sums: list[Complex] = []
        for name, real, imaginary in rows:
            sums.append(self._bind(name, (self._wrap(real), self._wrap(imaginary))))
        return sums

    def _add(self, sums: Sequence[Complex]) -> list[Complex]:
        if len(sums) == 2:
            a, b = sums
            return [(a[0] + b[0], a[1] + b[1]), (a[0] - b[0], a[1] - b[1])]
        even, odd, outer, across = sums
        sums_of_four = [
            (even[0] + outer[0], even[1] + outer[1]),
            (odd[0] + across[1], odd[1] - across[0]),
            (even[0] - outer[0], even[1] - outer[1]),
            (odd[0] - across[1], odd[1] + across[0]),
        ]
        if self.reverse:
            return [sums_of_four[k] for k in (0, 3, 2, 1)]
        return sums_of_four

    def _sum_and_difference(
        self, near: Complex, far: Complex, circle: tir.Buffer, k: ArithExpr
    ) -> tuple[Complex, Complex]:
        """Return half of near + conj(far), and half of near - conj(far), turned.

        The latter is multiplied by the twiddle factor `k` of `circle`.
        """
        a = self._bind("near", self._scale(near, 2))
        over = self._bind("far", (far[0], self._wrap(far[1] * -1)))
        c = self._bind("conjugate", self._scale(over, 2))
        sums = self._wrap(a[0] + c[0]), self._wrap(a[1] + c[1])
        differences = self._wrap(a[0] - c[0]), self._wrap(a[1] - c[1])
        total, difference = self._bind("total", sums), self._bind("rest", differences)
        turn = self._twiddle(circle, k, is_unity=False)
        return total, self._bind("turned", self._multiply(difference, turn))

    # ---- numbers ---------------------------------------------------------------------

    @property
    def _zero(self) -> ArithExpr:
        return ArithExpr(as_expr(0, self.wide))

    def _real_twiddle_table(self) -> tir.Buffer:
        table: Array = real_twiddle_factors(self.count, self.bits, reverse=self.reverse)
        return self.b.constant("quarters", table, self.dtype, 4)

    @contextmanager
    def _digit_reversed(self) -> Iterator[tuple[ArithExpr, ArithExpr]]:
        """Open loops; yield a transform position and the index of the number for it."""
        with ExitStack() as loops:
            position = ArithExpr(as_expr(0, INDEX))
            source = ArithExpr(as_expr(0, INDEX))
            stride = 1
            for stage in reversed(radix_stages(self.count)):
                digit = loops.enter_context(self.b.for_("digit", stage.radix))
                position = position + digit * stage.size
                source = source + digit * stride
                stride *= stage.radix
            yield position, source

    def _bind(self, name: str, number: Complex) -> Complex:
        real = self.b.let(f"{name}_re", number[0], self.wide)
        imaginary = self.b.let(f"{name}_im", number[1], self.wide)
        return real, imaginary

    def _load(self, source: tir.Buffer, *where: ExprLike) -> Complex:
        """Load the complex number at index `where[0]`, of frame `where[1]` if given."""
        index = [*where[1:], where[0]]
        real = self.b.load(source, [*index, 0]).cast(self.wide)
        imaginary = self.b.load(source, [*index, 1]).cast(self.wide)
        return real, imaginary

    def _store(
        self, target: tir.Buffer, place: Sequence[ExprLike], number: Complex
    ) -> None:
        for part, value in enumerate(number):
            self.b.store(target, [*place, part], value.cast(self.dtype))

    def _twiddle(
        self, circle: tir.Buffer, place: ArithExpr, *, is_unity: bool
    ) -> Complex:
        if is_unity:
            one = (1 << self.bits) - 1 if self.bits else 1
            return ArithExpr(as_expr(one, self.wide)), self._zero
        return self._load(circle, place)

    def _multiply(self, x: Complex, by: Complex) -> Complex:
        real = x[0] * by[0] - x[1] * by[1]
        imaginary = x[0] * by[1] + x[1] * by[0]
        return self._round(real), self._round(imaginary)

    def _scale(self, x: Complex, parts: int) -> Complex:
        if not self.bits:
            return x
        factor = ((1 << self.bits) - 1) // parts
        return self._round(x[0] * factor), self._round(x[1] * factor)

    def _round(self, product: ArithExpr) -> ArithExpr:
        if not self.bits:
            return product
        return self._wrap((product + (1 << (self.bits - 1))) >> self.bits)

    def _halve(self, x: Complex) -> Complex:
        if not self.bits:
            return x[0] * 0.5, x[1] * 0.5
        real = x[0].cast(INT32).cast(self.wide) >> 1
        imaginary = x[1].cast(INT32).cast(self.wide) >> 1
        return real, imaginary

    def _wrap(self, x: ArithExpr) -> ArithExpr:
        return x.cast(self.dtype).cast(self.wide)
