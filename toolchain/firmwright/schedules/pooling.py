"""Pools: a loop over output pixels, and micro-kernels of the channels of a pixel.

    for each output pixel:         the window's corner, and the place of the pixel
        for each vector of channels:
            value = start
            for each tap of the window: value = max(value, tap), or value + tap
            store the value, limited, or the mean

The loops over pixels are those of pool_windows.py, for all instruction sets. Those that
have vectors take the other two loops from kernels/elementwise.py, and list their
instructions (`MaxRows`, `MeanRows`).

The mean of integers takes no division. The sum begins with the half that rounds and a
number that makes it positive, and the reciprocal of the number of taps is exact for all
sums that are possible (`exact_reciprocal`). Halves are rounded away from zero: of an
even number of taps, 1 is subtracted from negative sums.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from firmwright.base.dtypes import FLOAT32, INT32, DType
from firmwright.ir import tir
from firmwright.ir.graph.attributes.layers import ActivationAttrs, AveragePoolAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, Builder, maximum, minimum
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, pointers
from firmwright.kernels.elementwise import (
    WINDOW_NUMBERS,
    Compute,
    ElementLoop,
    WindowInput,
    element_intrinsics,
)
from firmwright.kernels.isa.c_numbers import greater, less
from firmwright.kernels.isa.instruction import Instr
from firmwright.kernels.program import PointerOperand, VirtualRegister
from firmwright.kernels.vector_program import VectorBuilder
from firmwright.ops.kernel import Kernel
from firmwright.ops.requantize import quantized_activation_range
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.pool_windows import (
    PoolCall,
    PoolWindow,
    build_pixels,
    has_few_spans,
    pool_windows,
)

Fold: TypeAlias = Callable[[OpCall, Builder, tir.Buffer, tir.Buffer], None]
"""A schedule's `fold`."""

# ---- micro-kernels -------------------------------------------------------------------


def window_loop(
    dtype: DType, lane: DType, spread: Instr, take: Instr, finish: Compute
) -> ElementLoop:
    """Return the loop that begins with a number in all lanes and takes each tap."""

    def start(k: VectorBuilder) -> VirtualRegister:
        number = k.number("start", FLOAT32 if lane.is_float else INT32)
        return k.named("value", spread, number)

    def take_tap(
        k: VectorBuilder, value: VirtualRegister, tap: VirtualRegister
    ) -> VirtualRegister:
        return k(take, value, tap, into=value)

    x, y = PointerOperand("x", dtype), PointerOperand("y", dtype, "w")
    return ElementLoop((WindowInput(x, start, take_tap),), y, lane, finish)


@dataclass(frozen=True, slots=True)
class MaxRows:
    """The instructions of a maximum: a number in all lanes, and the extremes of two."""

    spread: Instr
    larger: Instr
    smaller: Instr

    def loop(self, dtype: DType) -> ElementLoop:
        finish = partial(self.limit, dtype)
        return window_loop(dtype, dtype, self.spread, self.larger, finish)

    def limit(
        self, dtype: DType, k: VectorBuilder, values: Sequence[VirtualRegister]
    ) -> VirtualRegister:
        """Limit a variable to the numbers `low` and `high`."""
        (value,) = values
        low, high = k.number("low"), k.number("high")
        with k.when(k(greater, low, dtype.min)):
            k(self.larger, value, k(self.spread, low), into=value)
        with k.when(k(less, high, dtype.max)):
            k(self.smaller, value, k(self.spread, high), into=value)
        return value


