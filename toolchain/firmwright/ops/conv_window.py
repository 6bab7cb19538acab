"""Sliding windows of convolutions and pools: shapes, padding and tap loops.

The import converts SAME and VALID padding to explicit padding. TFLite places the
smaller half of the total padding at the top or left.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.base.rounding import divide_up
from firmwright.ir.graph import OpCall
from firmwright.ir.graph.attributes.layers import WindowAttrs
from firmwright.ir.tir.builder import ArithExpr, Builder, logical_and


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """The loop variables of one output position."""

    n: ArithExpr
    oy: ArithExpr
    ox: ArithExpr


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """A 2-D window of (vertical, horizontal); padding is (top, bottom, left, right)."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    input_size: tuple[int, int]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        top, bottom, left, right = self.padding
        return (
            self._positions(height + top + bottom, 0),
            self._positions(width + left + right, 1),
        )

    def _positions(self, length: int, axis: int) -> int:
        reach = (self.size[axis] - 1) * self.dilation[axis] + 1
        return (length - reach) // self.stride[axis] + 1

    @property
    def is_padded(self) -> bool:
        return any(self.padding)

    @property
    def pointwise(self) -> bool:
        """Whether output pixel i depends on input pixel i only."""
        return self.size == (1, 1) and self.stride == (1, 1) and not self.is_padded

    def guarded(self, axis: int) -> bool:
        """Whether a tap of some output falls outside the input along `axis`."""
        first = self.padding[2 * axis]
        positions = self.output_size(*self.input_size)[axis]
        reach = (self.size[axis] - 1) * self.dilation[axis]
        last = (positions - 1) * self.stride[axis] - first + reach
        return first > 0 or last >= self.input_size[axis]

    @contextmanager
    def taps(
        self, b: Builder, at: OutputPosition
    ) -> Iterator[tuple[ArithExpr, ArithExpr, ArithExpr, ArithExpr]]:
        """Open loops over the taps inside the input; yield (ky, kx, iy, ix)."""
        with ExitStack() as stack:
            ky, iy = self._tap(b, stack, 0, at.oy)
            kx, ix = self._tap(b, stack, 1, at.ox)
            yield ky, kx, iy, ix

    def _tap(
        self, b: Builder, stack: ExitStack, axis: int, out: ArithExpr
    ) -> tuple[ArithExpr, ArithExpr]:
        k_name, i_name = ("ky", "iy") if axis == 0 else ("kx", "ix")
        k = stack.enter_context(b.for_(k_name, self.size[axis]))
        position = out * self.stride[axis] + k * self.dilation[axis]
        i = b.let(i_name, position - self.padding[2 * axis])
        if self.guarded(axis):
            stack.enter_context(b.if_(logical_and(i >= 0, i < self.input_size[axis])))
        return k, i


@contextmanager
def output_positions(b: Builder, y_shape: Sequence[int]) -> Iterator[OutputPosition]:
    """Open loops over batch, output rows and output columns."""
    with b.loops("n oy ox", y_shape[:3]) as (n, oy, ox):
        yield OutputPosition(n, oy, ox)


def window_of(call: OpCall, size: Sequence[int]) -> ConvWindow:
    attrs = call.attributes(WindowAttrs)
    height, width = call.input(0).shape[1:3]
    stride = attrs.stride
    dilation = attrs.dilation
    padding = attrs.padding
    return ConvWindow(
        (size[0], size[1]),
        (stride[0], stride[1]),
        (dilation[0], dilation[1]),
        (padding[0], padding[1], padding[2], padding[3]),
        (height, width),
    )


def kernel_window(call: OpCall) -> ConvWindow:
    """Return the window of a convolution; a fully connected layer has a 1x1 window."""
    if len(call.input(1).shape) == 2:
        return ConvWindow((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
    return window_of(call, call.input(1).shape[1:3])


def check_window(window: ConvWindow) -> None:
    """Raise NotSupportedError if the window has no output position."""
    least = min(*window.stride, *window.dilation, *window.size)
    if least < 1 or min(window.padding) < 0:
        raise NotSupportedError(
            "a stride, dilation or kernel size below 1, or negative padding"
        )
    if min(window.output_size(*window.input_size)) < 1:
        raise NotSupportedError("a kernel larger than the padded input")


def same_padding(length: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding (before, after) that gives ceil(length / stride) outputs."""
    outputs = divide_up(length, stride)
    total = max((outputs - 1) * stride + (size - 1) * dilation + 1 - length, 0)
    return total // 2, total - total // 2


def im2col(x: Array, window: ConvWindow, outside: float = 0) -> Array:
    """Return the im2col matrix [n, oy, ox, ky * kx * c], padded with `outside`."""
    top, bottom, left, right = window.padding
    margins = ((0, 0), (top, bottom), (left, right), (0, 0))
    padded = np.pad(x, margins, constant_values=outside)
    rows, cols = window.output_size(x.shape[1], x.shape[2])
    down, right = window.stride
    taps: list[Array] = []
    for ky in range(window.size[0]):
        for kx in range(window.size[1]):
            y = ky * window.dilation[0]
            x_first = kx * window.dilation[1]
            taps.append(padded[:, y::down, x_first::right][:, :rows, :cols])
    stacked: Array = np.concatenate(taps, axis=-1)
    return stacked
