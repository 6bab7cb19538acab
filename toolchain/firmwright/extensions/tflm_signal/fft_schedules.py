"""rfft of int16: stages without multiplications by one, and factors in their order.

The first stage loads the samples in digit-reversed order. Its factors, and those of the
first butterfly of every block, are 1 - 2^-15. A product with it is equal to the number
if that is at most 2^14, as scaled numbers are. The factors of the other butterflies are
rows of a table: row i of the last stage is row i * blocks of the others.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import numpy as np

from firmwright.base.dtypes import INT16, Array
from firmwright.extensions.tflm_signal.attributes import FftAttrs
from firmwright.extensions.tflm_signal.complex_numbers import (
    BITS,
    INTRINSICS,
    ComplexNumbers,
    Number,
    Pairs,
    Words,
)
from firmwright.extensions.tflm_signal.fft_lowering import (
    FftStage,
    radix_stages,
    real_twiddle_factors,
    twiddle_factors,
)
from firmwright.ir import tir
from firmwright.ir.graph import OpCall
from firmwright.ir.tir.builder import INDEX, ArithExpr, as_expr, minimum
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.schedule_factories import dsp_schedule

__all__ = ["INTRINSICS", "SCHEDULES"]


def stage_factors(count: int) -> Array:
    """Return the factors [i, q - 1, part] of part q of butterfly i of the last stage.

    `count` is the number of complex numbers.
    """
    last = radix_stages(count)[-1]
    powers = np.outer(np.arange(last.size), np.arange(1, last.radix))
    factors: Array = twiddle_factors(count, BITS, reverse=False)[powers]
    return factors


class _Transform:
    """Emits the transform of `count` numbers."""

    def __init__(self, c: ComplexNumbers, count: int) -> None:
        self.c = c
        self.b = c.b
        self.count = count
        self.stages = radix_stages(count)
        memory = self.b.allocate("numbers", INT16, (count, 2))
        self.numbers = c.view("stage", memory, (count,), "rw")
        self.factors = self._table("factors", stage_factors(count))
        quarters = real_twiddle_factors(count, BITS, reverse=False)
        self.quarters = self._table("quarters", quarters)

    def _table(self, name: str, factors: Array) -> tir.Buffer:
        constant = self.b.constant(name, factors, INT16, 4)
        return self.c.view(f"{name}_table", constant, factors.shape[:-1])

    def load_first_stage(self, samples: tir.Buffer, frame: ArithExpr) -> None:
        """Compute the first stage of samples that are zero beyond their end."""
        first, *others = self.stages
        zero = ArithExpr(as_expr(0, INDEX))
        with ExitStack() as loops:
            position, source, stride = zero, zero, 1
            for stage in reversed(others):
                digit = loops.enter_context(self.b.for_("digit", stage.radix))
                position = position + digit * stage.size
                source = source + digit * stride
                stride *= stage.radix

            def load(q: int) -> Number:
                number = self._load_sample(samples, frame, source, q * stride, stride)
                return self.c.scale(number, first.radix)

            self._store_sums(load, position, first)

    def _load_sample(
        self,
        samples: tir.Buffer,
        frame: ArithExpr,
        source: ArithExpr,
        first: int,
        count: int,
    ) -> Number:
        """Return number `first` + `source`, which is below `count`."""
        have = samples.shape[1]
        if first + count <= have:
            return self.c.load(samples, frame, source + first)
        at = self.b.let("at", source + first)
        number = self.c.load(samples, frame, minimum(at, have - 1))
        return self.c.bind("sample", self.c.zero_unless(at < have, number))

    def add_stage(self, stage: FftStage) -> None:
        """Compute a stage, butterfly by butterfly, each in all blocks."""
        width = stage.radix * stage.size
        with self.b.for_("block", stage.blocks) as block:
            first = block * width
            self._store_sums(partial(self._load_part, stage, first), first, stage)
        with self.b.for_("i", stage.size - 1, 1) as i:
            row = i * stage.blocks
            factors: list[Number] = []
            if self.c.keeps_factors:
                factors = [self._load_factor(row, q) for q in range(1, stage.radix)]
            with self.b.for_("block", stage.blocks) as block:
                first = block * width + i

                def turned(q: int) -> Number:
                    part = self._load_part(stage, first, q)
                    if q == 0:
                        return part
                    kept = factors[q - 1] if factors else self._load_factor(row, q)
                    return self.c.multiply(part, kept)

                self._store_sums(turned, first, stage)

    def _load_factor(self, row: ArithExpr, q: int) -> Number:
        return self.c.bind("factor", self.c.load(self.factors, row, q - 1))

    def _load_part(self, stage: FftStage, first: ArithExpr, q: int) -> Number:
        number = self.c.load(self.numbers, first + q * stage.size)
        return self.c.scale(number, stage.radix)

    def _store_sums(
        self, load: Callable[[int], Number], first: ArithExpr, stage: FftStage
    ) -> None:
        """Store the sums of the parts that `load` returns."""
        c = self.c
        results: Sequence[Number]
        if stage.radix == 2:
            results = c.sums(load(0), load(1))
        else:
            even, odd = c.sums(load(0), load(2))
            outer, across = c.sums(load(1), load(3))
            (y0, y2), (y1, y3) = c.sums(even, outer), c.turned_sums(odd, across)
            results = (y0, y1, y2, y3)
        for q, number in enumerate(results):
            c.store(self.numbers, [first + q * stage.size], number)

    def unpack_bins(self, bins: tir.Buffer, frame: ArithExpr) -> None:
        """Store the bins of real samples; fft.py has the formulas."""
        c, count = self.c, self.count
        real, imaginary = c.parts(c.scale(c.load(self.numbers, 0), 2))
        c.store(bins, [frame, 0], c.real(real + imaginary))
        c.store(bins, [frame, count], c.real(real - imaginary))
        with self.b.for_("k", count // 2) as k:
            far = k * -1 + (count - 1)
            x = c.scale(c.load(self.numbers, k + 1), 2)
            y = c.scale_conjugate(c.load(self.numbers, far), 2)
            total, rest = c.sums(x, y)
            turned = c.multiply(rest, c.load(self.quarters, k))
            for place, number in zip(
                (k + 1, far), c.halves(total, turned), strict=True
            ):
                c.store(bins, [frame, place], number)


def even_widths(call: OpCall) -> Sequence[ScheduleConfig]:
    """Return a configuration if the samples are pairs of int16."""
    x = call.input(0)
    return (NO_CONFIG,) if x.dtype == INT16 and x.shape[-1] % 2 == 0 else ()


def _build(
    kind: type[ComplexNumbers], call: OpCall, config: ScheduleConfig, b: Kernel
) -> None:
    x, length = call.input(0), call.attributes(FftAttrs).length
    frames, count = x.elements // x.shape[-1], length // 2
    c = kind(b)
    transform = _Transform(c, count)
    samples = c.view("samples", b.input(0), (frames, x.shape[-1] // 2))
    bins = c.view("bins", b.y, (frames, count + 1), "w")
    with b.for_("frame", frames) as frame:
        transform.load_first_stage(samples, frame)
        for stage in transform.stages[1:]:
            transform.add_stage(stage)
        transform.unpack_bins(bins, frame)


SCHEDULES = (
    dsp_schedule(
        "dsp.rfft.words", "rfft", configs=even_widths, build=partial(_build, Words)
    ),
    Schedule(
        "scalar.rfft.pairs", "rfft", frozenset(), even_widths, partial(_build, Pairs)
    ),
)