@dataclass(frozen=True, slots=True)
class MeanRows:
    """The instructions of a mean, in lanes of `lane`.

    `spread` makes a vector of a number, and `as_unsigned` and `as_signed` change the
    type of one. `times_reciprocal` takes the high half of a product by a number, and
    `shift_right` shifts by one; `finish` makes elements of lanes.
    """

    lane: DType
    spread: Instr
    take: Instr
    subtract: Instr
    sign: Instr
    add: Instr
    as_unsigned: Instr
    times_reciprocal: Callable[
        [VectorBuilder, VirtualRegister, VirtualRegister], VirtualRegister
    ]
    shift_right: Callable[
        [VectorBuilder, VirtualRegister, VirtualRegister], VirtualRegister
    ]
    as_signed: Instr
    finish: Callable[[VectorBuilder, VirtualRegister], VirtualRegister]

    def loop(self, dtype: DType) -> ElementLoop:
        return window_loop(dtype, self.lane, self.spread, self.take, self._mean)

    def _mean(
        self, k: VectorBuilder, values: Sequence[VirtualRegister]
    ) -> VirtualRegister:
        (total,) = values
        with k.when(k(greater, k.number("is_even"), 0)):
            rest = k(self.subtract, total, k.number("start"))
            k(self.add, total, k(self.sign, rest, self.lane.bits - 1), into=total)
        raised = k(self.as_unsigned, total)
        product = self.times_reciprocal(k, raised, k.number("reciprocal"))
        mean = self.shift_right(k, product, k.number("shift"))
        return self.finish(k, k.named("mean", self.as_signed, mean))


_LIMITS = ("low", "high", "count")
_MEAN_NUMBERS = ("start", "is_even", "reciprocal", "shift", *_LIMITS)


def pool_pointers(dtype: DType) -> tuple[Operand, ...]:
    return (*pointers(dtype, "w", y=1), *pointers(dtype, x=1))


def _limited(dtype: DType, value: ArithExpr, **x: ArithExpr) -> ArithExpr:
    return minimum(maximum(value, x["low"]), x["high"]).cast(dtype)


def max_intrinsics(
    family: str,
    requires: str,
    dtype: DType,
    lanes: int,
    text: str,
    macros: Sequence[str],
) -> tuple[Intrinsic, ...]:
    """Return the micro-kernel with the C `text`, `lanes` channels at once."""
    return element_intrinsics(
        f"{family}_max_{dtype.name}",
        (*pool_pointers(dtype), *immediates(*WINDOW_NUMBERS, "start", *_LIMITS)),
        partial(_limited, dtype),
        "The maxima of `count` channels of a window.",
        requires,
        text,
        partial(executed_instructions, lanes, 2),
        tuple(macros),
        take=lambda value, x: maximum(value, x.cast(INT32)),
    )


def mean_intrinsics(
    family: str,
    requires: str,
    dtype: DType,
    lane: DType,
    lanes: int,
    text: str,
    macros: Sequence[str],
) -> tuple[Intrinsic, ...]:
    """Return the micro-kernel with the C `text`, `lanes` channels at once."""
    return element_intrinsics(
        mean_name(family, dtype, lane),
        (*pool_pointers(dtype), *immediates(*WINDOW_NUMBERS, *_MEAN_NUMBERS)),
        partial(_mean_element, dtype),
        "The means of `count` channels of a window.",
        requires,
        text,
        partial(executed_instructions, lanes, 9),
        tuple(macros),
        take=lambda value, x: value + x.cast(INT32),
    )


def mean_name(family: str, dtype: DType, lane: DType) -> str:
    return f"{family}_mean_{dtype.name}_{lane.bits}"


def _mean_element(dtype: DType, **x: ArithExpr) -> ArithExpr:
    value, taps = x["value"], x["rows"] * x["columns"]
    nudge = x["is_even"] * (value < x["start"]).cast(INT32)
    return _limited(
        dtype, (value - nudge) / taps + dtype.min, low=x["low"], high=x["high"]
    )


