"""Windows over any number of spatial axes, channels first, for conv_nd.py and pool_nd.py.

2-D images with constant weights use conv2d.py and pooling.py, which are faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from firmwright.base.dtypes import Array
from firmwright.base.errors import NotSupportedError
from firmwright.ir.graph.opdef import OpCall
from firmwright.ir.tir.builder import ArithExpr, Builder, logical_and


@dataclass(frozen=True, slots=True)
class WindowNd:
    """A window with size, stride, dilation and leading padding for each spatial axis.

    `inputs` and `outputs` are the spatial extents; they determine the trailing padding.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @contextmanager
    def taps(
        self, b: Builder, outputs: Sequence[ArithExpr]
    ) -> Iterator[tuple[list[ArithExpr], list[ArithExpr]]]:
        """Open loops over taps inside the input; yield window position and input position."""
        with ExitStack() as stack:
            taps, positions = [], []
            for axis, out in enumerate(outputs):
                k = stack.enter_context(b.for_(f"k{axis}", self.size[axis]))
                position = out * self.stride[axis] + k * self.dilation[axis] - self.before[axis]
                i = stack.enter_context(b.let(f"p{axis}", position))
                if self._exceeds_input(axis):
                    inside = logical_and(i >= 0, i < self.inputs[axis])
                    stack.enter_context(b.if_(inside))
                taps.append(k)
                positions.append(i)
            yield taps, positions

    def _exceeds_input(self, axis: int) -> bool:
        reach = (self.size[axis] - 1) * self.dilation[axis]
        last = (self.outputs[axis] - 1) * self.stride[axis] - self.before[axis] + reach
        return self.before[axis] > 0 or last >= self.inputs[axis]

    def patches(self, x: Array, outside: float) -> Iterator[tuple[tuple[int, ...], Array]]:
        """Yield each tap and the elements of x [n, c, ...] that it reads for all outputs."""
        for tap in itertools.product(*map(range, self.size)):
            patch = x
            for axis, k in enumerate(tap):
                positions = (
                    np.arange(self.outputs[axis]) * self.stride[axis]
                    + k * self.dilation[axis]
                    - self.before[axis]
                )
                inside = (positions >= 0) & (positions < self.inputs[axis])
                patch = np.take(patch, np.where(inside, positions, 0), axis=axis + 2)
                shape = [1] * patch.ndim
                shape[axis + 2] = len(positions)
                patch = np.where(inside.reshape(shape), patch, np.asarray(outside, patch.dtype))
            yield tap, patch


def window_of(call: OpCall, size: Sequence[int], outputs: Sequence[int]) -> WindowNd:
    window = WindowNd(
        tuple(size),
        call.ints_attr("stride"),
        call.ints_attr("dilation"),
        call.ints_attr("before"),
        call.input(0).shape[2:],
        tuple(outputs),
    )
    rank = len(window.inputs)
    rows = (window.size, window.stride, window.dilation, window.before, window.outputs)
    if rank < 1 or any(len(row) != rank for row in rows):
        raise NotSupportedError(f"window attributes that do not match {rank} axes")
    if min(*window.size, *window.stride, *window.dilation, *window.outputs) < 1:
        raise NotSupportedError("a window, stride, dilation or output below 1")
    if min(window.before) < 0:
        raise NotSupportedError("negative padding")
    return window
