"""The loops of rfft and irfft: one transform in place, and the bins of real samples apart.

In: a kernel's builder and buffers of numbers, each a real and an imaginary part. Out: TIR that does
what `ops/fft.py` defines, in its order. Sums are formed in twice the width and wrap where they are
stored; floats are neither scaled nor rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from firmwright.base.dtypes import INT16, INT32, INT64, DType
from firmwright.ir import tir
from firmwright.ir.graph.opdef import Array
from firmwright.ir.tir.builder import INDEX, ArithExpr, ExprLike, as_expr, minimum, select
from firmwright.ops.fft_tables import (
    FftStage,
    fraction_bits,
    radix_stages,
    real_twiddle_factors,
    twiddle_factors,
)
from firmwright.ops.kernel import Kernel

Complex: TypeAlias = tuple[ArithExpr, ArithExpr]
"""Real and imaginary part, in the width that sums are formed in."""


@dataclass(frozen=True)
class FftBuilder:
    """A transform of `count` numbers of type `dtype`, the builder its loops go to."""

    b: Kernel
    dtype: DType
    count: int
    reverse: bool

    @property
    def bits(self) -> int:
        return fraction_bits(self.dtype)

    @property
    def wide(self) -> DType:
        """What sums and products are formed in."""
        return {INT16: INT32, INT32: INT64}.get(self.dtype, self.dtype)

    # ---- parts -----------------------------------------------------------------------------------

    def take_samples(self, samples: tir.Buffer, frame: ArithExpr, numbers: tir.Buffer) -> None:
        """Pairs of samples as numbers, each where its transform begins; zeros behind the last."""
        have = samples.shape[1]
        with self._arrivals() as (place, source):
            for part in (0, 1):
                index = source * 2 + part
                value = self.b.load(samples, [frame, minimum(index, have - 1)])
                if have < 2 * self.count:
                    value = select(index < have, value, 0)
                self.b.store(numbers, [place, part], value)

    def take_numbers(self, source: tir.Buffer, numbers: tir.Buffer) -> None:
        """Numbers in order, each where its transform begins."""
        with self._arrivals() as (place, index):
            for part in (0, 1):
                self.b.store(numbers, [place, part], self.b.load(source, [index, part]))

    def transform(self, numbers: tir.Buffer) -> None:
        """All steps, in place."""
        table = twiddle_factors(self.count, self.bits, reverse=self.reverse)
        circle = self.b.constant("turns", table, self.dtype, 4)
        for stage in radix_stages(self.count):
            base = stage.radix * stage.size
            with (
                self.b.for_("block", stage.blocks) as block,
                self.b.for_("i", stage.size) as i,
            ):
                places = [block * base + i + q * stage.size for q in range(stage.radix)]
                self._step(numbers, places, stage, i, circle)

    def separate(self, numbers: tir.Buffer, bins: tir.Buffer, frame: ArithExpr) -> None:
        """The bins of real samples whose pairs `numbers` are the transform of."""
        b, count = self.b, self.count
        circle = self._separating()
        with self._named("first", self._scaled(self._load(numbers, 0), 2)) as first:
            self._store(bins, [frame, 0], (first[0] + first[1], self._zero))
            self._store(bins, [frame, count], (first[0] - first[1], self._zero))
        with b.for_("k", count // 2) as k:
            near, far = self._load(numbers, k + 1), self._load(numbers, (k * -1) + (count - 1))
            with self._sum_and_rest(near, far, circle, k) as (total, rest):
                sums = total[0] + rest[0], total[1] + rest[1]
                self._store(bins, [frame, k + 1], self._halved(sums))
                sums = total[0] - rest[0], rest[1] - total[1]
                self._store(bins, [frame, (k * -1) + (count - 1)], self._halved(sums))

    def join(self, bins: tir.Buffer, frame: ArithExpr, joined: tir.Buffer) -> None:
        """Numbers whose transform are pairs of the samples that have these bins."""
        b, count = self.b, self.count
        circle = self._separating()
        first = b.load(bins, [frame, 0, 0]).cast(self.wide)
        last = b.load(bins, [frame, count, 0]).cast(self.wide)
        with self._named("ends", (self._wrapped(first + last), self._wrapped(first - last))) as e:
            self._store(joined, [0], self._scaled(e, 2))
        with b.for_("k", count // 2) as k:
            near = self._load(bins, k + 1, frame)
            far = self._load(bins, (k * -1) + (count - 1), frame)
            with self._sum_and_rest(near, far, circle, k) as (total, rest):
                self._store(joined, [k + 1], (total[0] + rest[0], total[1] + rest[1]))
                sums = total[0] - rest[0], rest[1] - total[1]
                self._store(joined, [(k * -1) + (count - 1)], sums)

    def divide(self, numbers: tir.Buffer) -> None:
        """Floats have not been scaled on the way: now they are."""
        if self.bits:
            return
        with self.b.for_("k", self.count) as k, self.b.for_("part", 2) as part:
            value = self.b.load(numbers, [k, part])
            self.b.store(numbers, [k, part], value * (0.5 / self.count))

    # ---- a step ----------------------------------------------------------------------------------

    def _step(
        self,
        numbers: tir.Buffer,
        places: Sequence[ArithExpr],
        stage: FftStage,
        i: ArithExpr,
        circle: tir.Buffer,
    ) -> None:
        """One transform of `radix` numbers, in place."""
        with ExitStack() as names:
            parts: list[Complex] = []
            for q, place in enumerate(places):
                scaled = self._scaled(self._load(numbers, place), stage.radix)
                part = names.enter_context(self._named("abcd"[q], scaled))
                if q:
                    turn = self._turn(circle, i * (q * stage.blocks), is_unity=stage.size == 1)
                    turned = self._turned(part, turn)
                    part = names.enter_context(self._named(f"{'abcd'[q]}_turned", turned))
                parts.append(part)
            sums = parts if stage.radix == 2 else self._crossed(parts, names)
            for place, number in zip(places, self._added(sums), strict=True):
                self._store(numbers, [place], number)

    def _crossed(self, parts: Sequence[Complex], names: ExitStack) -> list[Complex]:
        """Sums and differences of the even and of the odd parts."""
        a, b, c, d = parts
        rows = (
            ("even", a[0] + c[0], a[1] + c[1]),
            ("odd", a[0] - c[0], a[1] - c[1]),
            ("outer", b[0] + d[0], b[1] + d[1]),
            ("across", b[0] - d[0], b[1] - d[1]),
        )
        return [
            names.enter_context(self._named(name, (self._wrapped(re), self._wrapped(im))))
            for name, re, im in rows
        ]

    def _added(self, sums: Sequence[Complex]) -> list[Complex]:
        if len(sums) == 2:
            (a, b) = sums
            return [(a[0] + b[0], a[1] + b[1]), (a[0] - b[0], a[1] - b[1])]
        even, odd, outer, across = sums
        found = [
            (even[0] + outer[0], even[1] + outer[1]),
            (odd[0] + across[1], odd[1] - across[0]),
            (even[0] - outer[0], even[1] - outer[1]),
            (odd[0] - across[1], odd[1] + across[0]),
        ]
        return [found[0], found[3], found[2], found[1]] if self.reverse else found

    @contextmanager
    def _sum_and_rest(
        self, near: Complex, far: Complex, circle: tir.Buffer, k: ArithExpr
    ) -> Iterator[tuple[Complex, Complex]]:
        """Half the sum of `near` and `far` turned over, and half their difference turned."""
        with ExitStack() as names:

            def named(name: str, number: Complex) -> Complex:
                return names.enter_context(self._named(name, number))

            a = named("near", self._scaled(near, 2))
            over = named("far", (far[0], self._wrapped(far[1] * -1)))
            c = named("conjugate", self._scaled(over, 2))
            sums = self._wrapped(a[0] + c[0]), self._wrapped(a[1] + c[1])
            rests = self._wrapped(a[0] - c[0]), self._wrapped(a[1] - c[1])
            total, rest = named("total", sums), named("rest", rests)
            turn = self._turn(circle, k, is_unity=False)
            yield total, named("turned", self._turned(rest, turn))

    # ---- numbers ---------------------------------------------------------------------------------

    @property
    def _zero(self) -> ArithExpr:
        return ArithExpr(as_expr(0, self.wide))

    def _separating(self) -> tir.Buffer:
        table: Array = real_twiddle_factors(self.count, self.bits, reverse=self.reverse)
        return self.b.constant("quarters", table, self.dtype, 4)

    @contextmanager
    def _arrivals(self) -> Iterator[tuple[ArithExpr, ArithExpr]]:
        """Loops over the places of the transform; gives a place and the number it begins with."""
        with ExitStack() as loops:
            place, source = ArithExpr(as_expr(0, INDEX)), ArithExpr(as_expr(0, INDEX))
            stride = 1
            for stage in reversed(radix_stages(self.count)):
                digit = loops.enter_context(self.b.for_("digit", stage.radix))
                place, source = place + digit * stage.size, source + digit * stride
                stride *= stage.radix
            yield place, source

    @contextmanager
    def _named(self, name: str, number: Complex) -> Iterator[Complex]:
        """The parts under names of their own, so that they are computed once."""
        with (
            self.b.let(f"{name}_re", number[0], self.wide) as real,
            self.b.let(f"{name}_im", number[1], self.wide) as imaginary,
        ):
            yield real, imaginary

    def _load(self, source: tir.Buffer, *where: ExprLike) -> Complex:
        """Number `where[0]`, of frame `where[1]` if there are any."""
        place = [*where[1:], where[0]]
        real, imaginary = (self.b.load(source, [*place, part]).cast(self.wide) for part in (0, 1))
        return real, imaginary

    def _store(self, target: tir.Buffer, place: Sequence[ExprLike], number: Complex) -> None:
        for part, value in enumerate(number):
            self.b.store(target, [*place, part], value.cast(self.dtype))

    def _turn(self, circle: tir.Buffer, place: ArithExpr, *, is_unity: bool) -> Complex:
        if is_unity:
            return ArithExpr(
                as_expr((1 << self.bits) - 1 if self.bits else 1, self.wide)
            ), self._zero
        return self._load(circle, place)

    def _turned(self, x: Complex, by: Complex) -> Complex:
        real, imaginary = x[0] * by[0] - x[1] * by[1], x[0] * by[1] + x[1] * by[0]
        return self._rounded(real), self._rounded(imaginary)

    def _scaled(self, x: Complex, parts: int) -> Complex:
        if not self.bits:
            return x
        factor = ((1 << self.bits) - 1) // parts
        return self._rounded(x[0] * factor), self._rounded(x[1] * factor)

    def _rounded(self, product: ArithExpr) -> ArithExpr:
        if not self.bits:
            return product
        return self._wrapped((product + (1 << (self.bits - 1))) >> self.bits)

    def _halved(self, x: Complex) -> Complex:
        """In 32 bits, as sums are formed."""
        if not self.bits:
            return x[0] * 0.5, x[1] * 0.5
        real, imaginary = (part.cast(INT32).cast(self.wide) >> 1 for part in x)
        return real, imaginary

    def _wrapped(self, x: ArithExpr) -> ArithExpr:
        return x.cast(self.dtype).cast(self.wide)