def executed_instructions(lanes: int, fixed: int, args: Sequence[int]) -> int:
    """Return the instructions; `fixed` are those of a vector's value at the end."""
    rows, columns = args[2], args[3]
    vectors = -(args[-1] // -lanes)
    return 8 + vectors * (8 + fixed + rows * (3 + 4 * columns))


# ---- their operands ------------------------------------------------------------------


def activation_limits(op: OpCall) -> tuple[int, int]:
    activation = op.attributes(ActivationAttrs).activation
    return quantized_activation_range(activation, op.output)


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """n / d, rounded down, is (n * factor) >> (bits + shift)."""

    factor: int
    shift: int


def exact_reciprocal(divisor: int, most: int, bits: int) -> Reciprocal | None:
    """Return the reciprocal that is exact for all n up to `most`, if there is one.

    n and the factor must fit `bits`. The factor is 2^(bits + shift) / d, rounded up by
    a part of a whole that must not add up to 1 / d.
    """
    is_power = divisor & (divisor - 1) == 0
    shift = divisor.bit_length() - 1 - is_power
    factor = -((1 << bits + shift) // -divisor)
    error = factor * divisor - (1 << bits + shift)
    fits = shift >= 0 and most < 1 << bits and error * most < 1 << bits + shift
    return Reciprocal(factor, shift) if fits else None


@dataclass(frozen=True, slots=True)
class Mean:
    """The constants of a mean, in lanes of `lane`."""

    lane: DType
    start: int
    is_even: bool
    reciprocal: Reciprocal


def find_mean(op: OpCall, lanes: Sequence[DType], taps: int) -> Mean | None:
    """Return the constants for the first of `lanes` that can hold sums of `taps`."""
    is_unsigned = op.attributes(AveragePoolAttrs).unsigned
    dtype = op.input(0).dtype
    start = taps // 2 - taps * dtype.min
    most = start + taps * dtype.max
    for lane in lanes:
        reciprocal = exact_reciprocal(taps, most, lane.bits)
        if reciprocal is not None and most <= INT32.max:
            is_even = taps % 2 == 0 and not is_unsigned
            return Mean(lane, start, is_even, reciprocal)
    return None


# ---- schedules -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IntegerPools:
    """The pools of an instruction set, with micro-kernels of the prefix `family`.

    `sums` has the types of elements, each with those of lanes, from the narrowest on.
    """

    family: str
    sums: Mapping[DType, Sequence[DType]]

    def schedules(
        self, name: str, feature: str, fold: Fold | None = None
    ) -> tuple[Schedule[ScheduleConfig], Schedule[ScheduleConfig]]:
        """Return the schedules of maxima, and of means with their `fold`."""
        maxima = Schedule(
            f"{name}.max_pool2d.channels",
            "max_pool2d",
            frozenset({feature}),
            self._configs,
            self._build_max,
        )
        means = Schedule(
            f"{name}.average_pool2d.channels",
            "average_pool2d",
            frozenset({feature}),
            self._mean_configs,
            self._build_mean,
            fold=fold,
        )
        return maxima, means

    def _configs(self, op: OpCall) -> Sequence[ScheduleConfig]:
        fits = op.input(0).dtype in self.sums and has_few_spans(op)
        return (NO_CONFIG,) if fits else ()

    def _mean_configs(self, op: OpCall) -> Sequence[ScheduleConfig]:
        configs = self._configs(op)
        if not configs:
            return ()
        for part in pool_windows(op):
            if part.count > 1 and self._mean(op, part) is None:
                return ()
        return configs

    def _mean(self, op: OpCall, window: PoolWindow) -> Mean | None:
        return find_mean(op, self.sums[op.input(0).dtype], window.count)

    def maximum(self, op: OpCall, _: PoolWindow) -> PoolCall:
        """Return the micro-kernel of a maximum."""
        dtype = op.input(0).dtype
        settings = (dtype.min, *activation_limits(op))
        return PoolCall(f"{self.family}_max_{dtype.name}", settings)

    def _mean_call(self, op: OpCall, window: PoolWindow) -> PoolCall:
        """Return the micro-kernel of a mean; that of one tap is the maximum of it."""
        if window.count == 1:
            return self.maximum(op, window)
        mean = self._mean(op, window)
        assert mean is not None
        settings = (
            mean.start,
            int(mean.is_even),
            int(np.uint32(mean.reciprocal.factor).astype(np.int32)),
            mean.reciprocal.shift,
            *activation_limits(op),
        )
        name = mean_name(self.family, op.input(0).dtype, mean.lane)
        return PoolCall(name, settings)

    def _build_max(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        build_pixels(op, b, partial(self.maximum, op))

    def _build_mean(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        build_pixels(op, b, partial(self._mean_call, op))
