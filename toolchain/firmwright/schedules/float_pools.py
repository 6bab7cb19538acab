"""Pools of float32, of any instruction set with vectors: the channels of a pixel.

A mean sums its window in the order of the default loops, and divides by the number of
taps, or multiplies by its inverse if that is exact. Means and sums over all axes but
the last are those of a window of all pixels.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from firmwright.base.dtypes import FLOAT32
from firmwright.ir import tir
from firmwright.ir.graph.attributes.values import AxesAttrs, ReductionAttrs
from firmwright.ir.graph.op_call import OpCall
from firmwright.ir.tir.builder import ArithExpr, select
from firmwright.ir.tir.intrinsic import Intrinsic, Operand, immediates, inputs
from firmwright.kernels.elementwise import (
    WINDOW_NUMBERS,
    Element,
    ElementLoop,
    element_intrinsics,
)
from firmwright.ops.kernel import Kernel
from firmwright.ops.schedule import NO_CONFIG, Schedule, ScheduleConfig
from firmwright.schedules.channel_sums import ChannelSums, find_channel_sums
from firmwright.schedules.helium_floats.accumulate_f32 import (
    ACTIVATION_CODES,
    activated,
    activation_code,
)
from firmwright.schedules.pool_windows import (
    PoolCall,
    PoolWindow,
    build_pixels,
    has_few_spans,
)
from firmwright.schedules.pooling import executed_instructions, pool_pointers

_LEAST = float(np.finfo(np.float32).min)
_WINDOW = (*immediates(*WINDOW_NUMBERS), *inputs(FLOAT32, "start"))


@dataclass(frozen=True, slots=True)
class FloatPools:
    """The pools of an instruction set, with micro-kernels of the prefix `family`.

    `text` prints a loop. The mean has the numbers `taps`, `inverse` and `is_exact`.
    """

    family: str
    feature: str
    lanes: int
    text: Callable[[ElementLoop], str]
    macros: tuple[str, ...] = ()

    def intrinsics(
        self, maxima: ElementLoop, means: ElementLoop
    ) -> tuple[Intrinsic, ...]:
        maximum = self._intrinsics(
            "maximum",
            (),
            _larger,
            lambda value, activation, **_: activated(value, activation),
            2,
            maxima,
        )
        mean = self._intrinsics(
            "mean",
            (*inputs(FLOAT32, "taps", "inverse"), *immediates("is_exact")),
            lambda value, x: value + x,
            lambda value, taps, activation, **_: activated(value / taps, activation),
            12,
            means,
        )
        return (*maximum, *mean)

    def _intrinsics(
        self,
        name: str,
        operands: tuple[Operand, ...],
        take: Element,
        element: Element,
        fixed: int,
        loop: ElementLoop,
    ) -> tuple[Intrinsic, ...]:
        """Return the micro-kernel, with `fixed` instructions after the last tap."""
        return element_intrinsics(
            f"{self.family}_{name}_f32",
            (
                *pool_pointers(FLOAT32),
                *_WINDOW,
                *operands,
                *immediates("activation", "count"),
            ),
            element,
            f"The {name} of each of `count` channels of a window.",
            self.feature,
            self.text(loop),
            partial(executed_instructions, self.lanes, fixed),
            self.macros,
            take=take,
        )

    def schedules(self, name: str) -> Iterator[Schedule[ScheduleConfig]]:
        """Yield the schedules of pools, then those of sums of channels."""
        needed = frozenset({self.feature})
        builds = {
            "max_pool2d": self._build_max,
            "average_pool2d": self._build_mean,
        }
        for op, build in builds.items():
            yield Schedule(f"{name}.{op}.floats", op, needed, _configs, build)
        for op in ("mean", "sum", "reduction"):
            yield Schedule(
                f"{name}.{op}.floats", op, needed, _sum_configs, self._build_sums
            )

    def _build_max(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        settings = (_number(_LEAST), activation_code(op))
        call = PoolCall(f"{self.family}_maximum_f32", settings)
        build_pixels(op, b, lambda _: call)

    def _build_mean(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        def choose(window: PoolWindow) -> PoolCall:
            return self.mean(window.count, activation_code(op))

        build_pixels(op, b, choose)

    def mean(self, taps: int, activation: int) -> PoolCall:
        """Return the micro-kernel of a mean of `taps` elements."""
        is_exact = taps & (taps - 1) == 0
        numbers = (_number(0.0), _number(taps), _number(1 / taps if is_exact else 0.0))
        settings = (*numbers, int(is_exact), activation)
        return PoolCall(f"{self.family}_mean_f32", settings)

    def _build_sums(self, op: OpCall, config: ScheduleConfig, b: Kernel) -> None:
        sums = _channel_sums(op)
        assert sums is not None
        pixels, channels = sums.pixels, sums.channels
        size = pixels * channels
        call = self.mean(pixels if op.op == "mean" else 1, ACTIVATION_CODES["none"])
        with b.for_("image", sums.images) as image:
            y = b.pointer(b.y, image * channels, channels, "w")
            x = b.pointer(b.input(0), image * size, size)
            window = (1, pixels, size, channels)
            b.evaluate(call.name, [y, x, *window, *call.settings, channels])


def _configs(op: OpCall) -> Sequence[ScheduleConfig]:
    fits = op.input(0).dtype == FLOAT32 and has_few_spans(op)
    return (NO_CONFIG,) if fits else ()


_LEAST_CHANNELS = 2


def _channel_sums(op: OpCall) -> ChannelSums | None:
    """Return the sums of a call if they are of elements, in the order of the loops."""
    match op.attrs:
        case AxesAttrs(axes=axes, float_order=()):
            pass
        case ReductionAttrs(formula="a", perms=(), step="add", axes=axes):
            pass
        case _:
            return None
    x = op.input(0)
    is_float = x.dtype == FLOAT32
    return find_channel_sums(x.shape, axes, _LEAST_CHANNELS) if is_float else None


def _sum_configs(op: OpCall) -> Sequence[ScheduleConfig]:
    return () if _channel_sums(op) is None else (NO_CONFIG,)


def _number(value: float) -> tir.FloatImm:
    return tir.FloatImm(value, FLOAT32)


def _larger(value: ArithExpr, x: ArithExpr) -> ArithExpr:
    return select(x > value, x, value)
